//! Jobs and Plan documents: what they mean, what they refuse, and back again.

use std::collections::BTreeSet;

use planner::{
    JobsDocument, PlanDocument, Policy, PolicyDocument, ResolvedJobs, builtin_profiles, plan,
};
use topology::Fabric;
use topology::clos::{ClosSpec, build_clos};
use topology::document::{DocumentFormat, parse_document};

use crate::scenario::{clos, input, ring};

fn resolve(fabric: &Fabric, jobs: &str) -> Result<ResolvedJobs, String> {
    let document: JobsDocument =
        parse_document(jobs, DocumentFormat::Toml, "jobs.toml").map_err(|e| e.to_string())?;
    document.resolve_jobs(fabric, "jobs.toml").map_err(|error| error.to_string())
}

/// A job that is right, before `more`.
fn job(id: &str, more: &str) -> String {
    format!(
        "[[jobs]]\nid = '{id}'\ngpus = {{h1 = 8, h2 = 8}}\nflop_per_iteration = 1e15\n\
         compute_seconds = 1.0\n{more}\n"
    )
}

#[test]
fn the_example_of_the_format_resolves() {
    let text = r#"{ "jobs": [ { "id": "gpt", "tenant": "a", "model": "gpt3-24l",
        "gpus": {"h1": 8, "h2": 8}, "flop_per_iteration": 1.2e15, "compute_seconds": 1.1,
        "overlap_from": 0.5, "flows": [ {"src": "h1", "dst": "h2", "src_nic": 0, "dst_nic": 0,
        "bytes": 4.0e9, "udp_src_port": 50001} ] } ] }"#;
    let document: JobsDocument = parse_document(text, DocumentFormat::Json, "jobs.json").unwrap();
    let jobs = document.resolve_jobs(&clos(2, 2, 3), "jobs.json").unwrap().jobs;
    assert_eq!((jobs.len(), jobs[0].gpu_count(), jobs[0].flows.len()), (1, 16, 1));
    assert_eq!((jobs[0].flows[0].bytes, jobs[0].flows[0].udp_src_port), (4e9, Some(50001)));
}

#[test]
fn the_policy_of_the_documentation_is_one() {
    let page = include_str!("../../../../docs/documents.md");
    let (_, policy) = page.split_once("## Policy").unwrap();
    let text = policy.split("```").nth(1).unwrap().strip_prefix("toml\n");
    let document: PolicyDocument =
        parse_document(text.unwrap(), DocumentFormat::Toml, "documents.md").unwrap();
    let policy = document.to_policy("documents.md").unwrap();
    assert_eq!(policy.check_on(&clos(2, 2, 3)), Ok(()));
    assert_eq!((policy.overrides.len(), policy.adopt.len()), (1, 1));

    let page = include_str!("../../../../docs/telemetry.md");
    let rule = page.split("```toml\n").find(|text| text.starts_with("[[adopt]]"));
    let (rule, _) = rule.unwrap().split_once("```").unwrap();
    let document: PolicyDocument =
        parse_document(rule, DocumentFormat::Toml, "telemetry.md").unwrap();
    assert_eq!(document.to_policy("telemetry.md").unwrap().adopt[0].level, Some(3));
}

/// Every text is refused with that message, after the name of the file.
fn check_refused(cases: &[(String, &str)]) {
    let fabric = clos(2, 2, 3);
    for (text, expect) in cases {
        assert_eq!(resolve(&fabric, text), Err(format!("jobs.toml: {expect}")), "{text}");
    }
}

/// A job with one flow from h1 to h2.
fn flow(more: &str) -> String {
    job("a", &format!("flows = [{{src = 'h1', dst = 'h2', {more}}}]"))
}

#[test]
fn mistakes_in_jobs_name_file_and_field() {
    let right = job("a", "");
    check_refused(&[
        (right.repeat(2), "jobs[1].id: `a` names two jobs"),
        (job("", ""), "jobs[0].id: empty; a job needs a name"),
        (
            right.replace("h2", "h22"),
            "jobs[0].gpus.h22: the fabric has no host `h22`; did you mean `h2`?",
        ),
        (right.replace("h2 = 8", "h2 = 9"), "jobs[0].gpus.h2: 9 GPUs on a host that has 8"),
        (right.replace('8', "0"), "jobs[0].gpus: no GPU on any host"),
        (job("a", "overlap_from = 1.5"), "jobs[0].overlap_from: 1.5 is not a number from 0 to 1"),
        (right.replace("1e15", "0.0"), "jobs[0].flop_per_iteration: 0 FLOP is no work"),
        (
            right.replace("compute_seconds = 1.0", ""),
            "jobs[0].compute_seconds: missing, and no profile provides it",
        ),
        (
            job("a", "profile = 'bert-larg/A100'"),
            "jobs[0].profile: no profile is called `bert-larg/A100`; there are \
             bert-large-seq512/A100, bert-large/A100, gpt-24l/A100, resnet50/A100, \
             roberta-large/A100, vit-large/A100; did you mean `bert-large/A100`?",
        ),
        (
            job("a", "profile = 'llama'"),
            "jobs[0].profile: no profile is called `llama`; there are \
             bert-large-seq512/A100, bert-large/A100, gpt-24l/A100, resnet50/A100, \
             roberta-large/A100, vit-large/A100",
        ),
    ]);
    let unknown = resolve(&clos(2, 2, 3), &job("a", "flow = []")).unwrap_err();
    assert!(unknown.contains("did you mean `flows`?"), "{unknown}");
}

#[test]
fn a_job_that_does_not_fit_costs_no_other_one() {
    let misfit = job("b", "").replace("h2", "h22");
    let text = [job("a", ""), misfit, job("a", ""), job("c", "")].concat();
    let document: JobsDocument = parse_document(&text, DocumentFormat::Toml, "jobs.toml").unwrap();
    let (resolved, unfit) = document.resolve_fitting_jobs(&clos(2, 2, 3), "jobs.toml");
    let ids: Vec<String> = resolved.jobs.iter().map(|job| job.id.to_string()).collect();
    assert_eq!(ids, ["a", "c"]);
    let unfit: Vec<String> = unfit.iter().map(|(id, error)| format!("{id}: {error}")).collect();
    assert_eq!(
        unfit,
        [
            "b: jobs.toml: jobs[1].gpus.h22: the fabric has no host `h22`; did you mean `h2`?",
            "a: jobs.toml: jobs[2].id: `a` names two jobs",
        ]
    );
}

#[test]
fn mistakes_in_flows_name_file_and_field() {
    let stated = flow("bytes = 1.0, udp_src_port = 5");
    check_refused(&[
        (
            flow("bytes = -1.0"),
            "jobs[0].flows[0].bytes: -1 is not a number from 0 to 1000000000000000000",
        ),
        (
            flow("bytes = nan"),
            "jobs[0].flows[0].bytes: NaN is not a number from 0 to 1000000000000000000",
        ),
        (flow("bytes = 1.0, dst_nic = 4"), "jobs[0].flows[0].dst_nic: 4 of a host with 1 NICs"),
        (flow("bytes = 1.0").replace("'h1'", "'h2'"), "jobs[0].flows[0].dst: from h2:0 to itself"),
        (
            flow("bytes = 1.0").replace("'h1'", "'nowhere'"),
            "jobs[0].flows[0].src: the fabric has no host `nowhere`",
        ),
        (
            format!("{stated}{}", stated.replace("'a'", "'b'")),
            "jobs[1].flows[0].udp_src_port: 5 is taken by another flow between the same NICs",
        ),
        (
            job("a", "collective = {kind = 'pipeline'}"),
            "jobs[0].collective.bytes: missing, and no profile provides it",
        ),
        (
            job("a", "collective = {kind = 'pipeline', bytes = 1.0, channels = 0}"),
            "jobs[0].collective.channels: 0 is not from 1 to 64",
        ),
        (
            job("a", "flows = []\ncollective = {kind = 'pipeline', bytes = 1.0}"),
            "jobs[0].collective: stands beside `flows`; one of both",
        ),
    ]);
}

#[test]
fn oversubscribed_hosts_are_findings() {
    let text = job("a", "") + &job("b", "");
    let findings = resolve(&clos(2, 2, 3), &text).unwrap().findings;
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["warning: h1: 16 GPUs in use of 8, by a, b", "warning: h2: 16 GPUs in use of 8, by a, b",]
    );
}

#[test]
fn collectives_follow_the_order_of_the_document_and_the_profile() {
    let fabric = clos(4, 2, 3);
    let text = "[[jobs]]\nid = 'a'\ngpus = {h10 = 8, h2 = 8, h1 = 4}\nprofile = 'bert-large/A100'\n\
                collective = {kind = 'ring_all_reduce', channels = 2}\n";
    let job = resolve(&fabric, text).unwrap().jobs.remove(0);
    let host = |nic| fabric.host(fabric.nic(nic).host).name.as_str();
    let ends: Vec<_> = job.flows.iter().map(|flow| (host(flow.src), host(flow.dst))).collect();
    let ring =
        [("h10", "h2"), ("h10", "h2"), ("h2", "h1"), ("h2", "h1"), ("h1", "h10"), ("h1", "h10")];
    assert_eq!(ends, ring);
    let bert = builtin_profiles().iter().find(|profile| profile.name == "bert-large/A100").unwrap();
    assert_eq!(job.flop_per_iteration, 20.0 * bert.flop_per_gpu);
    let gradients = bert.gradient_bytes.unwrap();
    // 20 ranks, over two channels.
    assert!((job.flows[0].bytes - 2.0 * 19.0 / 20.0 * gradients / 2.0).abs() < 1.0);
    // Nobody has said from which ports the hosts send.
    assert!(job.flows.iter().all(|flow| flow.udp_src_port.is_none()));
    let chosen = || {
        let mut jobs = resolve(&fabric, text).unwrap().jobs;
        planner::choose_source_ports(&mut jobs);
        jobs.remove(0).flows.iter().map(|flow| flow.udp_src_port.unwrap()).collect::<Vec<_>>()
    };
    assert!(chosen().iter().all(|port| *port >= 0xC000));
    assert_ne!(chosen()[0], chosen()[1]);
    assert_eq!(chosen(), chosen());
}

/// Sender and receiver of each flow, with the NIC and the bytes.
fn shown_flows(fabric: &Fabric, text: &str) -> Vec<String> {
    let job = resolve(fabric, text).unwrap().jobs.remove(0);
    let nic = |nic| {
        let nic = fabric.nic(nic);
        format!("{}:{}", fabric.host(nic.host).name, nic.index)
    };
    let flows = job.flows.iter();
    flows.map(|flow| format!("{}>{} {}", nic(flow.src), nic(flow.dst), flow.bytes)).collect()
}

#[test]
fn every_nic_of_the_gpus_carries_a_channel_of_a_collective() {
    let spec = ClosSpec { host_links: 8, ..ClosSpec::default() };
    let fabric = build_clos("test", &spec).unwrap();
    let ring = "collective = {kind = 'ring_all_reduce', bytes = 8e9}";
    let flows = shown_flows(&fabric, &job("a", ring));
    // 16 ranks.
    let channel = |from: &str, to: &str, nic| format!("{from}:{nic}>{to}:{nic} 1875000000");
    let there = (0..8).map(|nic| channel("h1", "h2", nic));
    let expected: Vec<String> = there.chain((0..8).map(|nic| channel("h2", "h1", nic))).collect();
    assert_eq!(flows, expected);

    // Two jobs on halves of the hosts: the first names its GPUs, the second has the others.
    let halves = |id: &str, more: &str| job(id, &format!("{ring}\n{more}")).replace("= 8", "= 4");
    let named = halves("a", "gpu_indices = {h1 = [0, 2, 4, 6], h2 = [0, 2, 4, 6]}");
    let text = named + &halves("b", "");
    let jobs = resolve(&fabric, &text).unwrap().jobs;
    let nics = jobs.iter().map(|job| {
        let own = job.flows.iter().map(|flow| fabric.nic(flow.src).index);
        own.collect::<BTreeSet<u32>>().into_iter().collect::<Vec<_>>()
    });
    assert_eq!(nics.collect::<Vec<_>>(), [[0, 2, 4, 6], [1, 3, 5, 7]]);
}

/// Two stages of a pipeline on two hosts each, whose copies reduce their gradients GPU by GPU, and
/// tensor parallelism that stays in the hosts.
#[test]
fn each_group_of_each_collective_sends_by_the_nics_of_its_gpus() {
    let spec = ClosSpec { host_links: 2, hosts_per_leaf: 2, ..ClosSpec::default() };
    let fabric = build_clos("test", &spec).unwrap();
    let collectives = "collectives = [
        {kind = 'all_gather', bytes = 7.0, groups = {size = 2, stride = 1}},
        {kind = 'ring_all_reduce', bytes = 4.0, groups = {size = 2, stride = 2}},
        {kind = 'pipeline', bytes = 1.0, groups = {size = 2, stride = 4}}]";
    let hosts = "{h1 = 2, h2 = 2, h3 = 2, h4 = 2}";
    let of_hosts = |more: &str| job("a", more).replace("{h1 = 8, h2 = 8}", hosts);
    let flows = shown_flows(&fabric, &of_hosts(collectives));
    let both = |a: &str, b: &str, nic, bytes| {
        [(a, b), (b, a)].map(|(src, dst)| format!("{src}:{nic}>{dst}:{nic} {bytes}"))
    };
    let reduced = [("h1", "h2", 0), ("h1", "h2", 1), ("h3", "h4", 0), ("h3", "h4", 1)];
    let passed = [("h1", "h3", 0), ("h1", "h3", 1), ("h2", "h4", 0), ("h2", "h4", 1)];
    let reduced = reduced.iter().flat_map(|(a, b, nic)| both(a, b, nic, 4));
    let passed = passed.iter().flat_map(|(a, b, nic)| both(a, b, nic, 1));
    let sorted = |mut flows: Vec<String>| {
        flows.sort();
        flows
    };
    assert_eq!(sorted(flows), sorted(reduced.chain(passed).collect()));
    // Each may begin at its own part of the computation.
    let begins = |text: &str| {
        let jobs = resolve(&fabric, text).unwrap().jobs;
        jobs[0].flows.iter().map(|flow| flow.overlap_from).collect::<Vec<_>>()
    };
    let early = collectives.replacen("bytes = 4.0", "bytes = 4.0, overlap_from = 0.2", 1);
    assert_eq!(begins(&of_hosts(&early)), [[Some(0.2); 8], [None; 8]].concat());
    // 64 operations of many pairs are not listed before somebody counts them.
    let exchange = "{kind = 'all_to_all', bytes = 1.0, channels = 64}, ";
    let wide = clos(4, 2, 16);
    let names = (1..=64).map(|host| format!("h{host} = 8")).collect::<Vec<_>>().join(", ");
    let many = job("a", &format!("collectives = [{}]", exchange.repeat(64)))
        .replace("h1 = 8, h2 = 8", &names);
    let error = resolve(&wide, &many).unwrap_err().to_string();
    assert!(error.contains("jobs[0].collectives[3]: more than 1000000 flows"), "{error}");
    let five = collectives.replace("stride = 4", "stride = 5");
    let no_bytes = "collectives = [{kind = 'pipeline'}]";
    check_refused(&[
        (
            of_hosts(&five),
            "jobs[0].collectives[2].groups: 2 ranks, 5 apart, do not divide the 8 of the job",
        ),
        (job("a", no_bytes), "jobs[0].collectives[0].bytes: missing, and no profile provides it"),
        (
            of_hosts(&early.replace("0.2", "1.2")),
            "jobs[0].collectives[1].overlap_from: 1.2 is not a number from 0 to 1",
        ),
        (
            job("a", &format!("flows = []\n{collectives}")),
            "jobs[0].collectives: stands beside `flows`; one of both",
        ),
    ]);
}

#[test]
fn what_ranks_send_goes_between_the_nics_of_their_gpus() {
    let spec = ClosSpec { host_links: 2, ..ClosSpec::default() };
    let fabric = build_clos("test", &spec).unwrap();
    // GPU 2 sends by NIC 0 as well, and what stays in a host is no flow.
    let sent = "rank_traffic = [{src = 0, dst = 9, bytes = 1.0}, {src = 2, dst = 11, bytes = 2.0},
        {src = 8, dst = 1, bytes = 4.0}, {src = 0, dst = 1, bytes = 8.0}]";
    let in_order = job("a", sent).replace("{h1 = 8, h2 = 8}", "{h2 = 8, h1 = 8}");
    assert_eq!(shown_flows(&fabric, &in_order), ["h1:0>h2:1 4", "h2:0>h1:1 3"]);
    let many = (0..66).map(|at| {
        let begin = f64::from(at.max(1)) / 100.0;
        format!("{{src = 0, dst = 9, bytes = 1.0, overlap_from = {begin}}}")
    });
    let many = |count| {
        let pairs = many.clone().take(count).collect::<Vec<_>>().join(", ");
        resolve(&fabric, &job("a", &format!("rank_traffic = [{pairs}]")))
    };
    assert_eq!(many(65).unwrap().jobs[0].flows.len(), 64);
    let error = many(66).unwrap_err().to_string();
    assert!(error.contains("].overlap_from: more than 64 of a job"), "{error}");
    // What begins at another time is another flow.
    let early = in_order.replace("bytes = 2.0", "bytes = 2.0, overlap_from = 0.1");
    assert_eq!(shown_flows(&fabric, &early), ["h1:0>h2:1 4", "h2:0>h1:1 1", "h2:0>h1:1 2"]);
    check_refused(&[
        (
            job("a", "rank_traffic = [{src = 0, dst = 16, bytes = 1.0}]"),
            "jobs[0].rank_traffic[0].dst: rank 16 of a job of 16",
        ),
        (
            job("a", "flows = []\nrank_traffic = [{src = 0, dst = 8, bytes = 1.0}]"),
            "jobs[0].rank_traffic: stands beside `flows` or `collective`; one of them",
        ),
    ]);
}

#[test]
fn a_plan_survives_its_document() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 3], 4e9), ring(&fabric, "b", &[1, 4, 2], 3.3e9)];
    let input = input(&fabric, &jobs);
    let policy = Policy::default();
    let (first, report) = plan(&input, &policy, None);
    let document = PlanDocument::new(&fabric, &first, &report);
    let text = serde_json::to_string_pretty(&document).unwrap();
    let read: PlanDocument = parse_document(&text, DocumentFormat::Json, "plan.json").unwrap();
    assert_eq!(read, document);
    let (recalled, findings) = read.restore_plan(&fabric);
    assert_eq!((&recalled, findings.len()), (&first, 0));
    assert_eq!(plan(&input, &policy, Some(&recalled)).0, first);
    let path: Vec<&str> = document.flows[0].path.iter().map(String::as_str).collect();
    assert!(matches!(path[..], ["h1", "leaf1", _, "leaf2", "h4"]), "{path:?}");
    assert_eq!(document.flows[0].links[1], fabric.link_name(first.flows[0].links[1]));
}

#[test]
fn a_plan_of_another_fabric_is_recalled_as_far_as_it_goes() {
    let large = clos(2, 2, 3);
    let small = clos(2, 1, 3);
    let jobs = [ring(&large, "a", &[0, 3], 4e9), ring(&large, "b", &[1, 4], 4e9)];
    let (first, report) = plan(&input(&large, &jobs), &Policy::default(), None);
    let (recalled, findings) = PlanDocument::new(&large, &first, &report).restore_plan(&small);
    assert_eq!((recalled.jobs.len(), recalled.flows.len()), (2, 2));
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].about, "job b");
}

#[test]
fn a_policy_survives_its_own_document() {
    let text = r#"{"levels": 6, "reserved_levels": [5], "drained": ["spine1"], "job": [
        {"match": "bert*", "level": 2}, {"match": "*", "max_level": 4, "weight": 2.5}]}"#;
    let document: planner::PolicyDocument = serde_json::from_str(text).unwrap();
    let policy = document.to_policy("policy").unwrap();
    let again = planner::PolicyDocument::from(&policy).to_policy("policy");
    assert_eq!(again.unwrap(), policy);
}

#[test]
fn a_weight_is_above_zero_and_its_error_is_short() {
    for weight in ["-1", "0", "1e999"] {
        let text =
            format!("[[job]]\nmatch = \"gpt\"\nweight = {weight}.0\n").replace("1e999.0", "inf");
        let document: planner::PolicyDocument = toml_document(&text);
        let error = document.to_policy("policy.toml").unwrap_err().to_string();
        assert!(error.contains("job[0].weight") && error.contains("is not above 0"), "{error}");
        assert!(error.len() < 80, "{error}");
    }
}

fn toml_document(text: &str) -> planner::PolicyDocument {
    let format = topology::document::DocumentFormat::Toml;
    topology::document::parse_document(text, format, "policy.toml").unwrap()
}
