//! Property tests of writing and reading: random updates that are nearly right, on `fabric.p4`.

use p4rt::entity::Entity;
use p4rt::table_action::Type as Action;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::config_v1::action_ref::Scope;
use p4runtime_proto::v1 as p4rt;
use proptest::prelude::*;
use prost::Message;

use super::entity::{encode_action, encode_fields};
use super::entity_reader::wrap_entity;
use super::pipeline::{DevicePipelines, VerifiedPipeline};
use crate::p4runtime::p4info::{ActionSchema, FieldSchema, PipelineSchema, TableSchema};
use switch::MatchKind;
use switch::{ActionCall, KeyField, MatchKey};
use switch::{Device, DeviceConfig};

const JSON: &[u8] = include_bytes!("../../../../p4/fabric.json");
const INFO: &str = include_str!("../../../../p4/fabric.p4info.txtpb");

fn fabric_pipeline() -> VerifiedPipeline {
    VerifiedPipeline::verify_config(p4rt::ForwardingPipelineConfig {
        p4info: Some(P4Info::from_text(INFO).unwrap()),
        p4_device_config: JSON.to_vec(),
        cookie: None,
    })
    .unwrap()
}

/// A device of its own with one pipeline.
struct TestSwitch {
    device: Device,
    pipelines: DevicePipelines,
}

impl TestSwitch {
    fn new(pipeline: &VerifiedPipeline) -> Self {
        let mut device = Device::new(DeviceConfig {
            device_id: 1,
            cpu_port: 255,
            levels: 8,
            trusts_dscp: false,
        });
        let mut pipelines = DevicePipelines::default();
        pipelines.replace_pipeline(pipeline.clone(), &mut device);
        Self { device, pipelines }
    }

    /// Whether the update was carried out.
    fn write_update(&mut self, update: &p4rt::Update) -> bool {
        let updates = std::slice::from_ref(update);
        self.pipelines.write_updates(&mut self.device, "", updates, |_| None).unwrap()[0].is_ok()
    }

    fn read_state(&self) -> Vec<p4rt::Update> {
        self.pipelines.state_updates(&self.device).unwrap()
    }
}

/// The parts of a random update; numbers are small, so that updates concern the same objects.
#[derive(Clone, Debug)]
struct RandomUpdate {
    kind: i32,
    what: u8,
    table: prop::sample::Index,
    n: u8,
    choice: u8,
    flaw: u8,
    bytes: Vec<u8>,
    number: i64,
}

fn random_update() -> impl Strategy<Value = RandomUpdate> {
    let kind = prop_oneof![4 => Just(1), 2 => Just(2), 2 => Just(3), 1 => Just(0), 1 => Just(4)];
    let numbers = (kind, 0..8u8, any::<prop::sample::Index>(), 1..3u8, 0..3u8);
    let bytes = prop::collection::vec(any::<u8>(), 0..18);
    // Flaws are numbered 0 to 12: about two updates in three have none.
    let flaws = (0..40u8, bytes, any::<i64>());
    (numbers, flaws).prop_map(|((kind, what, table, n, choice), (flaw, bytes, number))| {
        RandomUpdate { kind, what, table, n, choice, flaw, bytes, number }
    })
}

impl RandomUpdate {
    fn to_update(&self, schema: &PipelineSchema) -> p4rt::Update {
        p4rt::Update { r#type: self.kind, entity: Some(self.to_entity(schema)) }
    }

    fn to_entity(&self, schema: &PipelineSchema) -> p4rt::Entity {
        let (&action_profile_id, profile) = schema.profiles.iter().next().unwrap();
        let members = schema.tables.get(&profile.table).unwrap();
        let n = u32::from(self.n);
        wrap_entity(match self.what {
            0 => Entity::ActionProfileMember(p4rt::ActionProfileMember {
                action_profile_id,
                member_id: n,
                action: self.action(members),
            }),
            1 => Entity::ActionProfileGroup(p4rt::ActionProfileGroup {
                action_profile_id,
                group_id: n,
                members: self.group_members(),
                max_size: profile.max_group_size,
            }),
            2 => Entity::CounterEntry(p4rt::CounterEntry {
                counter_id: *schema.counters.keys().next().unwrap(),
                index: Some(p4rt::Index { index: if self.flaw == 0 { self.number } else { 3 } }),
                data: Some(self.counter_data()),
            }),
            3 => Entity::DirectCounterEntry(p4rt::DirectCounterEntry {
                table_entry: Some(self.table_entry(schema)),
                data: Some(self.counter_data()),
            }),
            _ => Entity::TableEntry(self.table_entry(schema)),
        })
    }

    fn table_entry(&self, schema: &PipelineSchema) -> p4rt::TableEntry {
        let tables: Vec<&TableSchema> = match self.what {
            7 => schema.tables.values().filter(|table| table.profile.is_some()).collect(),
            6 => schema.tables.values().filter(|table| table.fields.is_empty()).collect(),
            3 => schema.tables.values().filter(|table| table.direct_counter).collect(),
            4 => schema.tables.values().collect(),
            // Few tables, so that updates concern the same entries.
            _ => schema.tables.values().take(3).collect(),
        };
        let table = self.table.get(&tables);
        let key = MatchKey {
            fields: table.fields.iter().map(|schema| self.key_field(schema)).collect(),
            priority: 0,
        };
        let mut entry = p4rt::TableEntry {
            table_id: table.id,
            r#match: encode_fields(table, &key),
            priority: i32::from(table.takes_priority),
            action: Some(p4rt::TableAction { r#type: self.action_target(table) }),
            metadata: self.bytes.clone(),
            counter_data: table.direct_counter.then(|| self.counter_data()),
            ..p4rt::TableEntry::default()
        };
        match self.flaw {
            1 => entry.r#match.clear(),
            2 => entry.priority = self.number as i32,
            3 => entry.action = None,
            4 => entry.is_default_action = true,
            _ if table.fields.is_empty() => entry.is_default_action = true,
            6 => entry.table_id = self.number as u32,
            7 => entry.counter_data = Some(self.counter_data()),
            8 => entry.r#match.extend(entry.r#match.clone()),
            _ => {}
        }
        entry
    }

    fn key_field(&self, schema: &FieldSchema) -> KeyField {
        let value = u128::from(self.n) & (u128::MAX >> (128 - schema.bits));
        match schema.kind {
            MatchKind::Exact => KeyField::Exact(value),
            MatchKind::Lpm => KeyField::Lpm { value, prefix: schema.bits },
            MatchKind::Ternary => KeyField::Ternary { value, mask: value },
            MatchKind::Range => KeyField::Range { low: value, high: value },
            MatchKind::Optional => KeyField::Optional(Some(value)),
        }
    }

    fn action(&self, table: &TableSchema) -> Option<p4rt::Action> {
        let all = table.actions.by_id.values();
        let actions: Vec<&ActionSchema> =
            all.filter(|a| self.flaw == 12 || a.scope != Scope::DefaultOnly).collect();
        let schema = actions[usize::from(self.choice) % actions.len()];
        let arguments = vec![u128::from(self.n); schema.parameters.len()];
        let mut action =
            encode_action(&table.actions, &ActionCall { action: schema.index, arguments })?;
        if let (9, Some(param)) = (self.flaw, action.params.first_mut()) {
            param.value = self.bytes.clone();
        }
        Some(action)
    }

    fn action_target(&self, table: &TableSchema) -> Option<Action> {
        match (self.choice, table.profile) {
            (_, None) => self.action(table).map(Action::Action),
            (0, _) => Some(Action::ActionProfileMemberId(u32::from(self.n))),
            (1, _) => Some(Action::ActionProfileGroupId(u32::from(self.n))),
            _ => {
                let choices = (0..self.n).map(|_| p4rt::ActionProfileAction {
                    action: self.action(table),
                    weight: if self.flaw == 10 { self.number as i32 } else { 1 },
                    watch_kind: None,
                });
                Some(Action::ActionProfileActionSet(p4rt::ActionProfileActionSet {
                    action_profile_actions: choices.collect(),
                    ..p4rt::ActionProfileActionSet::default()
                }))
            }
        }
    }

    fn group_members(&self) -> Vec<p4rt::action_profile_group::Member> {
        let weight = if self.flaw == 10 { self.number as i32 } else { 1 };
        let member =
            |member_id| p4rt::action_profile_group::Member { member_id, weight, watch_kind: None };
        (1..=u32::from(self.choice)).map(member).collect()
    }

    fn counter_data(&self) -> p4rt::CounterData {
        let packet_count = if self.flaw == 11 { self.number } else { 1 };
        p4rt::CounterData { packet_count, byte_count: 64 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A refused update changes nothing, and entries that are written to an empty switch are read
    /// there again.
    #[test]
    fn updates_do_all_or_nothing_and_state_is_symmetric(
        draws in prop::collection::vec(random_update(), 20..80),
    ) {
        let pipeline = fabric_pipeline();
        let mut switch = TestSwitch::new(&pipeline);
        for draw in draws {
            let before = switch.read_state();
            let update = draw.to_update(&pipeline.schema);
            if !switch.write_update(&update) {
                prop_assert_eq!(&switch.read_state(), &before, "after {:?}", update);
            }
            let query = draw.to_entity(&pipeline.schema);
            prop_assert!(switch.pipelines.read_entities(&switch.device, &[query], "").is_ok());
        }
        let state = switch.read_state();
        let mut copy = TestSwitch::new(&pipeline);
        for update in &state {
            prop_assert!(copy.write_update(update), "{:?}", update);
        }
        prop_assert_eq!(copy.read_state(), state);
    }

    /// Whatever the wire carries is answered, and leaves a state that can be read.
    #[test]
    fn no_message_panics(
        draw in random_update(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let pipeline = fabric_pipeline();
        let mut switch = TestSwitch::new(&pipeline);
        let mut bytes = draw.to_update(&pipeline.schema).encode_to_vec();
        for (at, byte) in damage {
            let position = at.index(bytes.len());
            bytes[position] = byte;
        }
        if let Ok(update) = p4rt::Update::decode(bytes.as_slice()) {
            switch.write_update(&update);
            let query = update.entity.unwrap_or_default();
            prop_assert!(switch.pipelines.read_entities(&switch.device, &[query], "").is_ok());
        }
        switch.read_state();
    }
}
