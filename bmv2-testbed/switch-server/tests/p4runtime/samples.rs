//! Entries of every table of a P4Info, made up from its declarations.

use p4info::action_ref::Scope;
use p4info::match_field::{Match, MatchType};
use p4rt::entity::Entity;
use p4rt::field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
use p4rt::table_action::Type as Action;
use p4rt::update::Type as Kind;
use p4runtime_proto::config_v1 as p4info;
use p4runtime_proto::v1 as p4rt;

use crate::bench::p4info;

/// Names of a P4Info, looked up.
pub(crate) struct Samples {
    pub(crate) info: p4info::P4Info,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self { info: p4info() }
    }

    /// The table with this alias.
    pub(crate) fn table(&self, alias: &str) -> &p4info::Table {
        let named = |table: &&p4info::Table| table.preamble.as_ref().unwrap().alias == alias;
        self.info.tables.iter().find(named).unwrap()
    }

    /// Entry number `n` of a table, with its `choice`-th action and arguments of that number.
    pub(crate) fn entry(&self, table: &p4info::Table, n: u64, choice: usize) -> p4rt::TableEntry {
        let action = self.action(table, n, choice);
        let action = match table.implementation_id {
            0 => Action::Action(action),
            _ => Action::ActionProfileActionSet(one_shot(vec![(action, 1)])),
        };
        let matches = table.match_fields.iter();
        let fields: Vec<_> = matches.map(|field| field_match(field, n)).collect();
        let ternary = |f: &p4rt::FieldMatch| {
            let kind = f.field_match_type.as_ref();
            !matches!(kind, Some(FieldMatchType::Exact(_) | FieldMatchType::Lpm(_)))
        };
        p4rt::TableEntry {
            table_id: id_of(table),
            priority: if fields.iter().any(ternary) { 10 } else { 0 },
            r#match: fields,
            action: Some(p4rt::TableAction { r#type: Some(action) }),
            metadata: n.to_be_bytes().to_vec(),
            ..p4rt::TableEntry::default()
        }
    }

    /// A call of one of the table's entry actions.
    pub(crate) fn action(&self, table: &p4info::Table, n: u64, choice: usize) -> p4rt::Action {
        let usable = table.action_refs.iter().filter(|action| action.scope() != Scope::DefaultOnly);
        let ids: Vec<u32> = usable.map(|action| action.id).collect();
        let action_id = ids[choice % ids.len()];
        let named = |a: &&p4info::Action| a.preamble.as_ref().unwrap().id == action_id;
        let declared = self.info.actions.iter().find(named).unwrap();
        let param = |param: &p4info::action::Param| p4rt::action::Param {
            param_id: param.id,
            value: canonical(n, param.bitwidth),
        };
        p4rt::Action { action_id, params: declared.params.iter().map(param).collect() }
    }
}

pub(crate) fn id_of(table: &p4info::Table) -> u32 {
    table.preamble.as_ref().unwrap().id
}

pub(crate) fn one_shot(choices: Vec<(p4rt::Action, i32)>) -> p4rt::ActionProfileActionSet {
    let choice = |(action, weight)| p4rt::ActionProfileAction {
        action: Some(action),
        weight,
        watch_kind: Some(p4rt::action_profile_action::WatchKind::WatchPort(vec![3])),
    };
    p4rt::ActionProfileActionSet {
        action_profile_actions: choices.into_iter().map(choice).collect(),
        ..p4rt::ActionProfileActionSet::default()
    }
}

fn field_match(field: &p4info::MatchField, n: u64) -> p4rt::FieldMatch {
    let bits = field.bitwidth;
    let value = canonical(n, bits);
    let Some(Match::MatchType(kind)) = field.r#match else { panic!("a match type is known") };
    let matched = match MatchType::try_from(kind).unwrap() {
        MatchType::Exact => FieldMatchType::Exact(Exact { value }),
        MatchType::Lpm => FieldMatchType::Lpm(Lpm { value, prefix_len: bits }),
        MatchType::Ternary => {
            FieldMatchType::Ternary(Ternary { value, mask: canonical(u64::MAX, bits) })
        }
        MatchType::Range => FieldMatchType::Range(Range { low: value.clone(), high: value }),
        MatchType::Optional => FieldMatchType::Optional(Optional { value }),
        MatchType::Unspecified => panic!("a match type is given"),
    };
    p4rt::FieldMatch { field_id: field.id, field_match_type: Some(matched) }
}

/// The lowest `bits` bits of `n` in as few bytes as they need.
pub(crate) fn canonical(n: u64, bits: i32) -> Vec<u8> {
    let value = if bits < 64 { n & ((1 << bits) - 1) } else { n };
    let bytes = value.to_be_bytes();
    let start = bytes.iter().position(|&byte| byte != 0).unwrap_or(7);
    bytes[start..].to_vec()
}

pub(crate) fn table_entry(entry: p4rt::TableEntry) -> p4rt::Entity {
    p4rt::Entity { entity: Some(Entity::TableEntry(entry)) }
}

pub(crate) fn update(kind: Kind, entity: p4rt::Entity) -> p4rt::Update {
    p4rt::Update { r#type: kind as i32, entity: Some(entity) }
}

pub(crate) fn insert(entry: &p4rt::TableEntry) -> p4rt::Update {
    update(Kind::Insert, table_entry(entry.clone()))
}

pub(crate) fn modify(entry: &p4rt::TableEntry) -> p4rt::Update {
    update(Kind::Modify, table_entry(entry.clone()))
}

pub(crate) fn delete(entry: &p4rt::TableEntry) -> p4rt::Update {
    update(Kind::Delete, table_entry(entry.clone()))
}
