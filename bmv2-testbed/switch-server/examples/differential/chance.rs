//! Random entries and packets: mostly right, from small pools, so that they meet.

use p4rt::field_match::FieldMatchType;
use p4rt::update::Type as Kind;
use p4runtime_proto::config_v1::action_ref::Scope;
use p4runtime_proto::config_v1::match_field::{Match, MatchType};
use p4runtime_proto::config_v1::{self as p4info, P4Info};
use p4runtime_proto::v1 as p4rt;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of random choices.
pub(crate) struct Chance(ChaCha8Rng);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0.random_range(0..most)
    }

    pub(crate) fn one_in(&mut self, most: u64) -> bool {
        self.below(most) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.choose(&mut self.0).copied()
    }

    /// A value of so many bits that others are likely to be as well.
    fn value(&mut self, bits: u32) -> u128 {
        let small = u128::from(self.below(8));
        let value = match (bits, self.below(8)) {
            (_, 0) => self.0.random(),
            (128, 1) => u128::from(crate::frames::LINK_LOCAL) << 64 | small & 3,
            (128, _) => crate::frames::address6(small as u64),
            (32, _) => u128::from(crate::frames::address(small as u64)),
            (24, _) => small & 3,
            (6, _) => small << 3 | u128::from(self.below(2)),
            (48, _) => 0x0200_0000_0000 | small,
            (16, 1..=3) => self.pick(&[0x0800, 0x86dd, 4791, 0x88cc, 0x0806, 0x8100]).unwrap_or(0),
            (16, _) => 0xc000 | small & 3,
            (8, 1..=4) => self.pick(&[6, 17, 64, 1, 58, 135, 255]).unwrap_or(0),
            (9, 1..=2) => 255,
            _ => small,
        };
        value & (u128::MAX >> (128 - bits.min(128)))
    }

    /// A packet with the port it arrives on.
    pub(crate) fn packet(&mut self, kind: Traffic) -> (u16, Vec<u8>) {
        let mut packet = match kind {
            Traffic::Flows => self.frame(),
            Traffic::Bytes => {
                let length = 1 + self.below(90);
                (0..length)
                    .map(|_| self.pick(&[0, 1, 2, 3, 4, 7, 0x12, 0x34, 0xff]).unwrap_or(0))
                    .collect()
            }
        };
        let port = self.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 255]).unwrap_or(1);
        if port == 255 && kind == Traffic::Flows {
            let header = (self.below(9) << 7 | self.below(2) << 6) as u16;
            packet.splice(0..0, header.to_be_bytes());
        }
        match self.below(10) {
            0 => {
                let length = self.below(packet.len() as u64 + 1).max(1) as usize;
                packet.truncate(length);
            }
            1 | 2 => {
                for _ in 0..=self.below(4) {
                    let at = self.below(packet.len() as u64) as usize;
                    packet[at] = self.0.random();
                }
            }
            _ => {}
        }
        (port, packet)
    }

    /// An update of some table of the program.
    pub(crate) fn update(&mut self, info: &P4Info) -> Option<p4rt::Update> {
        let tables: Vec<&p4info::Table> = info
            .tables
            .iter()
            .filter(|table| !table.is_const_table && !table.match_fields.is_empty())
            .collect();
        let table = self.pick(&tables)?;
        let fields = &table.match_fields;
        let r#match: Vec<_> = fields.iter().filter_map(|field| self.field(field)).collect();
        let priority = if has_priority(table) { 1 + self.below(4) as i32 } else { 0 };
        let kind =
            self.pick(&[Kind::Insert, Kind::Insert, Kind::Insert, Kind::Modify, Kind::Delete])?;
        let mut entry = p4rt::TableEntry {
            table_id: table.preamble.as_ref()?.id,
            r#match,
            priority,
            action: Some(self.action(table, info)?),
            meter_config: is_metered(table).then(|| self.rates()).flatten(),
            ..p4rt::TableEntry::default()
        };
        if kind == Kind::Delete {
            (entry.action, entry.meter_config) = (None, None);
        }
        if self.one_in(50) {
            self.spoil(&mut entry);
        }
        let entity = Some(p4rt::entity::Entity::TableEntry(entry));
        Some(p4rt::Update { r#type: kind as i32, entity: Some(p4rt::Entity { entity }) })
    }

    /// Rates whose colour no time changes: all red, all yellow or all green. Without any, bmv2
    /// keeps those that the entry had before, or another one in its place.
    fn rates(&mut self) -> Option<p4rt::MeterConfig> {
        let unlimited = (1 << 40) + self.below(1 << 32) as i64;
        let (red, green) = ((0, 0), (unlimited, 1_i64 << 31));
        let (committed, peak) = self.pick(&[(red, red), (red, green), (green, green)])?;
        Some(p4rt::MeterConfig {
            cir: committed.0,
            cburst: committed.1,
            pir: peak.0,
            pburst: peak.1,
            eburst: 0,
        })
    }

    /// Breaks something in an entry that was right.
    fn spoil(&mut self, entry: &mut p4rt::TableEntry) {
        match self.below(5) {
            0 => entry.table_id ^= 1,
            1 => entry.r#match.clear(),
            2 => entry.priority = 1 - entry.priority.min(1),
            3 => {
                if let Some(field) = entry.r#match.first_mut() {
                    field.field_id = 99;
                }
            }
            _ => {
                if let Some(field) = entry.r#match.first().cloned() {
                    entry.r#match.push(field);
                }
            }
        }
    }

    fn field(&mut self, field: &p4info::MatchField) -> Option<p4rt::FieldMatch> {
        use p4rt::field_match::{Exact, Lpm, Optional, Range, Ternary};
        let bits = field.bitwidth as u32;
        let all = u128::MAX >> (128 - bits);
        let value = self.value(bits);
        let field_match_type = match kind_of(field) {
            MatchType::Lpm => {
                let prefix = self.pick(&[bits, bits - bits / 4, bits / 2])?;
                let value = value & !(all.unbounded_shr(prefix));
                FieldMatchType::Lpm(Lpm { value: bytes(value), prefix_len: prefix as i32 })
            }
            MatchType::Ternary if self.one_in(2) => return None,
            MatchType::Ternary => {
                let mask = self.pick(&[all, all, all & !1, 1])?;
                FieldMatchType::Ternary(Ternary { value: bytes(value & mask), mask: bytes(mask) })
            }
            MatchType::Range if self.one_in(2) => return None,
            MatchType::Range => {
                let high = (value + u128::from(self.below(8))).min(all);
                if (value, high) == (0, all) {
                    return None;
                }
                FieldMatchType::Range(Range { low: bytes(value), high: bytes(high) })
            }
            MatchType::Optional if self.one_in(2) => return None,
            MatchType::Optional => FieldMatchType::Optional(Optional { value: bytes(value) }),
            _ => FieldMatchType::Exact(Exact { value: bytes(value) }),
        };
        Some(p4rt::FieldMatch { field_id: field.id, field_match_type: Some(field_match_type) })
    }

    fn action(&mut self, table: &p4info::Table, info: &P4Info) -> Option<p4rt::TableAction> {
        use p4rt::table_action::Type;
        if table.implementation_id != 0 {
            return Some(p4rt::TableAction {
                r#type: Some(Type::ActionProfileGroupId(1 + self.below(GROUPS) as u32)),
            });
        }
        let allowed = entry_actions(table);
        let at = self.below(allowed.len() as u64) as usize;
        let action = self.call(at, &allowed, info)?;
        Some(p4rt::TableAction { r#type: Some(Type::Action(action)) })
    }

    fn call(&mut self, at: usize, allowed: &[u32], info: &P4Info) -> Option<p4rt::Action> {
        let action_id = allowed[at];
        let is_it = |action: &&p4info::Action| {
            action.preamble.as_ref().is_some_and(|preamble| preamble.id == action_id)
        };
        let action = info.actions.iter().find(is_it)?;
        let param = |declared: &p4info::action::Param| p4rt::action::Param {
            param_id: declared.id,
            value: bytes(self.value(declared.bitwidth as u32)),
        };
        let params = action.params.iter().map(param).collect();
        Some(p4rt::Action { action_id, params })
    }

    /// Members and groups for every action profile: written once, before any entry.
    pub(crate) fn groups(&mut self, info: &P4Info) -> Vec<p4rt::Update> {
        let mut updates = Vec::new();
        let insert = |entity: p4rt::entity::Entity| p4rt::Update {
            r#type: Kind::Insert as i32,
            entity: Some(p4rt::Entity { entity: Some(entity) }),
        };
        for profile in &info.action_profiles {
            let id = profile.preamble.as_ref().map_or(0, |preamble| preamble.id);
            let users = |table: &&p4info::Table| table.implementation_id == id;
            let Some(table) = info.tables.iter().find(users) else {
                continue;
            };
            let allowed = entry_actions(table);
            for member_id in 1..=MEMBERS as u32 {
                let action = self.call(member_id as usize % allowed.len(), &allowed, info);
                updates.push(insert(p4rt::entity::Entity::ActionProfileMember(
                    p4rt::ActionProfileMember { action_profile_id: id, member_id, action },
                )));
            }
            for group_id in 1..=GROUPS as u32 {
                let member = |member_id| p4rt::action_profile_group::Member {
                    member_id,
                    weight: 1,
                    ..p4rt::action_profile_group::Member::default()
                };
                updates.push(insert(p4rt::entity::Entity::ActionProfileGroup(
                    p4rt::ActionProfileGroup {
                        action_profile_id: id,
                        group_id,
                        members: (1..=group_id + 1).map(member).collect(),
                        max_size: 16,
                    },
                )));
            }
        }
        updates
    }
}

const MEMBERS: u64 = 8;
const GROUPS: u64 = 6;

/// A row of each table with meters, with this rate.
pub(crate) fn metered_rows(info: &P4Info, rate: i64) -> Vec<p4rt::Update> {
    let mut chance = Chance::new(rate.unsigned_abs());
    let row = |table: &p4info::Table| {
        let fields = table.match_fields.iter();
        let entry = p4rt::TableEntry {
            table_id: table.preamble.as_ref()?.id,
            r#match: fields.filter_map(|field| chance.field(field)).collect(),
            action: Some(chance.action(table, info)?),
            meter_config: Some(p4rt::MeterConfig {
                cir: rate,
                cburst: 16_384,
                pir: rate,
                pburst: 16_384,
                eburst: 0,
            }),
            ..p4rt::TableEntry::default()
        };
        let entity = Some(p4rt::entity::Entity::TableEntry(entry));
        let entity = Some(p4rt::Entity { entity });
        Some(p4rt::Update { r#type: Kind::Insert as i32, entity })
    };
    let metered = info.tables.iter().filter(|table| is_metered(table));
    metered.filter(|table| !has_priority(table)).filter_map(row).collect()
}

/// Whether the entries of a table need a priority.
fn has_priority(table: &p4info::Table) -> bool {
    let kinds = table.match_fields.iter().map(kind_of);
    let ranked = [MatchType::Ternary, MatchType::Range, MatchType::Optional];
    kinds.into_iter().any(|kind| ranked.contains(&kind))
}

/// Whether the entries of a table have meters.
pub(crate) fn is_metered(table: &p4info::Table) -> bool {
    const DIRECT_METER: u32 = 0x15;
    table.direct_resource_ids.iter().any(|id| id >> 24 == DIRECT_METER)
}

/// What packets look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// What hosts and switches of a fabric send, and what they should not.
    Flows,
    /// Bytes of a small alphabet.
    Bytes,
}

/// The actions that entries may call.
fn entry_actions(table: &p4info::Table) -> Vec<u32> {
    let refs = table.action_refs.iter();
    let allowed = refs.filter(|action| action.scope() != Scope::DefaultOnly);
    allowed.map(|action| action.id).collect()
}

fn kind_of(field: &p4info::MatchField) -> MatchType {
    match field.r#match {
        Some(Match::MatchType(kind)) => MatchType::try_from(kind).unwrap_or(MatchType::Exact),
        _ => MatchType::Exact,
    }
}

/// The canonical form: no leading zero bytes, at least one byte.
fn bytes(value: u128) -> Vec<u8> {
    let all = value.to_be_bytes();
    let zeros = (value.leading_zeros() / 8).min(15) as usize;
    all[zeros..].to_vec()
}
