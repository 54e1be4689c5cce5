//! What a compiled P4 program offers to its controller: an index of P4Info by id and by name.
//!
//! [`codec`](crate::codec) asks it which tables exist, [`tables`](crate::tables) in which order to
//! write them, [`display`](crate::display) what things are called. The decision: P4Info is read
//! once into plain values, so nothing else depends on the protobufs that describe programs.

mod field_reader;
mod index_builder;

use std::collections::{BTreeMap, BTreeSet};

pub use p4_constraints::MatchKind;
use p4_constraints::{Constraint, ConstraintError};
use p4runtime_proto::config_v1 as p4config;

use crate::entry::{ActionCall, ActionId, TableId};

/// A compiled program's tables, actions, counters and packet headers.
#[derive(Clone, Debug)]
pub struct P4Info {
    pub(crate) message: p4config::P4Info,
    tables: BTreeMap<TableId, TableInfo>,
    actions: BTreeMap<ActionId, ActionInfo>,
    counters: BTreeMap<u32, CounterInfo>,
    headers: BTreeMap<String, Vec<FieldInfo>>,
    pub(crate) strings: StringFields,
}

/// The fields whose values are strings; none in most programs, which makes it fast to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StringFields {
    pub(crate) match_fields: BTreeSet<(TableId, u32)>,
    pub(crate) params: BTreeSet<(ActionId, u32)>,
    /// Whether the ports that groups watch are strings, as `packet_in.ingress_port` is.
    pub(crate) ports: bool,
}

/// A match-action table of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its id.
    pub id: TableId,
    /// Its name without the control it stands in.
    pub name: String,
    /// Its full name, as in the BMv2 JSON.
    pub full_name: String,
    /// Its match fields, ascending by id.
    pub fields: Vec<MatchField>,
    /// The actions that its rows may use.
    pub row_actions: Vec<ActionId>,
    /// The actions that only its default may use.
    pub default_only: Vec<ActionId>,
    /// Who sets its default action.
    pub default: DefaultAction,
    /// The id of the action profile that holds its actions, if they are indirect.
    pub profile: Option<u32>,
    /// Whether its rows count the packets they match.
    pub counted: bool,
    /// Whether its rows meter the packets they match.
    pub metered: bool,
    /// How many rows it can hold.
    pub size: u64,
    /// What its rows must satisfy (`@entry_restriction`).
    pub restriction: Option<Constraint>,
    /// Whether rows of others refer to its rows.
    pub is_referred_to: bool,
    /// Its place in the write order: greater than that of every table it refers to.
    pub rank: usize,
}

/// Who sets the default action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// The program, for ever.
    Const,
    /// The controller; until it does, this action applies.
    Initial(Option<ActionCall>),
}

/// A match field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchField {
    /// Its id, name, width and format.
    pub info: FieldInfo,
    /// How it matches.
    pub kind: MatchKind,
}

/// A named value: a match field, an action's parameter or a field of a packet header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Its id within what it belongs to.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Which values it has.
    pub value_type: ValueType,
    /// How people write its values.
    pub format: ValueFormat,
    /// The names of the tables in which its value must occur, from `@refers_to`.
    pub refers_to: Vec<String>,
}

/// Which values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Numbers of so many bits, 1 to 128.
    Bits(u32),
    /// Strings that the switch translates (`sdn_string`).
    Text,
}

/// How people write a value, from `@format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// A decimal number.
    Number,
    /// An Ethernet address.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
}

/// An action and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionInfo {
    /// Its id.
    pub id: ActionId,
    /// Its name without the control it stands in.
    pub name: String,
    /// Its full name, as in the BMv2 JSON.
    pub full_name: String,
    /// Its parameters, ascending by id.
    pub params: Vec<FieldInfo>,
    /// What its calls must satisfy (`@action_restriction`).
    pub restriction: Option<Constraint>,
}

/// An indexed counter of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterInfo {
    /// Its id.
    pub id: u32,
    /// Its name without the control it stands in.
    pub name: String,
    /// Its full name, as in the BMv2 JSON.
    pub full_name: String,
    /// How many cells it has.
    pub size: u64,
}

/// The text is no P4Info that this controller can use.
#[derive(Debug, thiserror::Error)]
pub enum P4InfoError {
    /// It is not the text format of `p4.config.v1.P4Info`.
    #[error("not the text of a P4Info message")]
    Text(#[source] p4runtime_proto::TextError),
    /// An object without id or name.
    #[error("a {0} has no preamble")]
    MissingPreamble(&'static str),
    /// A reference to an action that is not there.
    #[error("table `{table}` uses action {action}, which is not there")]
    UnknownAction {
        /// The table's name.
        table: String,
        /// The missing action's id.
        action: u32,
    },
    /// A kind of match that P4Runtime does not define.
    #[error("field `{field}` of table `{table}` matches in an unknown way")]
    UnknownMatch {
        /// The table's name.
        table: String,
        /// The field's name.
        field: String,
    },
    /// A value wider than 128 bits, or of no width.
    #[error("`{0}` is not between 1 and 128 bits wide")]
    Width(String),
    /// A restriction that is not in the language of constraints.
    #[error("cannot read the restriction of `{name}`")]
    Restriction {
        /// The table or action.
        name: String,
        /// What is wrong with it.
        source: ConstraintError,
    },
    /// A string in a field that has parts of values, such as a prefix.
    #[error("field `{field}` of table `{table}` is a string, which can match as a whole only")]
    PartialString {
        /// The table's name.
        table: String,
        /// The field's name.
        field: String,
    },
    /// Tables that refer to each other.
    #[error("tables refer to each other in a circle: {}", .0.join(", "))]
    ReferenceCycle(Vec<String>),
}

impl P4Info {
    /// Reads the text format that p4c writes.
    pub fn parse(text: &str) -> Result<Self, P4InfoError> {
        index_builder::build_index(p4config::P4Info::from_text(text).map_err(P4InfoError::Text)?)
    }

    /// All tables, ascending by id.
    pub fn tables(&self) -> impl Iterator<Item = &TableInfo> + Clone {
        self.tables.values()
    }

    /// The ids of all tables.
    pub fn table_ids(&self) -> BTreeSet<TableId> {
        self.tables().map(|table| table.id).collect()
    }

    /// All actions, ascending by id.
    pub fn actions(&self) -> impl Iterator<Item = &ActionInfo> {
        self.actions.values()
    }

    /// All indexed counters, ascending by id.
    pub fn counters(&self) -> impl Iterator<Item = &CounterInfo> {
        self.counters.values()
    }

    /// The table with this id.
    pub fn table(&self, id: TableId) -> Option<&TableInfo> {
        self.tables.get(&id)
    }

    /// The action with this id.
    pub fn action(&self, id: ActionId) -> Option<&ActionInfo> {
        self.actions.get(&id)
    }

    /// The counter with this id.
    pub fn counter(&self, id: u32) -> Option<&CounterInfo> {
        self.counters.get(&id)
    }

    /// How many members a group of this table may have (`max_group_size` of its selector); `None`
    /// without a selector or a limit.
    pub fn group_members_max(&self, table: TableId) -> Option<usize> {
        let mut selectors = self.message.action_profiles.iter();
        let selector = selectors.find(|selector| selector.table_ids.contains(&table.0))?;
        usize::try_from(selector.max_group_size).ok().filter(|max| *max > 0)
    }

    /// The table with this name, short or full.
    pub fn table_named(&self, name: &str) -> Option<&TableInfo> {
        self.tables().find(|table| table.name == name || table.full_name == name)
    }

    /// The action with this name, short or full.
    pub fn action_named(&self, name: &str) -> Option<&ActionInfo> {
        self.actions().find(|action| action.name == name || action.full_name == name)
    }

    /// The fields of `packet_in` or `packet_out`, without padding; empty if there is no such
    /// header.
    pub fn packet_header(&self, name: &str) -> &[FieldInfo] {
        self.headers.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a table cannot hold so many rows and is one whose old rows can be deleted before new
    /// ones come: no other refers to it, and it classifies packets rather than routes them.
    pub(crate) fn gives_up_old_rows(&self, id: TableId, rows: u64) -> bool {
        self.table(id).is_some_and(|table| {
            rows > table.size && !table.is_referred_to && table.needs_priority()
        })
    }

    /// The place of a table in the write order; unknown tables come last.
    pub(crate) fn write_rank(&self, id: TableId) -> usize {
        self.table(id).map_or(usize::MAX, |table| table.rank)
    }
}

impl FieldInfo {
    /// Its greatest number; `None` for a string.
    pub fn max_number(&self) -> Option<u128> {
        match self.value_type {
            ValueType::Bits(width) => Some(u128::MAX >> (128 - width)),
            ValueType::Text => None,
        }
    }
}

impl TableInfo {
    /// The match field with this id.
    pub fn field(&self, id: u32) -> Option<&MatchField> {
        self.fields.iter().find(|field| field.info.id == id)
    }

    /// Whether rows need a priority above 0, because several may match one packet.
    pub fn needs_priority(&self) -> bool {
        let overlaps =
            |field: &MatchField| !matches!(field.kind, MatchKind::Exact | MatchKind::Lpm);
        self.fields.iter().any(overlaps)
    }
}

impl ActionInfo {
    /// The parameter with this id.
    pub fn param(&self, id: u32) -> Option<&FieldInfo> {
        self.params.iter().find(|param| param.id == id)
    }
}
