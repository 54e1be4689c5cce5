//! The BMv2 JSON as p4c writes it (format 2.x, docs/JSON_format.md of p4lang/behavioral-model).
//!
//! Only the parts that are interpreted appear; what this version refuses is read as raw JSON, so
//! that its refusal can name it. Nothing here is resolved: names stay names.

use serde::Deserialize;
use serde_json::Value;

/// The root object.
#[derive(Debug, Deserialize)]
pub(super) struct Root {
    pub(super) header_types: Vec<HeaderType>,
    pub(super) headers: Vec<Header>,
    #[serde(default)]
    pub(super) header_stacks: Vec<HeaderStack>,
    #[serde(default)]
    pub(super) header_union_types: Vec<UnionType>,
    #[serde(default)]
    pub(super) header_unions: Vec<HeaderUnion>,
    #[serde(default)]
    pub(super) header_union_stacks: Vec<UnionStack>,
    #[serde(default)]
    pub(super) errors: Vec<(String, u32)>,
    pub(super) parsers: Vec<Parser>,
    pub(super) deparsers: Vec<Deparser>,
    #[serde(default)]
    pub(super) parse_vsets: Vec<ValueSet>,
    #[serde(default)]
    pub(super) meter_arrays: Vec<MeterArray>,
    #[serde(default)]
    pub(super) register_arrays: Vec<RegisterArray>,
    #[serde(default)]
    pub(super) learn_lists: Vec<FieldList>,
    #[serde(default)]
    pub(super) field_lists: Vec<FieldList>,
    #[serde(default)]
    pub(super) extern_instances: Vec<Named>,
    #[serde(default)]
    pub(super) counter_arrays: Vec<CounterArray>,
    #[serde(default)]
    pub(super) calculations: Vec<Calculation>,
    pub(super) actions: Vec<Action>,
    pub(super) pipelines: Vec<Pipeline>,
    #[serde(default)]
    pub(super) checksums: Vec<Checksum>,
}

/// Anything of which only the name is needed.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct HeaderType {
    pub(super) name: String,
    /// Name, width (`"*"` when it varies) and, optionally, whether it is signed.
    pub(super) fields: Vec<Vec<Value>>,
    pub(super) length_exp: Option<Value>,
    /// In bytes, where a field varies.
    pub(super) max_length: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct HeaderStack {
    pub(super) name: String,
    pub(super) header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UnionType {
    pub(super) name: String,
    /// Member names and header types.
    pub(super) headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct HeaderUnion {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UnionStack {
    pub(super) name: String,
    pub(super) union_type: String,
    pub(super) header_union_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ValueSet {
    pub(super) name: String,
    #[serde(default)]
    pub(super) max_size: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct MeterArray {
    pub(super) name: String,
    #[serde(default)]
    pub(super) is_direct: bool,
    #[serde(default)]
    pub(super) size: usize,
    pub(super) rate_count: u32,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) binding: Option<String>,
    pub(super) result_target: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RegisterArray {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) bitwidth: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct FieldList {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) elements: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) header_type: String,
    #[serde(default)]
    pub(super) metadata: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Parser {
    pub(super) name: String,
    pub(super) init_state: Option<String>,
    pub(super) parse_states: Vec<ParseState>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ParseState {
    pub(super) name: String,
    pub(super) parser_ops: Vec<ParserOp>,
    pub(super) transitions: Vec<Transition>,
    #[serde(default)]
    pub(super) transition_key: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ParserOp {
    pub(super) op: String,
    pub(super) parameters: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Transition {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) value: Option<String>,
    pub(super) mask: Option<String>,
    pub(super) next_state: Option<String>,
}

/// The format's "type value object".
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Typed {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) value: Value,
    pub(super) bitwidth: Option<u32>,
}

/// The value of an `expression`.
#[derive(Debug, Deserialize)]
pub(super) struct Operation {
    pub(super) op: String,
    #[serde(default)]
    pub(super) left: Value,
    /// Of `access_field` and `access_union_header` a plain number.
    #[serde(default)]
    pub(super) right: Value,
    #[serde(default)]
    pub(super) cond: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct Deparser {
    pub(super) name: String,
    pub(super) order: Vec<String>,
    #[serde(default)]
    pub(super) primitives: Vec<Primitive>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CounterArray {
    pub(super) name: String,
    #[serde(default)]
    pub(super) size: usize,
    #[serde(default)]
    pub(super) is_direct: bool,
    pub(super) binding: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Calculation {
    pub(super) name: String,
    pub(super) algo: String,
    pub(super) input: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Action {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) runtime_data: Vec<RuntimeData>,
    pub(super) primitives: Vec<Primitive>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RuntimeData {
    pub(super) name: String,
    pub(super) bitwidth: u32,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Primitive {
    pub(super) op: String,
    pub(super) parameters: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pipeline {
    pub(super) name: String,
    pub(super) init_table: Option<String>,
    #[serde(default)]
    pub(super) tables: Vec<Table>,
    #[serde(default)]
    pub(super) action_profiles: Vec<ActionProfile>,
    #[serde(default)]
    pub(super) conditionals: Vec<Conditional>,
    #[serde(default)]
    pub(super) action_calls: Vec<ActionCallNode>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) key: Vec<Key>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) action_profile: Option<String>,
    pub(super) max_size: usize,
    #[serde(default)]
    pub(super) with_counters: bool,
    #[serde(default)]
    pub(super) support_timeout: bool,
    pub(super) direct_meters: Option<String>,
    pub(super) action_ids: Vec<u32>,
    pub(super) base_default_next: Option<String>,
    pub(super) next_tables: std::collections::BTreeMap<String, Option<String>>,
    pub(super) default_entry: Option<DefaultEntry>,
    pub(super) entries: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Key {
    pub(super) match_type: String,
    pub(super) name: Option<String>,
    pub(super) target: Value,
    pub(super) mask: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DefaultEntry {
    pub(super) action_id: u32,
    #[serde(default)]
    pub(super) action_const: bool,
    #[serde(default)]
    pub(super) action_data: Vec<String>,
    #[serde(default)]
    pub(super) action_entry_const: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) match_key: Vec<EntryKey>,
    pub(super) action_entry: EntryAction,
    #[serde(default)]
    pub(super) priority: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct EntryKey {
    pub(super) key: Option<Value>,
    pub(super) mask: Option<String>,
    pub(super) prefix_length: Option<u32>,
    pub(super) start: Option<String>,
    pub(super) end: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EntryAction {
    pub(super) action_id: u32,
    #[serde(default)]
    pub(super) action_data: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionProfile {
    pub(super) name: String,
    pub(super) max_size: usize,
    pub(super) selector: Option<Selector>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Selector {
    pub(super) algo: String,
    pub(super) input: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Conditional {
    pub(super) name: String,
    pub(super) expression: Typed,
    pub(super) true_next: Option<String>,
    pub(super) false_next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionCallNode {
    pub(super) name: String,
    pub(super) action_id: u32,
    pub(super) next_node: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Checksum {
    pub(super) name: String,
    pub(super) target: (String, String),
    pub(super) calculation: String,
    #[serde(default = "yes")]
    pub(super) update: bool,
    #[serde(default = "yes")]
    pub(super) verify: bool,
    pub(super) if_cond: Option<Typed>,
}

fn yes() -> bool {
    true
}
