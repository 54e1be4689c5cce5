//! The Fabric document: the file people and importers write, and the [`Fabric`] it describes.
//!
//! A document either generates a Clos (`[clos]`) or lists hosts, switches and links. Reading goes
//! one way: text, document, checked fabric. [`explicit_document()`] goes back and always gives the
//! explicit form, from which [`parse_fabric`] makes an equal fabric. Failed and drained parts are
//! state, not structure, and are in no document.

mod explicit;
mod interconnects;

pub use explicit::explicit_document;
pub(crate) use explicit::{CABLES_OF_NIC, PORTS_REMEDY};

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clos::{self, ClosSpec};
use crate::document::{self, DocumentError, DocumentFormat};
use crate::fabric::{Fabric, Forwarding, LinkScheduler, PipelineKind, Switch, Tier};
use crate::interconnect::HostInterconnect;
use crate::lossless::SwitchQueues;
use crate::units::Bandwidth;

/// A fabric as a document: `clos`, or else `switches`, `hosts` and `links`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricDocument {
    /// Name of the fabric.
    pub name: String,
    /// A Clos to generate; instead of the lists below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clos: Option<ClosSpec>,
    /// The switches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchDocument>,
    /// The hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostDocument>,
    /// The cables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkDocument>,
    /// The program of all switches of a tier that name none: `fabric` (the default) or `sai`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pipelines: BTreeMap<Tier, PipelineKind>,
    /// Who chooses among the equal-cost paths of RoCEv2 packets: `pin` (the default, the controller),
    /// `spray` (the switches, for each packet) or `auto` (for jobs that could share links, whichever
    /// is expected to keep more GPUs busy).
    #[serde(default, skip_serializing_if = "is_default")]
    pub forwarding: Forwarding,
    /// Queues and buffers of switches that do not say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_defaults: Option<SwitchQueues>,
    /// Lengths of cables that do not say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cable_defaults: Option<CableDefaults>,
    /// PCIe switches and NVLink domains of hosts that do not say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_interconnect: Option<HostInterconnect>,
}

/// How long the cables are that do not say so themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CableDefaults {
    /// From a host to its leaf, in metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_metres: Option<f64>,
    /// Between two switches, in metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_metres: Option<f64>,
}

/// A switch of an explicit document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchDocument {
    /// Unique among hosts and switches; letters, digits and `-_.`.
    pub name: String,
    /// `leaf`, `spine` or `core`.
    pub tier: Tier,
    /// P4Runtime device id.
    pub device_id: u64,
    /// Address of its P4Runtime server, `host:port`; a switch without one is planned for but not
    /// controlled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p4runtime: Option<String>,
    /// Address of its gNMI server, `host:port`, for the states of its ports and its queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gnmi: Option<String>,
    /// Ports by their names in the switch's own software, such as `Ethernet8 = 3`, where these are
    /// not the numbers; exports for the switch use the names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub port_names: BTreeMap<String, u32>,
    /// Its program: `fabric` or `sai`; when left out, that of its tier in `pipelines`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineKind>,
    /// What its queues and its buffer can do; `switch_defaults` for what is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<SwitchQueues>,
}

/// A host of an explicit document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostDocument {
    /// Unique among hosts and switches; letters, digits and `-_.`.
    pub name: String,
    /// GPUs in the host.
    pub gpus: u32,
    /// IPv4 or IPv6 address of each NIC, by NIC index.
    pub ips: Vec<String>,
    /// Ethernet address of each NIC; when left out, one made of the bytes of its IP address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
    /// Its PCIe switches and NVLink domains; `host_interconnect` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interconnect: Option<HostInterconnect>,
}

/// A cable of an explicit document, full duplex.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkDocument {
    /// One end, `name:port`; the port of a host is the index of its NIC. A NIC that is an end of two
    /// links is a bond: two ports under one address.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Capacity of each direction, in Gb/s.
    pub gbps: f64,
    /// Which packets it sends first, from the host (`fifo`, the default, or `host-strict`) or in
    /// both directions between switches (`strict`, the default, or `fifo`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<LinkScheduler>,
    /// Length of the cable in metres; that of `cable_defaults` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metres: Option<f64>,
}

/// A field whose value makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FabricFieldError {
    /// Path of the field, for example `links[3].b`.
    pub field: String,
    /// What was found and what would be right.
    pub problem: String,
}

impl FabricFieldError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Why a text is not a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is not a Fabric document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The document describes no fabric.
    #[error("{file}: {}: {}", .error.field, .error.problem)]
    Field {
        /// Name of the file.
        file: String,
        /// The field and its problem.
        error: FabricFieldError,
    },
}

/// The fabric that a document describes; `file` is its name in errors.
///
/// # Errors
/// The text is no Fabric document, or one that makes no sense; the error names the field.
pub fn parse_fabric(text: &str, format: DocumentFormat, file: &str) -> Result<Fabric, SpecError> {
    let document = document::parse_document::<FabricDocument>(text, format, file)?;
    Fabric::try_from(&document).map_err(|error| SpecError::Field { file: file.to_owned(), error })
}

impl TryFrom<&FabricDocument> for Fabric {
    type Error = FabricFieldError;

    fn try_from(document: &FabricDocument) -> Result<Self, FabricFieldError> {
        let fabric = match &document.clos {
            None => explicit::build_explicit(document),
            Some(clos) if explicit::has_no_lists(document) => {
                let built = clos::build_clos(&document.name, clos);
                let fabric = built.map_err(|error| FabricFieldError {
                    field: format!("clos.{}", error.field),
                    ..error
                })?;
                Ok(fabric.with_pipelines(&document.pipelines))
            }
            Some(_) => Err(FabricFieldError::new(
                "clos",
                "a document has either clos or switches, hosts and links, found both",
            )),
        };
        check_queues(document)?;
        let fabric = fabric.map(|fabric| with_defaults(fabric, document))?;
        check_forwarding(&fabric)?;
        interconnects::with_described_interconnects(fabric, document)
    }
}

fn is_default(forwarding: &Forwarding) -> bool {
    *forwarding == Forwarding::default()
}

/// `fabric` if paths are chosen so.
///
/// # Errors
/// A switch runs a program that cannot.
pub fn with_forwarding(
    fabric: &Fabric,
    forwarding: Forwarding,
) -> Result<Fabric, FabricFieldError> {
    let fabric = fabric.with_forwarding(forwarding);
    check_forwarding(&fabric)?;
    Ok(fabric)
}

/// Refuses spraying by a switch whose program cannot.
fn check_forwarding(fabric: &Fabric) -> Result<(), FabricFieldError> {
    let sprays = fabric.forwarding().sprays();
    let unable = fabric.switches().iter().find(|switch| switch.pipeline == PipelineKind::Sai);
    match unable.filter(|_| sprays) {
        None => Ok(()),
        Some(Switch { name, .. }) => Err(FabricFieldError::new(
            "forwarding",
            format!(
                "{name} runs `sai`, and SAI P4 hashes flows onto the members of a group, never single \
                 packets; write `pipeline = \"fabric\"` for it, or `forwarding = \"pin\"`"
            ),
        )),
    }
}

/// Refuses the first field about queues, buffers and cables that makes no sense.
fn check_queues(document: &FabricDocument) -> Result<(), FabricFieldError> {
    let defaults = document.switch_defaults.unwrap_or_default();
    let switches = document.switches.iter().enumerate().filter_map(|(index, switch)| {
        Some((format!("switches[{index}].queues"), switch.queues?.or(defaults)))
    });
    let all = std::iter::once(("switch_defaults".to_owned(), defaults)).chain(switches);
    for (place, queues) in all {
        if let Some((field, problem)) = queues.problem() {
            return Err(FabricFieldError::new(format!("{place}.{field}"), problem));
        }
    }
    let CableDefaults { host_metres, switch_metres } = document.cable_defaults.unwrap_or_default();
    for (field, metres) in [("host_metres", host_metres), ("switch_metres", switch_metres)] {
        if let Some(metres) = metres {
            checked_metres(&format!("cable_defaults.{field}"), metres)?;
        }
    }
    Ok(())
}

/// `fabric` with what its document says of forwarding, and its defaults for switches and cables that
/// say nothing.
fn with_defaults(fabric: Fabric, document: &FabricDocument) -> Fabric {
    let has_none = document.switch_defaults.is_none() && document.cable_defaults.is_none();
    if has_none && fabric.forwarding() == document.forwarding {
        return fabric;
    }
    let mut parts = fabric.parts().clone();
    parts.forwarding = document.forwarding;
    let defaults = document.switch_defaults.unwrap_or_default();
    for switch in &mut parts.switches {
        switch.queues = switch.queues.or(defaults);
    }
    let CableDefaults { host_metres, switch_metres } = document.cable_defaults.unwrap_or_default();
    for link in &mut parts.links {
        let joins_switches = link.from.node.switch().is_some() && link.to.node.switch().is_some();
        link.metres = link.metres.or(if joins_switches { switch_metres } else { host_metres });
    }
    Fabric::new(parts)
}

/// A length in metres; the error names the field it came from.
fn checked_metres(field: &str, metres: f64) -> Result<(), FabricFieldError> {
    match metres.is_finite() && metres >= 0.0 {
        true => Ok(()),
        false => Err(FabricFieldError::new(field, format!("must be 0 or more, found {metres}"))),
    }
}

/// A speed in Gb/s; the error names the field it came from.
pub(crate) fn checked_speed(field: &str, gbps: f64) -> Result<Bandwidth, FabricFieldError> {
    Bandwidth::from_gbps(gbps).ok_or_else(|| {
        FabricFieldError::new(field, format!("must be a number above 0, found {gbps}"))
    })
}

/// Refuses the first field whose count is zero.
pub(crate) fn check_minimum_counts(counts: &[(&str, u32)]) -> Result<(), FabricFieldError> {
    match counts.iter().find(|&&(_, count)| count == 0) {
        Some((field, _)) => Err(FabricFieldError::new(*field, "must be at least 1, found 0")),
        None => Ok(()),
    }
}

/// Refuses the first field that makes more than may be: (field, what it makes, how many, limit).
pub(crate) fn check_limits(sizes: &[(&str, &str, u64, u64)]) -> Result<(), FabricFieldError> {
    match sizes.iter().find(|&&(_, _, found, limit)| found > limit) {
        Some((field, what, found, limit)) => {
            Err(FabricFieldError::new(*field, format!("makes {found} {what}; at most {limit}")))
        }
        None => Ok(()),
    }
}

/// Whether hosts and switches may have that name: it must be safe in `name:port` and `a>b`.
pub(crate) fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::explicit::BOND_REMEDY;
    use super::*;

    /// A good document, of which each test changes one line.
    const GOOD: &str = r#"
        { "name": "lab",
          "switches": [
            {"name": "leaf1", "tier": "leaf", "device_id": 1, "p4runtime": "127.0.0.1:20001"},
            {"name": "leaf2", "tier": "leaf", "device_id": 2},
            {"name": "spine1", "tier": "spine", "device_id": 11} ],
          "hosts": [
            {"name": "h1", "gpus": 8, "ips": ["10.0.1.1"], "macs": ["02:00:0a:00:01:01"]},
            {"name": "h2", "gpus": 8, "ips": ["10.0.2.1", "10.0.2.2"]} ],
          "links": [
            {"a": "h1:0", "b": "leaf1:1", "gbps": 200.0},
            {"a": "h2:0", "b": "leaf2:1", "gbps": 200.0},
            {"a": "h2:1", "b": "leaf2:2", "gbps": 200.0},
            {"a": "leaf1:4", "b": "spine1:1", "gbps": 400.0},
            {"a": "leaf2:4", "b": "spine1:2", "gbps": 400.0} ] }"#;

    fn refused(text: &str) -> String {
        parse_fabric(text, DocumentFormat::Json, "f.json").unwrap_err().to_string()
    }

    #[test]
    fn an_explicit_document_is_a_fabric_and_back() {
        let fabric = parse_fabric(GOOD, DocumentFormat::Json, "f.json").unwrap();
        assert_eq!(fabric.link_name(fabric.links_named("leaf1-spine1")[0]), "leaf1:4>spine1:1");
        let h2 = fabric.host_named("h2").unwrap();
        assert_eq!(fabric.nic(fabric.host(h2).nics[1]).mac.to_string(), "02:00:0a:00:02:02");
        for format in [DocumentFormat::Toml, DocumentFormat::Yaml, DocumentFormat::Json] {
            let text = document::print_document(&explicit_document(&fabric), format).unwrap();
            assert_eq!(parse_fabric(&text, format, "f").as_ref(), Ok(&fabric));
        }
    }

    /// What is replaced in the good document, by what, and the error that follows.
    const MISTAKES: &str = r#"
"spine1:1" => "spin1:1" => links[3].b: unknown host or switch spin1; did you mean spine1?
"h2:1" => "h2:2" => links[2].a: h2 has 2 NICs (its ips), counted from 0; found 2
"h2:1" => "h2" => links[2].a: "h2" is not an end of a link; write name:port, for example leaf1:4
"leaf2:2" => "leaf2:1" => links[2].b: leaf2:1 is already used by links[1].b
"leaf1:1" => "h2:1" => links[0].b: connects two hosts; hosts connect to leaves
"leaf1:1" => "spine1:9" => links[0].b: connects a host to spine1, a spine; hosts connect to leaves
"spine1:1" => "leaf1:9" => links[3].b: connects a switch to itself
400.0 => -400.0 => links[3].gbps: must be a number above 0, found -400
"name": "leaf2" => "name": "leaf1" => switches[1].name: leaf1 is already named by switches[0].name
"name": "h2" => "name": "leaf1" => hosts[1].name: leaf1 is already named by switches[0].name
"name": "h2" => "name": "h 2" => hosts[1].name: "h 2" is not a name; use letters, digits and -_.
"10.0.2.2" => "10.0.1.1" => hosts[1].ips[1]: 10.0.1.1 is already used by hosts[0].ips[0]; BOND
"h2:1" => "h2:0" => hosts[1].ips[1]: no link leads to h2:1
"10.0.2.2" => "10.0.2" => hosts[1].ips[1]: "10.0.2" is no IP address, such as 10.0.1.1 or fd00::1
02:00:0a:00:01:01 => 2 => hosts[0].macs[0]: "2" is not an Ethernet address like 02:00:0a:00:01:01
["02:00:0a:00:01:01"] => ["a", "b"] => hosts[0].macs: 2 for 1 ips; give one for each or none
{"a": "h2:1", "b": "leaf2:2", "gbps": 200.0}, =>  => hosts[1].ips[1]: no link leads to h2:1
"#;

    #[test]
    fn the_address_of_a_server_has_a_host_and_a_port() {
        let with = |address: &str| GOOD.replacen("127.0.0.1:20001", address, 1);
        for good in ["leaf1.lab:9559", "[fd00::1]:9559", "sw_1:1"] {
            assert!(parse_fabric(&with(good), DocumentFormat::Json, "f.json").is_ok(), "{good}");
        }
        for bad in ["10.0.0.1", "http://leaf1:9559", "leaf1:0", ":9559", "fd00::1:9559", "a:65536"]
        {
            let expected = format!(
                "f.json: switches[0].p4runtime: {bad:?} is not an address; write host:port, for \
                 example 10.0.0.1:9559"
            );
            assert_eq!(refused(&with(bad)), expected);
        }
        let gnmi = GOOD.replacen(r#""device_id": 2}"#, r#""device_id": 2, "gnmi": "leaf2"}"#, 1);
        assert!(refused(&gnmi).starts_with(r#"f.json: switches[1].gnmi: "leaf2" is not"#));
    }

    #[test]
    fn a_mistake_is_named_by_its_field() {
        for case in MISTAKES.lines().filter(|line| !line.is_empty()) {
            let [good, bad, expected] = case.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{case}");
            };
            assert!(GOOD.contains(good), "{good}");
            assert_eq!(
                refused(&GOOD.replacen(good, bad, 1)),
                format!("f.json: {}", expected.replace("BOND", BOND_REMEDY))
            );
        }
        assert!(BOND_REMEDY.contains("bond") && BOND_REMEDY.contains("one NIC with two cables"));
    }

    #[test]
    fn two_cables_of_one_end_are_a_bond_and_three_are_a_mistake() {
        let second = r#"{"a": "h1:0", "b": "leaf2:9", "gbps": 200.0},"#;
        let third = r#"{"b": "h1:0", "a": "leaf2:8", "gbps": 200.0},"#;
        let with =
            |links: &str| GOOD.replacen(r#""links": ["#, &format!(r#""links": [{links}"#), 1);
        let fabric = parse_fabric(&with(second), DocumentFormat::Json, "f.json").unwrap();
        let nic = fabric.host(fabric.host_named("h1").unwrap()).nics[0];
        assert_eq!(fabric.leaves_of(nic).leaves().count(), 2);
        assert_eq!(Fabric::try_from(&explicit_document(&fabric)).as_ref(), Ok(&fabric));
        let text = "f.json: links[2].a: h1:0 is already used by links[0].a and links[1].b";
        assert_eq!(refused(&with(&[second, third].concat())), format!("{text}; {PORTS_REMEDY}"));
    }

    #[test]
    fn a_port_has_one_name() {
        let named = |names: &str| {
            let switch = format!(r#""device_id": 2, "port_names": {names}}}"#);
            GOOD.replacen(r#""device_id": 2}"#, &switch, 1)
        };
        let text = named(r#"{"Ethernet0": 1, "Ethernet8": 2, "Ethernet48": 4}"#);
        let fabric = parse_fabric(&text, DocumentFormat::Json, "f.json").unwrap();
        let leaf = fabric.switch(fabric.switch_named("leaf2").unwrap());
        assert_eq!(leaf.port_names[&4], "Ethernet48");
        for format in [DocumentFormat::Toml, DocumentFormat::Yaml, DocumentFormat::Json] {
            let text = document::print_document(&explicit_document(&fabric), format).unwrap();
            assert_eq!(parse_fabric(&text, format, "f").as_ref(), Ok(&fabric));
        }
        let twice = "f.json: switches[1].port_names: a and b are both port 1; give it one name";
        assert_eq!(refused(&named(r#"{"a": 1, "b": 1}"#)), twice);
        assert!(refused(&named(r#"{"a,b": 1}"#)).contains("is not the name of a port"));
    }

    #[test]
    fn nics_and_switches_have_different_schedulers() {
        let with = |link: &str, scheduler: &str| {
            let named = format!(r#"{}, "scheduler": "{scheduler}"}}"#, link.trim_end_matches('}'));
            GOOD.replacen(link, &named, 1)
        };
        let (nic, uplink) = (
            r#"{"a": "h1:0", "b": "leaf1:1", "gbps": 200.0}"#,
            r#"{"a": "leaf1:4", "b": "spine1:1", "gbps": 400.0}"#,
        );
        assert!(refused(&with(nic, "strict")).contains("links[0].scheduler: a NIC is fifo"));
        assert!(refused(&with(uplink, "host-strict")).contains("links[3].scheduler: the port"));
        for (link, scheduler) in [(nic, "host-strict"), (uplink, "fifo")] {
            let text = with(link, scheduler);
            let fabric = parse_fabric(&text, DocumentFormat::Json, "f.json").unwrap();
            let document =
                document::print_document(&explicit_document(&fabric), DocumentFormat::Toml);
            assert!(document.unwrap().contains(scheduler));
        }
    }

    #[test]
    fn switches_and_cables_take_the_defaults_of_their_document() {
        let with = |defaults: &str| {
            GOOD.replacen(r#""name": "lab","#, &format!(r#""name": "lab", {defaults},"#), 1)
        };
        let text = with(
            r#""switch_defaults": {"lossless_levels": 2, "buffer_bytes": 1000},
               "cable_defaults": {"host_metres": 3.0, "switch_metres": 30.0}"#,
        );
        let own = r#""device_id": 2, "queues": {"lossless_levels": 4}}"#;
        let text = text.replacen(r#""device_id": 2}"#, own, 1);
        let fabric = parse_fabric(&text, DocumentFormat::Json, "f.json").unwrap();
        let levels = fabric.switches().iter().map(|switch| switch.queues.lossless_levels);
        assert_eq!(levels.collect::<Vec<_>>(), [Some(2), Some(4), Some(2)]);
        assert_eq!(
            (fabric.job_levels(), fabric.switches()[1].queues.buffer_bytes),
            (Some(2), Some(1000))
        );
        let metres = |name: &str| fabric.link(fabric.links_named(name)[0]).metres;
        assert_eq!((metres("h1-leaf1"), metres("leaf1-spine1")), (Some(3.0), Some(30.0)));
        let printed =
            document::print_document(&explicit_document(&fabric), DocumentFormat::Json).unwrap();
        assert_eq!(parse_fabric(&printed, DocumentFormat::Json, "f").as_ref(), Ok(&fabric));
        let mistakes = [
            (
                r#""switch_defaults": {"levels": 9}"#,
                "f.json: switch_defaults.levels: must be 1 to 8, found 9",
            ),
            (
                r#""switch_defaults": {"levels": 2, "lossless_levels": 4}"#,
                "f.json: switch_defaults.lossless_levels: 4 of 2 levels; at most all can be \
                 lossless",
            ),
            (
                r#""cable_defaults": {"host_metres": -1.0}"#,
                "f.json: cable_defaults.host_metres: must be 0 or more, found -1",
            ),
        ];
        for (defaults, expected) in mistakes {
            assert_eq!(refused(&with(defaults)), expected);
        }
    }

    #[test]
    fn a_document_is_generated_or_explicit_and_not_empty() {
        let empty =
            "f.json: switches: a fabric needs at least one switch; list them or generate a [clos]";
        assert_eq!(refused(r#"{"name": "lab"}"#), empty);
        let clos = serde_json::to_string(&ClosSpec::default()).unwrap();
        let both =
            GOOD.replacen(r#""name": "lab","#, &format!(r#""name": "lab", "clos": {clos},"#), 1);
        let found =
            "f.json: clos: a document has either clos or switches, hosts and links, found both";
        assert_eq!(refused(&both), found);
        let zero = format!(r#"{{"name": "lab", "clos": {clos}}}"#)
            .replace(r#""leaves":4"#, r#""leaves":0"#);
        assert_eq!(refused(&zero), "f.json: clos.leaves: must be at least 1, found 0");
    }

    #[test]
    fn a_switch_that_cannot_spray_is_named() {
        let sprays = GOOD.replacen(r#""lab","#, r#""lab", "forwarding": "spray","#, 1);
        assert_eq!(
            parse_fabric(&sprays, DocumentFormat::Json, "lab").unwrap().forwarding(),
            Forwarding::Spray
        );
        let text = sprays.replacen(r#""lab","#, r#""lab", "pipelines": {"leaf": "sai"},"#, 1);
        let error = parse_fabric(&text, DocumentFormat::Json, "lab").unwrap_err().to_string();
        assert!(error.contains("forwarding: leaf1 runs `sai`"), "{error}");
        let text = GOOD.replacen(r#""lab","#, r#""lab", "forwarding": "sprya","#, 1);
        assert!(
            parse_fabric(&text, DocumentFormat::Json, "lab")
                .unwrap_err()
                .to_string()
                .contains("spray")
        );
    }

    #[test]
    fn programs_are_named_by_tier_or_by_switch() {
        let text = GOOD.replacen(r#""lab","#, r#""lab", "pipelines": {"leaf": "sai"},"#, 1);
        let text = text.replacen(r#""device_id": 2"#, r#""device_id": 2, "pipeline": "fabric""#, 1);
        let kinds = |fabric: &Fabric| -> Vec<PipelineKind> {
            fabric.switches().iter().map(|switch| switch.pipeline).collect()
        };
        let fabric = parse_fabric(&text, DocumentFormat::Json, "f.json").unwrap();
        let expected = [PipelineKind::Sai, PipelineKind::Fabric, PipelineKind::Fabric];
        assert_eq!(kinds(&fabric), expected);
        let explicit = document::print_document(&explicit_document(&fabric), DocumentFormat::Toml);
        let again = parse_fabric(&explicit.unwrap(), DocumentFormat::Toml, "f.toml").unwrap();
        assert_eq!(again, fabric);

        let clos = FabricDocument {
            name: "lab".to_owned(),
            clos: Some(ClosSpec { leaves: 1, spines: 1, ..ClosSpec::default() }),
            pipelines: BTreeMap::from([(Tier::Spine, PipelineKind::Sai)]),
            ..FabricDocument::default()
        };
        let fabric = Fabric::try_from(&clos).unwrap();
        assert_eq!(kinds(&fabric), [PipelineKind::Fabric, PipelineKind::Sai]);
        let unknown = text.replacen("\"sai\"", "\"bmv2\"", 1);
        assert!(refused(&unknown).contains("unknown variant `bmv2`"));
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = serde_json::to_string(&schemars::schema_for!(FabricDocument)).unwrap();
        for field in ["clos", "dual_homed", "pipelines", "device_id", "ips", "gbps"] {
            assert!(schema.contains(&format!("\"{field}\"")), "{field}");
        }
    }
}
