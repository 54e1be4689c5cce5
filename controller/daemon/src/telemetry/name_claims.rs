//! Names of jobs that fell silent, and whose they were.
//!
//! Pure. A job that is cut off from the controller comes back under its name, which another tenant
//! must not have taken meanwhile. A job that says that it ended gives its name away.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// For how long a name is kept.
pub(super) const NAME_KEPT: Duration = Duration::from_hours(24);

/// Names that are kept at most.
const MAX_NAMES: usize = 10_000;

/// The tenant of a job; none if it has none.
type Tenant = Option<String>;

/// Names of jobs that fell silent.
#[derive(Debug, Default)]
pub(super) struct NameClaims {
    /// By name, the tenant and the last report.
    silent: BTreeMap<String, (Tenant, Instant)>,
}

impl NameClaims {
    /// Keeps a name for a tenant since its last report.
    pub(super) fn keep(&mut self, name: &str, tenant: &Tenant, at: Instant) {
        if self.silent.len() >= MAX_NAMES && !self.silent.contains_key(name) {
            self.forget_one();
        }
        self.silent.insert(name.to_owned(), (tenant.clone(), at));
    }

    /// For whom a name is kept.
    pub(super) fn owner(&self, name: &str, now: Instant) -> Option<&Tenant> {
        let (tenant, at) = self.silent.get(name)?;
        (now.duration_since(*at) < NAME_KEPT).then_some(tenant)
    }

    /// Gives the name to a job that runs.
    pub(super) fn release(&mut self, name: &str) {
        self.silent.remove(name);
    }

    /// Forgets the oldest name of the tenant with the most: no tenant displaces another's names.
    fn forget_one(&mut self) {
        let mut oldest: BTreeMap<&Tenant, (usize, &String, Instant)> = BTreeMap::new();
        for (name, (tenant, at)) in &self.silent {
            let (count, first, first_at) = oldest.entry(tenant).or_insert((0, name, *at));
            *count += 1;
            if at < first_at {
                (*first, *first_at) = (name, *at);
            }
        }
        let most = oldest.into_values().max_by_key(|(count, ..)| *count);
        if let Some((_, name, _)) = most {
            let name = name.clone();
            self.silent.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_names_displaces_its_own() {
        let now = Instant::now();
        let [red, blue] = ["red", "blue"].map(|tenant| Some(tenant.to_owned()));
        let mut claims = NameClaims::default();
        claims.keep("train", &red, now);
        for number in 0..2 * MAX_NAMES {
            claims.keep(&format!("b{number}"), &blue, now + Duration::from_millis(number as u64));
        }
        assert_eq!(claims.silent.len(), MAX_NAMES);
        assert_eq!(claims.owner("train", now), Some(&red));
        assert_eq!(claims.owner("b0", now), None);
        let last = format!("b{}", 2 * MAX_NAMES - 1);
        assert_eq!(claims.owner(&last, now), Some(&blue));
        assert_eq!(claims.owner("train", now + NAME_KEPT), None);
    }
}
