//! Cables through patch panels: from interface to interface, over front and rear ports.
//!
//! The tables do not say which rear port is behind a front port. The decision: the one of the same
//! name or number, or the only rear port of the panel, a trunk; a cable that enters a trunk leaves
//! the far panel at the front port with the number of the one where it entered.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::list_names;
use crate::import::left_out::ImportNotes;

/// What a cable ends at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PortKind {
    Interface,
    Front,
    Rear,
    /// A port of a panel of which the table does not say the side.
    Panel,
    /// A port of a device of the fabric that is no interface of the table.
    Unlisted,
    /// What cables at it are left out for: a port for power, a console or a circuit.
    Other(String),
}

/// A side of a cable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Side {
    pub(super) device: String,
    pub(super) name: String,
    pub(super) kind: PortKind,
}

/// A cable of the table, or several in a row.
pub(super) struct CableRow {
    pub(super) field: String,
    pub(super) sides: [Side; 2],
}

impl CableRow {
    /// Both ends and the place in the file.
    pub(super) fn name(&self) -> String {
        let [a, b] = &self.sides;
        format!("{}:{}-{}:{} ({})", a.device, a.name, b.device, b.name, self.field)
    }
}

/// The cables between interfaces that `rows` are; rows that lead to none are left out.
pub(super) fn trace_cables(rows: &[CableRow], notes: &mut ImportNotes) -> Vec<CableRow> {
    let panels = Panels::of(rows);
    let mut used = vec![false; rows.len()];
    let mut ended: BTreeSet<&Side> = BTreeSet::new();
    let mut found: Vec<CableRow> = Vec::new();
    let starts = rows.iter().enumerate().flat_map(|(at, row)| {
        let [a, b] = &row.sides;
        [(at, a, b), (at, b, a)]
    });
    for (at, start, next) in starts.filter(|(_, start, _)| start.kind == PortKind::Interface) {
        if ended.contains(start) {
            continue;
        }
        let (way, end) = panels.follow(at, next);
        if end.kind == PortKind::Interface {
            way.iter().for_each(|at| used[*at] = true);
            ended.extend([start, end]);
            let field = rows[at].field.clone();
            found.push(CableRow { field, sides: [start.clone(), end.clone()] });
        } else if !used[at] {
            used[at] = true;
            let name = format!("{} as far as {}:{}", rows[at].name(), end.device, end.name);
            notes.leave_out("cable", "leads no further than a patch panel", name);
        }
    }
    for (row, _) in rows.iter().zip(&used).filter(|(_, used)| !**used) {
        notes.leave_out("cable", "between patch panels, on no way between interfaces", row.name());
    }
    let joined = used.iter().filter(|used| **used).count();
    let direct = found.len();
    if joined > direct && direct > 0 {
        let panels: BTreeSet<&str> = panels.by_device.keys().copied().collect();
        let names: Vec<&str> = panels.into_iter().collect();
        let sentence = format!(
            "front ports lead to the rear ports of the same number or to the only one of {} \
             patch panels: {}",
            names.len(),
            list_names(&names)
        );
        notes.assumptions.push(sentence);
    }
    found
}

/// The ports of panels that have a cable.
struct Panels<'a> {
    rows: &'a [CableRow],
    by_device: BTreeMap<&'a str, Vec<(usize, &'a Side, &'a Side)>>,
}

impl<'a> Panels<'a> {
    fn of(rows: &'a [CableRow]) -> Self {
        let mut by_device: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            let [a, b] = &row.sides;
            for (here, there) in [(a, b), (b, a)] {
                if here.kind != PortKind::Interface {
                    by_device.entry(&here.device).or_default().push((at, here, there));
                }
            }
        }
        Self { rows, by_device }
    }

    /// The rows from `at` on, and the interface, or the port of a panel, where they end.
    fn follow(&self, at: usize, next: &'a Side) -> (Vec<usize>, &'a Side) {
        let mut way = vec![at];
        let mut side = next;
        let mut position = None;
        while side.kind != PortKind::Interface && way.len() <= self.rows.len() {
            position = match side.kind {
                PortKind::Front | PortKind::Panel => last_number(&side.name),
                _ => position,
            };
            let Some((at, there)) = self.through(side, position, &way) else {
                break;
            };
            way.push(at);
            side = there;
        }
        (way, side)
    }

    /// The cable on the other side of a panel.
    fn through(
        &self,
        entry: &Side,
        position: Option<u32>,
        way: &[usize],
    ) -> Option<(usize, &'a Side)> {
        let ports = self.by_device.get(entry.device.as_str())?;
        let is_behind = |port: &Side| {
            let kinds = (&entry.kind, &port.kind);
            // A table without kinds of ports has it for none.
            matches!(kinds, (PortKind::Front, PortKind::Rear) | (PortKind::Rear, PortKind::Front))
                || matches!(kinds, (PortKind::Panel, PortKind::Panel))
        };
        let behind: Vec<_> =
            ports.iter().filter(|(at, port, _)| !way.contains(at) && is_behind(port)).collect();
        let one = |matches: &dyn Fn(&Side) -> bool| {
            let mut found = behind.iter().filter(|(_, port, _)| matches(port));
            let first = found.next()?;
            found.next().is_none().then_some((first.0, first.2))
        };
        let number = last_number(&entry.name);
        let same = || {
            one(&|port| port.name == entry.name)
                .or_else(|| one(&|port| number.is_some() && last_number(&port.name) == number))
        };
        let count = |kind| ports.iter().filter(|(_, port, _)| port.kind == kind).count();
        let rears = count(PortKind::Rear);
        match (&entry.kind, position) {
            // Several trunks: nothing says which one is behind a front port.
            _ if rears > 1 && count(PortKind::Front) > rears => None,
            (PortKind::Rear, Some(_)) => one(&|port| last_number(&port.name) == position)
                .or_else(|| one(&|port| last_number(&port.name).is_none())),
            _ => same().or_else(|| one(&|_| rears == 1 || ports.len() == 2)),
        }
    }
}

/// The last number in a name: 7 of `F7` and of `A07 front`.
fn last_number(name: &str) -> Option<u32> {
    let numbers = name.rsplit(|c: char| !c.is_ascii_digit());
    numbers.into_iter().find(|number| !number.is_empty())?.parse().ok()
}
