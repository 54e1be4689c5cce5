//! Rules by which flows of no job are a job's: their meaning, their plans, and refusals.

use planner::{Plan, PlanDocument, PlanInput, Policy, PolicyDocument, check_plan, plan};
use topology::document::DocumentFormat;
use topology::{Fabric, NicId};

use crate::scenario::{clos, input, ring};

/// Storage that all hosts read, and a job that two hosts are known to run.
const RULES: &str = "
[[adopt]]
job = 'storage'
dst = ['h6']
dport = 2049
level = 2

[[adopt]]
job = 'guest'
tenant = 'visitors'
src = ['h1', 'h2']
dst = ['h3']
";

fn policy(text: &str) -> Policy {
    let document: PolicyDocument = toml::from_str(text).unwrap();
    let policy = document.to_policy("p.toml").unwrap();
    let again = PolicyDocument::from(&policy).to_policy("p.toml");
    assert_eq!(again.as_ref(), Ok(&policy));
    policy
}

fn planned(input: &PlanInput, policy: &Policy, previous: Option<&Plan>) -> Plan {
    policy.check_on(&input.fabric).unwrap();
    let (input, policy) = policy.with_adopted_jobs(input.clone());
    let (made, _) = plan(&input, &policy, previous);
    assert_eq!(check_plan(&input, &policy, &made), []);
    let (again, _) = plan(&input, &policy, Some(&made));
    assert_eq!(again, made);
    made
}

fn levels(plan: &Plan) -> Vec<(&str, u8)> {
    let jobs = plan.jobs.iter();
    jobs.map(|job| (job.id.as_str(), job.level)).collect()
}

fn nics(fabric: &Fabric, hosts: &[&str]) -> Vec<NicId> {
    let nic = |name: &&str| fabric.host(fabric.host_named(name).unwrap()).nics[0];
    hosts.iter().map(nic).collect()
}

#[test]
fn adopted_jobs_rank_last_have_the_level_of_their_rule_and_change_no_other() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "a", &[0, 3], 4e9), ring(&fabric, "b", &[1, 4], 4e9)];
    let input = input(&fabric, &jobs);
    let alone = planned(&input, &Policy::default(), None);
    let plan = planned(&input, &policy(RULES), Some(&alone));
    assert_eq!(plan.flows, alone.flows);
    assert_eq!(plan.jobs[..2], alone.jobs);
    assert_eq!(levels(&plan)[2..], [("guest", 0), ("storage", 2)]);
    assert_eq!((plan.jobs[2].rank, plan.jobs[3].rank), (3, 4));
    let [storage, guest] = &plan.rules[..] else {
        panic!("{:?}", plan.rules);
    };
    assert_eq!((storage.job, storage.dport), (3, Some(2049)));
    assert_eq!((guest.job, guest.dport), (2, None));
    assert_eq!(storage.senders, []);
    assert_eq!(storage.receivers, nics(&fabric, &["h6"]));
    assert_eq!(guest.senders, nics(&fabric, &["h1", "h2"]));
    // Without the rules, everything is as it was.
    let after = planned(&input, &Policy::default(), Some(&plan));
    assert_eq!((after.jobs, after.flows), (alone.jobs, alone.flows));
    assert_eq!(after.rules, []);
}

#[test]
fn overrides_bound_the_level_of_adopted_jobs() {
    let fabric = clos(2, 2, 3);
    let input = input(&fabric, &[]);
    let cases = [
        ("match = '*'\nweight = 2.0", [0, 2]),
        ("match = 'storage'\nlevel = 6", [0, 6]),
        ("match = 'tenant:visitors'\nmin_level = 3", [3, 2]),
        ("match = 's*'\nmax_level = 1", [0, 1]),
        ("match = 'storage'\nexempt = true", [0, 0]),
    ];
    for (rule, expected) in cases {
        let plan = planned(&input, &policy(&format!("{RULES}[[job]]\n{rule}\n")), None);
        let levels = plan.jobs.iter().map(|job| job.level);
        assert_eq!(levels.collect::<Vec<_>>(), expected, "{rule}");
    }
    let reserved = format!("reserved_levels = [0]\n{RULES}");
    assert_eq!(levels(&planned(&input, &policy(&reserved), None))[0].1, 1);
}

#[test]
fn flows_of_an_announced_job_are_more_of_its_flows() {
    let fabric = clos(2, 2, 3);
    let jobs = [ring(&fabric, "guest", &[0, 3], 4e9)];
    let input = input(&fabric, &jobs);
    let plan = planned(&input, &policy(RULES), None);
    assert_eq!(levels(&plan), [("guest", 6), ("storage", 2)]);
    assert_eq!(plan.rules[1].job, 0);
    assert!(plan.flows.iter().all(|flow| flow.job == 0));
}

#[test]
fn a_plan_with_rules_is_read_back_as_it_was() {
    let fabric = clos(2, 2, 3);
    let policy = policy(RULES);
    let (input, policy) =
        policy.with_adopted_jobs(input(&fabric, &[ring(&fabric, "a", &[0, 3], 4e9)]));
    let (made, report) = plan(&input, &policy, None);
    let document = PlanDocument::new(&fabric, &made, &report);
    assert_eq!(document.rules[1].src, ["h1", "h2"]);
    let (recalled, findings) = document.restore_plan(&fabric);
    assert_eq!((recalled, findings), (made, vec![]));
}

#[test]
fn globs_name_hosts_and_what_names_none_adopts_nothing() {
    let fabric = clos(2, 2, 3);
    let globbed = policy("[[adopt]]\njob = 'x'\nsrc = ['h?', 'h1']");
    let input = input(&fabric, &[]);
    let plan = planned(&input, &globbed, None);
    assert_eq!(plan.rules[0].senders.len(), 6);
    // Nobody asked whether the policy fits this fabric.
    let lost = policy("[[adopt]]\njob = 'x'\nsrc = ['gone']");
    let (input, lost) = lost.with_adopted_jobs(input);
    assert_eq!(planner::plan(&input, &lost, None).0.rules, []);
}

#[test]
fn mistakes_in_rules_name_file_line_and_field() {
    let refused = |text: &str| {
        let document: PolicyDocument = toml::from_str(text).unwrap();
        let valid = document.to_policy("p.toml");
        let checked = valid.and_then(|policy| policy.check_on(&clos(2, 2, 3)));
        let error = checked.unwrap_err().with_line_in(text, DocumentFormat::Toml);
        error.to_string().replacen("policy:", "p.toml:", 1)
    };
    let rule = |more: &str| format!("\n[[adopt]]\njob = 'x'\n{more}\n");
    let cases = [
        (rule(""), "p.toml:3: adopt[0].job: nothing to match; give src, dst, sport or dport"),
        (rule("dport = 1").replace('x', ""), "p.toml:3: adopt[0].job: empty; a job needs a name"),
        (
            rule("dport = 1").replace('x', "x*"),
            "p.toml:3: adopt[0].job: `*` and `?` stand for other names; a job needs one",
        ),
        (rule("dport = 1\nlevel = 8"), "p.toml:5: adopt[0].level: 8 is not a level from 0 to 7"),
        (
            rule("src = ['h1', 'h11']"),
            "p.toml:4: adopt[0].src[1]: the fabric has no host `h11`; did you mean `h1`?",
        ),
        (rule("dst = ['rack*']"), "p.toml:4: adopt[0].dst[0]: the fabric has no host `rack*`"),
        (
            rule("dport = 1") + &rule("dport = 2\nlevel = 1"),
            "p.toml:9: adopt[1].level: an earlier rule of this job says otherwise",
        ),
        (
            rule("dport = 1") + &rule("dport = 2\ntenant = 'a'"),
            "p.toml:9: adopt[1].tenant: an earlier rule of this job says otherwise",
        ),
        (rule("dport = 1").repeat(65), "p.toml:2: adopt: 65 rules, and there may be 64"),
        (
            rule("src = ['*']\ndst = ['*']").repeat(15),
            "p.toml:2: adopt: the rules take 270 rows at leaf1, one for each pair of NICs, and may \
             take 256; leave out src or dst",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(&text), expected, "{text}");
    }
}
