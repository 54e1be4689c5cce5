//! Text that people and programs write: documents, configurations, traces.
//!
//! The first byte chooses the language, as the extension of a file would.

use std::sync::LazyLock;

use controller::Config;
use controller::pipelines::FabricWiring;
use planner::{Job, JobsDocument, PlanInput, Policy, PolicyDocument, check_plan, plan};
use simulator::trace::{JobTrace, LingjunWorkers, TraceReader, TraceSelection};
use topology::document::{DocumentFormat, parse_document};
use topology::host_list::{compress_host_list, expand_host_list};
use topology::import::{
    self, InventoryAssumptions, NetboxTables, SonicSwitch, TierAssumptions, import_lingjun,
};
use topology::spec::{explicit_document, parse_fabric};
use topology::{Fabric, Severity};

/// Bytes beyond which a document tests the allocator and no longer the parser.
const TEXT_BYTES: usize = 16 * 1024;
/// Jobs of one plan.
const PLANNED_JOBS: usize = 8;
/// What stands between the jobs and the policy of a plan.
const SEPARATOR: &str = "\n---\n";

/// The fabric that jobs and policies are about.
pub(crate) fn small_fabric() -> &'static Fabric {
    static FABRIC: LazyLock<Fabric> = LazyLock::new(|| {
        let text = topology::examples::example_text("lab").unwrap();
        parse_fabric(text, DocumentFormat::Toml, "lab").unwrap()
    });
    &FABRIC
}

/// The language that the first byte chooses, and the text after it.
fn split_format(data: &[u8]) -> Option<(DocumentFormat, &str)> {
    let (which, text) = data.split_first()?;
    let text = std::str::from_utf8(text.get(..TEXT_BYTES).unwrap_or(text)).ok()?;
    let formats = [DocumentFormat::Toml, DocumentFormat::Yaml, DocumentFormat::Json];
    Some((formats[usize::from(*which) % formats.len()], text))
}

/// Fabrics, which are printed and read again; `topo.csv` of the Lingjun traces; labs, models and
/// inventories that are imported.
pub(crate) fn fabrics(data: &[u8]) -> Option<()> {
    if let [b'c', csv @ ..] = data {
        let csv = std::str::from_utf8(csv).ok()?;
        return import_lingjun(csv, &TierAssumptions::default()).ok().map(drop);
    }
    if let [b'i', which, text @ ..] = data {
        let text = std::str::from_utf8(text.get(..TEXT_BYTES).unwrap_or(text)).ok()?;
        return import_inventory(*which, text);
    }
    let (format, text) = split_format(data)?;
    let fabric = parse_fabric(text, format, "fabric").ok()?;
    let _findings = topology::check_fabric(&fabric);
    let again = Fabric::try_from(&explicit_document(&fabric));
    assert!(again.is_ok_and(|again| again.links().len() == fabric.links().len()));
    Some(())
}

/// A lab, a tree of a scheduler, switches of SONiC, or tables of an inventory, with a line of dashes
/// in between.
fn import_inventory(which: u8, text: &str) -> Option<()> {
    let (tiers, inventory) = (TierAssumptions::default(), InventoryAssumptions::default());
    let imported = match which {
        b'l' => import::import_containerlab(text, &inventory),
        b'p' => import::import_p4utils(text, &inventory),
        b't' => import::import_topograph(text, &tiers),
        b's' => import::import_slurm_conf(text, &tiers),
        b'y' => import::import_slurm_yaml(text, &tiers),
        b'k' => {
            let files = text.split("----\n").enumerate();
            let switches = files.map(|(at, text)| SonicSwitch::parse(&format!("s{at}.json"), text));
            let switches: Vec<SonicSwitch> = switches.collect::<Result<_, _>>().ok()?;
            import::import_sonic(&switches, &inventory)
        }
        _ => {
            let mut tables = text.split("----\n");
            let mut next = || tables.next().unwrap_or_default();
            let (devices, interfaces, cables) = (next(), next(), next());
            let tables = NetboxTables { devices, interfaces, cables, addresses: tables.next() };
            import::import_netbox(&tables, &inventory)
        }
    };
    let fabric = match imported {
        Ok(imported) => imported.fabric,
        Err(error) => {
            // It names a field, or a place.
            assert!(error.to_string().contains(": "), "{error}");
            return None;
        }
    };
    assert!(!fabric.switches().is_empty());
    let again = Fabric::try_from(&explicit_document(&fabric));
    assert!(again.is_ok_and(|again| again == fabric));
    Some(())
}

/// Jobs, and lists of hosts as schedulers write them.
pub(crate) fn jobs(data: &[u8]) -> Option<()> {
    let (format, text) = split_format(data)?;
    let Ok(document) = parse_document::<JobsDocument>(text, format, "jobs") else {
        let hosts = expand_host_list(text).ok()?;
        let again = compress_host_list(hosts.iter().map(String::as_str));
        return expand_host_list(&again).ok().map(drop);
    };
    document.resolve_jobs(small_fabric(), "jobs").ok().map(drop)
}

/// Policies, applied to a fabric.
pub(crate) fn policies(data: &[u8]) -> Option<()> {
    let (format, text) = split_format(data)?;
    let document = parse_document::<PolicyDocument>(text, format, "policy").ok()?;
    let policy = document.to_policy("policy").ok()?;
    policy.apply_drains(small_fabric()).ok().map(drop)
}

/// Jobs and a policy in JSON, planned and lowered.
pub(crate) fn plans(data: &[u8]) -> Option<()> {
    let text = std::str::from_utf8(data.get(..TEXT_BYTES).unwrap_or(data)).ok()?;
    let (jobs, policy) = text.split_once(SEPARATOR)?;
    let format = DocumentFormat::Json;
    let jobs = parse_document::<JobsDocument>(jobs, format, "jobs").ok()?;
    let policy = parse_document::<PolicyDocument>(policy, format, "policy").ok()?;
    let policy = policy.to_policy("policy").ok()?;
    let fabric = policy.apply_drains(small_fabric()).ok()?;
    let jobs = jobs.resolve_jobs(&fabric, "jobs").ok()?.jobs;
    (jobs.len() <= PLANNED_JOBS).then(|| plan_and_lower(fabric, &policy, jobs))
}

fn plan_and_lower(fabric: Fabric, policy: &Policy, jobs: Vec<Job>) {
    let wiring = FabricWiring::new(&fabric).unwrap();
    let input = PlanInput { fabric, jobs };
    let (made, _report) = plan(&input, policy, None);
    let findings = check_plan(&input, policy, &made);
    assert!(findings.iter().all(|finding| finding.severity != Severity::Error), "{findings:?}");
    let _tables = controller::lower_plan(&wiring, &input.fabric, &made);
}

/// The configuration of a controller.
pub(crate) fn configurations(data: &[u8]) -> Option<()> {
    let (format, text) = split_format(data)?;
    Config::parse_text(text, format, "crux").ok().map(drop)
}

/// Traces of clusters.
pub(crate) fn traces(data: &[u8]) -> Option<()> {
    let (which, data) = data.split_first()?;
    let selection = TraceSelection { max_jobs: 1_000, ..TraceSelection::default() };
    match which % 2 {
        0 => JobTrace::read_jobs(TraceReader::new(data).ok()?, &selection).ok().map(drop),
        _ => LingjunWorkers::read_workers(data).ok().map(drop),
    }
}
