//! From what is to be realised to what the sessions get: lowered, with the instants at which that
//! came to be.
//!
//! The decision: tables that are equal to those before are the very same, so that a session sees at
//! a glance whether another generation asks anything of its switch.

use std::collections::BTreeMap;
use std::sync::Arc;

use p4::Tables;
use tokio::time::Instant;
use topology::SwitchId;

use crate::lower::lower;
use crate::southbound::{Desired, Made};
use crate::state::Realise;

/// Lowers.
pub(super) fn lowered(realise: &Realise, before: &Desired, received: Instant) -> Desired {
    let planned = Instant::now();
    let tables = lower(&realise.wiring, &realise.fabric, &realise.plan);
    let share = |(switch, tables): (SwitchId, Tables)| {
        let same = before.tables.get(&switch);
        let same = same.filter(|before| ***before == tables);
        (switch, same.map_or_else(|| Arc::new(tables), Arc::clone))
    };
    let tables = tables.into_iter().map(share).collect();
    let mut desired = desired(realise, tables, received);
    desired.made.planned = planned;
    desired
}

pub(super) fn desired(
    realise: &Realise,
    tables: BTreeMap<SwitchId, Arc<Tables>>,
    received: Instant,
) -> Desired {
    let now = Instant::now();
    Desired {
        generation: realise.generation,
        tables,
        made: Made {
            received,
            planned: now,
            lowered: now,
        },
    }
}
