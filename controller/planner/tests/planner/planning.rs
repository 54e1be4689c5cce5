//! Single decisions of a plan: where flows go, who is served first, what an operator may say.

use planner::{
    CorrectionReference, Flow, Job, JobId, JobOverride, Plan, PlanInput, PlanReport, Policy,
    PolicyDocument, check_plan, forecast_plan, plan,
};
use topology::clos::{ClosSpec, build_clos};
use topology::{AvailabilityChange, LinkPath};

use crate::scenario::{cable, clos, input, ring, spines};

fn planned(input: &PlanInput, policy: &Policy) -> (Plan, PlanReport) {
    let (plan, report) = plan(input, policy, None);
    assert_eq!(check_plan(input, policy, &plan), []);
    (plan, report)
}

fn level(plan: &Plan, id: &str) -> u8 {
    plan.job(&JobId::from(id)).unwrap().1.level
}

fn rule(pattern: &str) -> JobOverride {
    JobOverride {
        pattern: pattern.to_owned(),
        min_level: None,
        max_level: None,
        weight: 1.0,
        exempt: false,
        min_throughput: None,
    }
}

#[test]
fn flows_spread_over_the_spines() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 3], 4e9), ring(&fabric, "b", &[1, 4], 4e9)];
    let (plan, report) = planned(&input(&fabric, &jobs), &Policy::default());
    assert_eq!(spines(&fabric, &plan, "a"), ["spine1", "spine1"]);
    assert_eq!(spines(&fabric, &plan, "b"), ["spine2", "spine2"]);
    // 4 GB over 25 GB/s take 0.16 s of an iteration of 1 s.
    assert!((report.bounds.max_load - 0.16).abs() < 1e-12);
    assert_eq!(report.bounds.max_load, report.bounds.max_load_lower_bound);
    assert!(plan.flows.iter().all(|flow| flow.pinned));
}

#[test]
fn a_job_alone_on_a_link_states_what_the_paper_defines() {
    let fabric = clos(2, 2, 3);
    let (plan, report) =
        planned(&input(&fabric, &[ring(&fabric, "a", &[0, 3], 5e9)]), &Policy::default());
    let job = &plan.jobs[0];
    assert_eq!((job.bottleneck_seconds, job.intensity), (0.2, 5e15));
    assert_eq!((job.correction, job.priority, job.rank, job.level), (1.0, 5e15, 1, 6));
    assert_eq!(report.rationales[0].iteration_seconds, 1.0);
    assert_eq!((plan.generation, job.number), (1, 1));
}

#[test]
fn no_path_is_a_finding_and_not_an_error() {
    let fabric = clos(2, 1, 3);
    let down =
        fabric.with_changes([AvailabilityChange::LinkDown(cable(&fabric, "leaf1", "spine1"))]);
    let (plan, report) =
        planned(&input(&down, &[ring(&fabric, "a", &[0, 3], 5e9)]), &Policy::default());
    assert!(plan.flows.iter().all(|flow| flow.links.is_empty() && !flow.pinned));
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].about, "job a");
    assert!(report.findings[0].text.contains("without a path"), "{:?}", report.findings);
    assert_eq!(plan.jobs[0].intensity, 0.0);
}

/// Three jobs send 20 s at a time over a link that carries two of them.
#[test]
fn no_flow_waits_longer_than_policy_allows_unless_overrides_say_so() {
    let fabric = clos(2, 1, 3);
    let jobs =
        [("a", 0), ("b", 1), ("c", 2)].map(|(name, at)| ring(&fabric, name, &[at, at + 3], 5e11));
    let input = input(&fabric, &jobs);
    let bound = Policy::default().service_bound();
    assert!((3.4..3.5).contains(&bound), "{bound}");
    let (_, report) = planned(&input, &Policy::default());
    let region = &report.comparison.regions[0];
    assert!(region.wait_seconds.iter().all(|wait| *wait <= bound), "{region:?}");
    // Strict levels were excluded, and it says what that cost.
    assert!(region.bound_cost.is_some_and(|cost| (0.0..1.0).contains(&cost)), "{region:?}");
    assert_eq!(report.findings, []);

    let fixed = |name, level| JobOverride::fixing_level(name, Some(level));
    let overrides = vec![fixed("a", 7), fixed("b", 6), fixed("c", 0)];
    let (_, report) = planned(&input, &Policy { overrides, ..Policy::default() });
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!(finding.about, "job c");
    assert!(finding.text.contains("without service, and policy allows 3.4 s"), "{finding}");
}

#[test]
fn a_drained_spine_loses_its_pins() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 3], 4e9), ring(&fabric, "b", &[1, 4], 4e9)];
    // No gain would ever move a flow that need not.
    let policy = Policy { move_gain_min: 1e9, ..Policy::default() };
    let (before, _) = planned(&input(&fabric, &jobs), &policy);
    let drained = Policy { drained: vec!["spine1".to_owned()], ..policy.clone() };
    let drained_fabric = drained.apply_drains(&fabric).unwrap();
    let now = input(&drained_fabric, &jobs);
    let (after, report) = plan(&now, &drained, Some(&before));
    assert_eq!(check_plan(&now, &drained, &after), []);
    assert_eq!(spines(&fabric, &after, "a"), ["spine2", "spine2"]);
    assert_eq!(report.moved, [0, 1]);
    // Undrained again, nothing has to move back.
    let (again, report) = plan(&input(&fabric, &jobs), &policy, Some(&after));
    assert_eq!(spines(&fabric, &again, "a"), ["spine2", "spine2"]);
    assert!(report.moved.is_empty());
}

#[test]
fn an_arrival_gets_free_gpus_and_moves_no_job() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 3], 4e9), ring(&fabric, "b", &[1, 4], 4e9)];
    let (before, _) = planned(&input(&fabric, &jobs[1..]), &Policy::default());
    assert_eq!(spines(&fabric, &before, "b"), ["spine1", "spine1"]);
    let (after, report) = plan(&input(&fabric, &jobs), &Policy::default(), Some(&before));
    assert_eq!(spines(&fabric, &after, "a"), ["spine2", "spine2"]);
    assert!(report.moved.is_empty());
}

#[test]
fn running_flows_move_only_for_the_minimum_gain_of_the_policy() {
    let fabric = clos(2, 2, 3);
    let hosts = [("a", [0, 3]), ("b", [1, 4]), ("c", [2, 5])];
    let jobs = hosts.map(|(name, hosts)| ring(&fabric, name, &hosts, 80e9));
    let spine2 = fabric.switch_named("spine2").unwrap();
    let failed = fabric.with_changes([AvailabilityChange::SwitchDown(spine2)]);
    let (before, _) = planned(&input(&failed, &jobs), &Policy::default());
    // The spine is back. On one link, three jobs send over three NICs of half its speed.
    let with = |move_gain_min| {
        let policy = Policy { move_gain_min, ..Policy::default() };
        plan(&input(&fabric, &jobs), &policy, Some(&before))
    };
    let (kept, report) = with(0.5);
    for job in ["a", "b", "c"] {
        assert_eq!(spines(&fabric, &kept, job), ["spine1", "spine1"]);
    }
    assert!(report.moved.is_empty());
    let (moved, report) = with(0.02);
    let there = ["a", "b", "c"].map(|job| spines(&fabric, &moved, job));
    assert_eq!(there.iter().filter(|spines| spines[..] == ["spine2", "spine2"]).count(), 1);
    assert_eq!(report.moved.len(), 2);
}

#[test]
fn drains_are_named_by_switch_or_cable() {
    let fabric = clos(2, 2, 3);
    let drained = |name: &str| {
        let policy = Policy { drained: vec![name.to_owned()], ..Policy::default() };
        policy.apply_drains(&fabric)
    };
    let link = cable(&fabric, "leaf1", "spine2");
    assert!(drained("leaf1-spine2").unwrap().is_drained(link));
    assert!(drained("spine2").unwrap().is_drained(link));
    assert!(!drained("spine1").unwrap().is_drained(link));
    let error = drained("spine3").unwrap_err().to_string();
    assert_eq!(
        error,
        "policy: drained[0]: the fabric has no switch or cable `spine3`; did you mean `spine1`?"
    );
}

/// Nine jobs of falling intensity between the same two leaves, one spine: all contend.
fn crowd(fabric: &topology::Fabric) -> Vec<Job> {
    let job = |index: u8| {
        let id = format!("job{}", char::from(b'a' + index));
        let hosts = [u32::from(index), 9 + u32::from(index)];
        Job {
            flop_per_iteration: 9e15 - 0.5e15 * f64::from(index),
            ..ring(fabric, &id, &hosts, 4e9)
        }
    };
    (0..9).map(job).collect()
}

#[test]
fn every_job_has_its_own_class_while_there_are_enough() {
    let fabric = clos(2, 1, 9);
    let jobs = crowd(&fabric);
    let (plan, _) = planned(&input(&fabric, &jobs[..3]), &Policy::default());
    let levels: Vec<u8> = plan.jobs.iter().map(|job| job.level).collect();
    assert_eq!(levels, [6, 5, 4]);
    let (plan, report) = planned(&input(&fabric, &jobs), &Policy::default());
    let mut levels: Vec<u8> = plan.jobs.iter().map(|job| job.level).collect();
    assert!(levels.is_sorted_by(|a, b| a >= b));
    levels.dedup();
    assert_eq!(levels.len(), 7);
    assert!(report.compression.cut_weight < report.compression.total_weight);
}

#[test]
fn a_job_without_contention_gets_the_highest_level() {
    let fabric = clos(2, 1, 10);
    let mut jobs = crowd(&fabric);
    // Both hosts on one leaf, and the least intense of all.
    jobs.push(Job { flop_per_iteration: 1.0, ..ring(&fabric, "alone", &[9, 19], 0.0) });
    let shifted: Vec<Job> = jobs.iter().map(|job| Job { ..job.clone() }).collect();
    let (plan, _) = planned(&input(&fabric, &shifted), &Policy::default());
    assert_eq!(level(&plan, "alone"), 6);
}

#[test]
fn reserved_classes_are_never_given() {
    let fabric = clos(2, 1, 9);
    let policy = Policy { reserved_levels: [7, 3].into(), ..Policy::default() };
    let (plan, _) = planned(&input(&fabric, &crowd(&fabric)), &policy);
    assert!(plan.jobs.iter().all(|job| job.level != 7 && job.level != 3));
    assert_eq!(level(&plan, "joba"), 6);
}

#[test]
fn overrides_have_the_last_word() {
    let fabric = clos(2, 1, 9);
    let jobs = crowd(&fabric);
    let with = |rule: JobOverride| {
        let policy = Policy { overrides: vec![rule], ..Policy::default() };
        planned(&input(&fabric, &jobs), &policy).0
    };
    let fixed = with(JobOverride { min_level: Some(2), max_level: Some(2), ..rule("joba") });
    assert_eq!(level(&fixed, "joba"), 2);
    let capped = with(JobOverride { max_level: Some(4), ..rule("job?") });
    assert!(capped.jobs.iter().all(|job| job.level <= 4));
    let lifted = with(JobOverride { min_level: Some(6), ..rule("jobi") });
    assert!(level(&lifted, "jobi") >= 6);
    let exempt = with(JobOverride { exempt: true, ..rule("jobb") });
    assert_eq!(level(&exempt, "jobb"), 0);
    let heavy = with(JobOverride { weight: 100.0, ..rule("jobi") });
    assert_eq!(heavy.job(&JobId::from("jobi")).unwrap().1.rank, 1);
}

#[test]
fn tenants_match_too_and_the_first_override_counts() {
    let fabric = clos(2, 1, 9);
    let mut jobs = crowd(&fabric);
    jobs[0].tenant = Some("research".to_owned());
    let first = JobOverride { min_level: Some(1), max_level: Some(1), ..rule("res*") };
    let second = JobOverride { min_level: Some(5), max_level: Some(5), ..rule("joba") };
    let policy = Policy { overrides: vec![first, second], ..Policy::default() };
    let (plan, report) = planned(&input(&fabric, &jobs), &policy);
    assert_eq!(level(&plan, "joba"), 1);
    assert_eq!(report.rationales[0].rule.as_deref(), Some("res*"));
}

#[test]
fn without_a_comparison_a_job_below_its_guarantee_is_raised_a_level() {
    let fabric = clos(2, 1, 9);
    let mut jobs = crowd(&fabric);
    let policy = Policy {
        overrides: vec![JobOverride { min_throughput: Some(0.8), ..rule("*") }],
        search_events: 0,
        ..Policy::default()
    };
    let (before, _) = planned(&input(&fabric, &jobs), &policy);
    // 0.5 slower: 1 / 1.5 of its throughput alone, under 0.8.
    jobs[8].measured.over_alone = 0.5;
    let (after, _) = plan(&input(&fabric, &jobs), &policy, Some(&before));
    assert_eq!(level(&after, "jobi"), level(&before, "jobi") + 1);
}

/// Two jobs that share a link most of the time: the one of low intensity is slowed a lot, unless
/// policy guarantees it a throughput, and more where it ran slower than its forecast.
#[test]
fn a_guaranteed_throughput_is_held_in_the_fluid_model() {
    let spec = ClosSpec {
        leaves: 2,
        spines: 1,
        hosts_per_leaf: 2,
        host_gbps: 200.0,
        uplink_gbps: 200.0,
        ..ClosSpec::default()
    };
    let fabric = build_clos("narrow", &spec).unwrap();
    let mut jobs =
        vec![ring(&fabric, "great", &[0, 2], 18e9), ring(&fabric, "small", &[1, 3], 18e9)];
    jobs[0].flop_per_iteration *= 100.0;
    jobs[1].gpus.values_mut().for_each(|gpus| *gpus = 1);
    let levels = |granted, over_forecast| {
        let mut jobs = jobs.clone();
        jobs[1].measured.over_forecast = over_forecast;
        let guarantee = JobOverride { min_throughput: granted, ..rule("small") };
        let policy = Policy { overrides: vec![guarantee], ..Policy::default() };
        let (plan, _) = planned(&input(&fabric, &jobs), &policy);
        (level(&plan, "small"), level(&plan, "great"))
    };
    let (small, great) = levels(None, 1.0);
    assert!(small < great);
    let (small, great) = levels(Some(0.9), 0.0);
    assert!(small > great);
    let (small, great) = levels(Some(0.6), 0.0);
    assert_eq!(small, great, "half of the link is enough");
    let (small, great) = levels(Some(0.6), 0.25);
    assert!(small > great);
    let (small, great) = levels(Some(0.35), 9.0);
    assert!(small < great, "a job that says it is slow does not get everything");
}

#[test]
fn fairness_raises_a_job_that_was_slowed() {
    let fabric = clos(2, 1, 9);
    let mut jobs = crowd(&fabric);
    jobs[8].measured.over_alone = 2.0;
    let fair = Policy { fairness: 0.9, ..Policy::default() };
    let (plan, _) = planned(&input(&fabric, &jobs), &fair);
    assert_eq!(plan.job(&JobId::from("jobi")).unwrap().1.rank, 1);
}

#[test]
fn the_least_intense_flows_spill_to_ecmp() {
    let fabric = clos(2, 2, 9);
    let policy = Policy { max_pins_per_switch: 8, ..Policy::default() };
    let (plan, report) = planned(&input(&fabric, &crowd(&fabric)), &policy);
    let unpinned: Vec<&str> = plan
        .flows
        .iter()
        .filter(|flow| !flow.pinned)
        .map(|flow| plan.jobs[flow.job].id.as_str())
        .collect();
    assert_eq!(unpinned, ["jobi", "jobi"]);
    let abouts: Vec<&str> = report.findings.iter().map(|finding| finding.about.as_str()).collect();
    assert_eq!(abouts, ["leaf1", "leaf2"]);
}

#[test]
fn flows_within_a_leaf_need_no_pin() {
    let fabric = clos(2, 2, 3);
    let (plan, _) =
        planned(&input(&fabric, &[ring(&fabric, "a", &[0, 1], 4e9)]), &Policy::default());
    assert!(plan.flows.iter().all(|flow| !flow.pinned && flow.links.len() == 2));
}

#[test]
fn numbers_stay_with_their_jobs_and_the_lowest_free_one_is_next() {
    let fabric = clos(2, 1, 9);
    let jobs = crowd(&fabric);
    let (first, _) = planned(&input(&fabric, &jobs[..3]), &Policy::default());
    let later = [jobs[2].clone(), jobs[3].clone(), jobs[4].clone()];
    let (second, _) = plan(&input(&fabric, &later), &Policy::default(), Some(&first));
    let numbers: Vec<u32> = second.jobs.iter().map(|job| job.number).collect();
    assert_eq!(numbers, [3, 1, 2]);
    assert_eq!(second.generation, 2);
}

/// Three tiers: flows between pods take different cores.
#[test]
fn flows_between_pods_spread_over_the_cores() {
    let spec = ClosSpec { leaves: 2, spines: 2, pods: 2, cores: 4, ..ClosSpec::default() };
    let fabric = build_clos("pods", &spec).unwrap();
    let jobs = [ring(&fabric, "a", &[0, 6], 4e9), ring(&fabric, "b", &[1, 7], 4e9)];
    let (plan, report) = planned(&input(&fabric, &jobs), &Policy::default());
    assert!(plan.flows.iter().all(|flow| flow.links.len() == 6 && flow.pinned));
    assert_eq!(report.bounds.max_load, report.bounds.max_load_lower_bound);
}

/// A job is compared only with those that it shares links with where policy says so.
#[test]
fn contenders_are_the_reference_if_the_policy_selects_them() {
    let fabric = clos(2, 1, 9);
    let long = Job { compute_seconds: 2.0, ..ring(&fabric, "long", &[0, 9], 8e9) };
    let short = ring(&fabric, "short", &[1, 10], 4e9);
    let apart = Job { compute_seconds: 0.1, ..ring(&fabric, "apart", &[2, 3], 1e9) };
    let policy = Policy { reference: CorrectionReference::Contenders, ..Policy::default() };
    let (plan, report) = planned(&input(&fabric, &[long, short, apart]), &policy);
    assert_eq!(plan.jobs[0].correction, 1.0);
    assert_eq!(report.rationales[0].contenders, Vec::<usize>::new());
    assert_eq!(report.rationales[1].contenders, [2]);
    assert_eq!(report.rationales[1].reference, None);
}

#[test]
fn check_finds_what_is_wrong_with_a_plan() {
    let fabric = clos(2, 2, 9);
    let input = input(&fabric, &crowd(&fabric));
    let policy = Policy::default();
    let (good, _) = planned(&input, &policy);
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        let findings = check_plan(&input, &policy, &plan);
        assert!(!findings.is_empty());
        findings[0].text.clone()
    };
    assert!(broken(&|p| p.jobs[0].level = 9).contains("level 9"));
    assert!(broken(&|p| p.jobs[0].number = 2).contains("number"));
    assert!(broken(&|p| p.jobs[0].level = 0).contains("higher priority"));
    assert!(
        broken(&|p| p.flows[0].links = LinkPath::new(&p.flows[0].links[..2]).unwrap())
            .contains("gap")
    );
    assert!(broken(&|p| p.flows[0].links = LinkPath::EMPTY).contains("no path"));
    assert!(broken(&|p| p.flows[0].job = 77).contains("no job"));
    assert!(broken(&|p| p.flows.truncate(p.flows.len() - 1)).contains("not planned"));
    assert!(broken(&|p| drop(p.jobs.remove(0))).contains("not planned"));
}

#[test]
fn policy_documents_are_checked_field_by_field() {
    let refused = |toml: &str| {
        let document: PolicyDocument = toml::from_str(toml).unwrap();
        document.to_policy("p.toml").unwrap_err().to_string()
    };
    let cases = [
        ("levels = 9", "p.toml: levels: 9 is not a number of levels from 1 to 8"),
        ("reserved_levels = [8]", "p.toml: reserved_levels[0]: 8 is not a level from 0 to 7"),
        (
            "levels = 1\nreserved_levels = [0]",
            "p.toml: reserved_levels: every level of jobs is reserved; they need at least one",
        ),
        ("fairness = 1.5", "p.toml: fairness: 1.5 is not a number from 0 to 1"),
        ("slowdown_limit = { alone = 0.5 }", "p.toml: slowdown_limit.alone: 0.5 is not 1 or more"),
        ("slowdown_limit = { ecmp = 0.0 }", "p.toml: slowdown_limit.ecmp: 0 is not 0.1 or more"),
        ("move_gain_min = nan", "p.toml: move_gain_min: NaN is not 0 or more"),
        ("[[job]]\nmatch = ''", "p.toml: job[0].match: empty; it would match no job"),
        ("[[job]]\nmatch = 'a'\nlevel = 8", "p.toml: job[0].level: 8 is not a level from 0 to 7"),
        (
            "reserved_levels = [7]\n[[job]]\nmatch = 'a'\nlevel = 7",
            "p.toml: job[0].level: level 7 is reserved",
        ),
        (
            "[[job]]\nmatch = 'a'\nmin_level = 3\nmax_level = 2",
            "p.toml: job[0].level: min_level 3 is above max_level 2",
        ),
        (
            "[[job]]\nmatch = 'a'\nlevel = 3\nmax_level = 2",
            "p.toml: job[0].level: a fixed level leaves nothing for min_level and max_level",
        ),
    ];
    for (toml, expect) in cases {
        assert_eq!(refused(toml), expect);
    }
    assert!(
        refused("[[job]]\nmatch = 'a'\nweight = 0.0").starts_with("p.toml: job[0].weight: 0 is")
    );
    let empty: PolicyDocument = toml::from_str("").unwrap();
    assert_eq!(empty.to_policy("p.toml"), Ok(Policy::default()));
}

/// What the plan says a job takes alone, and what the model of all its flows has it take: bytes and
/// begins of its flows differ, and two of them share each NIC.
#[test]
fn a_job_alone_takes_what_its_plan_says() {
    let fabric = clos(2, 2, 2);
    let mut tried = 0;
    for begins in [[None, None], [Some(0.0), None], [Some(0.2), Some(0.9)], [Some(1.0), Some(0.0)]]
    {
        for bytes in [[1e9, 1e9], [2e10, 4e9], [1e9, 3e10]] {
            let mut job = ring(&fabric, "a", &[0, 2], bytes[0]);
            let more = ring(&fabric, "b", &[0, 2], bytes[1]).flows;
            job.flows.iter_mut().for_each(|flow| flow.overlap_from = begins[0]);
            job.flows.extend(more.into_iter().map(|flow| Flow { overlap_from: begins[1], ..flow }));
            let input = input(&fabric, &[job]);
            let (plan, report) = plan(&input, &Policy::default(), None);
            let expected = report.rationales[0].iteration_seconds;
            let found = forecast_plan(&fabric, &input.jobs, &plan, 1.0).seconds(&"a".into());
            let found = found.unwrap();
            assert!(
                (expected - found).abs() < 1e-6 * expected,
                "{expected} {found}: {begins:?} {bytes:?}"
            );
            tried += u32::from(expected > 1.0);
        }
    }
    assert!(tried >= 8, "only {tried} cases where the network decides");
}
