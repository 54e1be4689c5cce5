//! Tables, action profiles and the control flow of the JSON compiled to specs and `pipeline` nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expressions::{ExprCompiler, parse_unsigned_hex};
use super::headers::{FieldReference, HeaderCatalog, require_plain};
use super::objects::compile_calculation;
use super::{LoadError, json};
use crate::ids::{ActionIndex, ProfileIndex, TableIndex};
use crate::run::action::CompiledAction;
use crate::run::hash::HashCalculation;
use crate::run::pipeline::{PipelineGraph, PipelineNode};
use crate::spec::entry::{ActionCall, KeyField, MatchKey, check_arguments, check_key};
use crate::spec::{
    ActionNext, ActionSpec, DefaultMutability, DirectMeter, KeySource, KeySpec, MatchKind,
    NextNode, NextNodes, ProfileSpec, TableSpec, bit_mask,
};

/// The tables and profiles of both pipelines, as they are compiled one after the other.
pub(super) struct ControlCompiler<'a> {
    pub(super) headers: &'a HeaderCatalog,
    pub(super) actions: &'a [CompiledAction],
    pub(super) action_specs: &'a [ActionSpec],
    /// From the JSON's action ids.
    pub(super) action_ids: BTreeMap<u32, ActionIndex>,
    pub(super) tables: Vec<Arc<TableSpec>>,
    pub(super) profiles: Vec<ProfileSpec>,
    /// How each profile chooses a member.
    pub(super) selectors: Vec<Option<HashCalculation>>,
    /// The direct meters, by the names of their arrays.
    pub(super) direct_meters: BTreeMap<String, DirectMeter>,
}

impl ControlCompiler<'_> {
    /// Compiles ingress or egress.
    pub(super) fn compile_pipeline(
        &mut self,
        declared: &json::PipelineDecl,
    ) -> Result<PipelineGraph, LoadError> {
        let first_profile = self.profiles.len();
        for profile in &declared.action_profiles {
            self.add_profile(&profile.name, profile.max_size, profile.selector.as_ref())?;
        }
        for table in &declared.tables {
            if let (None, Some(name)) = (&table.action_profile, &table.act_prof_name) {
                self.add_profile(name, table_size(table)?, table.selector.as_ref())?;
            }
        }
        let nodes = NodeNumbers::from_pipeline(declared);
        let mut pipeline = PipelineGraph {
            nodes: Vec::new(),
            start: nodes.next_node(&declared.init_table, &declared.name)?,
        };
        for table in &declared.tables {
            let spec = self.compile_table(table, first_profile)?;
            let flow = self.next_nodes(table, &spec, &nodes)?;
            pipeline.nodes.push(self.table_node(spec, flow));
        }
        for branch in &declared.conditionals {
            let compiler =
                ExprCompiler { headers: self.headers, parameters: &[], at: &branch.name };
            pipeline.nodes.push(PipelineNode::Branch {
                cond: compiler.compile_condition(&branch.expression)?.shareable(),
                yes: nodes.next_node(&branch.true_next, &branch.name)?,
                no: nodes.next_node(&branch.false_next, &branch.name)?,
            });
        }
        for call in &declared.action_calls {
            let action = self.action_index(call.action_id, &call.name)?;
            pipeline.nodes.push(PipelineNode::Call {
                action: self.actions[action.0 as usize].clone(),
                arguments: [].into(),
                next: nodes.next_node(&call.next_node, &call.name)?,
            });
        }
        Ok(pipeline)
    }

    /// A table nobody can write is a plain call.
    fn table_node(&mut self, spec: TableSpec, flow: NextNodes) -> PipelineNode {
        let call = match &spec.default {
            Some(call)
                if spec.keys.is_empty()
                    && spec.default_mutability == DefaultMutability::Constant =>
            {
                let at = call.action.0 as usize;
                let (action, arguments) =
                    (self.actions[at].clone(), call.arguments.as_slice().into());
                Some(PipelineNode::Call { action, arguments, next: flow.after(call.action).miss })
            }
            _ => None,
        };
        let table = TableIndex(self.tables.len() as u32);
        self.tables.push(Arc::new(spec));
        call.unwrap_or(PipelineNode::Table { table, flow })
    }

    fn add_profile(
        &mut self,
        name: &str,
        size: usize,
        selector: Option<&json::SelectorDecl>,
    ) -> Result<(), LoadError> {
        let selector = selector
            .map(|of| compile_calculation(&of.algo, &of.input, name, self.headers))
            .transpose()?;
        let (name, with_selector) = (name.to_owned(), selector.is_some());
        self.profiles.push(ProfileSpec { name, size, actions: Vec::new(), with_selector });
        self.selectors.push(selector);
        Ok(())
    }

    fn compile_table(
        &mut self,
        declared: &json::TableDecl,
        first_profile: usize,
    ) -> Result<TableSpec, LoadError> {
        let at = &declared.name;
        let direct_meter = declared
            .direct_meters
            .as_ref()
            .map(|name| {
                let found = self.direct_meters.get(name).copied();
                found.ok_or_else(|| LoadError::missing("direct meter", name, at))
            })
            .transpose()?;
        let keys = declared.key.iter().map(|key| self.key_spec(key, at));
        let mut spec = TableSpec {
            name: declared.name.clone(),
            keys: keys.collect::<Result<_, _>>()?,
            size: table_size(declared)?,
            actions: self.table_actions(declared)?,
            profile: self.profile_index(declared, first_profile)?,
            direct_counter: declared.with_counters,
            direct_meter,
            idle_timeout: declared.support_timeout,
            default: None,
            default_mutability: DefaultMutability::Free,
            constant_entries: None,
        };
        if spec.keys.iter().filter(|key| key.kind == MatchKind::Lpm).count() > 1 {
            return Err(LoadError::malformed("more than one lpm field", at));
        }
        if let Some(entry) = &declared.default_entry {
            let call = self.action_call(entry.action_id, &entry.action_data, &spec)?;
            spec.default = Some(call);
            spec.default_mutability = match (entry.action_const, entry.action_entry_const) {
                (_, true) => DefaultMutability::Constant,
                (true, false) => DefaultMutability::FixedAction,
                (false, false) => DefaultMutability::Free,
            };
        }
        let entries =
            declared.entries.as_ref().map(|entries| self.constant_entries(entries, &spec));
        spec.constant_entries = entries.transpose()?;
        self.share_actions(&spec);
        Ok(spec)
    }

    fn profile_index(
        &self,
        declared: &json::TableDecl,
        first: usize,
    ) -> Result<Option<ProfileIndex>, LoadError> {
        let at = &declared.name;
        let profile = declared.action_profile.as_ref().or(declared.act_prof_name.as_ref());
        let name = match (declared.kind.as_str(), profile) {
            ("simple", _) => return Ok(None),
            ("indirect" | "indirect_ws", Some(name)) => name,
            (kind, _) => return Err(LoadError::unsupported(format!("table type {kind}"), at)),
        };
        let known = self.profiles.iter().skip(first).position(|profile| profile.name == *name);
        let known = known.ok_or_else(|| LoadError::missing("action profile", name, at))?;
        Ok(Some(ProfileIndex((first + known) as u32)))
    }

    /// The actions of a table, by their ids; older files only have their names.
    fn table_actions(&self, declared: &json::TableDecl) -> Result<Vec<ActionIndex>, LoadError> {
        let at = &declared.name;
        match &declared.action_ids {
            Some(ids) => ids.iter().map(|id| self.action_index(*id, at)).collect(),
            None => declared.actions.iter().map(|name| self.action_named(name, at)).collect(),
        }
    }

    fn action_named(&self, name: &str, at: &str) -> Result<ActionIndex, LoadError> {
        let position = self.action_specs.iter().position(|spec| spec.name == name);
        let position = position.ok_or_else(|| LoadError::missing("action", name, at))?;
        Ok(ActionIndex(position as u32))
    }

    /// The members of a profile may call what its tables may.
    fn share_actions(&mut self, spec: &TableSpec) {
        if let Some(ProfileIndex(profile)) = spec.profile {
            let shared = &mut self.profiles[profile as usize].actions;
            shared.extend(&spec.actions);
            shared.sort_unstable();
            shared.dedup();
        }
    }

    fn key_spec(&self, declared: &json::KeyDecl, at: &str) -> Result<KeySpec, LoadError> {
        let kind = match declared.match_type.as_str() {
            "exact" | "valid" => MatchKind::Exact,
            "lpm" => MatchKind::Lpm,
            "ternary" => MatchKind::Ternary,
            "range" => MatchKind::Range,
            "optional" => MatchKind::Optional,
            other => return Err(LoadError::unsupported(format!("match type {other}"), at)),
        };
        let (source, bits) = match declared.target.as_str() {
            Some(header) => (KeySource::Valid(self.headers.find_header(header, at)?.index), 1),
            None => self.key_source(declared, at)?,
        };
        let name = declared.name.clone().unwrap_or_else(|| declared.target.to_string());
        Ok(KeySpec { name, kind, bits, source })
    }

    fn key_source(
        &self,
        declared: &json::KeyDecl,
        at: &str,
    ) -> Result<(KeySource, u32), LoadError> {
        let field = match self.headers.resolve_field(&declared.target, at)? {
            FieldReference::Content(content) => {
                require_plain(&content, &declared.target.to_string(), at)?
            }
            FieldReference::Valid(header) => return Ok((KeySource::Valid(header), 1)),
            FieldReference::ValidUnion(_) => {
                return Err(LoadError::unsupported("the validity of a union as a key", at));
            }
        };
        let mask = match &declared.mask {
            Some(mask) => parse_unsigned_hex(mask, field.bits, at)?,
            None => bit_mask(field.bits),
        };
        Ok((KeySource::Field { slot: field.slot, header: field.header, mask }, field.bits))
    }

    fn next_nodes(
        &self,
        declared: &json::TableDecl,
        spec: &TableSpec,
        nodes: &NodeNumbers<'_>,
    ) -> Result<NextNodes, LoadError> {
        let at = &declared.name;
        let none: NextNode = match declared.next_tables.get("__MISS__") {
            Some(miss) => nodes.next_node(miss, at)?,
            None => nodes.next_node(&declared.base_default_next, at)?,
        };
        let mut by_action = Vec::new();
        let by_hit =
            ["__HIT__", "__MISS__"].iter().any(|key| declared.next_tables.contains_key(*key));
        for action in &spec.actions {
            let number = action.0 as usize;
            let find =
                |key: &str| declared.next_tables.get(key).unwrap_or(&declared.base_default_next);
            let name = self.action_specs[number].name.as_str();
            let (hit, miss) = if by_hit { ("__HIT__", "__MISS__") } else { (name, name) };
            by_action.push(ActionNext {
                action: *action,
                hit: nodes.next_node(find(hit), at)?,
                miss: nodes.next_node(find(miss), at)?,
            });
        }
        Ok(NextNodes { by_action: by_action.into(), none })
    }

    fn constant_entries(
        &self,
        declared: &[json::EntryDecl],
        spec: &TableSpec,
    ) -> Result<Vec<(MatchKey, ActionCall)>, LoadError> {
        // In the JSON the smaller priority wins; in P4Runtime and here the larger.
        let highest = declared.iter().map(|entry| entry.priority).max().unwrap_or(0);
        let mut entries = Vec::new();
        for entry in declared {
            let fields = entry.match_key.iter().zip(&spec.keys);
            let fields = fields.map(|(field, key)| entry_key_field(field, key, &spec.name));
            let fields: Vec<KeyField> = fields.collect::<Result<_, _>>()?;
            let priority = if spec.takes_priority() {
                (highest - entry.priority).saturating_add(1)
            } else {
                0
            };
            let key = MatchKey { fields, priority };
            check_key(spec, &key).map_err(|e| LoadError::malformed(e.to_string(), &spec.name))?;
            let action = &entry.action_entry;
            entries.push((key, self.action_call(action.action_id, &action.action_data, spec)?));
        }
        Ok(entries)
    }

    fn action_call(
        &self,
        id: u32,
        data: &[String],
        spec: &TableSpec,
    ) -> Result<ActionCall, LoadError> {
        let action = self.action_index(id, &spec.name)?;
        let values = data.iter().map(|text| parse_unsigned_hex(text, 128, &spec.name));
        let call = ActionCall { action, arguments: values.collect::<Result<_, _>>()? };
        check_arguments(&self.action_specs[action.0 as usize], &call.arguments)
            .map_err(|error| LoadError::malformed(error.to_string(), &spec.name))?;
        Ok(call)
    }

    fn action_index(&self, id: u32, at: &str) -> Result<ActionIndex, LoadError> {
        let found = self.action_ids.get(&id).copied();
        found.ok_or_else(|| LoadError::missing("action", &id.to_string(), at))
    }
}

/// Entries that a table can hold; a table of constant entries may leave it out.
fn table_size(declared: &json::TableDecl) -> Result<usize, LoadError> {
    let constant = declared.entries.as_ref().map(Vec::len);
    let size = declared.max_size.max(constant);
    size.ok_or_else(|| LoadError::malformed("a table without max_size", &declared.name))
}

fn entry_key_field(
    field: &json::EntryKeyDecl,
    key: &KeySpec,
    at: &str,
) -> Result<KeyField, LoadError> {
    let read = |text: Option<&str>| {
        let text =
            text.ok_or_else(|| LoadError::malformed("an entry has no value for a key field", at))?;
        parse_unsigned_hex(text, key.bits, at)
    };
    let value = || match &field.key {
        Some(serde_json::Value::Bool(valid)) => Ok(u128::from(*valid)),
        other => read(other.as_ref().and_then(serde_json::Value::as_str)),
    };
    Ok(match key.kind {
        MatchKind::Exact => KeyField::Exact(value()?),
        MatchKind::Lpm => {
            let prefix = field.prefix_length.unwrap_or(0).min(key.bits);
            KeyField::Lpm { value: value()? & !bit_mask(key.bits - prefix), prefix }
        }
        MatchKind::Ternary => {
            let mask = read(field.mask.as_deref())?;
            KeyField::Ternary { value: value()? & mask, mask }
        }
        MatchKind::Range => KeyField::Range {
            low: read(field.start.as_deref())?,
            high: read(field.end.as_deref())?,
        },
        MatchKind::Optional => match read(field.mask.as_deref()) {
            Ok(0) => KeyField::Optional(None),
            _ => KeyField::Optional(Some(value()?)),
        },
    })
}

/// Numbers of a pipeline's nodes: tables, then branches, then calls.
struct NodeNumbers<'a>(BTreeMap<&'a str, u32>);

impl<'a> NodeNumbers<'a> {
    fn from_pipeline(declared: &'a json::PipelineDecl) -> Self {
        let tables = declared.tables.iter().map(|table| table.name.as_str());
        let branches = declared.conditionals.iter().map(|branch| branch.name.as_str());
        let calls = declared.action_calls.iter().map(|call| call.name.as_str());
        let names = tables.chain(branches).chain(calls);
        Self(names.enumerate().map(|(number, name)| (name, number as u32)).collect())
    }

    fn next_node(&self, name: &Option<String>, at: &str) -> Result<NextNode, LoadError> {
        let Some(name) = name else { return Ok(None) };
        match self.0.get(name.as_str()) {
            Some(number) => Ok(Some(*number)),
            None => Err(LoadError::missing("next node", name, at)),
        }
    }
}
