//! Entries and updates as people read them: names instead of ids, addresses instead of numbers.
//!
//! Logs, diffs and the command line print with [`P4Info::display`]. The decision: what the program
//! does not know is shown as its id, so that nothing a switch returns is unprintable.

use std::fmt::{self, Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::entry::{
    ActionCall, ActionSpec, CONTROLLER_METADATA, EntryKey, EntryValue, FieldMatch, MeterRates,
    RowField, TableEntry, TableRow,
};
use crate::p4info::{FieldInfo, P4Info, ValueFormat};
use crate::sdn_string::FieldValue;
use crate::{TableUpdate, UpdateKind};

/// Something together with the program whose names it is shown with.
#[derive(Clone, Copy, Debug)]
pub struct P4InfoDisplay<'a, T> {
    p4info: &'a P4Info,
    value: &'a T,
}

impl P4Info {
    /// `value` with the program's names; see [`P4InfoDisplay`].
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use p4::{ForwardingPipeline, fabric};
    ///
    /// let p4info = &ForwardingPipeline::embedded_fabric().p4info;
    /// let flow = fabric::FlowKey::for_roce([10, 0, 1, 1], [10, 0, 2, 1], 49152);
    /// let job = NonZeroU32::new(7).unwrap();
    /// let pin = fabric::flow_pin(fabric::PinPoint::Transit, &flow, 2, job).unwrap();
    /// assert_eq!(
    ///     p4info.display(&pin).to_string(),
    ///     "flow_pin src=10.0.1.1 dst=10.0.2.1 proto=17 sport=49152 dport=4791 \
    ///      -> pin(path=2, job=7)"
    /// );
    /// ```
    pub fn display<'a, T>(&'a self, value: &'a T) -> P4InfoDisplay<'a, T> {
        let p4info = self;
        P4InfoDisplay { p4info, value }
    }
}

impl Display for P4InfoDisplay<'_, TableUpdate> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let entry = &self.value.entry;
        match self.value.kind {
            UpdateKind::Insert => write!(f, "insert {}", self.p4info.display(entry)),
            UpdateKind::Modify => write!(f, "modify {}", self.p4info.display(entry)),
            UpdateKind::Delete => write!(f, "delete {}", self.p4info.display(&*entry.key)),
        }
    }
}

impl Display for P4InfoDisplay<'_, TableEntry> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let TableEntry { key, value } = self.value;
        write!(f, "{} -> {}", self.p4info.display(&**key), self.p4info.display(&**value))
    }
}

impl Display for P4InfoDisplay<'_, EntryKey> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let EntryKey { table, row } = self.value;
        let table = match self.p4info.table(*table) {
            Some(table) => {
                f.write_str(&table.name)?;
                Some(table)
            }
            None => {
                write!(f, "table {:#x}", table.0)?;
                None
            }
        };
        let TableRow::Match { fields, priority } = row else {
            return f.write_str(" default");
        };
        for field in fields {
            let known = table.and_then(|table| table.field(field.id));
            write!(f, " {}", FieldDisplay(field, known.map(|known| &known.info)))?;
        }
        match priority {
            0 => Ok(()),
            priority => write!(f, " priority={priority}"),
        }
    }
}

impl Display for P4InfoDisplay<'_, EntryValue> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.p4info.display(&self.value.action))?;
        if let Some(rates) = self.value.meter.as_deref() {
            let MeterRates { cir, cburst, pir, pburst } = rates;
            write!(f, " meter(cir={cir}, cburst={cburst}, pir={pir}, pburst={pburst})")?;
        }
        match &self.value.metadata[..] {
            [] | CONTROLLER_METADATA => Ok(()),
            metadata => write!(f, " metadata={metadata:02x?}"),
        }
    }
}

impl Display for P4InfoDisplay<'_, ActionSpec> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.value {
            ActionSpec::Direct(call) => write!(f, "{}", self.p4info.display(call)),
            ActionSpec::Member(id) => write!(f, "member {id}"),
            ActionSpec::Group(id) => write!(f, "group {id}"),
            ActionSpec::OneShot(group) => {
                write_separated(f, ["[", ", ", "]"], group, |f, weighted| {
                    write!(f, "{}x{}", weighted.weight, self.p4info.display(&weighted.call))
                })
            }
        }
    }
}

impl Display for P4InfoDisplay<'_, ActionCall> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ActionCall { action, params } = self.value;
        let known = self.p4info.action(*action);
        match known {
            Some(known) => f.write_str(&known.name)?,
            None => write!(f, "action {:#x}", action.0)?,
        }
        write_separated(f, ["(", ", ", ")"], params, |f, param| {
            let slot = known.and_then(|known| known.param(param.id));
            write_name(f, param.id, slot)?;
            write_value(f, &param.value, slot)
        })
    }
}

struct FieldDisplay<'a>(&'a RowField, Option<&'a FieldInfo>);

impl Display for FieldDisplay<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(field, slot) = *self;
        write_name(f, field.id, slot)?;
        match &field.matches {
            FieldMatch::Exact(value) | FieldMatch::Optional(value) => write_value(f, value, slot),
            FieldMatch::Lpm { value, prefix_len } => {
                write_number(f, *value, slot)?;
                write!(f, "/{prefix_len}")
            }
            FieldMatch::Ternary { value, mask } => {
                write_number(f, *value, slot)?;
                let whole = slot.and_then(FieldInfo::max_number) == Some(*mask);
                if whole { Ok(()) } else { write!(f, "&{mask:#x}") }
            }
            FieldMatch::Range { low, high } => {
                write_number(f, *low, slot)?;
                f.write_str("..=")?;
                write_number(f, *high, slot)
            }
        }
    }
}

fn write_name(f: &mut Formatter<'_>, id: u32, slot: Option<&FieldInfo>) -> fmt::Result {
    match slot {
        Some(slot) => write!(f, "{}=", slot.name),
        None => write!(f, "#{id}="),
    }
}

fn write_value(f: &mut Formatter<'_>, value: &FieldValue, slot: Option<&FieldInfo>) -> fmt::Result {
    match value {
        FieldValue::Number(number) => write_number(f, *number, slot),
        FieldValue::Text(text) => write!(f, "{text}"),
    }
}

/// A value that exceeds what its format can hold is shown as a number.
fn write_number(f: &mut Formatter<'_>, value: u128, slot: Option<&FieldInfo>) -> fmt::Result {
    let format = slot.map_or(ValueFormat::Number, |slot| slot.format);
    match (format, u32::try_from(value), value.to_be_bytes()) {
        (ValueFormat::Ipv4, Ok(address), _) => write!(f, "{}", Ipv4Addr::from_bits(address)),
        (ValueFormat::Ipv6, _, _) => write!(f, "{}", Ipv6Addr::from_bits(value)),
        (ValueFormat::Mac, _, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, mac @ ..]) => {
            write_separated(f, ["", ":", ""], &mac, |f, byte| write!(f, "{byte:02x}"))
        }
        _ => write!(f, "{value}"),
    }
}

fn write_separated<T>(
    f: &mut Formatter<'_>,
    [before, between, after]: [&str; 3],
    items: &[T],
    show: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_str(before)?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        show(f, item)?;
    }
    f.write_str(after)
}
