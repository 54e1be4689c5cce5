//! The controller's state and the one function that writes it.
//!
//! Everything the controller learns arrives as an [`Event`]; [`State::step`] takes it in and says
//! what follows as [`Effects`]. Sans-IO: [`runtime`](crate::runtime) brings the events, answers the
//! questions, lowers what is to be realised and gives it to the sessions. Two decisions. Thinking
//! is not done here: planning may take long, so a step only asks a [`Question`], and the answer is
//! an event like any other; a failure that comes meanwhile is repaired with the plan in force. And
//! every question is about whole inputs. There is no path on which only a part of the state is
//! brought up to date, so there is none on which it can be forgotten.

mod condition;
mod editions;
mod event;
mod question;
mod refused;
mod returning;
mod snapshot;
mod told;

use std::collections::BTreeSet;
use std::sync::Arc;

use planner::{Job, JobId, Override, Plan, Policy, Report};
use topology::{Change, Fabric, Finding, SwitchId};

pub use self::event::{Beginning, Effects, Event, Proposal, Realise};
pub use self::question::{Answer, Question};
use self::refused::{Refused, check_jobs, check_names};
use self::returning::Returning;
pub(crate) use self::snapshot::{FabricRecord, PlanRecord, ToldRecord, jobs_of, ledger_of};
pub use self::snapshot::{Snapshot, SnapshotError};
use self::told::Documented;
pub use self::told::Told;
use crate::ledger::{Content, Edition, Ledger, Signature};
use crate::lower::Wiring;
use crate::store::{Record, jobs_document};

/// Everything the controller knows and has decided.
#[derive(Clone, Debug)]
pub struct State {
    /// Classes that every switch serves.
    levels: u8,
    /// Whether switches bring probes to the controller.
    is_probed: bool,
    /// As observed; without the drains of the policy.
    fabric: Fabric,
    /// What of it works again and is not to be used yet.
    returning: Returning,
    wiring: Arc<Wiring>,
    jobs: Vec<Job>,
    told: Told,
    /// What the latest edition of the ledger says.
    policy: Policy,
    ledger: Ledger,
    /// The plan in force before the edition on trial.
    before_trial: Option<Arc<Plan>>,
    /// The plan to go on from instead of the one decided, until an answer takes so many events into
    /// account.
    resumed: Option<(u64, Arc<Plan>)>,
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
            returning: Returning::default(),
            wiring: Arc::new(wiring),
            jobs: Vec::new(),
            told: Told::default(),
            ledger: Ledger::new(Edition::first(&policy), []),
            before_trial: None,
            resumed: None,
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
        let cause = event.kind();
        let mut effects = match self.take(event) {
            Ok(effects) => effects,
            Err(refused) => Effects::refusing(refused.finding()),
        };
        (effects.cause, effects.generation) = (cause, self.generation);
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

    /// Whether something works again and waits for [`Event::Held`].
    pub fn is_returning(&self) -> bool {
        !self.returning.is_empty()
    }

    /// The jobs that told of themselves, whether or not they are planned for.
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// What is to be stored: the policy, and the jobs of either kind.
    pub fn records(&self) -> [Record; 3] {
        [
            Record::Policy(Box::new(self.ledger.latest().clone())),
            Record::Jobs(jobs_document(&self.fabric, &self.jobs)),
            Record::Told(jobs_document(&self.fabric, &self.told.jobs)),
        ]
    }

    /// Which policies were in force, and which is.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The question that a policy would raise if it were in force; nothing changes.
    ///
    /// # Errors
    /// It would be refused, and the finding says why.
    pub fn consider(&self, content: &Content) -> Result<Question, Finding> {
        let considered = || {
            let policy = content.validate("policy")?;
            self.check_policy(&policy, &self.fabric)?;
            Ok(self.question(&policy))
        };
        considered().map_err(|refused: Refused| refused.finding())
    }

    /// The question about everything that is known now.
    pub fn present(&self) -> Question {
        self.question(&self.policy)
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
            Event::Started(beginning) => self.start(*beginning)?,
            Event::FabricLearned(fabric) => self.learn(fabric)?,
            Event::FabricChanged(change) => self.change(change)?,
            Event::JobsChanged(jobs) => {
                check_jobs(&self.fabric, &jobs)?;
                let record = Record::Jobs(jobs_document(&self.fabric, &jobs));
                self.jobs = jobs;
                Effects::recording(record)
            }
            Event::JobsTold(told) => self.hear(told)?,
            Event::PolicyChanged(policy) => self.propose(Proposal {
                content: Content::from(&policy),
                signature: Signature::default(),
                trial_until: None,
            })?,
            Event::PolicyProposed(proposal) => self.propose(*proposal)?,
            Event::PolicyConfirmed => self.enter(self.ledger.confirm()?)?,
            Event::PolicyReverted(signature) => self.enter(self.ledger.revert(signature)?)?,
            Event::EditionStored(edition) => self.enter(*edition)?,
            Event::TimeCame(now) => match self.ledger.due(now) {
                Some(edition) => self.enter_due(edition, now)?,
                None => return Ok(Effects::default()),
            },
            Event::PinRoomLearned(switch, pins) => self.learn_pin_room(switch, pins)?,
            Event::Held(generation) => match self.returning.release(generation) {
                true => Effects::default(),
                false => return Ok(Effects::default()),
            },
            Event::Elected(spent) => {
                self.spent = self.spent.max(spent);
                Effects::default()
            }
        };
        self.inputs += 1;
        Ok(effects)
    }

    fn start(&mut self, beginning: Beginning) -> Result<Effects, Refused> {
        let Beginning {
            fabric,
            ledger,
            jobs,
            told,
        } = beginning;
        let policy = ledger.latest().content.validate("policy")?;
        self.check_policy(&policy, &fabric)?;
        check_jobs(&fabric, &jobs)?;
        check_jobs(&fabric, &told.jobs)?;
        let before = std::mem::replace(&mut self.policy, policy);
        if let Err(refused) = self.learn(fabric) {
            self.policy = before;
            return Err(refused);
        }
        (self.jobs, self.told, self.ledger) = (jobs, told, ledger);
        let edition = self.ledger.latest().clone();
        Ok(Effects::recording(Record::Policy(Box::new(edition))))
    }

    /// Jobs that tell of themselves cannot take a name or a connection from those of documents.
    fn hear(&mut self, told: Told) -> Result<Effects, Refused> {
        check_jobs(&self.fabric, &told.jobs)?;
        let before = std::mem::replace(&mut self.told, told);
        let record = Record::Told(jobs_document(&self.fabric, &self.told.jobs));
        let mut effects = Effects::recording(record);
        let had: BTreeSet<&JobId> = before.jobs.iter().map(|job| &job.id).collect();
        let documented = Documented::new(&self.jobs);
        let news = self.told.jobs.iter().filter(|job| !had.contains(&job.id));
        let hidden = news.filter(|job| documented.hides(job));
        effects.findings = hidden.map(told::hidden).collect();
        Ok(effects)
    }

    /// Everything that runs, as far as it is known.
    fn running(&self) -> Vec<Job> {
        let documented = Documented::new(&self.jobs);
        let told = self.told.jobs.iter();
        let told = told.filter(|job| !documented.hides(job));
        self.jobs.iter().chain(told).cloned().collect()
    }

    /// `policy` as it is planned by: within the room that switches have, and with the highest class
    /// for jobs that are being profiled.
    fn effective(&self, policy: &Policy) -> Policy {
        let highest = policy.job_levels().last().copied();
        let mut overrides: Vec<Override> = self
            .told
            .profiled
            .iter()
            .map(|job| Override::at_level(&format!("job:{job}"), highest))
            .collect();
        overrides.extend(policy.overrides.iter().cloned());
        let room = self.pin_room.map_or(usize::MAX, |(_, pins)| pins);
        Policy {
            max_pins_per_switch: policy.max_pins_per_switch.min(room),
            overrides,
            ..policy.clone()
        }
    }

    /// Turns to another fabric. Jobs that go on there are planned from where they were, as far as
    /// that is there by its names.
    fn learn(&mut self, fabric: Fabric) -> Result<Effects, Refused> {
        check_names(&self.policy, &fabric)?;
        let wiring = Wiring::new(&fabric)?;
        self.wiring = Arc::new(match self.is_probed {
            true => wiring.probed(),
            false => wiring,
        });
        self.learned = self.inputs + 1;
        let decided = self.decided.take();
        self.resumed = decided.map(|had| (self.learned, Arc::new(had.plan_on(&fabric))));
        self.fabric = fabric;
        self.jobs.clear();
        self.told = Told::default();
        self.returning = Returning::default();
        (self.pin_room, self.before_trial) = (None, None);
        Ok(Effects::default())
    }

    /// A failure is repaired at once with the plan in force: first the ports at both ends are out
    /// of use, then every switch goes around. What works again waits until all switches know.
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
        if is_news {
            self.returning.take(change, &self.fabric, self.generation);
        }
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

    /// The question about everything that is known, if it is not asked already.
    fn ask(&mut self) -> Option<Question> {
        if self.asked.is_some() || self.planned == self.inputs {
            return None;
        }
        self.asked = Some(self.inputs);
        Some(self.question(&self.policy))
    }

    /// The question about everything that is known, under this policy.
    fn question(&self, policy: &Policy) -> Question {
        Question {
            inputs: self.inputs,
            fabric: self.in_use(policy),
            jobs: self.running(),
            policy: self.effective(policy),
            previous: self.previous(),
        }
    }

    /// The plan to plan on from.
    fn previous(&self) -> Option<Arc<Plan>> {
        let resumed = self.resumed.as_ref().map(|(_, plan)| Arc::clone(plan));
        resumed.or_else(|| self.decided.as_ref().map(|had| Arc::clone(&had.plan)))
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
        self.resumed.take_if(|(inputs, _)| *inputs <= answer.inputs);
        let findings = answer.report.findings.clone();
        let fabric = self.in_use(&self.policy);
        let same = |had: &Realise| {
            let is_returning = had.returning == self.returning.now();
            let is_same = *had.plan == *answer.plan && had.fabric == fabric && is_returning;
            is_same && had.generation > self.spent
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
            fabric: self.in_use(&self.policy),
            returning: self.returning.now(),
            wiring: Arc::clone(&self.wiring),
            plan: Arc::clone(plan),
            report: Arc::clone(report),
        };
        self.decided = Some(realise.clone());
        realise
    }

    /// The fabric as it is planned for: without what is drained, and what is not to be used yet.
    fn in_use(&self, policy: &Policy) -> Fabric {
        let drained = policy.apply_drains(&self.fabric);
        let drained = drained.expect("drains are checked when policy or fabric are taken in");
        drained.with(self.returning.drains())
    }
}

#[cfg(test)]
mod tests;
