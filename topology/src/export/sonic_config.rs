//! Fragments of SONiC's `config_db.json` for one switch: what gives packets the queue of their
//! level.
//!
//! A level is a class selector: DSCP `8 l` to `8 l + 7` is level `l`, traffic class `l` and queue
//! `l`, and every queue is served strictly. The decision: ports have their numbers as `id`, by
//! which the switch names them to controllers (`p4rt --use_port_ids`), and the fragment holds
//! nothing else that a plan does not assume.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fabric::{Fabric, Switch};

/// Queues of a port, and DSCP class selectors.
const LEVELS_MAX: u8 = 8;
const DSCP_VALUES: u8 = 64;
/// Name of the two maps.
const MAP: &str = "crux";
/// Name of the scheduler.
const STRICT: &str = "crux.strict";

/// What a fragment assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SonicPorts {
    /// Levels of plans, 1 to 8.
    pub levels: u8,
    /// Lanes of a port: port 1 is `Ethernet0`, port 2 is `Ethernet` and this number.
    pub lanes: u32,
}

/// Why there is no fragment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SonicConfigError {
    /// The fabric has no switch of that name.
    #[error("the fabric has no switch {0}")]
    UnknownSwitch(String),
    /// More levels than queues, or none.
    #[error("{0} levels; a port of SONiC has 1 to 8 strict queues")]
    Levels(u8),
    /// Ports count from 1.
    #[error("{0}: port 0 has no name there; number the ports from 1")]
    PortZero(String),
}

/// The fragment for the switch of this name, as JSON.
///
/// # Errors
/// There is no such switch, or it has a port 0, or plans have other levels than 1 to 8.
pub fn export_sonic_config(
    fabric: &Fabric,
    switch: &str,
    ports: SonicPorts,
) -> Result<String, SonicConfigError> {
    let unknown = || SonicConfigError::UnknownSwitch(switch.to_owned());
    let switch = fabric.switch(fabric.switch_named(switch).ok_or_else(unknown)?);
    if !(1..=LEVELS_MAX).contains(&ports.levels) {
        return Err(SonicConfigError::Levels(ports.levels));
    }
    let names = port_names(switch, ports.lanes)?;
    let highest = ports.levels - 1;
    let classes = (0..DSCP_VALUES).map(|dscp| (dscp.to_string(), (dscp / 8).min(highest)));
    let levels = (0..ports.levels).map(|level| (level.to_string(), level));
    let of_port = json!({ "dscp_to_tc_map": MAP, "tc_to_queue_map": MAP });
    let ids = names.iter().map(|(id, name)| (name.clone(), json!({ "id": id.to_string() })));
    let queues = names.values().flat_map(|name| {
        (0..ports.levels)
            .map(move |level| (format!("{name}|{level}"), json!({ "scheduler": STRICT })))
    });
    let fragment = json!({
        "DSCP_TO_TC_MAP": { MAP: text_map(classes) },
        "TC_TO_QUEUE_MAP": { MAP: text_map(levels) },
        "SCHEDULER": { STRICT: { "type": "STRICT" } },
        "PORT": value_map(ids),
        "PORT_QOS_MAP": value_map(names.values().map(|name| (name.clone(), of_port.clone()))),
        "QUEUE": value_map(queues),
    });
    Ok(format!("{fragment:#}\n"))
}

/// The names of the ports with a cable, by their numbers.
fn port_names(switch: &Switch, lanes: u32) -> Result<BTreeMap<u32, String>, SonicConfigError> {
    let names = switch.ports.keys().map(|port| {
        let place = port.checked_sub(1);
        let place = place.ok_or_else(|| SonicConfigError::PortZero(switch.name.clone()))?;
        Ok((*port, format!("Ethernet{}", u64::from(place) * u64::from(lanes))))
    });
    names.collect()
}

fn text_map(pairs: impl Iterator<Item = (String, u8)>) -> Value {
    value_map(pairs.map(|(key, value)| (key, value.to_string().into())))
}

fn value_map(pairs: impl Iterator<Item = (String, Value)>) -> Value {
    Value::Object(pairs.collect())
}
