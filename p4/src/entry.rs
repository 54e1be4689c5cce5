//! Entries of match-action tables, as plain ordered values.
//!
//! [`tables`](crate::tables) holds and compares them, [`fabric`](crate::fabric)
//! constructs those of `fabric.p4`, [`codec`](crate::codec) translates them to and from P4Runtime,
//! and [`P4Info::display`](crate::P4Info::display) prints them with their names. The decision: an
//! entry holds ids and [`FieldValue`]s, never names of fields or padded byte strings, so that two
//! entries that mean the same are equal, cheap to compare, and have one encoding.

use std::borrow::Cow;
use std::sync::Arc;

use crate::sdn_string::FieldValue;

/// The metadata of rows that a controller of ours wrote. The same in all of them: a number that
/// rose with every plan would turn each plan into a rewrite of every row.
pub const CONTROLLER_METADATA: &[u8] = b"crux";

/// The P4Runtime id of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// The P4Runtime id of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u32);

/// One row of a table, or its default action. Tables and updates share keys and values, because a
/// controller has millions of rows and may have to write them all at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableEntry {
    /// What identifies the entry on its switch.
    pub key: Arc<EntryKey>,
    /// What the entry does.
    pub value: Arc<EntryValue>,
}

/// What identifies an entry on its switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// The table.
    pub table: TableId,
    /// Which of its rows.
    pub row: TableRow,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableRow {
    /// What applies when no other row matches, where it differs from the program's own default.
    Default,
    /// A row with match fields.
    Match {
        /// The fields in ascending order of their ids; what does not matter is left out.
        fields: Vec<RowField>,
        /// Higher wins; 0 exactly where the table has neither ternary, range nor optional fields.
        priority: u32,
    },
}

/// One match field of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowField {
    /// The id of the field within its table.
    pub id: u32,
    /// The values that match.
    pub matches: FieldMatch,
}

/// The values of one field that match. Strings match as a whole: only exact and optional fields
/// have them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldMatch {
    /// Exactly this value.
    Exact(FieldValue),
    /// Values that begin like this one.
    Lpm {
        /// The prefix, zero behind its length.
        value: u128,
        /// Its length in bits, above 0.
        prefix_len: u32,
    },
    /// Values that agree with this one wherever the mask is set.
    Ternary {
        /// The value, zero outside the mask.
        value: u128,
        /// The bits that matter, at least one.
        mask: u128,
    },
    /// Values between two bounds, both included.
    Range {
        /// The smallest value.
        low: u128,
        /// The greatest value.
        high: u128,
    },
    /// Exactly this value; a row without the field matches all.
    Optional(FieldValue),
}

/// What an entry does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryValue {
    /// The action, or the group of actions to choose from.
    pub action: ActionSpec,
    /// Opaque bytes that the switch keeps for the controller; nothing is copied for
    /// [`CONTROLLER_METADATA`].
    pub metadata: Cow<'static, [u8]>,
    /// The rates of its direct meter; without them the meter colours every packet green. Boxed,
    /// because few of millions of rows have them.
    pub meter: Option<Box<MeterRates>>,
}

/// The rates of a meter, in bytes or packets per second, and its bursts, in bytes or packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeterRates {
    /// Committed rate; above it packets are yellow.
    pub cir: u64,
    /// Committed burst.
    pub cburst: u64,
    /// Peak rate; above it packets are red.
    pub pir: u64,
    /// Peak burst.
    pub pburst: u64,
}

/// The action of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionSpec {
    /// This action.
    Direct(ActionCall),
    /// One of these, chosen by the table's selector; sorted. See [`ActionSpec::one_shot`].
    OneShot(Vec<WeightedAction>),
    /// A member of the table's action profile, written by someone else.
    Member(u32),
    /// A group of the table's action profile, written by someone else.
    Group(u32),
}

/// An action with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionCall {
    /// The action.
    pub action: ActionId,
    /// The arguments in ascending order of their ids.
    pub params: Vec<ActionParam>,
}

/// An argument of an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionParam {
    /// The id of the parameter within its action.
    pub id: u32,
    /// Its value.
    pub value: FieldValue,
}

/// One action of a one-shot group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightedAction {
    /// The action.
    pub call: ActionCall,
    /// Its share of the traffic relative to the others; at least 1.
    pub weight: u32,
    /// The port whose failure takes the action out of the group, if the switch shall watch one.
    pub watch_port: Option<FieldValue>,
}

impl EntryKey {
    /// A row with these fields, which are put in order.
    pub fn for_row(table: TableId, mut fields: Vec<RowField>, priority: u32) -> Self {
        fields.sort_unstable();
        let row = TableRow::Match { fields, priority };
        Self { table, row }
    }

    /// The default action of a table.
    pub fn for_default(table: TableId) -> Self {
        let row = TableRow::Default;
        Self { table, row }
    }

    /// The entry with this key and action and no metadata.
    pub fn with_action(self, action: ActionSpec) -> TableEntry {
        let value = EntryValue { action, metadata: Cow::default(), meter: None };
        TableEntry { key: Arc::new(self), value: Arc::new(value) }
    }
}

impl TableEntry {
    /// The entry with these rates of its direct meter, as [`MeterRates::round_down`] gives them.
    #[must_use]
    pub fn with_meter(mut self, rates: MeterRates) -> Self {
        Arc::make_mut(&mut self.value).meter = Some(Box::new(rates.round_down()));
        self
    }

    /// The entry with [`CONTROLLER_METADATA`] as its metadata. A default action stays as it is:
    /// switches keep no metadata for those.
    #[must_use]
    pub fn with_signature(mut self) -> Self {
        if let TableRow::Match { .. } = self.key.row {
            Arc::make_mut(&mut self.value).metadata = Cow::Borrowed(CONTROLLER_METADATA);
        }
        self
    }
}

impl From<(&EntryKey, &EntryValue)> for TableEntry {
    fn from(parts: (&EntryKey, &EntryValue)) -> Self {
        Self { key: Arc::new(parts.0.clone()), value: Arc::new(parts.1.clone()) }
    }
}

impl MeterRates {
    /// One rate: packets within it and a burst of one `burst` are green, others red.
    pub fn single_rate(rate: u64, burst: u64) -> Self {
        Self { cir: rate, cburst: burst, pir: rate, pburst: burst }
    }

    /// The highest rates and bursts not above these that bmv2 returns as they were written; an
    /// entry with others would never read back equal. bmv2 divides a rate by a million, and
    /// truncates the product when it is read: 249 comes back as 248. It keeps bursts in 32 bits,
    /// all ones for none.
    #[must_use]
    pub fn round_down(self) -> Self {
        const LONGEST_BURST: u64 = u32::MAX as u64 - 1;
        let is_kept = |rate: u64| (rate as f64 / 1e6 * 1e6) as u64 == rate;
        let kept = |rate: u64| (0..=rate).rev().find(|rate| is_kept(*rate)).unwrap_or(0);
        Self {
            cir: kept(self.cir),
            cburst: self.cburst.min(LONGEST_BURST),
            pir: kept(self.pir),
            pburst: self.pburst.min(LONGEST_BURST),
        }
    }
}

impl EntryValue {
    /// Whether a controller of ours wrote it.
    pub fn is_signed(&self) -> bool {
        *self.metadata == *CONTROLLER_METADATA
    }
}

impl RowField {
    /// A field that must equal `value`.
    pub fn exact(id: u32, value: impl Into<FieldValue>) -> Self {
        let matches = FieldMatch::Exact(value.into());
        Self { id, matches }
    }

    /// A field that must equal `value`, in a table where a row may leave it out.
    pub fn optional(id: u32, value: impl Into<FieldValue>) -> Self {
        let matches = FieldMatch::Optional(value.into());
        Self { id, matches }
    }

    /// A field that must equal `value` where `mask` is set; `None` where no bit matters.
    pub fn ternary(id: u32, value: u128, mask: u128) -> Option<Self> {
        let value = value & mask;
        let matches = FieldMatch::Ternary { value, mask };
        (mask != 0).then_some(Self { id, matches })
    }

    /// A field of `width` bits that must begin like `value`; `None` for the empty prefix.
    pub fn lpm(id: u32, value: u128, prefix_len: u32, width: u32) -> Option<Self> {
        let free = width.checked_sub(prefix_len)?;
        let value = value.checked_shr(free)?.checked_shl(free)?;
        let matches = FieldMatch::Lpm { value, prefix_len };
        (prefix_len > 0).then_some(Self { id, matches })
    }
}

impl ActionCall {
    /// An action with its arguments, numbered from 1 as p4c does.
    pub fn new<const N: usize>(action: ActionId, arguments: [FieldValue; N]) -> Self {
        let params = (1..).zip(arguments).map(|(id, value)| ActionParam { id, value });
        let params = params.collect();
        Self { action, params }
    }
}

impl ActionSpec {
    /// A one-shot group: the order in which its actions are given means nothing.
    pub fn one_shot(actions: impl IntoIterator<Item = WeightedAction>) -> Self {
        let mut actions: Vec<_> = actions.into_iter().collect();
        actions.sort_unstable();
        Self::OneShot(actions)
    }

    /// Every action that the entry may execute and that is written in it.
    pub fn action_calls(&self) -> impl Iterator<Item = &ActionCall> {
        let (direct, group) = match self {
            Self::Direct(call) => (Some(call), &[][..]),
            Self::OneShot(group) => (None, &group[..]),
            Self::Member(_) | Self::Group(_) => (None, &[][..]),
        };
        direct.into_iter().chain(group.iter().map(|weighted| &weighted.call))
    }
}

impl From<ActionCall> for ActionSpec {
    fn from(call: ActionCall) -> Self {
        Self::Direct(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What bmv2 returns of a rate.
    fn read_back(rate: u64) -> u64 {
        let per_microsecond = rate as f64 / 1_000_000.0;
        (per_microsecond * 1_000_000.0) as u64
    }

    #[test]
    fn rates_are_rounded_down_to_what_bmv2_returns() {
        for rate in [0, 3, 64, 256, 1_562_500_000, 1_562_500_001, 12_500_000_000] {
            assert_eq!(MeterRates::single_rate(rate, 9).round_down().cir, rate);
        }
        assert_eq!((read_back(249), read_back(251)), (248, 250));
        for rate in (1..100_000).chain((1..50_000_000_000).step_by(499_999)) {
            let rounded = MeterRates::single_rate(rate, 9).round_down();
            assert_eq!((rounded.cir, rounded.pir), (read_back(rounded.cir), rounded.cir));
            assert!(rounded.cir <= rate && rate - rounded.cir <= 64, "{rate}");
        }
    }

    #[test]
    fn bursts_are_kept_within_32_bits() {
        let rounded = MeterRates::single_rate(1, 1 << 40).round_down();
        assert_eq!((rounded.cburst, rounded.pburst), (0xffff_fffe, 0xffff_fffe));
    }
}
