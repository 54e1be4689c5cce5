//! Differential fuzzing against bmv2: `cargo run -p switch-server --release --example differential --
//! [--program fabric|shapes|state] [--packets N] [--seed S]`.
//!
//! Both switches get the same program, the same random updates and the same random packets, in
//! rounds. Compared are the code of every update, every packet that leaves (by port, as bytes),
//! and at the end of a round all entries and all counters. It ends at the first difference, with
//! what is needed to see it again, or after N packets. Needs `simple_switch_grpc` on PATH.

mod bmv2;
mod chance;
mod controller;
mod frames;
mod program;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use bmv2::{Bmv2, Sent};
use chance::{Chance, Traffic};
use controller::Controller;
use p4rt::entity::Entity;
use p4runtime_proto::config_v1::P4Info;
use p4runtime_proto::v1 as p4rt;
use switch::{
    DeviceConfig, DeviceHandle, DeviceOutputs, EmulatedNetworkBuilder, EmulatedNetworkHandle,
};
use switch_server::p4runtime::{ServerHandle, ServiceOptions, serve};
use tonic::Code;

/// Packets under way at once: bmv2 drops what does not fit its queues of 64.
const WINDOW: usize = 24;
/// Windows in a round.
const WINDOWS: usize = 100;
/// Updates before each round.
const UPDATES: usize = 120;
/// How long bmv2 may take for a packet: on a busy machine, seconds.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// What to run.
struct Plan {
    json: &'static [u8],
    info: &'static str,
    traffic: Traffic,
    packets: u64,
    seed: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let plan = plan()?;
    let mut trial = Trial::start(&plan).await?;
    let started = Instant::now();
    let mut round = 0;
    while trial.packets < plan.packets {
        let mut chance = Chance::new(plan.seed.wrapping_shl(32) | round);
        if let Err(difference) = trial.round(&mut chance, plan.traffic).await {
            println!("seed {} round {round}: {difference}", plan.seed);
            return Err("the switches differ".into());
        }
        round += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} packets in, {} out, {} updates ({} refused alike) in {round} rounds, no difference; \
         {seconds:.0} s",
        trial.packets, trial.out, trial.updates, trial.refused
    );
    Ok(())
}

fn plan() -> Result<Plan, Box<dyn Error>> {
    let mut plan = Plan {
        json: include_bytes!("../../../../p4/fabric.json"),
        info: include_str!("../../../../p4/fabric.p4info.txtpb"),
        traffic: Traffic::Flows,
        packets: 100_000,
        seed: 1,
    };
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match (name.as_str(), value.as_str()) {
            ("--packets", number) => plan.packets = number.parse()?,
            ("--seed", number) => plan.seed = number.parse()?,
            ("--program", "fabric") => {}
            ("--program", "shapes") => {
                plan.json = include_bytes!("../../../switch/tests/programs/shapes.json");
                plan.info = include_str!("../../../switch/tests/programs/shapes.p4info.txtpb");
                plan.traffic = Traffic::Bytes;
            }
            ("--program", "state") => {
                plan.json = include_bytes!("../../../switch/tests/programs/state.json");
                plan.info = include_str!("../../../switch/tests/programs/state.p4info.txtpb");
                plan.traffic = Traffic::Bytes;
            }
            (name, value) => return Err(format!("{name} {value} is not understood").into()),
        }
    }
    Ok(plan)
}

/// Both switches and what they have been through.
struct Trial {
    info: P4Info,
    bmv2: Bmv2,
    theirs: Controller,
    ours: Controller,
    device: DeviceHandle,
    _server: ServerHandle,
    _fabric: EmulatedNetworkHandle,
    packets: u64,
    out: u64,
    updates: u64,
    refused: u64,
}

impl Trial {
    async fn start(plan: &Plan) -> Result<Self, Box<dyn Error>> {
        let info = P4Info::from_text(plan.info)?;
        let config = p4rt::ForwardingPipelineConfig {
            p4info: Some(info.clone()),
            p4_device_config: plan.json.to_vec(),
            cookie: None,
        };
        let mut builder = EmulatedNetworkBuilder::new();
        let device = builder.add_device(DeviceConfig {
            device_id: 1,
            cpu_port: 510,
            levels: 8,
            trusts_dscp: false,
        });
        let fabric = builder.spawn()?;
        let device = fabric.device(device);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let server = serve(listener, device.clone(), ServiceOptions::default()).await?;
        let ours = Controller::start(&server.local_addr().to_string(), config.clone()).await?;
        let bmv2 = Bmv2::start()?;
        let theirs = Controller::start(&bmv2.address, config).await?;
        let mut trial = Self {
            info,
            bmv2,
            theirs,
            ours,
            device,
            _server: server,
            _fabric: fabric,
            packets: 0,
            out: 0,
            updates: 0,
            refused: 0,
        };
        let groups = Chance::new(plan.seed).groups(&trial.info);
        trial.write(groups).await?;
        trial.check_rates().await?;
        Ok(trial)
    }

    /// Compares how both return the rates of meters, and removes them again.
    async fn check_rates(&mut self) -> Result<(), Box<dyn Error>> {
        for rate in [3, 64, 249, 251, 256, 1_562_500_000, 1_562_500_001, 12_345_678_901] {
            for update in chance::metered_rows(&self.info, rate) {
                self.write(vec![update.clone()]).await?;
                self.compare_state().await?;
                let mut delete = update;
                delete.r#type = p4rt::update::Type::Delete.into();
                if let Some(Entity::TableEntry(entry)) =
                    delete.entity.as_mut().and_then(|entity| entity.entity.as_mut())
                {
                    (entry.action, entry.meter_config) = (None, None);
                }
                self.write(vec![delete]).await?;
            }
        }
        Ok(())
    }

    async fn round(&mut self, chance: &mut Chance, traffic: Traffic) -> Result<(), Box<dyn Error>> {
        let updates = (0..UPDATES).filter_map(|_| chance.update(&self.info)).collect();
        self.write(updates).await?;
        for _ in 0..WINDOWS {
            let packets: Vec<Sent> = (0..WINDOW).map(|_| chance.packet(traffic)).collect();
            self.window(&packets).await?;
        }
        self.compare_state().await
    }

    /// Writes the same to both; the codes must agree.
    async fn write(&mut self, updates: Vec<p4rt::Update>) -> Result<(), Box<dyn Error>> {
        if updates.is_empty() {
            return Ok(());
        }
        let ours = self.ours.write(updates.clone()).await?;
        let theirs = self.theirs.write(updates.clone()).await?;
        self.updates += updates.len() as u64;
        for ((update, ours), theirs) in updates.iter().zip(&ours).zip(&theirs) {
            self.refused += u64::from(ours.0 != Code::Ok);
            if !agree(ours.0, theirs.0) {
                return Err(format!("{update:?}: ours {ours:?}, bmv2's {theirs:?}").into());
            }
        }
        Ok(())
    }

    /// Sends some packets through both and compares what comes out.
    async fn window(&mut self, packets: &[Sent]) -> Result<(), Box<dyn Error>> {
        let ours = self.through_ours(packets).await?;
        self.bmv2.send(packets)?;
        let theirs = self.bmv2.receive(ours.len(), RECEIVE_TIMEOUT);
        self.packets += packets.len() as u64;
        self.out += theirs.len() as u64;
        if sorted(&ours) == sorted(&theirs) {
            return Ok(());
        }
        for packet in packets {
            let one = std::slice::from_ref(packet);
            let ours = self.through_ours(one).await?;
            self.bmv2.send(one)?;
            let theirs = self.bmv2.receive(ours.len() + 1, RECEIVE_TIMEOUT / 10);
            if sorted(&ours) != sorted(&theirs) {
                let (ours, theirs) = (show(&ours), show(&theirs));
                let packet = show(one);
                return Err(format!("{packet}:\n  ours {ours}\n  bmv2's {theirs}").into());
            }
        }
        let (ours, theirs) = (ours.len(), theirs.len());
        Err(format!("{ours} packets of a window, bmv2 {theirs}; one by one they agree").into())
    }

    async fn through_ours(&self, packets: &[Sent]) -> Result<Vec<Sent>, Box<dyn Error>> {
        let packets = packets.to_vec();
        let run = move |device: &mut switch::Device| {
            let mut out = DeviceOutputs::default();
            for (port, packet) in &packets {
                device.process_packet(*port, packet, 0, &mut out);
            }
            out.packets.into_iter().map(|output| (output.port, output.packet)).collect()
        };
        Ok(self.device.with_device(run).await?)
    }

    /// Entries and counters of both.
    async fn compare_state(&mut self) -> Result<(), Box<dyn Error>> {
        let mut queries: Vec<Entity> = Vec::new();
        for table in &self.info.tables {
            let table_id = table.preamble.as_ref().map_or(0, |preamble| preamble.id);
            let counted = table.direct_resource_ids.iter().any(|id| {
                id >> 24 == 0x13 || {
                    self.info.direct_counters.iter().any(|counter| {
                        counter.preamble.as_ref().is_some_and(|preamble| preamble.id == *id)
                    })
                }
            });
            queries.push(Entity::TableEntry(p4rt::TableEntry {
                table_id,
                counter_data: counted.then(p4rt::CounterData::default),
                meter_config: chance::is_metered(table).then(p4rt::MeterConfig::default),
                ..p4rt::TableEntry::default()
            }));
        }
        for counter in &self.info.counters {
            let counter_id = counter.preamble.as_ref().map_or(0, |preamble| preamble.id);
            queries.push(Entity::CounterEntry(p4rt::CounterEntry {
                counter_id,
                ..p4rt::CounterEntry::default()
            }));
        }
        for query in queries {
            let query = vec![p4rt::Entity { entity: Some(query) }];
            let mut ours = self.ours.read(query.clone()).await?;
            ours.iter_mut().for_each(keep_rates_as_bmv2_does);
            let ours = keyed(ours);
            let theirs = keyed(self.theirs.read(query).await?);
            if let Some((key, ours)) =
                ours.iter().find(|(key, value)| theirs.get(*key) != Some(value))
            {
                return Err(format!("{key}: ours {ours}, bmv2's {:?}", theirs.get(key)).into());
            }
            if let Some(key) = theirs.keys().find(|key| !ours.contains_key(*key)) {
                return Err(format!("only bmv2 has {key}").into());
            }
        }
        Ok(())
    }
}

/// The same code, or one of the two in which bmv2 leaves the specification: it calls a full table
/// UNKNOWN and not RESOURCE_EXHAUSTED, and a value that is too wide INVALID_ARGUMENT and not
/// OUT_OF_RANGE.
fn agree(ours: Code, theirs: Code) -> bool {
    let known =
        [(Code::ResourceExhausted, Code::Unknown), (Code::OutOfRange, Code::InvalidArgument)];
    ours == theirs || known.contains(&(ours, theirs))
}

/// bmv2 keeps rates per microsecond and cuts them off when they are read: of some it returns one
/// less.
fn keep_rates_as_bmv2_does(entity: &mut p4rt::Entity) {
    let kept = |rate: i64| (rate as f64 / 1e6 * 1e6) as i64;
    if let Some(Entity::TableEntry(entry)) = &mut entity.entity
        && let Some(rates) = &mut entry.meter_config
    {
        (rates.cir, rates.pir) = (kept(rates.cir), kept(rates.pir));
    }
}

/// Entities as text by what identifies them.
fn keyed(entities: Vec<p4rt::Entity>) -> BTreeMap<String, String> {
    let text = |entity: p4rt::Entity| match entity.entity {
        Some(Entity::TableEntry(mut entry)) => {
            entry.r#match.sort_by_key(|field| field.field_id);
            let key = format!("{} {:?} {}", entry.table_id, entry.r#match, entry.priority);
            let (counted, rates) = (entry.counter_data, entry.meter_config);
            (key, format!("{:?} {counted:?} {rates:?}", entry.action))
        }
        Some(Entity::CounterEntry(counter)) => {
            let key = format!("{} {:?}", counter.counter_id, counter.index);
            (key, format!("{:?}", counter.data))
        }
        other => (format!("{other:?}"), String::new()),
    };
    entities.into_iter().map(text).collect()
}

fn sorted(packets: &[Sent]) -> Vec<Sent> {
    let mut packets = packets.to_vec();
    packets.sort();
    packets
}

fn show(packets: &[Sent]) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let lines: Vec<String> =
        packets.iter().map(|(port, packet)| format!("{port} {}", hex(packet))).collect();
    format!("[{}]", lines.join(", "))
}
