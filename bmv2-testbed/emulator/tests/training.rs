//! Jobs that train through embedded switches running the real program, routed by fixed entries.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use emulator::{
    DcqcnOptions, EmulatedTestbed, EmulationOutcome, HostCongestionCounts, HostErrorCounts,
    HostTransport, RetrySettings, TestbedError, TestbedOptions, TimeScale,
};
use planner::{Flow, FlowGpus, Job, MeasuredSlowdown};
use switch::{ActionCall, Device, KeyField, MatchKey, Program, TableAction, WireState};
use topology::{
    Fabric, FabricNode, HostId, HostInterconnect, LinkId, LinkScheduler, NicId, PcieSwitch,
    SwitchId, clos,
};

/// Two leaves, one spine, `hosts` hosts a leaf with one NIC of 200 Gb/s; uplinks of 200 Gb/s.
fn fabric(hosts: u32) -> Fabric {
    let spec = clos::ClosSpec {
        leaves: 2,
        spines: 1,
        hosts_per_leaf: hosts,
        uplink_gbps: 200.0,
        ..clos::ClosSpec::default()
    };
    clos::build_clos("two leaves", &spec).unwrap()
}

/// A job that computes 100 ms and then, from half of it on, sends `bytes` from one host to another.
fn job(id: &str, from: u32, to: u32, bytes: f64) -> Job {
    Job {
        id: id.into(),
        tenant: None,
        model: None,
        gpus: BTreeMap::from([(HostId(from), 8), (HostId(to), 8)]),
        flop_per_iteration: 1.0,
        compute_seconds: 0.1,
        overlap_from: 0.5,
        can_wait: false,
        measured: MeasuredSlowdown::default(),
        flows: vec![Flow {
            src: NicId(from),
            dst: NicId(to),
            bytes,
            udp_src_port: Some(0xC000),
            gpus: planner::FlowGpus::default(),
            overlap_from: None,
        }],
    }
}

/// Writes an entry by the names and in the parameter order of the program.
fn insert(device: &mut Device, table: &str, fields: Vec<KeyField>, action: &str, with: &[u128]) {
    let program = Arc::clone(device.program().unwrap());
    let table = program.table_named(&format!("IngressImpl.{table}")).unwrap();
    let spec = program.table(table).unwrap();
    let action = program.action_named(&spec.actions, &format!("IngressImpl.{action}")).unwrap();
    let priority = u32::from(spec.takes_priority());
    let call = ActionCall { action, arguments: with.to_vec() };
    device.insert_entry(table, MatchKey { fields, priority }, TableAction::Action(call)).unwrap();
}

/// The one port of a switch towards a NIC in these fabrics.
fn port_towards(fabric: &Fabric, switch: SwitchId, nic: NicId) -> u32 {
    let leaf = fabric.leaf_of(nic);
    let link = match switch == leaf {
        true => fabric.nic(nic).uplink.reverse(),
        false => topology::next_hops(fabric, leaf).links_at(switch)[0],
    };
    fabric.link(link).from.port
}

/// The entries of one switch: the port towards each NIC, the ports to other switches, the level of
/// each NIC.
struct Routes {
    next_hops: Vec<(u128, [u128; 2])>,
    inside: Vec<u32>,
    levels: Vec<u128>,
}

impl Routes {
    fn for_switch(fabric: &Fabric, switch: SwitchId, levels: &[u128]) -> Self {
        let next_hop = |nic: usize| {
            let id = NicId::from(nic);
            let nic = fabric.nic(id);
            let mac = nic.mac.0.iter().fold(0, |mac, byte| mac << 8 | u128::from(*byte));
            let port = port_towards(fabric, switch, id);
            let std::net::IpAddr::V4(ip) = nic.ip else { panic!("an IPv4 fabric") };
            (ip.to_bits().into(), [u128::from(port), mac])
        };
        let is_inside = |link: &LinkId| matches!(fabric.link(*link).to.node, FabricNode::Switch(_));
        let ports = fabric.switch(switch).ports.iter();
        Self {
            next_hops: (0..fabric.nics().len()).map(next_hop).collect(),
            inside: ports.filter(|(_, link)| is_inside(link)).map(|(port, _)| *port).collect(),
            levels: levels.to_vec(),
        }
    }

    fn write(&self, device: &mut Device) {
        let any = KeyField::Ternary { value: 0, mask: 0 };
        for ((ip, next_hop), level) in self.next_hops.iter().zip(&self.levels) {
            insert(device, "local_host", vec![KeyField::Exact(*ip)], "to_host", next_hop);
            let guard = vec![KeyField::Exact(next_hop[0]), KeyField::Exact(*ip)];
            insert(device, "source_guard", guard, "admit", &[]);
            let src = KeyField::Ternary { value: *ip, mask: 0xFFFF_FFFF };
            insert(device, "job_classify", vec![src, any, any, any, any], "set_job", &[*ip]);
            let class = [*level, level << 3];
            insert(device, "job_qos", vec![KeyField::Exact(*ip)], "set_class", &class);
        }
        for port in &self.inside {
            let port = KeyField::Exact(u128::from(*port));
            insert(device, "fabric_port", vec![port], "trust_dscp", &[]);
        }
        for level in 0..8 {
            let dscp = KeyField::Exact(level << 3);
            insert(device, "dscp_level", vec![dscp], "set_level", &[level]);
        }
    }
}

/// Loads the program and writes the entries of every switch; host `h` sends at `levels[h]`.
async fn route(testbed: &EmulatedTestbed, fabric: &Fabric, levels: &[u128]) {
    let program = Arc::new(Program::from_json(p4::artefacts::FABRIC.json.as_bytes()).unwrap());
    for switch in fabric.switch_ids() {
        let (program, routes) = (Arc::clone(&program), Routes::for_switch(fabric, switch, levels));
        let write = move |device: &mut Device| {
            device.load_program(program);
            routes.write(device);
        };
        testbed.device(switch).with_device(write).await.unwrap();
    }
}

/// Trains `jobs` for five iterations; host `h` sends at `levels[h]`.
async fn train(jobs: &[Job], levels: &[u128]) -> (EmulationOutcome, HostErrorCounts) {
    let (outcome, faults, _) = train_over(TestbedOptions::default(), jobs, levels).await;
    (outcome, faults)
}

async fn train_over(
    options: TestbedOptions,
    jobs: &[Job],
    levels: &[u128],
) -> (EmulationOutcome, HostErrorCounts, HostCongestionCounts) {
    train_on(fabric(levels.len() as u32 / 2), options, jobs, levels).await
}

async fn train_on(
    fabric: Fabric,
    options: TestbedOptions,
    jobs: &[Job],
    levels: &[u128],
) -> (EmulationOutcome, HostErrorCounts, HostCongestionCounts) {
    let scale = TimeScale::new(500.0).unwrap();
    let testbed = EmulatedTestbed::build(&fabric, jobs, scale, options).unwrap();
    route(&testbed, &fabric, levels).await;
    let outcome = testbed.train_jobs(&vec![0; jobs.len()], 5).await.unwrap();
    assert_eq!(testbed.dropped_packets().await.unwrap(), 0);
    let faults = testbed.host_errors().await.unwrap();
    let congestion = testbed.host_congestion().await.unwrap();
    testbed.stop().await;
    (outcome, faults, congestion)
}

fn dcqcn(options: DcqcnOptions) -> TestbedOptions {
    TestbedOptions { transport: HostTransport::Dcqcn(options), ..TestbedOptions::default() }
}

/// Checks iteration times within 3 %: latency does not scale.
fn check(outcome: &EmulationOutcome, expect: &[f64]) {
    for (job, expect) in outcome.jobs.iter().zip(expect) {
        let found = job.mean_iteration_seconds.unwrap();
        assert!((found / expect - 1.0).abs() < 0.03, "{}: {found} s, not {expect} s", job.id);
    }
}

#[tokio::test]
async fn a_job_alone_takes_the_time_of_the_fluid_model() {
    // 2.5 GB at 25 GB/s are 100 ms, of which 50 ms are hidden; headers are 1.4 %.
    let (outcome, faults) = train(&[job("a", 0, 2, 2.5e9)], &[0; 4]).await;
    check(&outcome, &[0.150]);
    assert_eq!(faults, HostErrorCounts::default());
    // Hidden altogether.
    let (outcome, _) = train(&[job("a", 0, 2, 1.0e9)], &[0; 4]).await;
    check(&outcome, &[0.100]);
    assert!(outcome.gpu_utilization() > 0.97);
}

#[tokio::test]
async fn traffic_in_both_directions_costs_nothing() {
    let back = Flow {
        src: NicId(2),
        dst: NicId(0),
        bytes: 2.5e9,
        udp_src_port: Some(0xC001),
        gpus: planner::FlowGpus::default(),
        overlap_from: None,
    };
    let mut job = job("a", 0, 2, 2.5e9);
    job.flows.push(back);
    let (outcome, _) = train(&[job], &[0; 4]).await;
    check(&outcome, &[0.150]);
}

#[tokio::test]
async fn jobs_of_one_level_share_a_link_equally() {
    // Both use the one uplink for 100 ms at once: 200 ms of communication after 50 ms.
    let jobs = [job("a", 0, 2, 2.5e9), job("b", 1, 3, 2.5e9)];
    let (outcome, _) = train(&jobs, &[0; 4]).await;
    check(&outcome, &[0.250, 0.250]);
}

#[tokio::test]
async fn the_higher_level_is_served_first() {
    // a is as if alone; b gets the 50 ms of every 150 ms that a leaves it.
    let jobs = [job("a", 0, 2, 2.5e9), job("b", 1, 3, 2.5e9)];
    let (outcome, _) = train(&jobs, &[5, 2, 5, 2]).await;
    check(&outcome, &[0.150, 0.300]);
}

/// The fabric of two hosts a leaf, each with a NIC and four GPUs on a PCIe switch and four GPUs on
/// another, all links of which carry 100 Gb/s.
fn fabric_with_pcie() -> Fabric {
    let switch = |gpus: std::ops::Range<u32>, nics: &[u32]| PcieSwitch {
        gpus: gpus.collect(),
        nics: nics.to_vec(),
        gbps: 100.0,
        root_gbps: None,
    };
    let interconnect = HostInterconnect {
        pcie_switches: vec![switch(0..4, &[0]), switch(4..8, &[])],
        nvlink_domains: Vec::new(),
        scheduler: LinkScheduler::Fifo,
    };
    let interconnect = Arc::new(interconnect);
    fabric(2).with_interconnects(|_| Some(Arc::clone(&interconnect)))
}

/// The job on these GPUs, with a port of its own.
fn on_gpus(mut job: Job, src: u32, dst: u32) -> Job {
    let port = 0xC000 + src as u16;
    let gpus = FlowGpus::new(Some(src), Some(dst));
    job.flows[0] = Flow { gpus, udp_src_port: Some(port), ..job.flows[0].clone() };
    job
}

/// Two jobs that share a link inside a host get half of it each, as in the fluid model.
#[tokio::test]
async fn links_inside_hosts_are_queues_of_their_rate() {
    let run = async |jobs: &[Job]| {
        let options = TestbedOptions::default();
        let (outcome, faults, _) = train_on(fabric_with_pcie(), options, jobs, &[0; 4]).await;
        assert_eq!(faults, HostErrorCounts::default());
        outcome
    };
    // 1.25 GB at the 12.5 GB/s of PCIe are 100 ms, of which 50 ms are hidden.
    let alone = on_gpus(job("a", 0, 2, 1.25e9), 0, 0);
    check(&run(std::slice::from_ref(&alone)).await, &[0.150]);
    // Over the root complex as well.
    check(&run(&[on_gpus(job("a", 0, 2, 1.25e9), 5, 6)]).await, &[0.150]);
    // Two GPUs of one host send by its NIC: 200 ms after 50 ms.
    check(&run(&[alone.clone(), on_gpus(job("b", 0, 3, 1.25e9), 1, 0)]).await, &[0.250; 2]);
    // Two hosts send to one, whose PCIe takes half of what its NIC receives.
    check(&run(&[alone.clone(), on_gpus(job("b", 1, 2, 1.25e9), 1, 1)]).await, &[0.250; 2]);
    // On different links of the same switch nobody waits.
    check(&run(&[alone, on_gpus(job("b", 1, 3, 1.25e9), 1, 1)]).await, &[0.150; 2]);
}

/// What a slow link inside the host holds back waits before it, not in the buffers of the NIC.
#[tokio::test]
async fn under_dcqcn_a_slow_pcie_link_limits_its_sender() {
    let jobs = [on_gpus(job("a", 0, 2, 1.25e9), 0, 0), on_gpus(job("b", 0, 3, 1.25e9), 1, 0)];
    let options = dcqcn(DcqcnOptions::default());
    let (outcome, faults, congestion) = train_on(fabric_with_pcie(), options, &jobs, &[0; 4]).await;
    check(&outcome, &[0.250; 2]);
    assert_eq!((faults.retransmitted, congestion.notifications), (0, 0));
}

/// Two jobs send by one NIC: by turns, or the one with the higher DSCP first if it is host-strict.
#[tokio::test]
async fn a_host_strict_nic_sends_the_higher_level_first() {
    let jobs = [job("a", 0, 2, 2.5e9), job("b", 0, 3, 2.5e9)];
    for (scheduler, expect) in
        [(LinkScheduler::Fifo, [0.250, 0.250]), (LinkScheduler::HostStrict, [0.150, 0.300])]
    {
        let (fabric, scale) =
            (fabric(2).with_host_scheduler(scheduler), TimeScale::new(500.0).unwrap());
        let options = TestbedOptions::default();
        let testbed = EmulatedTestbed::build(&fabric, &jobs, scale, options).unwrap();
        route(&testbed, &fabric, &[0; 4]).await;
        testbed.set_job_dscps(vec![5 << 3, 2 << 3]).await.unwrap();
        check(&testbed.train_jobs(&[0; 2], 5).await.unwrap(), &expect);
        testbed.stop().await;
    }
}

#[tokio::test]
async fn rates_under_dcqcn_follow_the_fluid_model() {
    let options = dcqcn(DcqcnOptions::default());
    let alone = [job("a", 0, 2, 2.5e9)];
    let (outcome, faults, congestion) = train_over(options, &alone, &[0; 4]).await;
    check(&outcome, &[0.150]);
    assert_eq!(faults, HostErrorCounts::default());
    assert_eq!((congestion.notifications, congestion.timeouts), (0, 0));
    // Two flows of one link: 250 ms as with windows, within what convergence costs.
    let jobs = [job("a", 0, 2, 2.5e9), job("b", 1, 3, 2.5e9)];
    let (outcome, faults, congestion) = train_over(options, &jobs, &[0; 4]).await;
    for job in &outcome.jobs {
        let found = job.mean_iteration_seconds.unwrap();
        assert!((found / 0.250 - 1.0).abs() < 0.08, "{}: {found}", job.id);
    }
    assert_eq!((faults.retransmitted, congestion.timeouts), (0, 0));
    assert!(congestion.notifications > 0 && congestion.marked >= congestion.notifications);
}

/// Behind b, what a sends fills the buffer of its leaf, which pauses host 0. Its acknowledgements
/// of what c sends it are of the same class: more than the headroom takes, if they did not wait.
#[tokio::test]
async fn replies_of_a_paused_nic_wait_and_are_not_lost() {
    let jobs = [job("a", 0, 2, 2.5e9), job("b", 1, 3, 1e10), job("c", 2, 0, 1e10)];
    let options = dcqcn(DcqcnOptions::default());
    let (_, faults, congestion) = train_over(options, &jobs, &[0, 5, 7, 0]).await;
    assert!(congestion.pauses > 0);
    assert_eq!((faults, congestion.timeouts), (HostErrorCounts::default(), 0));
}

#[tokio::test]
async fn a_connection_without_retries_left_ends_its_job() {
    let (fabric, jobs) = (fabric(1), [job("a", 0, 1, 2.5e9)]);
    let retries = RetrySettings { ib_timeout: 14, retry_count: 2 };
    let options = dcqcn(DcqcnOptions { retries, ..DcqcnOptions::default() });
    let scale = TimeScale::new(500.0).unwrap();
    let testbed = EmulatedTestbed::build(&fabric, &jobs, scale, options).unwrap();
    route(&testbed, &fabric, &[0; 2]).await;
    let cable = testbed.cable_wire(LinkId(0));
    testbed.network_handle().set_wire_state(cable, WireState::Down).await.unwrap();
    let ended = testbed.train_jobs(&[0], 1).await;
    let Err(TestbedError::ConnectionLost { job, flow: 0, retries: 2, seconds }) = ended else {
        panic!("{ended:?}");
    };
    // Flows start after 50 ms; three timeouts of 67.1 ms follow.
    assert_eq!(job, "a");
    assert!((seconds - 0.050 - 3.0 * 0.0671).abs() < 0.001, "{seconds}");
}

#[tokio::test]
async fn equal_inputs_give_equal_results() {
    let jobs = [job("a", 0, 2, 2.5e9), job("b", 1, 3, 1.3e9)];
    assert_eq!(train(&jobs, &[0; 4]).await, train(&jobs, &[0; 4]).await);
}

#[tokio::test]
async fn a_broken_cable_costs_time_and_no_data() {
    let (fabric, jobs) = (fabric(1), [job("a", 0, 1, 2.5e9)]);
    let scale = TimeScale::new(500.0).unwrap();
    let testbed = EmulatedTestbed::build(&fabric, &jobs, scale, TestbedOptions::default()).unwrap();
    route(&testbed, &fabric, &[0; 2]).await;
    let cable = testbed.cable_wire(LinkId(0));
    testbed.network_handle().set_wire_state(cable, WireState::Down).await.unwrap();
    let stuck = testbed.train_jobs(&[0], 1).await;
    assert!(matches!(stuck, Err(TestbedError::Unfinished { iterations: 0, .. })), "{stuck:?}");
    testbed.network_handle().set_wire_state(cable, WireState::Up).await.unwrap();
    testbed.train_jobs(&[], 3).await.unwrap();
    assert!(testbed.host_errors().await.unwrap().retransmitted > 0);
}
