//! Jobs on hosts whose inside the fabric describes: which NICs they use, and what PCIe does to
//! intensity, contention and the fluid model.

use planner::{Job, JobId, JobsDocument, Policy, plan};
use topology::document::{DocumentFormat, parse_document};
use topology::{Fabric, spec};

use crate::scenario::input;

/// Two leaves of two hosts. Each has two PCIe switches of 100 Gb/s with two GPUs and a NIC of
/// 200 Gb/s.
fn fabric(scheduler: &str) -> Fabric {
    let text = format!(
        r#"
        name = "hosts"
        [clos]
        leaves = 2
        spines = 2
        hosts_per_leaf = 2
        gpus_per_host = 4
        host_links = 2
        host_gbps = 200.0
        uplink_gbps = 400.0
        [host_interconnect]
        scheduler = "{scheduler}"
        pcie_switches = [
            {{ gpus = [0, 1], nics = [0], gbps = 100.0 }},
            {{ gpus = [2, 3], nics = [1], gbps = 100.0 }},
        ]"#
    );
    spec::parse_fabric(&text, DocumentFormat::Toml, "f.toml").unwrap()
}

fn resolve(fabric: &Fabric, text: &str) -> Result<Vec<Job>, String> {
    let document: JobsDocument = parse_document(text, DocumentFormat::Toml, "j.toml").unwrap();
    let resolved = document.resolve_jobs(fabric, "j.toml");
    resolved.map(|resolved| resolved.jobs).map_err(|error| error.to_string())
}

/// A job on two hosts that sends 12.5 GB each way, with `more` lines.
fn job(id: &str, hosts: [&str; 2], gpus: u32, more: &str) -> String {
    let [a, b] = hosts;
    format!(
        r#"
        [[jobs]]
        id = "{id}"
        gpus = {{ {a} = {gpus}, {b} = {gpus} }}
        flop_per_iteration = 1e15
        compute_seconds = 1.0
        collective = {{ kind = "all_gather", bytes = 25e9 }}
        {more}
        "#
    )
}

fn nics_of(fabric: &Fabric, job: &Job) -> Vec<(u32, Option<u32>)> {
    job.flows.iter().map(|flow| (fabric.nic(flow.src).index, flow.gpus.src())).collect()
}

#[test]
fn a_job_on_part_of_a_host_uses_the_nics_beside_its_gpus() {
    let fabric = fabric("fifo");
    let hosts = ["h1", "h3"];
    let named = job("named", hosts, 2, "gpu_indices = { h1 = [3, 2], h3 = [2, 3] }");
    let text = [job("first", hosts, 1, ""), named, job("last", hosts, 1, "")].concat();
    let channels = text.replace("25e9 }", "25e9, channels = 4 }");
    let jobs = resolve(&fabric, &channels).unwrap();
    assert_eq!(nics_of(&fabric, &jobs[0])[..4], [(0, Some(0)); 4]);
    let on_both = [(1, Some(3)), (1, Some(2)), (1, Some(3)), (1, Some(2))];
    assert_eq!(nics_of(&fabric, &jobs[1])[..4], on_both);
    assert_eq!(nics_of(&fabric, &jobs[2])[..4], [(0, Some(1)); 4]);
    // A whole host has all NICs, as where nothing is described.
    let whole =
        resolve(&fabric, &job("whole", hosts, 4, "").replace("25e9 }", "25e9, channels = 4 }"));
    let in_turn = [(0, Some(0)), (1, Some(2)), (0, Some(1)), (1, Some(3))];
    assert_eq!(nics_of(&fabric, &whole.unwrap()[0])[..4], in_turn);
}

#[test]
fn gpus_that_a_host_lacks_are_refused() {
    let fabric = fabric("fifo");
    let error = |more: &str| resolve(&fabric, &job("a", ["h1", "h3"], 2, more)).unwrap_err();
    assert!(
        error("gpu_indices = { h1 = [2, 4] }")
            .contains("jobs[0].gpu_indices.h1: GPU 4 of a host with 4 GPUs, counted from 0")
    );
    assert!(error("gpu_indices = { h1 = [2, 2] }").contains("2 different GPUs expected"));
    assert!(error("gpu_indices = { h2 = [1] }").contains("0 different GPUs expected"));
    assert!(error("gpu_indices = { h9 = [1] }").contains("no host `h9`"));
    let stated = job("a", ["h1", "h3"], 2, "").replace(
        r#"collective = { kind = "all_gather", bytes = 25e9 }"#,
        r#"flows = [{ src = "h1", dst = "h3", src_gpu = 7, bytes = 1.0 }]"#,
    );
    let found = resolve(&fabric, &stated).unwrap_err();
    assert!(found.contains("flows[0].src_gpu: GPU 7 of a host with 4 GPUs"), "{found}");
}

#[test]
fn intensity_is_that_of_the_tightest_link_inside_the_host() {
    let fabric = fabric("fifo");
    let jobs = resolve(&fabric, &job("a", ["h1", "h3"], 4, "")).unwrap();
    let (plan, report) = plan(&input(&fabric, &jobs), &Policy::default(), None);
    // Eight ranks: 10.9375 GB on each of two NICs, over the 12.5 GB/s of PCIe; the NICs would take half
    // as long.
    assert_eq!((plan.jobs[0].bottleneck_seconds, plan.jobs[0].intensity), (0.875, 1e15 / 0.875));
    let bottleneck = report.rationales[0].bottleneck.unwrap();
    assert_eq!(fabric.link_name(bottleneck), "h1:pcie0>h1:nic0");
    assert_eq!(report.bounds.max_load, report.bounds.max_load_lower_bound);
    // Paths of a plan stay between NICs.
    assert!(plan.flows.iter().all(|flow| flow.links.len() == 4));
}

#[test]
fn levels_count_on_pcie_links_only_where_the_host_serves_them() {
    let text =
        |second: &str| [job("a", ["h1", "h3"], 1, ""), job("b", ["h1", "h3"], 1, second)].concat();
    for (scheduler, together) in [("fifo", false), ("host-strict", true)] {
        let fabric = fabric(scheduler);
        let jobs = resolve(&fabric, &text("")).unwrap();
        let (plan, _) = plan(&input(&fabric, &jobs), &Policy::default(), None);
        let level = |id: &str| plan.job(&JobId::from(id)).unwrap().1.level;
        // Leaves serve levels too, towards the NIC: there the jobs contend either way.
        assert_ne!(level("a"), level("b"));
        let network = planner::fluid_network(&fabric).unwrap();
        assert_eq!(network.capacities().len(), fabric.capacity_link_count());
        let inside = fabric.intra_host_link_ids().map(|link| network.fifo_links()[link.index()]);
        assert!(inside.into_iter().all(|is_fifo| is_fifo != together));
    }
}

/// A fabric that describes wide links inside its hosts plans whole hosts as one that describes
/// nothing.
#[test]
fn wide_links_inside_hosts_change_no_plan_of_whole_hosts() {
    let described = topology::examples::example_text("crux-testbed-hosts").unwrap();
    let plain = described.split("[host_interconnect]").next().unwrap();
    let [described, plain] = [described, plain]
        .map(|text| spec::parse_fabric(text, DocumentFormat::Toml, "f.toml").unwrap());
    let text: String = [("a", ["h1", "h4"]), ("b", ["h2", "h5"]), ("c", ["h1", "h7"])]
        .map(|(id, hosts)| job(id, hosts, 8, "").replace("25e9 }", "25e9, channels = 4 }"))
        .concat();
    let [with, without] = [described, plain].map(|fabric| {
        let jobs = resolve(&fabric, &text).unwrap();
        plan(&input(&fabric, &jobs), &Policy::default(), None).0
    });
    assert_eq!(with.flows, without.flows);
    assert_eq!(with.jobs, without.jobs);
}

#[test]
fn ranks_take_the_nics_of_their_switch_in_turn() {
    let text = r#"
        name = "hosts"
        [clos]
        leaves = 2
        spines = 2
        hosts_per_leaf = 1
        gpus_per_host = 4
        host_links = 2
        host_gbps = 200.0
        uplink_gbps = 400.0
        [host_interconnect]
        pcie_switches = [{ gpus = [0, 1, 2, 3], nics = [0, 1], gbps = 400.0 }]"#;
    let fabric = spec::parse_fabric(text, DocumentFormat::Toml, "f.toml").unwrap();
    let sent = (0..4).map(|rank| format!("{{ src = {rank}, dst = {}, bytes = 1.0 }}", rank + 4));
    let text = job("a", ["h1", "h2"], 4, "").replace(
        r#"collective = { kind = "all_gather", bytes = 25e9 }"#,
        &format!("rank_traffic = [{}]", sent.collect::<Vec<_>>().join(", ")),
    );
    let jobs = resolve(&fabric, &text).unwrap();
    let nics = jobs[0].flows.iter().map(|flow| (fabric.nic(flow.src).index, flow.bytes));
    assert_eq!(nics.collect::<Vec<_>>(), [(0, 2.0), (1, 2.0)]);
}
