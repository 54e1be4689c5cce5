//! A plan that stands while jobs come and go: an event costs what it touches.
//!
//! The decision: a [`Standing`] is no other planner. It keeps the state that `plan` builds and
//! throws away (where flows are, how busy that makes links, when what changed), so that after an
//! event only flows that something changed for are looked at again, and its plan is the one that
//! `plan` would make of all jobs and the plan before. A test holds it to that.

use std::collections::BTreeMap;
use std::sync::Arc;

use topology::Fabric;

use crate::decide::Situation;
use crate::input::{Input, Job, JobId};
use crate::path_selection::{self, Placement};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::previous::Previous;
use crate::priority::Corrections;
use crate::report::Report;
use crate::routed::Ranking;
use crate::traffic::{Routes, Surveyor, Traffic};
use crate::ways::Ways;

/// An event that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// A job arrives that is there.
    #[error("job {0} arrives and is there already")]
    Twice(JobId),
    /// A job departs that is not there.
    #[error("job {0} departs and is not there")]
    Absent(JobId),
}

/// A plan in force on one fabric under one policy, and what is needed to plan on from it.
#[derive(Debug)]
pub struct Standing {
    fabric: Fabric,
    policy: Policy,
    ways: Arc<Ways>,
    jobs: BTreeMap<JobId, Member>,
    placement: Placement,
    corrections: Corrections,
    plan: Plan,
    before: Option<Plan>,
}

/// A job that is there.
#[derive(Debug)]
struct Member {
    job: Job,
    routes: Arc<Routes>,
    seat: usize,
}

impl Standing {
    /// The plan for `input` under `policy`, `previous` being in force, ready for events.
    pub fn new(input: &Input, policy: &Policy, previous: Option<&Plan>) -> Self {
        let traffic = Traffic::new(input);
        let had = Previous::new(&traffic, previous);
        let placement = path_selection::select(&traffic, &had, policy);
        let corrections = Corrections::default();
        let situation = Situation {
            traffic: &traffic,
            policy,
            previous: &had,
            corrections: &corrections,
        };
        let decided = situation.decide(placement.paths(0..traffic.jobs.len()));
        let members = traffic.jobs.iter().zip(&traffic.routes).enumerate();
        let jobs = members.map(|(seat, (job, routes))| {
            let member = Member {
                job: (*job).clone(),
                routes: Arc::clone(routes),
                seat,
            };
            (job.id.clone(), member)
        });
        let mut standing = Self {
            jobs: jobs.collect(),
            ways: Arc::clone(&traffic.ways),
            fabric: input.fabric.clone(),
            policy: policy.clone(),
            placement,
            plan: decided.plan.following(previous),
            corrections,
            before: previous.cloned(),
        };
        standing.settle(decided.is_searched);
        standing
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Why it is so; what moved is relative to the plan before the last event.
    pub fn report(&self) -> Report {
        let traffic = traffic(&self.fabric, &self.ways, &self.jobs);
        let had = Previous::new(&traffic, self.before.as_ref());
        let situation = Situation {
            traffic: &traffic,
            policy: &self.policy,
            previous: &had,
            corrections: &self.corrections,
        };
        let paths: Vec<_> = self.plan.flows.iter().map(|flow| flow.links).collect();
        let ranking = Ranking::new(&traffic, &paths, &self.policy, &self.corrections);
        situation.report(&self.plan, &ranking)
    }

    /// A job arrives, resolved against the fabric of this plan.
    ///
    /// # Errors
    /// A job of that name is there.
    pub fn arrive(&mut self, job: Job) -> Result<(), EventError> {
        if self.jobs.contains_key(&job.id) {
            return Err(EventError::Twice(job.id));
        }
        let routes = Arc::new(Surveyor::new(&self.fabric, &self.ways).routes(&job));
        let seat = self.placement.seat(&job, &routes);
        let member = Member { routes, seat, job };
        self.jobs.insert(member.job.id.clone(), member);
        self.plan_on();
        Ok(())
    }

    /// A job departs.
    ///
    /// # Errors
    /// No job of that name is there.
    pub fn depart(&mut self, id: &JobId) -> Result<(), EventError> {
        let member = self.jobs.remove(id);
        let member = member.ok_or_else(|| EventError::Absent(id.clone()))?;
        self.placement.vacate(member.seat);
        self.plan_on();
        Ok(())
    }

    /// The next plan, after the jobs changed.
    fn plan_on(&mut self) {
        let demands = self.jobs.values().map(|member| &member.routes.demand);
        let seats: Vec<usize> = self.jobs.values().map(|member| member.seat).collect();
        let order = path_selection::order(demands);
        let order: Vec<usize> = order.into_iter().map(|ordinal| seats[ordinal]).collect();
        path_selection::settle(&mut self.placement, &order, &self.policy);

        let traffic = traffic(&self.fabric, &self.ways, &self.jobs);
        let had = Previous::new(&traffic, Some(&self.plan));
        let situation = Situation {
            traffic: &traffic,
            policy: &self.policy,
            previous: &had,
            corrections: &self.corrections,
        };
        let decided = situation.decide(self.placement.paths(seats));
        let plan = decided.plan.following(Some(&self.plan));
        self.before = Some(std::mem::replace(&mut self.plan, plan));
        self.settle(decided.is_searched);
    }

    /// Makes the state that of the plan in force.
    fn settle(&mut self, is_searched: bool) {
        self.corrections.forget_unused();
        self.placement.keep_all();
        if is_searched {
            let members = self.jobs.values();
            let mut flows = self.plan.flows.iter();
            for member in members {
                let paths = flows.by_ref().take(member.job.flows.len());
                let paths = paths.map(|flow| flow.links);
                self.placement.replace(member.seat, paths);
            }
        }
    }
}

/// The jobs as the phases see them.
fn traffic<'a>(
    fabric: &'a Fabric,
    ways: &Arc<Ways>,
    jobs: &'a BTreeMap<JobId, Member>,
) -> Traffic<'a> {
    let routes = jobs.values().map(|member| Arc::clone(&member.routes));
    let jobs = jobs.values().map(|member| &member.job);
    Traffic::of(fabric, Arc::clone(ways), jobs.collect(), routes.collect())
}
