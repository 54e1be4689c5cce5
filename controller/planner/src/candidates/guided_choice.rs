//! Better paths and levels for a large region, found by a search that the model of mean rates
//! guides ([`GuidedSearch`]) and simulations judge.

use std::rc::Rc;

use super::objective::PlanObjective;
use super::origins::{CandidateBuilder, CandidatePaths};
use super::region_evaluation::{RegionEvaluation, ValuedCandidate};
use crate::parallel::run_both;
use crate::search::{GuidedSearch, ProposalOutcome, SearchResult, SimulatedJobs};

/// Share of the largest slowdown under the floor that the model is asked for: a job that it finds
/// at the limit is beyond it half of the time.
const WANTED_SLOWDOWN: f64 = 0.6;

/// A proposal is simulated from all starts if a coarse simulation finds it worth at least this
/// share of the best so far.
const PROMISING_SHARE: f64 = 0.995;

/// A proposal is the best so far if it gains this share.
const LEAST_STEP: f64 = 1e-4;

/// The best candidate that the search finds from `start` for so many `events`; none if no proposal
/// is better.
pub(super) fn search_guided(
    evaluation: &mut RegionEvaluation<'_, '_>,
    candidates: &CandidateBuilder<'_>,
    start: &ValuedCandidate,
    events: u64,
) -> Option<ValuedCandidate> {
    let (context, region) = (evaluation.context(), &evaluation.region().jobs[..]);
    let mut decisions: SearchResult = candidates.unsearched().clone();
    let levels = start.levels.iter().copied();
    decisions.adopt_decisions(context.traffic, region, levels, start.paths());
    let (seconds, longest) = (evaluation.iteration_seconds(start), wanted_seconds(evaluation));
    let jobs = SimulatedJobs { seconds: &seconds, longest: &longest };
    let mut search = GuidedSearch::new(context.traffic, context.policy, region, &decisions, jobs);
    let objective = evaluation.objective();
    let began = evaluation.event_cost();
    let mut coarse = evaluation.value_coarsely(start)?;
    let mut best: Option<ValuedCandidate> = None;
    let mut proposal = search.draft_proposal(&decisions);
    while evaluation.event_cost() - began + search.event_cost() < events {
        search.submit_draft();
        let proposed = Rc::new(CandidatePaths::searched(proposal));
        let (draft, next) = run_both(
            || search.draft_proposal(&decisions),
            || evaluation.value_proposal(&proposed, PROMISING_SHARE * coarse),
        );
        let next = next?;
        let outcome = match next.is_promising {
            true => judge_proposal(objective, &next.candidate, best.as_ref().unwrap_or(start)),
            false => ProposalOutcome::Worse,
        };
        let stands = search.learn_from(&next.seconds, outcome);
        proposal = if stands { draft } else { search.draft_proposal(&decisions) };
        if outcome == ProposalOutcome::Better {
            coarse = next.coarse;
            best = Some(next.candidate);
        }
    }
    best
}

fn judge_proposal(
    objective: PlanObjective,
    next: &ValuedCandidate,
    best: &ValuedCandidate,
) -> ProposalOutcome {
    if objective.is_step_up(next.value, best.value, LEAST_STEP) {
        ProposalOutcome::Better
    } else if next.value.value > best.value.value {
        ProposalOutcome::Starving
    } else {
        ProposalOutcome::Worse
    }
}

/// Seconds of an iteration that each job of the region is wanted not to exceed.
fn wanted_seconds(evaluation: &RegionEvaluation<'_, '_>) -> Vec<f64> {
    let limit = evaluation.objective().slowdown_limit().unwrap_or(f64::INFINITY);
    let routes = &evaluation.context().traffic.routes;
    let jobs = evaluation.region().jobs.iter().zip(evaluation.guaranteed());
    jobs.map(|(job, guaranteed)| {
        let slowdown = limit.min(1.0 / guaranteed) * WANTED_SLOWDOWN;
        slowdown.max(1.0) * routes[*job].demand.iteration_seconds
    })
    .collect()
}
