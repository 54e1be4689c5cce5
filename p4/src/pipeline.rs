//! A compiled program ready to be pushed: its interface, its code and the cookie that names both.
//!
//! A session compares the cookie with the switch's and pushes only on a difference. The decision:
//! P4Info and JSON are compared with each other here, because switches accept any pair (VERIFY does
//! not compare them) and then refuse entries one by one.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::artefacts::{CompiledProgram, FABRIC, SAI};
use crate::p4info::{FieldInfo, MatchKind, P4Info, P4InfoError, ValueType};

/// The type of a parameter that the switch translates.
const STRING: &str = "string";

/// A compiled program that can be pushed to a switch.
#[derive(Clone, Debug)]
pub struct ForwardingPipeline {
    /// Its interface.
    pub p4info: P4Info,
    /// Its code: the BMv2 JSON, or nothing for a switch that has its own.
    pub device_config: Vec<u8>,
    /// The first 64 bits of the SHA-256 of both, never 0 in practice, the same on every machine.
    pub cookie: u64,
}

/// The two artefacts are no program.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The P4Info cannot be used.
    #[error("cannot read the P4Info")]
    P4Info(#[from] P4InfoError),
    /// The code is not JSON.
    #[error("cannot read the BMv2 JSON")]
    Json(#[from] serde_json::Error),
    /// They were not compiled from the same source.
    #[error("P4Info and BMv2 JSON differ: {}", join_differences(.0))]
    Mismatch(Vec<ArtefactDifference>),
}

/// A fact that only one of P4Info and BMv2 JSON contains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArtefactDifference {
    /// What it is, such as `counter EgressImpl.port_level with 4096 cells`.
    pub what: String,
    /// Which of the two contains it.
    pub only_in: ArtefactKind,
}

/// One of the two things that p4c writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArtefactKind {
    /// The interface.
    P4Info,
    /// The code.
    Json,
}

impl ForwardingPipeline {
    /// The program from its two artefacts, as p4c wrote them.
    pub fn new(p4info: &str, json: &str) -> Result<Self, PipelineError> {
        let cookie = compute_cookie(p4info, json);
        let p4info = P4Info::parse(p4info)?;
        let differences = compare_artefacts(&p4info, &serde_json::from_str(json)?);
        if !differences.is_empty() {
            return Err(PipelineError::Mismatch(differences));
        }
        let device_config = json.as_bytes().to_vec();
        Ok(Self { p4info, device_config, cookie })
    }

    /// The program of a switch that has its code from elsewhere, as SONiC does, from its P4Info as
    /// p4c wrote it.
    ///
    /// # Errors
    /// The P4Info cannot be used.
    pub fn without_code(p4info: &str) -> Result<Self, PipelineError> {
        let cookie = compute_cookie(p4info, "");
        Ok(Self { p4info: P4Info::parse(p4info)?, device_config: Vec::new(), cookie })
    }

    /// `sai.p4`, from the embedded artefacts, which are read once.
    pub fn embedded_sai() -> &'static Self {
        static PROGRAM: LazyLock<ForwardingPipeline> = LazyLock::new(|| embedded_program(SAI));
        &PROGRAM
    }

    /// `fabric.p4`, from the embedded artefacts, which are read once.
    pub fn embedded_fabric() -> &'static Self {
        static PROGRAM: LazyLock<ForwardingPipeline> = LazyLock::new(|| embedded_program(FABRIC));
        &PROGRAM
    }
}

fn embedded_program(compiled: CompiledProgram) -> ForwardingPipeline {
    ForwardingPipeline::new(compiled.p4info, compiled.json)
        .expect("a test loads the same artefacts")
}

impl PartialEq for ForwardingPipeline {
    fn eq(&self, other: &Self) -> bool {
        self.cookie == other.cookie
    }
}

impl std::fmt::Display for ArtefactDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let artefact = match self.only_in {
            ArtefactKind::P4Info => "P4Info",
            ArtefactKind::Json => "the JSON",
        };
        write!(f, "only {artefact} has {}", self.what)
    }
}

fn join_differences(differences: &[ArtefactDifference]) -> String {
    let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
    differences.join("; ")
}

/// The lengths go in first, so that moving text from one artefact to the other shows.
fn compute_cookie(p4info: &str, json: &str) -> u64 {
    let mut hash = Sha256::new();
    for artefact in [p4info, json] {
        hash.update(artefact.len().to_be_bytes());
        hash.update(artefact);
    }
    let hash: [u8; 32] = hash.finalize().into();
    hash.iter().take(8).fold(0, |cookie, byte| cookie << 8 | u64::from(*byte))
}

fn compare_artefacts(p4info: &P4Info, json: &Value) -> Vec<ArtefactDifference> {
    let (interface, code) = (interface_facts(p4info), code_facts(json, p4info));
    let only = |these: &BTreeSet<String>, those: &BTreeSet<String>, only_in| {
        let what = these.difference(those).cloned();
        what.map(|what| ArtefactDifference { what, only_in }).collect::<Vec<_>>()
    };
    let mut found = only(&interface, &code, ArtefactKind::P4Info);
    found.append(&mut only(&code, &interface, ArtefactKind::Json));
    found
}

fn interface_facts(p4info: &P4Info) -> BTreeSet<String> {
    let tables = p4info.tables().map(|table| {
        let fields = table.fields.iter();
        let key = fields.map(|field| format!("{} {}", field.info.name, code_kind(field.kind)));
        let actions = table.row_actions.iter().chain(&table.default_only);
        let actions = actions.filter_map(|id| Some(p4info.action(*id)?.full_name.as_str()));
        table_fact(&table.full_name, key.collect(), actions.collect(), table.size)
    });
    let actions = p4info.actions().map(|action| {
        let params = action.params.iter();
        let params = params.map(|param| (param.name.as_str(), parameter_type(param)));
        action_fact(&action.full_name, params)
    });
    let counters = p4info.counters();
    let counters = counters.map(|counter| counter_fact(&counter.full_name, counter.size));
    tables.chain(actions).chain(counters).collect()
}

/// The kind of match that the code has for one of the interface: BMv2 has no optional fields.
fn code_kind(kind: MatchKind) -> MatchKind {
    match kind {
        MatchKind::Optional => MatchKind::Ternary,
        kind => kind,
    }
}

/// The compiler adds tables and actions of its own; those of the source stand in a control, or in
/// the P4Info.
/// Strings have a width in the code alone, so it is not compared.
fn code_facts(json: &Value, p4info: &P4Info) -> BTreeSet<String> {
    let pipelines =
        json_items(&json["pipelines"]).flat_map(|pipeline| json_items(&pipeline["tables"]));
    let tables = pipelines.filter(|table| is_source_object(table)).map(|table| {
        let key = json_items(&table["key"]);
        let key = key.map(|field| {
            format!("{} {}", json_text(&field["name"]), json_text(&field["match_type"]))
        });
        let actions = json_items(&table["actions"]).map(json_text).collect();
        table_fact(
            json_text(&table["name"]),
            key.collect(),
            actions,
            json_number(&table["max_size"]),
        )
    });
    let actions = json_items(&json["actions"]);
    let actions = actions.filter(|action| {
        is_source_object(action) || p4info.action_named(json_text(&action["name"])).is_some()
    });
    let actions = actions.map(|action| {
        let known = p4info.action_named(json_text(&action["name"]));
        let params = json_items(&action["runtime_data"]).map(|param| {
            let name = json_text(&param["name"]);
            let declared = known.and_then(|known| known.params.iter().find(|it| it.name == name));
            let is_text = declared.is_some_and(|it| it.value_type == ValueType::Text);
            let width = json_number(&param["bitwidth"]);
            (name, if is_text { STRING.to_owned() } else { format!("bit<{width}>") })
        });
        action_fact(json_text(&action["name"]), params)
    });
    let counters =
        json_items(&json["counter_arrays"]).filter(|counter| counter["is_direct"] == false);
    let counters = counters
        .map(|counter| counter_fact(json_text(&counter["name"]), json_number(&counter["size"])));
    tables.chain(actions).chain(counters).collect()
}

fn is_source_object(object: &Value) -> bool {
    json_text(&object["name"]).contains('.')
}

/// Neither order says anything: fields of a P4Info have ids, and p4c writes them in another order
/// than the code when those are not in sequence.
fn table_fact(name: &str, mut key: Vec<String>, mut actions: Vec<&str>, size: u64) -> String {
    key.sort_unstable();
    actions.sort_unstable();
    let (key, actions) = (key.join(", "), actions.join(", "));
    format!("table {name} with key ({key}), actions ({actions}), {size} rows")
}

fn parameter_type(param: &FieldInfo) -> String {
    match param.value_type {
        ValueType::Bits(width) => format!("bit<{width}>"),
        ValueType::Text => STRING.to_owned(),
    }
}

fn action_fact<'a>(name: &str, params: impl Iterator<Item = (&'a str, String)>) -> String {
    let params: Vec<_> = params.map(|(name, kind)| format!("{kind} {name}")).collect();
    format!("action {name}({})", params.join(", "))
}

fn counter_fact(name: &str, size: u64) -> String {
    format!("counter {name} with {size} cells")
}

fn json_items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn json_text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn json_number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &str, to: &str, expected: &[&str]) {
        check_program(FABRIC.p4info, &FABRIC.json.replace(from, to), expected);
    }

    fn check_program(p4info: &str, json: &str, expected: &[&str]) {
        let found = match ForwardingPipeline::new(p4info, json) {
            Err(PipelineError::Mismatch(found)) => found,
            other => panic!("{other:?}"),
        };
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_embedded_artefacts_fit_together() {
        let pipeline = ForwardingPipeline::new(FABRIC.p4info, FABRIC.json).unwrap();
        assert_eq!(pipeline.p4info.tables().count(), 37);
        assert_ne!(pipeline.cookie, 0);
        assert_eq!(ForwardingPipeline::embedded_sai().p4info.tables().count(), 11);
    }

    #[test]
    fn a_string_has_a_width_in_the_code_alone() {
        let json = SAI.json.replace("\"qos_queue\"", "\"queue\"");
        let expected = [
            "only P4Info has action IngressImpl.acl_trap(string qos_queue)",
            "only the JSON has action IngressImpl.acl_trap(bit<8> queue)",
        ];
        check_program(SAI.p4info, &json, &expected);
    }

    #[test]
    fn differences_are_named() {
        check(
            "\"size\" : 4096",
            "\"size\" : 8",
            &[
                "only P4Info has counter EgressImpl.port_level with 4096 cells",
                "only P4Info has counter IngressImpl.refused with 4096 cells",
                "only the JSON has counter EgressImpl.port_level with 8 cells",
                "only the JSON has counter IngressImpl.refused with 8 cells",
            ],
        );
        check(
            "IngressImpl.set_level",
            "IngressImpl.set_class",
            &[
                "only P4Info has action IngressImpl.set_level(bit<3> level)",
                "only P4Info has table IngressImpl.dscp_level with key (dscp exact), \
                 actions (IngressImpl.set_answer_level, IngressImpl.set_level, NoAction), 64 rows",
                "only the JSON has action IngressImpl.set_class(bit<3> level)",
                "only the JSON has table IngressImpl.dscp_level with key (dscp exact), \
                 actions (IngressImpl.set_answer_level, IngressImpl.set_class, NoAction), 64 rows",
            ],
        );
    }

    #[test]
    fn every_byte_counts_for_the_cookie() {
        let cookies = [("ab", "c"), ("a", "bc"), ("ab", "d")].map(|(a, b)| compute_cookie(a, b));
        assert_ne!(cookies[0], cookies[1]);
        assert_ne!(cookies[0], cookies[2]);
    }
}
