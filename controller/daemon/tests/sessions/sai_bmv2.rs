//! A published SAI P4 program on bmv2, where it is installed and `CRUX_SAI_BMV2` names the program
//! as `scripts/check-sai.py --keep` compiles it (`FOLDER/middleblock`). All switches of a process
//! with SAI P4 have one program, so this runs by itself, once for each.
//!
//! bmv2 translates no strings: programs are compiled for it with `PLATFORM_BMV2`, where an
//! identifier is a number whose bytes are those of the string, and a port is its number. The
//! decision: the controller programs embedded switches, and every row that they then hold is given
//! to bmv2 in that form, with the packets that they have passed on. Nothing of the controller
//! depends on how a program is compiled for bmv2.

#[path = "../../../../bmv2-testbed/switch-server/examples/differential/bmv2.rs"]
mod bmv2;
#[path = "../../../../bmv2-testbed/switch-server/examples/differential/controller.rs"]
mod controller;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::controller::StateEvent;
use p4::{ForwardingPipeline, P4Info, SwitchTables, bytes, codec, diff_tables};
use p4rt::action_profile_action::WatchKind;
use p4rt::entity::Entity;
use p4rt::field_match::FieldMatchType;
use p4rt::table_action::Type;
use p4runtime_proto::config_v1::P4Info as P4InfoMessage;
use p4runtime_proto::v1 as p4rt;
use switch::{DeviceIndex, DeviceOutputs};
use tonic::Code;
use topology::{Fabric, FabricNode, LinkEndpoint, MacAddress, SwitchId, Tier};

use self::bmv2::{Bmv2, Sent};
use self::controller::Controller;
use crate::lab::{Lab, parts};
use crate::program::{self, installed};
use crate::sai::{both_ways, settled, wired_lab};
use crate::traffic::frame;

/// Packets of each pair of hosts.
const PORTS: std::ops::Range<u16> = 50_000..50_008;
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The type of ports in SAI P4, which bmv2 knows by number.
const PORT_TYPE: &str = "port_id_t";

/// What came in at a switch, and what it sent for it.
type ForwardedPacket = (Sent, Vec<Sent>);

#[tokio::test]
async fn a_published_program_holds_the_rows_on_bmv2_and_forwards_as_embedded() {
    let (Ok(name), Some(_)) = (std::env::var("CRUX_SAI_BMV2"), installed()) else {
        println!("not run: needs CRUX_SAI_BMV2 and simple_switch_grpc on PATH");
        return;
    };
    let file = |suffix: &str| PathBuf::from(format!("{name}{suffix}"));
    let lab = wired_lab(parts(), &[Tier::Leaf, Tier::Spine], |_, _| {}).await;
    let controller = lab
        .control(|raw| {
            raw.sai.p4info = Some(file(".p4info.txtpb"));
            raw.sai.json = Some(file(".json"));
        })
        .await;
    let jobs = vec![both_ways(&lab, "a", 50_000), both_ways(&lab, "b", 50_001)];
    controller.submit_event(StateEvent::JobsChanged(jobs)).await.unwrap();
    settled(&lab, &controller).await;
    let forwarded = send_through_embedded(&lab).await;
    let desired = controller.desired_tables();
    let program = ForwardingPipeline::new(&read(&file(".p4info.txtpb")), &read(&file(".json")));
    let program = program.unwrap();
    let described = codec::encode_pipeline(&program).p4info.unwrap();
    let ports = PortFields::of_program(&described);
    let (mut rows, mut packets) = (0, 0);
    for (switch, tables) in &desired.tables {
        let mut theirs = OnBmv2::start(&format!("{name}-bmv2")).await;
        rows += theirs.write_tables(&program.p4info, tables, &ports).await;
        for (came_in, ours) in forwarded.get(switch).into_iter().flatten() {
            theirs.compare_packet(came_in, ours);
            packets += 1;
        }
    }
    controller.shutdown().await;
    assert!(rows >= 60 && packets > 100, "{rows} {packets}");
    println!(
        "{name}: bmv2 holds {rows} rows of {} switches and forwards {packets} packets alike",
        desired.tables.len()
    );
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Packets of all pairs of hosts, from leaf to host: what passes each switch.
async fn send_through_embedded(lab: &Lab) -> BTreeMap<SwitchId, Vec<ForwardedPacket>> {
    let mut forwarded: BTreeMap<SwitchId, Vec<ForwardedPacket>> = BTreeMap::new();
    let fabric = &lab.fabric;
    let pairs = fabric.nic_ids().flat_map(|src| fabric.nic_ids().map(move |dst| (src, dst)));
    for (src, dst) in pairs.filter(|(src, dst)| src != dst) {
        for port in PORTS {
            let mut packet = frame([src, dst].map(|nic| fabric.nic(nic)), port, 0);
            packet[..6].copy_from_slice(&MacAddress::GATEWAY.0);
            let mut at = fabric.link(fabric.nic(src).uplink).to;
            while let FabricNode::Switch(switch) = at.node {
                let came_in: Sent = (at.port as u16, packet);
                let sent = pass_embedded(lab, switch, came_in.clone()).await;
                let [(out, next)] = &sent[..] else { panic!("{sent:?} from {switch:?}") };
                at = far_end(fabric, switch, (*out).into());
                packet = next.clone();
                forwarded.entry(switch).or_default().push((came_in, sent));
            }
            assert_eq!(at.node, FabricNode::Host(fabric.nic(dst).host), "{src:?} to {dst:?}");
        }
    }
    forwarded
}

async fn pass_embedded(lab: &Lab, switch: SwitchId, (port, packet): Sent) -> Vec<Sent> {
    let device = lab.switches.devices.device(DeviceIndex(switch.0));
    let run = move |device: &mut switch::Device| {
        let mut out = DeviceOutputs::default();
        device.process_packet(port, &packet, 0, &mut out);
        out.packets.into_iter().map(|sent| (sent.port, sent.packet)).collect()
    };
    device.with_device(run).await.unwrap()
}

/// Where the cable at a port of a switch ends.
fn far_end(fabric: &Fabric, switch: SwitchId, port: u32) -> LinkEndpoint {
    let ports = &fabric.switch(switch).ports;
    fabric.link(ports[&port]).to
}

/// Fields and parameters of a program that are ports: by the id of the table or action, and their
/// own.
struct PortFields(BTreeSet<(u32, u32)>);

impl PortFields {
    fn of_program(message: &P4InfoMessage) -> Self {
        let fields = message.tables.iter().flat_map(|table| {
            let of = table.preamble.as_ref().map_or(0, |preamble| preamble.id);
            table.match_fields.iter().map(move |field| (of, field.id, &field.type_name))
        });
        let params = message.actions.iter().flat_map(|action| {
            let of = action.preamble.as_ref().map_or(0, |preamble| preamble.id);
            action.params.iter().map(move |param| (of, param.id, &param.type_name))
        });
        let ports = fields
            .chain(params)
            .filter(|(.., named)| named.as_ref().is_some_and(|named| named.name == PORT_TYPE));
        Self(ports.map(|(of, id, _)| (of, id)).collect())
    }

    fn translate_entry(&self, entry: &mut p4rt::TableEntry) {
        for field in &mut entry.r#match {
            let place = (entry.table_id, field.field_id);
            match &mut field.field_match_type {
                Some(FieldMatchType::Exact(exact)) => self.translate_value(place, &mut exact.value),
                Some(FieldMatchType::Optional(one)) => self.translate_value(place, &mut one.value),
                _ => {}
            }
        }
        match entry.action.as_mut().and_then(|action| action.r#type.as_mut()) {
            Some(Type::Action(call)) => self.translate_call(call),
            Some(Type::ActionProfileActionSet(set)) => {
                for member in &mut set.action_profile_actions {
                    member.action.iter_mut().for_each(|call| self.translate_call(call));
                    if let Some(WatchKind::WatchPort(port)) = &mut member.watch_kind {
                        *port = port_bytes(port);
                    }
                }
            }
            _ => {}
        }
    }

    fn translate_call(&self, call: &mut p4rt::Action) {
        for param in &mut call.params {
            self.translate_value((call.action_id, param.param_id), &mut param.value);
        }
    }

    fn translate_value(&self, place: (u32, u32), value: &mut Vec<u8>) {
        if self.0.contains(&place) {
            *value = port_bytes(value);
        } else if value.is_empty() {
            // The name of the default VRF; no number is empty.
            *value = bytes::encode_value(0);
        }
    }
}

/// A port by its number, from its name, which is that number.
fn port_bytes(name: &[u8]) -> Vec<u8> {
    bytes::encode_value(std::str::from_utf8(name).unwrap().parse().unwrap())
}

/// A bmv2 with a program.
struct OnBmv2 {
    switch: Bmv2,
    session: Controller,
}

impl OnBmv2 {
    async fn start(name: &str) -> Self {
        let file = |suffix: &str| PathBuf::from(format!("{name}{suffix}"));
        let config = p4rt::ForwardingPipelineConfig {
            p4info: Some(P4InfoMessage::from_text(&read(&file(".p4info.txtpb"))).unwrap()),
            p4_device_config: read(&file(".json")).into_bytes(),
            cookie: None,
        };
        let switch = Bmv2::start().unwrap();
        let session = Controller::start(&switch.address, config).await.unwrap();
        Self { switch, session }
    }

    /// Writes all rows in the order of the controller, each of which must be taken and read back;
    /// how many they are.
    async fn write_tables(
        &mut self,
        program: &P4Info,
        tables: &SwitchTables,
        ports: &PortFields,
    ) -> usize {
        let updates = diff_tables(program, tables, &SwitchTables::default());
        let translated = updates.iter().map(|update| {
            let mut update = codec::encode_update(update);
            if let Some(Entity::TableEntry(entry)) =
                update.entity.as_mut().and_then(|entity| entity.entity.as_mut())
            {
                ports.translate_entry(entry);
                entry.metadata.clear();
            }
            update
        });
        let updates: Vec<p4rt::Update> = translated.collect();
        let codes = self.session.write(updates.clone()).await.unwrap();
        for (update, (code, message)) in updates.iter().zip(&codes) {
            assert_eq!(*code, Code::Ok, "{message}: {update:?}");
        }
        let entries = updates.iter().filter_map(|update| update.entity.clone());
        let written = shown(entries.collect());
        let everything = p4rt::Entity { entity: Some(Entity::TableEntry(<_>::default())) };
        let held = shown(self.session.read(vec![everything]).await.unwrap());
        assert!(written.is_subset(&held), "{:?}", written.difference(&held).next());
        updates.len()
    }

    fn compare_packet(&mut self, came_in: &Sent, ours: &[Sent]) {
        self.switch.send(std::slice::from_ref(came_in)).unwrap();
        assert_eq!(self.switch.receive(ours.len(), RECEIVE_TIMEOUT), ours, "for {came_in:?}");
    }
}

/// Rows as text; the order of fields and parameters says nothing.
fn shown(entities: Vec<p4rt::Entity>) -> BTreeSet<String> {
    let rows = entities.into_iter().filter_map(|entity| match entity.entity {
        Some(Entity::TableEntry(entry)) if !entry.is_default_action => Some(entry),
        _ => None,
    });
    rows.map(|mut entry| {
        entry.r#match.sort_by_key(|field| field.field_id);
        format!("{} {:?} {} {:?}", entry.table_id, entry.r#match, entry.priority, entry.action)
    })
    .collect()
}
