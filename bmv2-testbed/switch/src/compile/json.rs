//! The BMv2 JSON as p4c writes it (format 2.x, docs/JSON_format.md of p4lang/behavioral-model).
//!
//! Only the parts that are interpreted appear; what this version refuses is read as raw JSON, so
//! that its refusal can name it. Nothing here is resolved: names stay names.

use serde::Deserialize;
use serde_json::Value;

/// The root object.
#[derive(Debug, Deserialize)]
pub(super) struct ProgramDocument {
    #[serde(rename = "__meta__")]
    pub(super) meta: Option<FormatDecl>,
    pub(super) header_types: Vec<HeaderTypeDecl>,
    pub(super) headers: Vec<HeaderDecl>,
    #[serde(default)]
    pub(super) header_stacks: Vec<HeaderStackDecl>,
    #[serde(default)]
    pub(super) header_union_types: Vec<UnionTypeDecl>,
    #[serde(default)]
    pub(super) header_unions: Vec<HeaderUnionDecl>,
    #[serde(default)]
    pub(super) header_union_stacks: Vec<UnionStackDecl>,
    #[serde(default)]
    pub(super) errors: Vec<(String, u32)>,
    #[serde(default)]
    pub(super) field_aliases: Vec<(String, (String, String))>,
    pub(super) parsers: Vec<ParserDecl>,
    pub(super) deparsers: Vec<DeparserDecl>,
    #[serde(default)]
    pub(super) parse_vsets: Vec<ValueSetDecl>,
    #[serde(default)]
    pub(super) meter_arrays: Vec<MeterArrayDecl>,
    #[serde(default)]
    pub(super) register_arrays: Vec<RegisterArrayDecl>,
    #[serde(default)]
    pub(super) learn_lists: Vec<FieldListDecl>,
    #[serde(default)]
    pub(super) field_lists: Vec<FieldListDecl>,
    #[serde(default)]
    pub(super) extern_instances: Vec<NamedObject>,
    #[serde(default)]
    pub(super) counter_arrays: Vec<CounterArrayDecl>,
    #[serde(default)]
    pub(super) calculations: Vec<CalculationDecl>,
    pub(super) actions: Vec<ActionDecl>,
    pub(super) pipelines: Vec<PipelineDecl>,
    #[serde(default)]
    pub(super) checksums: Vec<ChecksumDecl>,
}

/// What the compiler says about the file.
#[derive(Debug, Deserialize)]
pub(super) struct FormatDecl {
    /// Major and minor version of the format; very old files have none.
    pub(super) version: Option<(u32, u32)>,
}

/// Anything of which only the name is needed.
#[derive(Debug, Deserialize)]
pub(super) struct NamedObject {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct HeaderTypeDecl {
    pub(super) name: String,
    /// Name, width (`"*"` when it varies) and, optionally, whether it is signed.
    pub(super) fields: Vec<Vec<Value>>,
    pub(super) length_exp: Option<Value>,
    /// In bytes, where a field varies.
    pub(super) max_length: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct HeaderStackDecl {
    pub(super) name: String,
    pub(super) header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UnionTypeDecl {
    pub(super) name: String,
    /// Member names and header types.
    pub(super) headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct HeaderUnionDecl {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UnionStackDecl {
    pub(super) name: String,
    pub(super) union_type: String,
    pub(super) header_union_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ValueSetDecl {
    pub(super) name: String,
    #[serde(default)]
    pub(super) max_size: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct MeterArrayDecl {
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
pub(super) struct RegisterArrayDecl {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) bitwidth: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct FieldListDecl {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) elements: Vec<TypedValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct HeaderDecl {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) header_type: String,
    #[serde(default)]
    pub(super) metadata: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct ParserDecl {
    pub(super) name: String,
    pub(super) init_state: Option<String>,
    pub(super) parse_states: Vec<ParseStateDecl>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ParseStateDecl {
    pub(super) name: String,
    pub(super) parser_ops: Vec<ParserOpDecl>,
    pub(super) transitions: Vec<TransitionDecl>,
    #[serde(default)]
    pub(super) transition_key: Vec<TypedValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ParserOpDecl {
    pub(super) op: String,
    pub(super) parameters: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TransitionDecl {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) value: Option<String>,
    pub(super) mask: Option<String>,
    pub(super) next_state: Option<String>,
}

/// The format's "type value object".
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TypedValue {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) value: Value,
    pub(super) bitwidth: Option<u32>,
}

/// The value of an `expression`.
#[derive(Debug, Deserialize)]
pub(super) struct OperationDecl {
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
pub(super) struct DeparserDecl {
    pub(super) name: String,
    pub(super) order: Vec<String>,
    #[serde(default)]
    pub(super) primitives: Vec<PrimitiveDecl>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CounterArrayDecl {
    pub(super) name: String,
    #[serde(default)]
    pub(super) size: usize,
    #[serde(default)]
    pub(super) is_direct: bool,
    pub(super) binding: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CalculationDecl {
    pub(super) name: String,
    pub(super) algo: String,
    pub(super) input: Vec<TypedValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionDecl {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) runtime_data: Vec<RuntimeDataDecl>,
    pub(super) primitives: Vec<PrimitiveDecl>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RuntimeDataDecl {
    pub(super) name: String,
    pub(super) bitwidth: u32,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PrimitiveDecl {
    pub(super) op: String,
    pub(super) parameters: Vec<TypedValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PipelineDecl {
    pub(super) name: String,
    pub(super) init_table: Option<String>,
    #[serde(default)]
    pub(super) tables: Vec<TableDecl>,
    #[serde(default)]
    pub(super) action_profiles: Vec<ActionProfileDecl>,
    #[serde(default)]
    pub(super) conditionals: Vec<ConditionalDecl>,
    #[serde(default)]
    pub(super) action_calls: Vec<ActionCallDecl>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TableDecl {
    pub(super) name: String,
    pub(super) key: Vec<KeyDecl>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) action_profile: Option<String>,
    /// In older files, the name of a profile that only this table has, with its selector.
    pub(super) act_prof_name: Option<String>,
    pub(super) selector: Option<SelectorDecl>,
    pub(super) max_size: Option<usize>,
    #[serde(default)]
    pub(super) with_counters: bool,
    #[serde(default)]
    pub(super) support_timeout: bool,
    pub(super) direct_meters: Option<String>,
    pub(super) action_ids: Option<Vec<u32>>,
    /// Names of the actions, for files without `action_ids`.
    #[serde(default)]
    pub(super) actions: Vec<String>,
    pub(super) base_default_next: Option<String>,
    pub(super) next_tables: std::collections::BTreeMap<String, Option<String>>,
    pub(super) default_entry: Option<DefaultEntryDecl>,
    pub(super) entries: Option<Vec<EntryDecl>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeyDecl {
    pub(super) match_type: String,
    pub(super) name: Option<String>,
    pub(super) target: Value,
    pub(super) mask: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DefaultEntryDecl {
    pub(super) action_id: u32,
    #[serde(default)]
    pub(super) action_const: bool,
    #[serde(default)]
    pub(super) action_data: Vec<String>,
    #[serde(default)]
    pub(super) action_entry_const: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct EntryDecl {
    pub(super) match_key: Vec<EntryKeyDecl>,
    pub(super) action_entry: EntryActionDecl,
    #[serde(default)]
    pub(super) priority: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct EntryKeyDecl {
    pub(super) key: Option<Value>,
    pub(super) mask: Option<String>,
    pub(super) prefix_length: Option<u32>,
    pub(super) start: Option<String>,
    pub(super) end: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EntryActionDecl {
    pub(super) action_id: u32,
    #[serde(default)]
    pub(super) action_data: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionProfileDecl {
    pub(super) name: String,
    pub(super) max_size: usize,
    pub(super) selector: Option<SelectorDecl>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SelectorDecl {
    pub(super) algo: String,
    pub(super) input: Vec<TypedValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConditionalDecl {
    pub(super) name: String,
    pub(super) expression: TypedValue,
    pub(super) true_next: Option<String>,
    pub(super) false_next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionCallDecl {
    pub(super) name: String,
    pub(super) action_id: u32,
    pub(super) next_node: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChecksumDecl {
    pub(super) name: String,
    pub(super) target: (String, String),
    pub(super) calculation: String,
    #[serde(default = "yes")]
    pub(super) update: bool,
    #[serde(default = "yes")]
    pub(super) verify: bool,
    pub(super) if_cond: Option<TypedValue>,
}

fn yes() -> bool {
    true
}
