//! What a scheduler outside of this program is asked, and how its reply becomes a [`Schedule`].
//!
//! Both are JSON documents on a line of their own, so any language can take part. The decision: a
//! path is chosen by its place among the equal-cost paths of its flow. So a reply cannot name a
//! path that does not exist or that a failure has cut, and it stays small.

use std::collections::BTreeMap;

use planner::{Flow, Job, PlanInput, Policy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topology::{Fabric, LinkId, NicId};

use crate::routes::EqualCostRoutes;
use crate::schedule::{Schedule, ScheduledJob};

/// Paths of a flow that a request lists at most: those of 64 spines.
const MOST_PATHS: usize = 64;

/// Longest start shift: no iteration of a job takes a day.
const MOST_SHIFT_SECONDS: f64 = 86_400.0;

/// What a scheduler is asked: one JSON object on one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerRequest {
    /// Number of the call, from 1; the reply repeats it.
    pub call: u64,
    /// The fabric as it is now; null where it is that of the call before.
    pub fabric: Option<FabricView>,
    /// Levels that a job may have, ascending; the highest is served first.
    pub levels: Vec<u8>,
    /// All jobs, in order of arrival.
    pub jobs: Vec<JobView>,
}

/// The directed links of a fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricView {
    /// Its name.
    pub name: String,
    /// Links by number: paths are lists of these numbers.
    pub links: Vec<LinkView>,
}

/// A cable in one direction, from host or switch to host or switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkView {
    /// Host or switch that it leaves.
    pub from: String,
    /// Host or switch that it enters.
    pub to: String,
    /// Bandwidth in Gb/s.
    pub gbps: f64,
    /// Whether it works.
    pub up: bool,
}

/// What runs where, and what it computes and sends in one iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobView {
    /// Its name.
    pub id: String,
    /// GPUs by host.
    pub gpus: BTreeMap<String, u32>,
    /// FLOP of one iteration of the whole job.
    pub flop_per_iteration: f64,
    /// Seconds that one iteration computes.
    pub compute_seconds: f64,
    /// Share of the computation after which communication may begin.
    pub overlap_from: f64,
    /// What it sends in one iteration.
    pub flows: Vec<FlowView>,
}

/// What a job sends from one NIC to another in one iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowView {
    /// NIC that sends, as `h1:0`.
    pub src: String,
    /// NIC that receives.
    pub dst: String,
    /// Bytes in one iteration.
    pub bytes: f64,
    /// Share of the computation after which it may begin.
    pub overlap_from: f64,
    /// Its equal-cost paths from NIC to NIC, each a list of link numbers; none where a failure has
    /// cut all of them.
    pub paths: Vec<Vec<u32>>,
}

/// What a scheduler decides: one JSON object on one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulerReply {
    /// Number of the call that it replies to.
    pub call: u64,
    /// Each job of the request once, in any order.
    pub jobs: Vec<JobDecision>,
}

/// Decisions on one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobDecision {
    /// Its name.
    pub id: String,
    /// One of the levels of the request.
    pub level: u8,
    /// For each flow the place of its path in `paths`, from 0; null where the flow has no path.
    pub paths: Vec<Option<usize>>,
    /// Seconds that its first iteration waits.
    #[serde(default)]
    pub start_shift_seconds: f64,
}

/// What is wrong with a reply, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// It is no such document.
    #[error("the reply is not the document of `crux schema scheduler-reply`: {0}")]
    Document(String),
    /// It replies to another call.
    #[error("the reply repeats call {found}; write one line per request, with `\"call\": {asked}`")]
    Call {
        /// Number of the request.
        asked: u64,
        /// Number in the reply.
        found: u64,
    },
    /// A job is decided that the request does not have.
    #[error("jobs[{place}].id: no job is called `{id}`; use the ids of the request")]
    UnknownJob {
        /// Place in the reply.
        place: usize,
        /// The name.
        id: String,
    },
    /// A job is decided twice.
    #[error("job {0}: it is decided twice; decide each job once")]
    Twice(String),
    /// A job is not decided.
    #[error("job {0}: it is not decided; decide each job once")]
    Missing(String),
    /// A field of a job is wrong.
    #[error("job {job}: {field}: {problem}")]
    Field {
        /// Name of the job.
        job: String,
        /// The field.
        field: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// One call of a scheduler outside of this program.
#[derive(Debug)]
pub struct SchedulerCall<'a> {
    number: u64,
    input: &'a PlanInput,
    levels: Vec<u8>,
    is_known_fabric: bool,
    /// Equal-cost paths by job, then by flow.
    paths: Vec<Vec<Vec<Vec<LinkId>>>>,
}

impl<'a> SchedulerCall<'a> {
    /// The call with this number; `known` is the fabric of the call before.
    pub fn new(number: u64, input: &'a PlanInput, policy: &Policy, known: Option<&Fabric>) -> Self {
        let routes = EqualCostRoutes::for_input(input);
        let paths_of = |flow: &Flow| {
            let mut paths = routes.all_paths(flow);
            paths.truncate(MOST_PATHS);
            paths
        };
        let of_job = |job: &Job| job.flows.iter().map(paths_of).collect();
        let paths = input.jobs.iter().map(of_job).collect();
        let is_known_fabric = known == Some(&input.fabric);
        Self { number, input, levels: policy.job_levels(), is_known_fabric, paths }
    }

    /// What the scheduler is asked.
    pub fn request(&self) -> SchedulerRequest {
        let PlanInput { fabric, jobs } = self.input;
        let jobs = jobs.iter().zip(&self.paths);
        SchedulerRequest {
            call: self.number,
            fabric: (!self.is_known_fabric).then(|| view_fabric(fabric)),
            levels: self.levels.clone(),
            jobs: jobs.map(|(job, paths)| view_job(fabric, job, paths)).collect(),
        }
    }

    /// The schedule that a reply asks for.
    ///
    /// # Errors
    /// The reply is not valid for this call.
    pub fn read_reply(&self, line: &str) -> Result<Schedule, ReplyError> {
        let reply: SchedulerReply =
            serde_json::from_str(line).map_err(|error| ReplyError::Document(error.to_string()))?;
        if reply.call != self.number {
            return Err(ReplyError::Call { asked: self.number, found: reply.call });
        }
        let jobs = &self.input.jobs;
        let by_id: BTreeMap<&str, usize> =
            (0..jobs.len()).map(|place| (jobs[place].id.as_str(), place)).collect();
        let mut decided: Vec<Option<ScheduledJob>> = vec![None; jobs.len()];
        for (place, decision) in reply.jobs.iter().enumerate() {
            let Some(job) = by_id.get(decision.id.as_str()) else {
                return Err(ReplyError::UnknownJob { place, id: decision.id.clone() });
            };
            if decided[*job].is_some() {
                return Err(ReplyError::Twice(decision.id.clone()));
            }
            let scheduled = self.read_decision(*job, decision);
            decided[*job] = Some(scheduled.map_err(|(field, problem)| ReplyError::Field {
                job: decision.id.clone(),
                field,
                problem,
            })?);
        }
        let decided = decided.into_iter().zip(jobs);
        let decided = decided.map(|(scheduled, job)| {
            scheduled.ok_or_else(|| ReplyError::Missing(job.id.to_string()))
        });
        Ok(Schedule { jobs: decided.collect::<Result<_, _>>()?, ..Schedule::default() })
    }

    /// One job; the field at fault and its problem otherwise.
    fn read_decision(
        &self,
        job: usize,
        decision: &JobDecision,
    ) -> Result<ScheduledJob, (String, String)> {
        let JobDecision { level, start_shift_seconds: shift, paths: chosen, .. } = decision;
        if !self.levels.contains(level) {
            let problem = format!("{level} is not one of the levels {:?}", self.levels);
            return Err(("level".to_owned(), problem));
        }
        if !(0.0..=MOST_SHIFT_SECONDS).contains(shift) {
            let problem = format!("{shift} must be from 0 to {MOST_SHIFT_SECONDS}");
            return Err(("start_shift_seconds".to_owned(), problem));
        }
        let flows = &self.paths[job];
        if chosen.len() != flows.len() {
            let found = chosen.len();
            let problem = format!("{found} for {} flows; give one for each flow", flows.len());
            return Err(("paths".to_owned(), problem));
        }
        let mut paths = Vec::with_capacity(flows.len());
        for (number, (choice, flow)) in chosen.iter().zip(flows).enumerate() {
            let path = match choice {
                Some(place) => flow.get(*place).ok_or_else(|| match flow.len() {
                    0 => format!("{place}, but the flow has no path; use null"),
                    count => format!("{place} must be from 0 to {}", count - 1),
                }),
                None if flow.is_empty() => Ok(&Vec::new()),
                None => Err(format!("null, but the flow has {} paths; choose one", flow.len())),
            };
            paths.push(path.map_err(|problem| (format!("paths[{number}]"), problem))?.clone());
        }
        let start_shift_seconds = *shift;
        Ok(ScheduledJob { start_shift_seconds, ..ScheduledJob::new((*level).into(), paths) })
    }
}

fn view_fabric(fabric: &Fabric) -> FabricView {
    let links = fabric.link_ids().map(|id| {
        let link = fabric.link(id);
        LinkView {
            from: fabric.node_name(link.from.node).to_owned(),
            to: fabric.node_name(link.to.node).to_owned(),
            gbps: link.bandwidth.gbps(),
            up: fabric.is_up(id),
        }
    });
    FabricView { name: fabric.name().to_owned(), links: links.collect() }
}

fn view_job(fabric: &Fabric, job: &Job, paths: &[Vec<Vec<LinkId>>]) -> JobView {
    let hosts = job.gpus.iter();
    let nic = |nic: NicId| fabric.endpoint_name(fabric.link(fabric.nic(nic).uplink).from);
    let flows = job.flows.iter().zip(paths);
    JobView {
        id: job.id.to_string(),
        gpus: hosts.map(|(host, gpus)| (fabric.host(*host).name.clone(), *gpus)).collect(),
        flop_per_iteration: job.flop_per_iteration,
        compute_seconds: job.compute_seconds,
        overlap_from: job.overlap_from,
        flows: flows
            .map(|(flow, paths)| FlowView {
                src: nic(flow.src),
                dst: nic(flow.dst),
                bytes: flow.bytes,
                overlap_from: flow.overlap_from.unwrap_or(job.overlap_from),
                paths: paths.iter().map(|path| path.iter().map(|link| link.0).collect()).collect(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::test_input::TestInput;

    /// Two jobs on the lab fabric: `a` with a flow over two spines and one below its leaf, `b` with
    /// one flow over two spines.
    fn input() -> PlanInput {
        let input = TestInput::on_lab_fabric().with_job("a", &[("h1", "h4"), ("h1", "h2")]);
        input.with_job("b", &[("h5", "h9")]).to_input()
    }

    fn read(reply: &str) -> Result<Schedule, ReplyError> {
        SchedulerCall::new(7, &input(), &Policy::default(), None).read_reply(reply)
    }

    const GOOD: &str = r#"{"call": 7, "jobs": [
        {"id": "b", "level": 2, "paths": [1]},
        {"id": "a", "level": 5, "paths": [0, 0], "start_shift_seconds": 0.5}]}"#;

    #[test]
    fn a_request_has_all_that_a_decision_needs() {
        let input = input();
        let request = SchedulerCall::new(7, &input, &Policy::default(), None).request();
        let text = serde_json::to_string(&request).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<SchedulerRequest>(&text).unwrap(), request);
        assert_eq!((request.call, &*request.levels), (7, &[0, 1, 2, 3, 4, 5, 6][..]));
        let [far, near] = &request.jobs[0].flows[..] else { panic!("{request:?}") };
        assert_eq!((far.paths.len(), near.paths.len()), (2, 1));
        assert_eq!((&*far.src, far.paths[0].len(), near.paths[0].len()), ("h1:0", 4, 2));
        let links = &request.fabric.unwrap().links;
        for (path, spine) in far.paths.iter().zip(["spine1", "spine2"]) {
            let up = &links[path[1] as usize];
            assert_eq!((&*up.from, &*up.to, up.gbps, up.up), ("leaf1", spine, 400.0, true));
        }
        let again = SchedulerCall::new(8, &input, &Policy::default(), Some(&input.fabric));
        assert_eq!(again.request().fabric, None);
        assert_eq!(request.jobs[1].gpus, BTreeMap::from([("h5".into(), 8), ("h9".into(), 8)]));
    }

    #[test]
    fn a_reply_in_any_order_is_a_schedule() {
        let schedule = read(GOOD).unwrap();
        let [a, b] = &schedule.jobs[..] else { panic!("{schedule:?}") };
        assert_eq!((a.level, a.start_shift_seconds, b.level), (5, 0.5, 2));
        assert_eq!(a.paths.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
        let input = input();
        let spine = |link: LinkId| input.fabric.switch_after(link).unwrap();
        assert_eq!(input.fabric.switch(spine(b.paths[0][1])).name, "spine2");
    }

    #[test]
    fn errors_name_job_field_and_remedy() {
        for (from, to, expect) in [
            ("{\"call\": 7,", "seven", "crux schema scheduler-reply"),
            ("\"level\": 2", "\"level\": 2, \"colour\": 1", "colour"),
            ("\"call\": 7", "\"call\": 6", "repeats call 6"),
            ("\"b\"", "\"c\"", "jobs[0].id: no job is called `c`"),
            ("\"a\", \"level\": 5", "\"b\", \"level\": 5", "job b: it is decided twice"),
            ("{\"id\": \"b\", \"level\": 2, \"paths\": [1]},", "", "job b: it is not decided"),
            ("\"level\": 2", "\"level\": 8", "job b: level: 8 is not one of the levels [0, 1"),
            ("[0, 0]", "[0]", "job a: paths: 1 for 2 flows"),
            ("[0, 0]", "[0, 1]", "job a: paths[1]: 1 must be from 0 to 0"),
            ("[0, 0]", "[0, -1]", "crux schema scheduler-reply"),
            ("[0, 0]", "[null, 0]", "job a: paths[0]: null, but the flow has 2 paths"),
            ("0.5", "-0.5", "job a: start_shift_seconds: -0.5 must be from 0"),
            ("0.5", "1e400", "crux schema scheduler-reply"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expect), "{to}: {error}");
        }
    }

    #[test]
    fn a_flow_that_failures_cut_off_has_no_path_to_choose() {
        let mut input = input();
        let uplink = input.fabric.nic(input.jobs[1].flows[0].src).uplink;
        let change = topology::AvailabilityChange::LinkDown(uplink);
        input.fabric = input.fabric.with_changes([change]);
        let call = SchedulerCall::new(7, &input, &Policy::default(), None);
        assert!(call.request().jobs[1].flows[0].paths.is_empty());
        let error = call.read_reply(GOOD).unwrap_err().to_string();
        assert!(
            error.contains("job b: paths[0]: 1, but the flow has no path; use null"),
            "{error}"
        );
        let schedule = call.read_reply(&GOOD.replace("[1]", "[null]")).unwrap();
        assert!(!schedule.jobs[1].is_connected());
    }
}
