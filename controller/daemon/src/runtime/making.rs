//! From what is to be realised to what the sessions get: lowered, with the instants at which that
//! came to be.
//!
//! The decision: tables that are equal to those before are the very same, so that a session sees at
//! a glance whether another generation asks anything of its switch. Where nothing is known of the
//! fabric, all that is asked of switches is to tell of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use p4::fabric::table;
use p4::{Extent, Tables};
use tokio::time::Instant;
use topology::SwitchId;

use crate::lower::lower;
use crate::southbound::{Desired, Made, Origin, Others};
use crate::state::Realise;

/// Lowers.
pub(super) fn lowered(realise: &Realise, before: &Desired, origin: Origin) -> Desired {
    let planned = Instant::now();
    let mut tables = lower(&realise.wiring, &realise.fabric, &realise.plan);
    if Others::of(&realise.fabric) == Others::Stay {
        let told = Extent::of_tables(BTreeSet::from([table::ACL_PUNT]));
        tables.values_mut().for_each(|all| *all = all.only(&told));
    }
    let share = |(switch, tables): (SwitchId, Tables)| {
        let same = before.tables.get(&switch);
        let same = same.filter(|before| ***before == tables);
        (switch, same.map_or_else(|| Arc::new(tables), Arc::clone))
    };
    let tables = tables.into_iter().map(share).collect();
    let mut desired = desired(realise, tables, origin);
    desired.made.planned = planned;
    desired
}

pub(super) fn desired(
    realise: &Realise,
    tables: BTreeMap<SwitchId, Arc<Tables>>,
    origin: Origin,
) -> Desired {
    let now = Instant::now();
    Desired {
        generation: realise.generation,
        tables,
        others: Others::of(&realise.fabric),
        made: Made {
            origin,
            planned: now,
            lowered: now,
        },
    }
}
