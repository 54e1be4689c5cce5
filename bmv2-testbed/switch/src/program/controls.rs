//! Tables, action profiles and the control flow of the JSON compiled to specs and `pipeline` nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expressions::{Compiler, unsigned};
use super::headers::{Headers, Reference, plain};
use super::objects::calculation;
use super::{
    ActionIndex, ActionSpec, DefaultIs, DirectMeter, Flow, KeySource, KeySpec, LoadError,
    MatchKind, Next, ProfileIndex, ProfileSpec, TableIndex, TableSpec, json,
};
use crate::action::Action;
use crate::control::{ActionCall, KeyField, MatchKey, check_arguments, check_key};
use crate::phv::mask;
use crate::pipeline::{Node, Pipeline};

/// The tables and profiles of both pipelines, as they are compiled one after the other.
pub(super) struct Controls<'a> {
    pub(super) headers: &'a Headers,
    pub(super) actions: &'a [Action],
    pub(super) action_specs: &'a [ActionSpec],
    /// From the JSON's action ids.
    pub(super) action_ids: BTreeMap<u32, ActionIndex>,
    pub(super) tables: Vec<Arc<TableSpec>>,
    pub(super) profiles: Vec<ProfileSpec>,
    /// The direct meters, by the names of their arrays.
    pub(super) direct_meters: BTreeMap<String, DirectMeter>,
}

impl Controls<'_> {
    /// Compiles ingress or egress.
    pub(super) fn pipeline(&mut self, declared: &json::Pipeline) -> Result<Pipeline, LoadError> {
        let first_profile = self.profiles.len();
        for profile in &declared.action_profiles {
            let compiled = self.profile(profile)?;
            self.profiles.push(compiled);
        }
        let nodes = NodeNumbers::of(declared);
        let mut pipeline = Pipeline {
            nodes: Vec::new(),
            start: nodes.next(&declared.init_table, &declared.name)?,
        };
        for table in &declared.tables {
            let spec = self.table(table, &nodes, first_profile)?;
            pipeline.nodes.push(self.table_node(spec));
        }
        for branch in &declared.conditionals {
            let compiler = Compiler {
                headers: self.headers,
                parameters: &[],
                at: &branch.name,
            };
            pipeline.nodes.push(Node::Branch {
                cond: compiler.truth(&branch.expression)?,
                yes: nodes.next(&branch.true_next, &branch.name)?,
                no: nodes.next(&branch.false_next, &branch.name)?,
            });
        }
        for call in &declared.action_calls {
            let action = self.action_of(call.action_id, &call.name)?;
            pipeline.nodes.push(Node::Call {
                action: self.actions[action.0 as usize].clone(),
                arguments: Vec::new(),
                next: nodes.next(&call.next_node, &call.name)?,
            });
        }
        Ok(pipeline)
    }

    /// A table nobody can write is a plain call.
    fn table_node(&mut self, spec: TableSpec) -> Node {
        let call = match &spec.default {
            Some(call) if spec.keys.is_empty() && spec.default_is == DefaultIs::Constant => {
                let at = call.action.0 as usize;
                let (action, arguments) = (self.actions[at].clone(), call.arguments.clone());
                Some(Node::Call {
                    action,
                    arguments,
                    next: spec.flow.miss[at],
                })
            }
            _ => None,
        };
        self.tables.push(Arc::new(spec));
        call.unwrap_or(Node::Table(TableIndex(self.tables.len() as u32 - 1)))
    }

    fn profile(&self, declared: &json::ActionProfile) -> Result<ProfileSpec, LoadError> {
        let selector = declared.selector.as_ref().map(|selector| {
            calculation(
                &selector.algo,
                &selector.input,
                &declared.name,
                self.headers,
            )
        });
        Ok(ProfileSpec {
            name: declared.name.clone(),
            size: declared.max_size,
            actions: Vec::new(),
            with_selector: declared.selector.is_some(),
            selector: selector.transpose()?,
        })
    }

    fn table(
        &mut self,
        declared: &json::Table,
        nodes: &NodeNumbers<'_>,
        first_profile: usize,
    ) -> Result<TableSpec, LoadError> {
        let at = &declared.name;
        let meter = |name: &String| {
            let found = self.direct_meters.get(name).copied();
            found.ok_or_else(|| LoadError::missing("direct meter", name, at))
        };
        let direct_meter = declared.direct_meters.as_ref().map(meter).transpose()?;
        let keys = declared.key.iter().map(|key| self.key(key, at));
        let actions = declared.action_ids.iter().map(|id| self.action_of(*id, at));
        let mut spec = TableSpec {
            name: declared.name.clone(),
            keys: keys.collect::<Result<_, _>>()?,
            size: declared.max_size,
            actions: actions.collect::<Result<_, _>>()?,
            profile: self.profile_of(declared, first_profile)?,
            direct_counter: declared.with_counters,
            direct_meter,
            idle_timeout: declared.support_timeout,
            watches: declared.with_counters || declared.support_timeout || direct_meter.is_some(),
            default: None,
            default_is: DefaultIs::Free,
            constant_entries: None,
            flow: Flow {
                hit: Vec::new(),
                miss: Vec::new(),
                none: None,
            },
        };
        if spec
            .keys
            .iter()
            .filter(|key| key.kind == MatchKind::Lpm)
            .count()
            > 1
        {
            return Err(LoadError::malformed("more than one lpm field", at));
        }
        spec.flow = self.flow(declared, &spec, nodes)?;
        if let Some(entry) = &declared.default_entry {
            let call = self.call(entry.action_id, &entry.action_data, &spec)?;
            spec.default = Some(call);
            spec.default_is = match (entry.action_const, entry.action_entry_const) {
                (_, true) => DefaultIs::Constant,
                (true, false) => DefaultIs::FixedAction,
                (false, false) => DefaultIs::Free,
            };
        }
        let entries = declared
            .entries
            .as_ref()
            .map(|entries| self.entries(entries, &spec));
        spec.constant_entries = entries.transpose()?;
        self.share_actions(&spec);
        Ok(spec)
    }

    fn profile_of(
        &self,
        declared: &json::Table,
        first: usize,
    ) -> Result<Option<ProfileIndex>, LoadError> {
        let at = &declared.name;
        let name = match (declared.kind.as_str(), &declared.action_profile) {
            ("simple", _) => return Ok(None),
            ("indirect" | "indirect_ws", Some(name)) => name,
            (kind, _) => return Err(LoadError::unsupported(format!("table type {kind}"), at)),
        };
        let known = self
            .profiles
            .iter()
            .skip(first)
            .position(|profile| profile.name == *name);
        let known = known.ok_or_else(|| LoadError::missing("action profile", name, at))?;
        Ok(Some(ProfileIndex((first + known) as u32)))
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

    fn key(&self, declared: &json::Key, at: &str) -> Result<KeySpec, LoadError> {
        let kind = match declared.match_type.as_str() {
            "exact" | "valid" => MatchKind::Exact,
            "lpm" => MatchKind::Lpm,
            "ternary" => MatchKind::Ternary,
            "range" => MatchKind::Range,
            "optional" => MatchKind::Optional,
            other => return Err(LoadError::unsupported(format!("match type {other}"), at)),
        };
        let (source, bits) = match declared.target.as_str() {
            Some(header) => (KeySource::Valid(self.headers.header(header, at)?.index), 1),
            None => self.key_source(declared, at)?,
        };
        let name = declared
            .name
            .clone()
            .unwrap_or_else(|| declared.target.to_string());
        Ok(KeySpec {
            name,
            kind,
            bits,
            source,
        })
    }

    fn key_source(&self, declared: &json::Key, at: &str) -> Result<(KeySource, u32), LoadError> {
        let field = match self.headers.reference(&declared.target, at)? {
            Reference::Content(content) => plain(&content, &declared.target.to_string(), at)?,
            Reference::Valid(header) => return Ok((KeySource::Valid(header), 1)),
            Reference::ValidUnion(_) => {
                return Err(LoadError::unsupported(
                    "the validity of a union as a key",
                    at,
                ));
            }
        };
        let mask = match &declared.mask {
            Some(mask) => unsigned(mask, field.bits, at)?,
            None => mask(field.bits),
        };
        Ok((
            KeySource::Field {
                slot: field.slot,
                header: field.header,
                mask,
            },
            field.bits,
        ))
    }

    fn flow(
        &self,
        declared: &json::Table,
        spec: &TableSpec,
        nodes: &NodeNumbers<'_>,
    ) -> Result<Flow, LoadError> {
        let at = &declared.name;
        let none: Next = match declared.next_tables.get("__MISS__") {
            Some(miss) => nodes.next(miss, at)?,
            None => nodes.next(&declared.base_default_next, at)?,
        };
        let mut flow = Flow {
            hit: vec![None; self.actions.len()],
            miss: vec![None; self.actions.len()],
            none,
        };
        let by_hit = ["__HIT__", "__MISS__"]
            .iter()
            .any(|key| declared.next_tables.contains_key(*key));
        for action in &spec.actions {
            let number = action.0 as usize;
            let find = |key: &str| {
                declared
                    .next_tables
                    .get(key)
                    .unwrap_or(&declared.base_default_next)
            };
            let name = self.action_specs[number].name.as_str();
            let (hit, miss) = if by_hit {
                ("__HIT__", "__MISS__")
            } else {
                (name, name)
            };
            flow.hit[number] = nodes.next(find(hit), at)?;
            flow.miss[number] = nodes.next(find(miss), at)?;
        }
        Ok(flow)
    }

    fn entries(
        &self,
        declared: &[json::Entry],
        spec: &TableSpec,
    ) -> Result<Vec<(MatchKey, ActionCall)>, LoadError> {
        // In the JSON the smaller priority wins; in P4Runtime and here the larger.
        let highest = declared
            .iter()
            .map(|entry| entry.priority)
            .max()
            .unwrap_or(0);
        let mut entries = Vec::new();
        for entry in declared {
            let fields = entry.match_key.iter().zip(&spec.keys);
            let fields = fields.map(|(field, key)| entry_field(field, key, &spec.name));
            let fields: Vec<KeyField> = fields.collect::<Result<_, _>>()?;
            let priority = if spec.takes_priority() {
                (highest - entry.priority).saturating_add(1)
            } else {
                0
            };
            let key = MatchKey { fields, priority };
            check_key(spec, &key).map_err(|e| LoadError::malformed(e.to_string(), &spec.name))?;
            let action = &entry.action_entry;
            entries.push((key, self.call(action.action_id, &action.action_data, spec)?));
        }
        Ok(entries)
    }

    fn call(&self, id: u32, data: &[String], spec: &TableSpec) -> Result<ActionCall, LoadError> {
        let action = self.action_of(id, &spec.name)?;
        let values = data.iter().map(|text| unsigned(text, 128, &spec.name));
        let call = ActionCall {
            action,
            arguments: values.collect::<Result<_, _>>()?,
        };
        check_arguments(&self.action_specs[action.0 as usize], &call.arguments)
            .map_err(|error| LoadError::malformed(error.to_string(), &spec.name))?;
        Ok(call)
    }

    fn action_of(&self, id: u32, at: &str) -> Result<ActionIndex, LoadError> {
        let found = self.action_ids.get(&id).copied();
        found.ok_or_else(|| LoadError::missing("action", &id.to_string(), at))
    }
}

fn entry_field(field: &json::EntryKey, key: &KeySpec, at: &str) -> Result<KeyField, LoadError> {
    let read = |text: Option<&str>| {
        let text = text.ok_or_else(|| LoadError::malformed("an entry lacks a value", at))?;
        unsigned(text, key.bits, at)
    };
    let value = || match &field.key {
        Some(serde_json::Value::Bool(valid)) => Ok(u128::from(*valid)),
        other => read(other.as_ref().and_then(serde_json::Value::as_str)),
    };
    Ok(match key.kind {
        MatchKind::Exact => KeyField::Exact(value()?),
        MatchKind::Lpm => {
            let prefix = field.prefix_length.unwrap_or(0).min(key.bits);
            KeyField::Lpm {
                value: value()? & !mask(key.bits - prefix),
                prefix,
            }
        }
        MatchKind::Ternary => {
            let mask = read(field.mask.as_deref())?;
            KeyField::Ternary {
                value: value()? & mask,
                mask,
            }
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
    fn of(declared: &'a json::Pipeline) -> Self {
        let tables = declared.tables.iter().map(|table| table.name.as_str());
        let branches = declared
            .conditionals
            .iter()
            .map(|branch| branch.name.as_str());
        let calls = declared.action_calls.iter().map(|call| call.name.as_str());
        let names = tables.chain(branches).chain(calls);
        Self(
            names
                .enumerate()
                .map(|(number, name)| (name, number as u32))
                .collect(),
        )
    }

    fn next(&self, name: &Option<String>, at: &str) -> Result<Next, LoadError> {
        let Some(name) = name else { return Ok(None) };
        match self.0.get(name.as_str()) {
            Some(number) => Ok(Some(*number)),
            None => Err(LoadError::missing("next node", name, at)),
        }
    }
}
