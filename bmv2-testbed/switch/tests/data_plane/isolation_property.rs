//! No frame of a host takes a level that is not one of a job between its NIC and its receiver, and
//! none that RFC 1812 refuses or that has the source of a host elsewhere is forwarded.
//!
//! Random tables and random frames. What a frame may have is worked out from its bytes and from
//! the jobs of the two NICs, without the rows. `CRUX_ISOLATION_FRAMES` says how many frames
//! to try, `CRUX_ISOLATION_SEED` with which seed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use switch::{Device, KeyField, MatchKey, MeterConfig, OutputPacket};

use crate::frames::{LEAF_MAC, LEAF_MAC_BYTES, dscp_of};
use crate::hostile_frames::{
    HostileFrame, NICS, PORTS, PORTS_OF_SERVICES, PROTOCOLS, QUEUE_PAIRS, SOURCE_PORTS, address,
    address6, hostile_frame,
};
use crate::support::{
    ByName, CPU, LEAF, device, exact, index, internet_checksum, prefix, ternary, unranked,
};

const JOBS: u32 = 6;
const FRAMES_OF_A_CASE: usize = 64;
/// Answers go at the level above all jobs; no answer is longer than this.
const ANSWER_LEVEL: u8 = 7;
const ANSWER_DSCP: u8 = ANSWER_LEVEL << 3 | 1;
const ANSWER_BYTES: usize = 96;
/// The uplinks, listed as ports of the fabric.
const UPLINKS: [u128; 4] = [10, 11, 12, 13];

/// Which rows a leaf has.
#[derive(Clone, Debug)]
struct LeafConfig {
    /// Which NICs take part in a job, by bits, and its level; 0 where it has no row.
    jobs: Vec<(u8, u8)>,
    /// Which NICs the guard knows by IPv4 and by IPv6.
    guarded: (u8, u8),
    /// Whether all addresses of NICs are known to be of hosts.
    hosts_are_known: bool,
    rows: Vec<FlowRow>,
    /// Which destinations are local hosts.
    local: u8,
    /// The bytes of answers of each port, and of each egress port; without, no row.
    answers: Vec<Option<u64>>,
    shares: Vec<Option<u64>>,
    /// The punts and the digests of each port.
    punts: Vec<u64>,
    digests: Vec<u64>,
    /// The kinds of Ethernet that are punted.
    punted: BTreeSet<u16>,
}

/// One row that gives flows between two NICs one of their jobs.
#[derive(Clone, Debug)]
struct FlowRow {
    kind: RowKind,
    nic: u32,
    job: Index,
    dst: u32,
    ports: (u16, u16),
    protocol: u8,
    dest_qp: u32,
    ipv6: bool,
}

#[derive(Clone, Copy, Debug)]
enum RowKind {
    Pin,
    PinByQueuePair,
    Pair,
    /// A class with a destination port, or with any.
    Class(bool),
    /// A pin for what comes from other switches.
    Transit,
}

fn leaf_config() -> impl Strategy<Value = LeafConfig> {
    let ports = usize::from(PORTS);
    let jobs = vec((0_u8..16, 0_u8..7), JOBS as usize);
    let meters = vec(prop_oneof![Just(None), (0_u64..1_000).prop_map(Some)], ports);
    let counts = vec(prop_oneof![Just(0), Just(2), Just(1_000)], ports);
    let punted = select(&[0x0800_u16, 0x86dd, 0x0806, 0x88cc, 0x8100][..]);
    let punted = prop::collection::btree_set(punted, 0..2);
    let bits = (any::<u8>(), any::<u8>(), any::<u8>());
    let limits = (meters.clone(), meters, counts.clone(), counts, punted);
    (jobs, bits, vec(flow_row(), 0..40), limits).prop_map(|(jobs, bits, rows, limits)| LeafConfig {
        jobs,
        guarded: (bits.0 | bits.2, bits.1 | !bits.2),
        hosts_are_known: bits.0 & 1 == 1,
        rows,
        local: bits.2,
        answers: limits.0,
        shares: limits.1,
        punts: limits.2,
        digests: limits.3,
        punted: limits.4,
    })
}

fn flow_row() -> impl Strategy<Value = FlowRow> {
    let kind = prop_oneof![
        2 => Just(RowKind::Pin), 2 => Just(RowKind::PinByQueuePair),
        2 => any::<bool>().prop_map(RowKind::Class), 1 => Just(RowKind::Transit),
        2 => Just(RowKind::Pair),
    ];
    let ends = (1..=NICS, 1..=NICS, any::<Index>(), any::<bool>());
    let flow = (select(&SOURCE_PORTS[..]), select(&PORTS_OF_SERVICES[..]));
    let rest = (select(&PROTOCOLS[..]), select(&QUEUE_PAIRS[..]));
    (kind, ends, flow, rest).prop_map(|(kind, (nic, dst, job, ipv6), ports, rest)| FlowRow {
        kind,
        nic,
        job,
        dst,
        ports,
        protocol: rest.0,
        dest_qp: rest.1,
        ipv6,
    })
}

fn has(bits: u8, nic: u32) -> bool {
    bits >> (nic - 1) & 1 == 1
}

fn meter(burst: u64) -> MeterConfig {
    MeterConfig { cir: 0, cburst: burst, pir: 0, pburst: burst }
}

impl LeafConfig {
    /// The jobs that have both NICs.
    fn jobs_between(&self, nic: u32, dst: u32) -> Vec<u32> {
        let jobs = (1..).zip(&self.jobs);
        let theirs = jobs.filter(|(_, (nics, _))| has(*nics, nic) && has(*nics, dst));
        theirs.map(|(job, _)| job).collect()
    }

    /// The levels of the jobs between the NIC at the port of a frame and that of its receiver.
    fn levels_of(&self, frame: &HostileFrame) -> BTreeSet<u8> {
        let nic = u32::from(frame.port);
        let dst = (1..=NICS).find(|nic| match frame.bytes.get(12..14) {
            Some([0x08, 0x00]) => frame.bytes.get(30..34) == Some(&address(*nic).to_be_bytes()[..]),
            _ => frame.bytes.get(38..54) == Some(&address6(*nic).to_be_bytes()[..]),
        });
        let jobs = dst.filter(|_| nic <= NICS).map(|dst| self.jobs_between(nic, dst));
        jobs.unwrap_or_default().into_iter().map(|job| self.jobs[job as usize - 1].1).collect()
    }

    /// Whether a frame of IP may be forwarded at all.
    fn may_pass(&self, frame: &HostileFrame) -> bool {
        let bytes = &frame.bytes;
        let nics = 1..=NICS;
        let (is_right, owner) = match bytes[12] {
            0x08 => {
                let source = u32::from_be_bytes(bytes[26..30].try_into().unwrap());
                let nic = nics.clone().find(|nic| address(*nic) == source);
                (is_right_ipv4(&bytes[14..]), nic)
            }
            _ => {
                let source = u128::from_be_bytes(bytes[22..38].try_into().unwrap());
                let nic = nics.clone().find(|nic| address6(*nic) == source);
                let is_martian = source >> 120 == 0xff || source <= 1;
                let length = usize::from(bytes[18]) << 8 | usize::from(bytes[19]);
                (bytes[14] >> 4 == 6 && length + 54 <= bytes.len() && !is_martian, nic)
            }
        };
        // Only ports of NICs are known to be of hosts.
        let is_foreign = owner.is_some() && !self.admits(frame) && u32::from(frame.port) <= NICS;
        is_right && !(self.hosts_are_known && is_foreign)
    }

    /// Whether the guard lists the source that stands in the frame at its port.
    fn admits(&self, frame: &HostileFrame) -> bool {
        let (nic, bytes) = (u32::from(frame.port), &frame.bytes);
        let field = |from: usize, to: usize| bytes.get(from..to).map(<[u8]>::to_vec);
        match field(12, 14).as_deref() {
            _ if nic > NICS => false,
            Some([0x08, 0x00]) => {
                has(self.guarded.0, nic) && field(26, 30) == Some(address(nic).to_be_bytes().into())
            }
            Some([0x86, 0xdd]) => {
                has(self.guarded.1, nic)
                    && field(22, 38) == Some(address6(nic).to_be_bytes().into())
            }
            _ => false,
        }
    }

    fn device(&self) -> Device {
        let mut leaf = device();
        for uplink in UPLINKS {
            leaf.add("fabric_port", &[KeyField::Exact(uplink)], "trust_dscp", &[]);
        }
        leaf.ecmp(1, &UPLINKS);
        leaf.add("dst_leaf", &[prefix(0, 0)], "set_dst_leaf", &[LEAF]);
        let every = KeyField::Lpm { value: 0, prefix: 0 };
        leaf.add("dst_leaf6", &[every], "set_dst_leaf", &[LEAF]);
        leaf.add("arp_answer", &[prefix(0, 0)], "answer_arp", &[LEAF_MAC]);
        leaf.add("nd_answer", &[every], "answer_nd", &[LEAF_MAC]);
        leaf.add("path", &[KeyField::Exact(LEAF), exact(3)], "to_uplink", &[11, 12]);
        for dscp in 0..64 {
            leaf.add("dscp_level", &[exact(dscp)], "set_level", &[u128::from(dscp >> 3)]);
        }
        for opcode in [0x11, 0x12, 0x81] {
            let answer = [ANSWER_LEVEL, ANSWER_DSCP].map(u128::from);
            leaf.add("roce_answer", &[exact(opcode)], "set_answer", &answer);
        }
        for (job, (_, level)) in (1..).zip(&self.jobs) {
            let class = [*level, *level << 3].map(u128::from);
            leaf.add("job_qos", &[exact(job)], "set_class", &class);
        }
        self.add_hosts(&mut leaf);
        self.add_limits(&mut leaf);
        for row in &self.rows {
            row.add_to(&mut leaf, self);
        }
        leaf
    }

    fn add_hosts(&self, leaf: &mut Device) {
        for nic in 1..=NICS {
            let addresses = [u128::from(address(nic)), address6(nic)].map(KeyField::Exact);
            for (key, suffix, bits) in
                [(addresses[0], "", self.guarded.0), (addresses[1], "6", self.guarded.1)]
            {
                if has(bits, nic) {
                    let table = format!("source_guard{suffix}");
                    leaf.add(&table, &[exact(nic), key], "admit", &[]);
                }
                if self.hosts_are_known && suffix.is_empty() {
                    leaf.add("host_port", &[exact(nic)], "check_source", &[]);
                }
                if self.hosts_are_known {
                    let KeyField::Exact(value) = key else { continue };
                    let prefix = if suffix.is_empty() { 32 } else { 128 };
                    let table = format!("foreign_source{suffix}");
                    leaf.add(&table, &[KeyField::Lpm { value, prefix }], "refuse_source", &[]);
                }
                if has(self.local, nic) {
                    let table = format!("local_host{suffix}");
                    leaf.add(&table, &[key], "to_host", &[u128::from(nic), 9]);
                }
            }
        }
        let any = ternary(0, 0);
        for kind in &self.punted {
            let kind = ternary(u32::from(*kind), 0xffff);
            let row = MatchKey { fields: vec![kind, any, any, any, any], priority: 1 };
            leaf.try_add("acl_punt", row, "punt", &[]).unwrap();
        }
    }

    fn add_limits(&self, leaf: &mut Device) {
        let mut limit = |table, action, port: u32, burst| {
            let key = match table {
                "punt_rate" => MatchKey { fields: vec![ternary(port, 0x1ff)], priority: 2 },
                _ => unranked(&[exact(port)]),
            };
            leaf.try_add(table, key.clone(), action, &[]).unwrap();
            leaf.set_direct_meter(index(table), &key, Some(meter(burst))).unwrap();
        };
        for (at, port) in (1..=u32::from(PORTS)).enumerate() {
            limit("punt_rate", "limit_punts", port, self.punts[at]);
            limit("roce_learn", "learn", port, self.digests[at]);
            if let Some(burst) = self.answers[at] {
                limit("answer_rate", "limit_answers", port, burst);
            }
        }
        for (uplink, burst) in UPLINKS.iter().zip(&self.shares) {
            if let Some(burst) = burst {
                limit("answer_share", "limit_answer_share", *uplink as u32, *burst);
            }
        }
    }
}

impl FlowRow {
    /// Writes the row, unless its NICs have no job or another row has its key.
    fn add_to(&self, leaf: &mut Device, leaf_config: &LeafConfig) {
        let jobs = leaf_config.jobs_between(self.nic, self.dst);
        if jobs.is_empty() {
            return;
        }
        let job = u128::from(jobs[self.job.index(jobs.len())]);
        let (table, action) = self.table();
        let arguments = match self.kind {
            RowKind::Class(_) | RowKind::Pair => vec![job],
            RowKind::Transit => vec![3],
            RowKind::Pin | RowKind::PinByQueuePair => vec![3, job],
        };
        let priority = u32::from(matches!(self.kind, RowKind::Class(_)));
        let key = MatchKey { fields: self.key(), priority };
        let _exists = leaf.try_add(table, key, action, &arguments);
    }

    fn table(&self) -> (&'static str, &'static str) {
        match (self.kind, self.ipv6) {
            (RowKind::Pin, false) => ("flow_pin", "pin"),
            (RowKind::Pin, true) => ("flow_pin6", "pin6"),
            (RowKind::PinByQueuePair, false) => ("qp_pin", "pin_qp"),
            (RowKind::PinByQueuePair, true) => ("qp_pin6", "pin6_qp"),
            (RowKind::Pair, false) => ("job_pair", "set_pair_job"),
            (RowKind::Pair, true) => ("job_pair6", "set_pair_job6"),
            (RowKind::Class(_), false) => ("job_classify", "set_job"),
            (RowKind::Class(_), true) => ("job_classify6", "set_job6"),
            (RowKind::Transit, _) => ("transit_pin6", "pin_transit"),
        }
    }

    fn key(&self) -> Vec<KeyField> {
        let (sport, dport) = (u128::from(self.ports.0), u128::from(self.ports.1));
        let source6 = address6(self.nic);
        let (source, dst) = match (self.kind, self.ipv6) {
            (RowKind::Transit, _) => (source6, address6(self.dst)),
            (RowKind::Class(_), true) => (source6, address6(self.dst)),
            // An IPv6 pin is for the port of its NIC.
            (_, true) => (u128::from(self.nic), address6(self.dst)),
            (_, false) => (u128::from(address(self.nic)), u128::from(address(self.dst))),
        };
        let protocol = u128::from(self.protocol);
        match self.kind {
            RowKind::Pin | RowKind::Transit => {
                [source, dst, protocol, sport, dport].map(KeyField::Exact).to_vec()
            }
            RowKind::PinByQueuePair => {
                let dest_qp = u128::from(self.dest_qp);
                [source, dst, sport, dest_qp].map(KeyField::Exact).to_vec()
            }
            RowKind::Pair => [source, dst].map(KeyField::Exact).to_vec(),
            RowKind::Class(by_port) => {
                let mask = if self.ipv6 { u128::MAX } else { u128::from(u32::MAX) };
                let [source, dst] = [source, dst].map(|value| KeyField::Ternary { value, mask });
                let port = KeyField::Ternary { value: dport, mask: 0xffff };
                let any = ternary(0, 0);
                vec![source, dst, if by_port { port } else { any }, any, any]
            }
        }
    }
}

/// What the frames of a run came to.
#[derive(Clone, Copy, Debug, Default)]
struct FrameTally {
    frames: u64,
    forwarded: u64,
    above_zero: u64,
    answers: u64,
    punted: u64,
    answered: u64,
    digests: u64,
}

/// What has passed the limits of one leaf, by port.
type AmountByPort = BTreeMap<u16, u64>;

/// One leaf under attack.
struct AttackedLeaf<'a> {
    leaf_config: &'a LeafConfig,
    leaf: Device,
    answers: AmountByPort,
    shares: AmountByPort,
    punts: AmountByPort,
    digests: AmountByPort,
}

/// Adds what has passed a port, which must stay within a limit.
fn pass(passed: &mut AmountByPort, port: u16, more: u64, limit: u64) -> Result<(), String> {
    let sum = passed.entry(port).or_insert(0);
    *sum += more;
    if *sum > limit { Err(format!("{sum} pass a limit of {limit}")) } else { Ok(()) }
}

impl<'a> AttackedLeaf<'a> {
    fn new(leaf_config: &'a LeafConfig) -> Self {
        let [answers, shares, punts, digests] = [(); 4].map(|()| AmountByPort::new());
        Self { leaf_config, leaf: leaf_config.device(), answers, shares, punts, digests }
    }

    /// Sends a frame; the error says what it has gained.
    fn try_frame(&mut self, frame: &HostileFrame, tally: &mut FrameTally) -> Result<(), String> {
        tally.frames += 1;
        let out = self.leaf.send(frame.port, &frame.bytes);
        let digests = self.leaf.take_digests().len() as u64;
        tally.digests += digests;
        let limit = self.leaf_config.digests[usize::from(frame.port - 1)];
        pass(&mut self.digests, frame.port, digests, limit)?;
        if digests > 0 && !self.leaf_config.admits(frame) {
            return Err("an unguarded source is learned".into());
        }
        for out in out {
            if out.port == CPU {
                tally.punted += 1;
                let limit = self.leaf_config.punts[usize::from(frame.port - 1)];
                pass(&mut self.punts, frame.port, 1, limit)?;
                if out.level != 0 {
                    return Err(format!("a punt at level {}", out.level));
                }
            } else {
                self.check_forwarded(frame, &out, tally)?;
            }
        }
        Ok(())
    }

    fn check_forwarded(
        &mut self,
        frame: &HostileFrame,
        out: &OutputPacket,
        tally: &mut FrameTally,
    ) -> Result<(), String> {
        let dscp = dscp_of(&out.packet);
        // An answer of the leaf itself goes back to its sender, below all jobs.
        if (out.port, out.level) == (frame.port, 0) && out.packet[6..12] == LEAF_MAC_BYTES {
            tally.answered += 1;
            return Ok(());
        }
        tally.forwarded += 1;
        if !self.leaf_config.may_pass(frame) {
            return Err("it is forwarded".into());
        }
        match out.level {
            0 if dscp == 0 => Ok(()),
            _ if !self.leaf_config.admits(frame) => {
                Err(format!("level {} and DSCP {dscp}", out.level))
            }
            ANSWER_LEVEL if dscp == ANSWER_DSCP => {
                tally.answers += 1;
                self.check_answer(frame, out.port)
            }
            level if dscp == level << 3 && self.leaf_config.levels_of(frame).contains(&level) => {
                tally.above_zero += 1;
                Ok(())
            }
            level => Err(format!("level {level}, of no job of its pair, and DSCP {dscp}")),
        }
    }

    fn check_answer(&mut self, frame: &HostileFrame, to: u16) -> Result<(), String> {
        let length = frame.bytes.len();
        if length > ANSWER_BYTES {
            return Err(format!("an answer of {length} bytes"));
        }
        let limit = self.leaf_config.answers[usize::from(frame.port - 1)].unwrap_or(u64::MAX);
        pass(&mut self.answers, frame.port, length as u64, limit)?;
        let uplink = UPLINKS.iter().position(|uplink| *uplink == u128::from(to));
        let limit = uplink.and_then(|uplink| self.leaf_config.shares[uplink]).unwrap_or(u64::MAX);
        pass(&mut self.shares, to, length as u64, limit)
    }
}

/// Whether RFC 1812 lets a router forward a frame that carries these bytes.
fn is_right_ipv4(bytes: &[u8]) -> bool {
    let length = 4 * usize::from(bytes[0] & 0xf);
    let total = usize::from(bytes[2]) << 8 | usize::from(bytes[3]);
    let is_martian = matches!(bytes[12], 0 | 127 | 224..);
    let is_whole = bytes[0] >> 4 == 4 && length >= 20 && length <= total && total <= bytes.len();
    is_whole && !is_martian && internet_checksum(&bytes[..length]) == 0
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn no_frame_of_a_host_takes_a_level_that_its_pair_does_not_have() {
    let frames = from_environment("CRUX_ISOLATION_FRAMES").unwrap_or(4_096);
    let any_seed = || RandomState::new().hash_one(frames);
    let seed = from_environment("CRUX_ISOLATION_SEED").unwrap_or_else(any_seed);
    println!("CRUX_ISOLATION_FRAMES={frames} CRUX_ISOLATION_SEED={seed}");
    let config = Config {
        cases: (frames as usize).div_ceil(FRAMES_OF_A_CASE) as u32,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let tally = std::cell::Cell::new(FrameTally::default());
    let strategy = (leaf_config(), vec(hostile_frame(), FRAMES_OF_A_CASE));
    let run = TestRunner::new(config).run(&strategy, |(leaf_config, frames)| {
        let mut attack = AttackedLeaf::new(&leaf_config);
        for frame in &frames {
            let mut counted = tally.get();
            let gain = attack.try_frame(frame, &mut counted);
            tally.set(counted);
            gain.map_err(|gain| TestCaseError::fail(format!("{gain}: {frame:02x?}")))?;
        }
        Ok(())
    });
    if let Err(failed) = run {
        panic!("seed {seed}: {failed}");
    }
    let tally = tally.get();
    println!("0 gains: {tally:?}");
    // That nothing gains means something only if there was something to gain.
    let each = [tally.above_zero, tally.answers, tally.punted, tally.answered, tally.digests];
    assert!(each.iter().all(|count| *count > frames / 1_000), "{tally:?}");
}
