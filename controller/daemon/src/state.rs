//! The controller's state and the one function that writes it.
//!
//! Everything the controller learns arrives as an [`Event`]; [`State::step`] takes it in, plans,
//! and says what follows as [`Effects`]. Sans-IO: [`runtime`](crate::runtime) brings the events,
//! lowers what is to be realised and gives it to the sessions. The decision: every event that can
//! be understood leads to a whole new plan from whole inputs. There is no path on which only a part
//! of the state is brought up to date, so there is none on which it can be forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::{Input, Job, Plan, Policy, Report};
use topology::{Change, Fabric, Finding};

use crate::lower::Wiring;

/// Something the controller has learned.
#[derive(Clone, Debug)]
pub enum Event {
    /// The fabric, from its document or from discovery. Ids of the fabric before mean nothing any
    /// more, so the jobs are forgotten until telemetry tells them anew.
    FabricLearned(Fabric),
    /// A cable or a switch of the fabric failed, or works again.
    FabricChanged(Change),
    /// All jobs, from telemetry, in the ids of the present fabric.
    JobsChanged(Vec<Job>),
    /// The operator's policy.
    PolicyChanged(Policy),
}

/// What follows from an event.
#[derive(Debug)]
pub struct Effects {
    /// The generation that takes the event into account.
    pub generation: u64,
    /// What the switches shall realise, if it is not what they already do.
    pub realise: Option<Realise>,
    /// What a person should know, the event's own refusal included.
    pub findings: Vec<Finding>,
}

/// A plan to be lowered and written.
#[derive(Clone, Debug)]
pub struct Realise {
    /// Its number; rises with every one.
    pub generation: u64,
    /// The fabric it was made for, with what has failed and what is drained.
    pub fabric: Fabric,
    /// That fabric in the switches' terms.
    pub wiring: Arc<Wiring>,
    /// The plan.
    pub plan: Arc<Plan>,
    /// Why it is so.
    pub report: Arc<Report>,
}

/// Everything the controller knows and has decided.
#[derive(Debug)]
pub struct State {
    /// Classes that every switch serves.
    levels: u8,
    /// As observed; without the drains of the policy.
    fabric: Fabric,
    wiring: Arc<Wiring>,
    jobs: Vec<Job>,
    policy: Policy,
    decided: Option<Realise>,
}

/// What an event means for traffic that is not planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Routes {
    AsBefore,
    New,
}

/// Why an event is not taken in; the state is as it was.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the policy has {policy} levels, the switches serve {switches}")]
    TooManyLevels { policy: u8, switches: u8 },
    #[error("{0}")]
    Drains(String),
    #[error("{0}")]
    Wiring(#[from] crate::lower::WiringError),
    #[error("two jobs have this name")]
    Twice(String),
    #[error("a flow of the job names a NIC that the fabric does not have")]
    UnknownNic(String),
    #[error("the fabric has no such part")]
    UnknownPart,
}

impl Refused {
    fn finding(&self) -> Finding {
        let about = match self {
            Self::TooManyLevels { .. } | Self::Drains(_) => "policy".to_owned(),
            Self::Wiring(_) | Self::UnknownPart => "fabric".to_owned(),
            Self::Twice(job) | Self::UnknownNic(job) => format!("job {job}"),
        };
        Finding::error(about, format!("refused: {self}"))
    }
}

impl State {
    /// The state before anything is learned: an empty fabric, no jobs, the default policy on
    /// `levels` classes.
    pub fn new(levels: u8) -> Self {
        let fabric = Fabric::new(topology::Parts::default());
        let wiring = Wiring::new(&fabric).expect("no port of no switch is out of range");
        let policy = Policy {
            levels,
            ..Policy::default()
        };
        Self {
            levels,
            fabric,
            wiring: Arc::new(wiring),
            jobs: Vec::new(),
            policy,
            decided: None,
        }
    }

    /// The one transition.
    pub fn step(&mut self, event: Event) -> Effects {
        let routes = self.routes_after(&event);
        let taken = self.take(event);
        let effects = match taken {
            Ok(()) => self.decide(routes),
            Err(refused) => Effects {
                generation: self.generation(),
                realise: None,
                findings: vec![refused.finding()],
            },
        };
        self.check_invariant();
        effects
    }

    /// The generation in force; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.decided
            .as_ref()
            .map_or(0, |decided| decided.generation)
    }

    /// What is decided is decided about the present fabric, jobs and policy.
    pub fn check_invariant(&self) {
        debug_assert!(self.policy.levels <= self.levels);
        debug_assert!(self.policy.apply_drains(&self.fabric).is_ok());
        if let Some(decided) = &self.decided {
            let planned = decided.plan.jobs.iter().map(|job| &job.id);
            let known: BTreeSet<_> = self.jobs.iter().map(|job| &job.id).collect();
            debug_assert!(planned.eq(known));
            debug_assert!(Arc::ptr_eq(&decided.wiring, &self.wiring));
        }
    }

    /// Whether routes may differ after an event, which shows in no plan.
    fn routes_after(&self, event: &Event) -> Routes {
        match event {
            Event::JobsChanged(_) => Routes::AsBefore,
            Event::PolicyChanged(policy) if policy.drained == self.policy.drained => {
                Routes::AsBefore
            }
            Event::PolicyChanged(_) | Event::FabricLearned(_) | Event::FabricChanged(_) => {
                Routes::New
            }
        }
    }

    /// Takes an event in, or leaves everything as it was.
    fn take(&mut self, event: Event) -> Result<(), Refused> {
        match event {
            Event::FabricLearned(fabric) => self.learn(fabric),
            Event::FabricChanged(change) => self.change(change),
            Event::JobsChanged(jobs) => {
                check_jobs(&self.fabric, &jobs)?;
                self.jobs = jobs;
                Ok(())
            }
            Event::PolicyChanged(policy) => {
                self.check_policy(&policy)?;
                self.policy = policy;
                Ok(())
            }
        }
    }

    fn learn(&mut self, fabric: Fabric) -> Result<(), Refused> {
        check_drains(&self.policy, &fabric)?;
        self.wiring = Arc::new(Wiring::new(&fabric)?);
        self.fabric = fabric;
        self.jobs.clear();
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), Refused> {
        let exists = match change {
            Change::LinkDown(link)
            | Change::LinkUp(link)
            | Change::DrainLink(link)
            | Change::UndrainLink(link) => link.index() < self.fabric.links().len(),
            Change::SwitchDown(switch)
            | Change::SwitchUp(switch)
            | Change::DrainSwitch(switch)
            | Change::UndrainSwitch(switch) => switch.index() < self.fabric.switches().len(),
        };
        exists.then_some(()).ok_or(Refused::UnknownPart)?;
        self.fabric = self.fabric.with([change]);
        Ok(())
    }

    fn check_policy(&self, policy: &Policy) -> Result<(), Refused> {
        if policy.levels > self.levels {
            return Err(Refused::TooManyLevels {
                policy: policy.levels,
                switches: self.levels,
            });
        }
        check_drains(policy, &self.fabric)
    }

    /// Plans, and numbers the plan if there is anything to realise: another plan, or other routes.
    fn decide(&mut self, routes: Routes) -> Effects {
        let drained = self.policy.apply_drains(&self.fabric);
        let fabric = drained.expect("drains are checked when policy or fabric are taken in");
        let jobs = self.jobs.clone();
        let input = Input { fabric, jobs };
        let previous = self
            .decided
            .as_ref()
            .map(|decided| Arc::clone(&decided.plan));
        let (plan, report) = planner::plan(&input, &self.policy, previous.as_deref());
        let findings = report.findings.clone();
        let is_same = previous.is_some_and(|previous| *previous == plan);
        let differs = !is_same || routes == Routes::New;
        let realise = differs.then(|| Realise {
            generation: self.generation() + 1,
            fabric: input.fabric,
            wiring: Arc::clone(&self.wiring),
            plan: Arc::new(plan),
            report: Arc::new(report),
        });
        if realise.is_some() {
            self.decided.clone_from(&realise);
        }
        Effects {
            generation: self.generation(),
            realise,
            findings,
        }
    }
}

fn check_drains(policy: &Policy, fabric: &Fabric) -> Result<(), Refused> {
    let drained = policy.apply_drains(fabric);
    drained
        .map(drop)
        .map_err(|error| Refused::Drains(error.to_string()))
}

fn check_jobs(fabric: &Fabric, jobs: &[Job]) -> Result<(), Refused> {
    let mut names = BTreeSet::new();
    for job in jobs {
        if !names.insert(&job.id) {
            return Err(Refused::Twice(job.id.to_string()));
        }
        let nics = job.flows.iter().flat_map(|flow| [flow.src, flow.dst]);
        let hosts_known = job
            .gpus
            .keys()
            .all(|host| host.index() < fabric.hosts().len());
        if !hosts_known
            || nics
                .into_iter()
                .any(|nic| nic.index() >= fabric.nics().len())
        {
            return Err(Refused::UnknownNic(job.id.to_string()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
