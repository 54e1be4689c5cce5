//! The controller's state and the one function that writes it.
//!
//! Everything the controller learns arrives as an [`Event`]; [`State::step`] takes it in and says
//! what follows as [`Effects`]. Sans-IO: [`runtime`](crate::runtime) brings the events, answers the
//! questions, lowers what is to be realised and gives it to the sessions. Two decisions. Thinking
//! is not done here: planning may take long, so a step only asks a [`Question`], and the answer is
//! an event like any other; a failure that comes meanwhile is repaired with the plan in force. And
//! every question is about whole inputs. There is no path on which only a part of the state is
//! brought up to date, so there is none on which it can be forgotten.

mod question;

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::{Job, Plan, Policy, PolicyDocument, Report};
use topology::{Change, Fabric, Finding, SwitchId};

pub use self::question::{Answer, Question};
use crate::lower::Wiring;
use crate::store::{Record, jobs_document};

/// Something the controller has learned.
#[derive(Clone, Debug)]
pub enum Event {
    /// The controller starts: the fabric, and the policy and jobs to begin with. All at once, so
    /// that switches that hold what they shall are not told anything else in between.
    Started(Fabric, Policy, Vec<Job>),
    /// The fabric, from its document or from discovery. Ids of the fabric before mean nothing any
    /// more, so the jobs are forgotten until telemetry tells them anew.
    FabricLearned(Fabric),
    /// A cable or a switch of the fabric failed, or works again.
    FabricChanged(Change),
    /// All jobs, from telemetry, in the ids of the present fabric.
    JobsChanged(Vec<Job>),
    /// The operator's policy.
    PolicyChanged(Policy),
    /// A switch has room for no more than this many pins.
    PinRoomLearned(SwitchId, usize),
    /// This controller is to lead, and leaders before it may have used the generations up to this
    /// one.
    Elected(u64),
    /// The answer to the question that was asked last.
    Planned(Box<Answer>),
}

/// What follows from an event.
#[derive(Debug, Default)]
pub struct Effects {
    /// The generation in force.
    pub generation: u64,
    /// What has failed just now: its ports are to be taken out of use before anything else.
    pub protect: Option<Realise>,
    /// What the switches shall realise, if it is not what they already do.
    pub realise: Option<Realise>,
    /// What is to be planned now.
    pub question: Option<Question>,
    /// What the next run of the controller must know.
    pub record: Option<Record>,
    /// What a person should know, the event's own refusal included.
    pub findings: Vec<Finding>,
}

impl Effects {
    fn recording(record: Record) -> Self {
        let record = Some(record);
        Self {
            record,
            ..Self::default()
        }
    }
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
    /// Whether switches bring probes to the controller.
    is_probed: bool,
    /// As observed; without the drains of the policy.
    fabric: Fabric,
    wiring: Arc<Wiring>,
    jobs: Vec<Job>,
    policy: Policy,
    /// What the switch with the least room for pins has, once one was full. One number for all:
    /// switches of a fabric are alike, and a plan that knew each one's room would differ by
    /// accidents of the past.
    pin_room: Option<(SwitchId, usize)>,
    /// Rises with every event that is taken in.
    inputs: u64,
    /// `inputs` when the present fabric was learned.
    learned: u64,
    /// `inputs` of the question that is out.
    asked: Option<u64>,
    /// `inputs` that the plan in force takes into account.
    planned: u64,
    generation: u64,
    /// Generations up to this one are another controller's.
    spent: u64,
    decided: Option<Realise>,
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
    /// `levels` classes. The first generation is the one after `generation`.
    pub fn new(levels: u8, generation: u64) -> Self {
        let fabric = Fabric::new(topology::Parts::default());
        let wiring = Wiring::new(&fabric).expect("no port of no switch is out of range");
        let policy = Policy {
            levels,
            ..Policy::default()
        };
        Self {
            levels,
            is_probed: false,
            fabric,
            wiring: Arc::new(wiring),
            jobs: Vec::new(),
            policy,
            pin_room: None,
            inputs: 0,
            learned: 0,
            asked: None,
            planned: 0,
            generation,
            spent: 0,
            decided: None,
        }
    }

    /// The same, on switches that bring probes to the controller.
    #[must_use]
    pub fn probed(self) -> Self {
        Self {
            is_probed: true,
            ..self
        }
    }

    /// The one transition.
    pub fn step(&mut self, event: Event) -> Effects {
        let mut effects = match self.take(event) {
            Ok(effects) => effects,
            Err(refused) => Effects {
                findings: vec![refused.finding()],
                ..Effects::default()
            },
        };
        effects.generation = self.generation;
        effects.question = self.ask();
        self.check_invariant();
        effects
    }

    /// The generation in force.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The fabric as observed, without the drains of the policy.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// What an operator has decided, to be stored: the policy and the jobs.
    pub fn records(&self) -> [Record; 2] {
        [
            Record::Policy(PolicyDocument::from(&self.policy)),
            Record::Jobs(jobs_document(&self.fabric, &self.jobs)),
        ]
    }

    /// How many events were taken in.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// How many of them the plan in force takes into account.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// What is decided is decided about the present fabric and policy, and never backwards.
    pub fn check_invariant(&self) {
        debug_assert!(self.planned <= self.inputs && self.learned <= self.inputs);
        debug_assert!(self.policy.levels <= self.levels);
        debug_assert!(self.policy.apply_drains(&self.fabric).is_ok());
        // What is not planned for is being planned for.
        debug_assert!(self.planned == self.inputs || self.asked.is_some());
        if let Some(decided) = &self.decided {
            debug_assert!(decided.generation == self.generation);
            debug_assert!(Arc::ptr_eq(&decided.wiring, &self.wiring));
        }
    }

    /// Takes an event in, or leaves everything as it was.
    fn take(&mut self, event: Event) -> Result<Effects, Refused> {
        let effects = match event {
            Event::Planned(answer) => return Ok(self.adopt(&answer)),
            Event::Started(fabric, policy, jobs) => self.start(fabric, policy, jobs)?,
            Event::FabricLearned(fabric) => self.learn(fabric)?,
            Event::FabricChanged(change) => self.change(change)?,
            Event::JobsChanged(jobs) => {
                check_jobs(&self.fabric, &jobs)?;
                let record = Record::Jobs(jobs_document(&self.fabric, &jobs));
                self.jobs = jobs;
                Effects::recording(record)
            }
            Event::PolicyChanged(policy) => {
                self.check_policy(&policy, &self.fabric)?;
                self.policy = policy;
                // Whoever changes the policy may have changed the switches as well.
                self.pin_room = None;
                Effects::recording(Record::Policy(PolicyDocument::from(&self.policy)))
            }
            Event::PinRoomLearned(switch, pins) => self.learn_pin_room(switch, pins)?,
            Event::Elected(spent) => {
                self.spent = self.spent.max(spent);
                Effects::default()
            }
        };
        self.inputs += 1;
        Ok(effects)
    }

    fn start(
        &mut self,
        fabric: Fabric,
        policy: Policy,
        jobs: Vec<Job>,
    ) -> Result<Effects, Refused> {
        self.check_policy(&policy, &fabric)?;
        check_jobs(&fabric, &jobs)?;
        let before = std::mem::replace(&mut self.policy, policy);
        if let Err(refused) = self.learn(fabric) {
            self.policy = before;
            return Err(refused);
        }
        self.jobs = jobs;
        let policy = PolicyDocument::from(&self.policy);
        Ok(Effects::recording(Record::Policy(policy)))
    }

    fn learn(&mut self, fabric: Fabric) -> Result<Effects, Refused> {
        check_drains(&self.policy, &fabric)?;
        let wiring = Wiring::new(&fabric)?;
        self.wiring = Arc::new(match self.is_probed {
            true => wiring.probed(),
            false => wiring,
        });
        self.fabric = fabric;
        self.jobs.clear();
        self.pin_room = None;
        self.decided = None;
        self.learned = self.inputs + 1;
        Ok(Effects::default())
    }

    /// A failure is repaired at once with the plan in force: first the ports at both ends are out
    /// of use, then every switch goes around. What works again waits for the plan.
    fn change(&mut self, change: Change) -> Result<Effects, Refused> {
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
        let fabric = self.fabric.with([change]);
        let is_news = fabric != self.fabric;
        self.fabric = fabric;
        let failed = matches!(change, Change::LinkDown(_) | Change::SwitchDown(_));
        let mut effects = Effects::default();
        if let Some(decided) = self.decided.clone().filter(|_| failed && is_news) {
            effects.protect = Some(self.realise(&decided.plan, &decided.report));
            effects.realise = Some(self.realise(&decided.plan, &decided.report));
        }
        Ok(effects)
    }

    fn learn_pin_room(&mut self, switch: SwitchId, pins: usize) -> Result<Effects, Refused> {
        let Some(name) = self.fabric.switches().get(switch.index()) else {
            return Err(Refused::UnknownPart);
        };
        let text = format!("its table holds {pins} pins; what is more is left to ECMP");
        let mut effects = Effects::default();
        if self.pin_room.is_none_or(|(_, known)| pins < known) {
            self.pin_room = Some((switch, pins));
            effects.findings = vec![Finding::warning(&name.name, text)];
        }
        Ok(effects)
    }

    fn check_policy(&self, policy: &Policy, fabric: &Fabric) -> Result<(), Refused> {
        if policy.levels > self.levels {
            return Err(Refused::TooManyLevels {
                policy: policy.levels,
                switches: self.levels,
            });
        }
        check_drains(policy, fabric)
    }

    /// The question about everything that is known, if it is not asked already.
    fn ask(&mut self) -> Option<Question> {
        if self.asked.is_some() || self.planned == self.inputs {
            return None;
        }
        self.asked = Some(self.inputs);
        let room = self.pin_room.map_or(usize::MAX, |(_, pins)| pins);
        let policy = Policy {
            max_pins_per_switch: self.policy.max_pins_per_switch.min(room),
            ..self.policy.clone()
        };
        Some(Question {
            inputs: self.inputs,
            fabric: self.drained(),
            jobs: self.jobs.clone(),
            policy,
            previous: self.decided.as_ref().map(|had| Arc::clone(&had.plan)),
        })
    }

    /// Takes an answer, also one that no longer knows everything: the next question is on its way,
    /// and lowering leads around what has failed since. Only an answer about a fabric that is gone
    /// says nothing.
    fn adopt(&mut self, answer: &Answer) -> Effects {
        self.asked = None;
        if answer.inputs < self.learned {
            return Effects::default();
        }
        self.planned = answer.inputs;
        let findings = answer.report.findings.clone();
        let fabric = self.drained();
        let same = |had: &Realise| {
            *had.plan == *answer.plan && had.fabric == fabric && had.generation > self.spent
        };
        let is_same = self.decided.as_ref().is_some_and(same);
        let realise = (!is_same).then(|| self.realise(&answer.plan, &answer.report));
        Effects {
            realise,
            findings,
            ..Effects::default()
        }
    }

    /// Numbers a plan on the fabric as it is, which is then what is decided.
    fn realise(&mut self, plan: &Arc<Plan>, report: &Arc<Report>) -> Realise {
        self.generation = self.generation.max(self.spent) + 1;
        let realise = Realise {
            generation: self.generation,
            fabric: self.drained(),
            wiring: Arc::clone(&self.wiring),
            plan: Arc::clone(plan),
            report: Arc::clone(report),
        };
        self.decided = Some(realise.clone());
        realise
    }

    fn drained(&self) -> Fabric {
        let drained = self.policy.apply_drains(&self.fabric);
        drained.expect("drains are checked when policy or fabric are taken in")
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
