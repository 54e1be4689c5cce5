//! Fragments of SONiC's `config_db.json` for one switch: what gives packets the queue of their
//! level, and what keeps the lossless levels of the switch without loss.
//!
//! A level is a class selector: DSCP `8 l` to `8 l + 7` is level `l`, traffic class `l` and queue
//! `l`, and every queue is served strictly. Ports have the names of the document, or else those
//! that follow from their numbers. The decision: ports have their numbers as `id`, by which the
//! switch names them to controllers (`p4rt --use_port_ids`), and the fragment holds nothing that a
//! plan does not assume: cables are the neighbours that SONiC expects (`DEVICE_NEIGHBOR`), with
//! their types, a leaf as ToRRouter; the switch's own name, type and speeds are its own.
//!
//! A lossless level `l` is PFC priority `l` and priority group `l`, from which SONiC's buffer
//! manager makes the profile with the headroom for the speed and the length of the cable. Its queue
//! has the lossless profile of SONiC's own buffer templates and is marked (WRED, ECN alone). Lossy
//! levels share priority group 0.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::qos::{PortQueues, port_queues};
use crate::fabric::{Fabric, Switch, Tier};
use crate::finding::list_names;
use crate::ids::FabricNode;

/// Queues of a port, and DSCP class selectors.
const LEVELS_MAX: u8 = 8;
const DSCP_VALUES: u8 = 64;
/// Name of the maps.
const MAP: &str = "crux";
/// Name of the scheduler.
const STRICT: &str = "crux.strict";
/// The map of cable lengths that SONiC's buffer manager reads.
const CABLE_LENGTHS: &str = "AZURE";

/// What a fragment assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SonicPorts {
    /// Levels of plans, 1 to 8.
    pub levels: u8,
    /// Lanes of a port without a name: port 1 is `Ethernet0`, port 2 is `Ethernet` and this number.
    pub lanes: u32,
}

/// A fragment, and what it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SonicFragment {
    /// JSON.
    pub text: String,
    /// What was assumed, and what the switch needs beside, one sentence each.
    pub notes: Vec<String>,
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
    #[error("{0}: port 0 has no name there; number the ports from 1, or name it in port_names")]
    PortZero(String),
    /// Some ports have names of SONiC and one has none, or another one.
    #[error(
        "{switch}: port {port} {found}, and other ports have names of SONiC: name it Ethernet \
             and the number of its first lane in port_names"
    )]
    PortName {
        /// The switch.
        switch: String,
        /// Its port.
        port: u32,
        /// What its name is.
        found: String,
    },
}

/// The fragment for the switch of this name.
///
/// # Errors
/// There is no such switch, or a port has no name of SONiC, or plans have other levels than 1 to 8.
pub fn export_sonic_config(
    fabric: &Fabric,
    switch: &str,
    ports: SonicPorts,
) -> Result<SonicFragment, SonicConfigError> {
    let unknown = || SonicConfigError::UnknownSwitch(switch.to_owned());
    let switch = fabric.switch(fabric.switch_named(switch).ok_or_else(unknown)?);
    if !(1..=LEVELS_MAX).contains(&ports.levels) {
        return Err(SonicConfigError::Levels(ports.levels));
    }
    let mut notes = Vec::new();
    let names = port_names(switch, ports.lanes, &mut notes)?;
    let highest = ports.levels - 1;
    let classes = (0..DSCP_VALUES).map(|dscp| (dscp.to_string(), (dscp / 8).min(highest)));
    let levels = || (0..ports.levels).map(|level| (level.to_string(), level));
    let ids = names.iter().map(|(id, name)| (name.clone(), json!({ "id": id.to_string() })));
    let queues = names.values().flat_map(|name| {
        (0..ports.levels)
            .map(move |level| (format!("{name}|{level}"), json!({ "scheduler": STRICT })))
    });
    let of_port = json!({ "dscp_to_tc_map": MAP, "tc_to_queue_map": MAP });
    let maps = names.values().map(|name| (name.clone(), of_port.clone()));
    let mut fragment = json!({
        "DSCP_TO_TC_MAP": { MAP: text_map(classes) },
        "TC_TO_QUEUE_MAP": { MAP: text_map(levels()) },
        "SCHEDULER": { STRICT: { "type": "STRICT" } },
        "PORT": value_map(ids),
        "PORT_QOS_MAP": value_map(maps),
        "QUEUE": value_map(queues),
    });
    add_neighbours(&mut fragment, &names, fabric, switch, ports.lanes)?;
    match switch.queues.lossless_levels {
        Some(lossless) => {
            let first = ports.levels.saturating_sub(lossless);
            let lossless = LosslessLevels { first, levels: ports.levels };
            lossless.add_to(
                &mut fragment,
                &names,
                &port_queues(fabric, switch),
                fabric,
                &mut notes,
            );
        }
        None => notes.push(format!(
            "{} does not say lossless_levels, so the fragment has no PFC: no level is lossless",
            switch.name
        )),
    }
    Ok(SonicFragment { text: format!("{fragment:#}\n"), notes })
}

/// What is at the other end of each cable.
fn add_neighbours(
    fragment: &mut Value,
    names: &BTreeMap<u32, String>,
    fabric: &Fabric,
    switch: &Switch,
    lanes: u32,
) -> Result<(), SonicConfigError> {
    let (mut neighbours, mut metadata) = (Map::new(), Map::new());
    for (port, link) in &switch.ports {
        let end = fabric.link(*link).to;
        let name = fabric.node_name(end.node);
        let (kind, there) = match end.node {
            FabricNode::Host(_) => (SERVER, format!("nic{}", end.port)),
            FabricNode::Switch(other) => {
                let other = fabric.switch(other);
                let mut names = port_names(other, lanes, &mut Vec::new())?;
                (type_of_tier(other.tier), names.remove(&end.port).unwrap_or_default())
            }
        };
        neighbours.insert(names[port].clone(), json!({ "name": name, "port": there }));
        metadata.insert(name.to_owned(), json!({ "type": kind }));
    }
    fragment["DEVICE_NEIGHBOR"] = neighbours.into();
    fragment["DEVICE_NEIGHBOR_METADATA"] = metadata.into();
    Ok(())
}

/// SONiC's type of a host.
const SERVER: &str = "Server";

/// SONiC's type of a switch, by the tiers of its Clos.
fn type_of_tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Leaf => "ToRRouter",
        Tier::Spine => "LeafRouter",
        Tier::Core => "SpineRouter",
    }
}

/// Levels `first` to the highest lose nothing.
#[derive(Clone, Copy)]
struct LosslessLevels {
    first: u8,
    levels: u8,
}

impl LosslessLevels {
    fn add_to(
        self,
        fragment: &mut Value,
        names: &BTreeMap<u32, String>,
        ports: &[PortQueues],
        fabric: &Fabric,
        notes: &mut Vec<String>,
    ) {
        let Self { first, levels } = self;
        let group = |level: u8| if level < first { 0 } else { level };
        let groups = (0..levels).map(|level| (level.to_string(), group(level)));
        let lossless: Vec<String> = (first..levels).map(|level| level.to_string()).collect();
        let priorities = (first..levels).map(|level| (level.to_string(), level));
        fragment["TC_TO_PRIORITY_GROUP_MAP"] = json!({ MAP: text_map(groups) });
        fragment["MAP_PFC_PRIORITY_TO_QUEUE"] = json!({ MAP: text_map(priorities) });
        let mut profiles = Map::new();
        let (mut buffers, mut groups, mut lengths) = (Map::new(), Map::new(), Map::new());
        let mut unknown = Vec::new();
        for port in ports {
            let name = &names[&port.port];
            let of_port = &mut fragment["PORT_QOS_MAP"][name];
            of_port["tc_to_pg_map"] = MAP.into();
            of_port["pfc_to_queue_map"] = MAP.into();
            of_port["pfc_enable"] = lossless.join(",").into();
            let link = fabric.link(port.link);
            let profile = format!("crux.ecn-{}g", link.bandwidth.gbps());
            for level in first..levels {
                fragment["QUEUE"][format!("{name}|{level}")]["wred_profile"] = (&*profile).into();
                let buffer = json!({ "profile": "egress_lossless_profile" });
                buffers.insert(format!("{name}|{level}"), buffer);
            }
            for level in 0..first {
                let buffer = json!({ "profile": "egress_lossy_profile" });
                buffers.insert(format!("{name}|{level}"), buffer);
            }
            if first > 0 {
                let buffer = json!({ "profile": "ingress_lossy_profile" });
                groups.insert(format!("{name}|0"), buffer);
            }
            match link.metres {
                Some(metres) => {
                    lengths.insert(name.clone(), format!("{}m", metres.ceil()).into());
                }
                None => unknown.push(name.as_str()),
            }
            profiles.insert(profile, wred_profile(port));
        }
        fragment["WRED_PROFILE"] = profiles.into();
        fragment["BUFFER_QUEUE"] = buffers.into();
        if !groups.is_empty() {
            fragment["BUFFER_PG"] = groups.into();
        }
        if !lengths.is_empty() {
            fragment["CABLE_LENGTH"] = json!({ CABLE_LENGTHS: lengths });
        }
        if !unknown.is_empty() {
            notes.push(format!(
                "the headroom of PFC is that of the cable lengths that the switch has, because the \
                 document gives no metres for {}",
                list_names(&unknown)
            ));
        }
        notes.push(format!(
            "levels {} are lossless: PFC priorities, priority groups and queues of these numbers; \
             hosts must send RoCE with the DSCP of such a level",
            lossless.join(", ")
        ));
    }
}

/// Marks, and drops nothing.
fn wred_profile(port: &PortQueues) -> Value {
    let mut profile = Map::new();
    profile.insert("ecn".to_owned(), "ecn_all".into());
    for colour in ["green", "yellow", "red"] {
        let percent = (100.0 * port.ecn.max_probability).round();
        let fields = [
            (format!("wred_{colour}_enable"), "true".to_owned()),
            (format!("{colour}_min_threshold"), port.ecn.min_bytes.to_string()),
            (format!("{colour}_max_threshold"), port.ecn.max_bytes.to_string()),
            (format!("{colour}_drop_probability"), percent.to_string()),
        ];
        profile.extend(fields.map(|(field, value)| (field, value.into())));
    }
    profile.into()
}

/// Whether SONiC may call a port so: `Ethernet` and the number of a lane.
fn is_sonic_name(name: &str) -> bool {
    let lane = name.strip_prefix("Ethernet");
    lane.is_some_and(|lane| !lane.is_empty() && lane.bytes().all(|c| c.is_ascii_digit()))
}

/// The names of the ports with a cable, by their numbers.
fn port_names(
    switch: &Switch,
    lanes: u32,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<u32, String>, SonicConfigError> {
    let own = |port: &u32| switch.port_names.get(port).map(String::as_str);
    if switch.ports.keys().any(|port| own(port).is_some_and(is_sonic_name)) {
        let names = switch.ports.keys().map(|port| match own(port) {
            Some(name) if is_sonic_name(name) => Ok((*port, name.to_owned())),
            other => Err(SonicConfigError::PortName {
                switch: switch.name.clone(),
                port: *port,
                found: other.map_or("has no name".to_owned(), |name| format!("is {name:?}")),
            }),
        });
        return names.collect();
    }
    if switch.ports.keys().any(|port| own(port).is_some()) {
        notes.push(format!(
            "ports of {} have no names of SONiC in the document: Ethernet and {lanes} times the \
             number of the port before",
            switch.name
        ));
    }
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
