//! The RoCE model that the authors of HPCC published for ns-3
//! (alibaba-edu/High-Precision-Congestion-Control), beside a run of ours: its inputs made of the
//! run, with the same topology, flows, starts and parameters, and its results read.
//!
//! The model is no part of this project; docs/queues-ns3.md says how to run it. The decision:
//! inputs have its own formats and names (`mix/config_doc.txt`), so that its users need to
//! add nothing but the series of queues and rates, which its main program does not print.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use emulator::DcqcnOptions;
use emulator::dcqcn::DcqcnParameters;
use serde::Serialize;
use switch::MarkingSlope;
use topology::{FabricNode, LinkEndpoint};

use super::NIC_GBPS;
use super::case::QueueCase;
use super::case_run::{CaseOutcome, DELAY_NS, FlowResult, STEP_US};
use command_io::CommandError;

/// Flows start this long after the simulation does, and it ends at the latest then.
const START_NS: u64 = 2_000_000_000;
const STOP_SECONDS: u64 = 3;
/// Bytes of a packet without headers, as our hosts send it.
const PAYLOAD_BYTES: u32 = 4096;
/// The priority of level 0: 0 is kept for control packets there.
const LOWEST_PRIORITY: u8 = 3;

/// What the model made of a case.
#[derive(Debug, Serialize)]
pub(super) struct Ns3Outcome {
    pub(super) seed: u64,
    /// From its start to its last acknowledgement, by flow.
    pub(super) completion_us: Vec<f64>,
    /// Pauses that switches and NICs received, and how long they lasted together.
    pub(super) pauses: u64,
    pub(super) paused_us: f64,
    pub(super) deepest_bytes: u64,
    /// The port whose queue was deepest, at each step.
    pub(super) queue_bytes: Vec<u64>,
    /// The rate that DCQCN allowed all flows together, at each step, in Gb/s.
    pub(super) rates_gbps: Vec<f64>,
}

impl Ns3Outcome {
    pub(super) fn last_us(&self) -> f64 {
        self.completion_us.iter().copied().fold(0.0, f64::max)
    }

    pub(super) fn mean_us(&self) -> f64 {
        self.completion_us.iter().sum::<f64>() / self.completion_us.len().max(1) as f64
    }
}

/// Inputs for one run.
pub(super) struct Ns3Inputs<'a> {
    pub(super) case: &'a QueueCase,
    pub(super) dcqcn: DcqcnOptions,
    pub(super) outcome: &'a CaseOutcome,
}

fn run_folder(folder: &str, case: &str, seed: u64) -> PathBuf {
    Path::new(folder).join(format!("{case}-{seed}"))
}

impl Ns3Inputs<'_> {
    /// Writes them into a folder of their own.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn write_into(&self, folder: &str) -> Result<(), CommandError> {
        let folder = run_folder(folder, &self.case.name, self.outcome.seed);
        let write = |name: &str, text: String| fs::write(folder.join(name), text);
        let written = fs::create_dir_all(&folder)
            .and_then(|()| write("topology.txt", self.topology()))
            .and_then(|()| write("flow.txt", self.flows()))
            .and_then(|()| write("trace.txt", "0\n".to_owned()))
            .and_then(|()| write("config.txt", self.config()));
        written.map_err(|error| CommandError::input(folder.display().to_string(), error))
    }

    /// Hosts come first, then switches.
    fn node(&self, end: LinkEndpoint) -> usize {
        match end.node {
            FabricNode::Host(host) => host.index(),
            FabricNode::Switch(switch) => self.case.fabric.hosts().len() + switch.index(),
        }
    }

    fn topology(&self) -> String {
        let fabric = &self.case.fabric;
        let (hosts, switches) = (fabric.hosts().len(), fabric.switches().len());
        let cables: Vec<_> = fabric.cables().map(|cable| *fabric.link(cable)).collect();
        let mut text = format!("{} {switches} {}\n", hosts + switches, cables.len());
        let numbers: Vec<String> = (hosts..hosts + switches).map(|n| n.to_string()).collect();
        text += &format!("{}\n", numbers.join(" "));
        for link in cables {
            let (a, b, gbps) = (self.node(link.from), self.node(link.to), link.bandwidth.gbps());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{a} {b} {gbps}Gbps {DELAY_NS}ns 0");
        }
        text
    }

    /// Source, destination, priority, port, bytes and start of each flow, by start.
    fn flows(&self) -> String {
        let fabric = &self.case.fabric;
        let known = self.case.jobs.iter().flat_map(|job| &job.flows);
        let mut flows: Vec<_> = known
            .zip(&self.outcome.flows)
            .map(|(flow, result)| {
                let [src, dst] = [flow.src, flow.dst].map(|nic| fabric.nic(nic).host.index());
                (result.start_ns, src, dst, LOWEST_PRIORITY + result.level, result.bytes)
            })
            .collect();
        flows.sort_unstable();
        let mut text = format!("{}\n", flows.len());
        for (start_ns, src, dst, priority, bytes) in flows {
            let seconds = (START_NS + start_ns) as f64 / 1e9;
            let _ = writeln!(text, "{src} {dst} {priority} 100 {bytes} {seconds:.9}");
        }
        text
    }

    fn config(&self) -> String {
        let published = DcqcnParameters::published(NIC_GBPS * 1e9);
        let parameters = self.dcqcn.parameters.unwrap_or(published);
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let mbps = |bps: f64| format!("{}Mb/s", (bps / 1e6).round() as u64);
        let reduce = parameters.reduce_period_ns.unwrap_or(parameters.notification_interval_ns);
        let mut text = FIXED_CONFIG.to_owned();
        for (name, value) in [
            ("SIMULATOR_STOP_TIME", STOP_SECONDS.to_string()),
            ("ALPHA_RESUME_INTERVAL", micros(parameters.alpha_timer_ns).to_string()),
            ("RATE_DECREASE_INTERVAL", micros(reduce).to_string()),
            ("RP_TIMER", micros(parameters.increase_timer_ns).to_string()),
            ("EWMA_GAIN", parameters.gain.to_string()),
            ("FAST_RECOVERY_TIMES", parameters.fast_recovery_steps.to_string()),
            ("RATE_AI", mbps(parameters.additive_bps)),
            // Ours adds more only once bytes are counted too, and theirs counts none.
            ("RATE_HAI", mbps(parameters.additive_bps)),
            ("MIN_RATE", mbps(parameters.minimum_bps)),
            ("PACKET_PAYLOAD_SIZE", PAYLOAD_BYTES.to_string()),
            ("BUFFER_SIZE", (self.dcqcn.queues.buffer_bytes >> 20).max(1).to_string()),
            ("XON_OFFSET", self.dcqcn.queues.xon_offset_bytes.to_string()),
            ("STRICT_PRIORITY", u8::from(self.is_strict()).to_string()),
            ("SEED_RUN", self.outcome.seed.to_string()),
        ] {
            let _ = writeln!(text, "{name} {value}");
        }
        text + &self.marking_maps()
    }

    /// Whether no level has a share of its own: theirs take turns otherwise.
    fn is_strict(&self) -> bool {
        self.case.lower_share.unwrap_or(self.dcqcn.queues.lower_share) == 0.0
    }

    /// Thresholds by rate, in kB.
    fn marking_maps(&self) -> String {
        let fabric = &self.case.fabric;
        let rates = fabric.cables().map(|cable| fabric.link(cable).bandwidth.gbps() as u64);
        let rates: std::collections::BTreeSet<u64> = rates.collect();
        let of_rates = |name: &str, value: &dyn Fn(u64) -> String| {
            let pairs = rates.iter().map(|gbps| format!(" {}000000000 {}", gbps, value(*gbps)));
            format!("{name} {}{}\n", rates.len(), pairs.collect::<String>())
        };
        let slope = MarkingSlope { packet_bytes: PAYLOAD_BYTES + 58, ..self.dcqcn.queues.marking };
        let kilobytes = |bytes: u64| bytes.div_ceil(1000).to_string();
        of_rates("KMAX_MAP", &|gbps| kilobytes(slope.ramp(gbps * 1_000_000_000).kmax_bytes))
            + &of_rates("KMIN_MAP", &|gbps| kilobytes(slope.ramp(gbps * 1_000_000_000).kmin_bytes))
            + &of_rates("PMAX_MAP", &|_| slope.pmax.to_string())
    }
}

/// DCQCN without windows, acknowledgements for every packet, go-back-N; a cut sets the target rate,
/// as in the paper.
const FIXED_CONFIG: &str = "\
ENABLE_QCN 1
USE_DYNAMIC_PFC_THRESHOLD 1
TOPOLOGY_FILE topology.txt
FLOW_FILE flow.txt
TRACE_FILE trace.txt
TRACE_OUTPUT_FILE mix.tr
FCT_OUTPUT_FILE fct.txt
PFC_OUTPUT_FILE pfc.txt
QLEN_MON_FILE qlen.txt
QUEUE_SERIES_FILE queue.txt
RATE_SERIES_FILE rate.txt
CC_MODE 1
CLAMP_TARGET_RATE 1
ERROR_RATE_PER_LINK 0
L2_CHUNK_SIZE 4000
L2_ACK_INTERVAL 1
L2_BACK_TO_ZERO 0
HAS_WIN 0
GLOBAL_T 1
VAR_WIN 0
FAST_REACT 0
RATE_BOUND 1
ACK_HIGH_PRIO 1
LINK_DOWN 0 0 0
ENABLE_TRACE 0
";

/// Reads what the model made of a case; none if it was not run.
///
/// # Errors
/// A file is missing or has other lines, or a flow did not end.
pub(super) fn read_outcome(
    folder: &str,
    case: &QueueCase,
    outcome: &CaseOutcome,
) -> Result<Option<Ns3Outcome>, CommandError> {
    let folder = run_folder(folder, &case.name, outcome.seed);
    let rows = |name: &str| read_rows(&folder.join(name));
    if !folder.join("fct.txt").exists() {
        return Ok(None);
    }
    let queues = rows("queue.txt")?;
    let queue_bytes = deepest_queue(&queues);
    let pauses = rows("pfc.txt")?;
    Ok(Some(Ns3Outcome {
        seed: outcome.seed,
        completion_us: completions(&folder, case, &outcome.flows)?,
        pauses: pauses.iter().filter(|row| row.last() == Some(&1)).count() as u64,
        paused_us: paused_nanos(&pauses) as f64 / 1e3,
        deepest_bytes: queue_bytes.iter().copied().max().unwrap_or(0),
        queue_bytes,
        rates_gbps: allowed_rates(&rows("rate.txt")?),
    }))
}

/// Lines of numbers.
fn read_rows(file: &Path) -> Result<Vec<Vec<u64>>, CommandError> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| CommandError::input(&name, error))?;
    let numbers = |line: &str| line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
    let rows: Result<Vec<Vec<u64>>, _> = text.lines().map(numbers).collect();
    rows.map_err(|_| CommandError::input(&name, "not lines of numbers"))
}

/// The completion of each flow in our order: lines have addresses 11.x.y.1 by number of the host,
/// ports, bytes, start and time taken.
fn completions(
    folder: &Path,
    case: &QueueCase,
    flows: &[FlowResult],
) -> Result<Vec<f64>, CommandError> {
    let name = folder.join("fct.txt").display().to_string();
    let text = fs::read_to_string(&name).map_err(|error| CommandError::input(&name, error))?;
    let mut taken: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [src, dst, _, _, _, _, nanos, ..] = fields[..] else {
            return Err(CommandError::input(&name, "not lines of eight fields"));
        };
        let host = |address: &str| {
            let address = u32::from_str_radix(address, 16).ok();
            address.map(|address| (address >> 8 & 0xffff) as usize)
        };
        let (Some(src), Some(dst), Ok(nanos)) = (host(src), host(dst), nanos.parse::<f64>()) else {
            return Err(CommandError::input(&name, "not lines of addresses and numbers"));
        };
        taken.insert((src, dst), nanos / 1e3);
    }
    let known = case.jobs.iter().flat_map(|job| &job.flows).zip(flows);
    known
        .map(|(flow, result)| {
            let ends = [flow.src, flow.dst].map(|nic| case.fabric.nic(nic).host.index());
            let found = taken.get(&(ends[0], ends[1])).copied();
            found.ok_or_else(|| {
                CommandError::input(&name, format!("a flow of {} did not end", result.job))
            })
        })
        .collect()
}

/// How long ports were paused together, of lines with time, node, kind of node, port and whether a
/// pause begins. A pause that does not end does not count.
fn paused_nanos(rows: &[Vec<u64>]) -> u64 {
    let mut since: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut paused = 0;
    for row in rows {
        match row[..] {
            [at, node, _, port, 1] => {
                since.entry((node, port)).or_insert(at);
            }
            [at, node, _, port, 0] => {
                paused += since.remove(&(node, port)).map_or(0, |since| at.saturating_sub(since));
            }
            _ => {}
        }
    }
    paused
}

/// The step of a time in nanoseconds; none after the end of the simulation, where no row can be.
fn step_of(at: u64) -> Option<usize> {
    let step = at.saturating_sub(START_NS) / (STEP_US * 1000);
    usize::try_from(step).ok().filter(|_| at <= STOP_SECONDS * 1_000_000_000)
}

/// The deepest queue at each step, of lines with time, node, port and bytes.
fn deepest_queue(rows: &[Vec<u64>]) -> Vec<u64> {
    let mut ports: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for row in rows {
        if let [at, node, port, bytes] = row[..]
            && let Some(step) = step_of(at)
        {
            let series = ports.entry((node, port)).or_default();
            series.resize(series.len().max(step + 1), 0);
            series[step] = bytes;
        }
    }
    let deepest = |series: &Vec<u64>| series.iter().copied().max();
    ports.into_values().max_by_key(deepest).unwrap_or_default()
}

/// The rate of all flows at each step, of lines with time, ends, port and bits per second.
fn allowed_rates(rows: &[Vec<u64>]) -> Vec<f64> {
    let mut rates: Vec<f64> = Vec::new();
    for row in rows {
        if let [at, _, _, _, rate] = row[..]
            && let Some(step) = step_of(at)
        {
            rates.resize(rates.len().max(step + 1), 0.0);
            rates[step] += rate as f64 / 1e9;
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::super::case::{CaseSize, all_cases};
    use super::*;

    fn outcome(case: &QueueCase) -> CaseOutcome {
        let flows = case.jobs.iter().flat_map(|job| job.flows.iter().map(move |flow| (job, flow)));
        let flows = flows.enumerate().map(|(index, (job, flow))| FlowResult {
            job: job.id.to_string(),
            level: 0,
            bytes: flow.bytes as u64,
            start_ns: 900 - 100 * index as u64,
            completion_us: 1.0,
            fluid_us: 1.0,
            goodput_gbps: 1.0,
        });
        CaseOutcome { seed: 3, flows: flows.collect(), ..CaseOutcome::default() }
    }

    #[test]
    fn inputs_have_the_topology_and_the_flows_by_start() {
        let cases = all_cases(CaseSize { bytes: 2e6, nic_gbps: NIC_GBPS }).unwrap();
        let case = cases.iter().find(|case| case.name == "bottleneck").unwrap();
        let outcome = outcome(case);
        let inputs = Ns3Inputs { case, dcqcn: DcqcnOptions::default(), outcome: &outcome };
        let topology = inputs.topology();
        // Three hosts, a leaf and a spine; three cables to hosts and one between switches.
        assert!(topology.starts_with("5 2 4\n3 4\n0 3 100Gbps 200ns 0\n"), "{topology}");
        let flows = "2\n1 2 3 100 1000000 2.000000800\n0 2 3 100 1000000 2.000000900\n";
        assert_eq!(inputs.flows(), flows);
        let config = inputs.config();
        for line in [
            "RATE_DECREASE_INTERVAL 50\n",
            "RATE_AI 100Mb/s\n",
            "KMAX_MAP 2 100000000000 500 400000000000 2000\n",
            "SEED_RUN 3\n",
            "XON_OFFSET 3072\nSTRICT_PRIORITY 1\n",
        ] {
            assert!(config.contains(line), "{line} in {config}");
        }
    }

    #[test]
    fn results_are_read_by_the_ends_of_flows() {
        let cases = all_cases(CaseSize { bytes: 2e6, nic_gbps: NIC_GBPS }).unwrap();
        let case = cases.iter().find(|case| case.name == "bottleneck").unwrap();
        let outcome = outcome(case);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        assert!(read_outcome(root, case, &outcome).unwrap().is_none());
        let own = run_folder(root, "bottleneck", 3);
        fs::create_dir_all(&own).unwrap();
        for (name, text) in [
            (
                "fct.txt",
                "0b000101 0b000201 10000 100 1000000 2000000800 170000 90000\n\
                 0b000001 0b000201 10000 100 1000000 2000000900 180000 90000\n",
            ),
            ("pfc.txt", "2000001000 0 0 1 1\n2000002000 0 0 1 0\n2000003000 1 0 1 1\n"),
            // A time after the end of the simulation takes no memory.
            (
                "queue.txt",
                "2000000000 3 1 5\n2000010000 3 3 900\n2000030000 3 3 700\n\
                 18446744073709551615 3 3 1\n",
            ),
            ("rate.txt", "2000000000 0 2 10000 100000000000\n2000000000 1 2 10000 50000000000\n"),
        ] {
            fs::write(own.join(name), text).unwrap();
        }
        let found = read_outcome(root, case, &outcome).unwrap().unwrap();
        assert_eq!(found.completion_us, [180.0, 170.0]);
        assert_eq!((found.pauses, found.paused_us, found.deepest_bytes), (2, 1.0, 900));
        assert_eq!((found.queue_bytes, found.rates_gbps), (vec![0, 900, 0, 700], vec![150.0]));
    }
}
