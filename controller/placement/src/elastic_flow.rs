//! `ElasticFlow` (Gu et al., ASPLOS 2023), as Crius is compared with it: how many GPUs each job
//! gets, of the kind that it asked for.
//!
//! Admission: every job has a *minimum satisfactory share*, the fewest GPUs on which it meets its
//! deadline, or without a deadline the fewest on which it runs at all; a job is admitted if those
//! of all jobs of its kind fit. Allocation: all get their minimum, then one job after the other
//! doubles, each time the one whose throughput grows most (baselines/elasticflow_sched.py of
//! sjtu-epcc/arena). It knows data parallelism only, so its table should be one of those speeds.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::allocation::{self, ClusterAllocation, RestartStall};
use super::deadline::{self, JobDeadlines, ROUND_SECONDS};
use super::fcfs::admit_in_order;
use super::throughput::ThroughputTable;
use super::{ClusterState, PlacementDecision, PlacementPolicy, PlacementRequest};

/// GPUs of a job at most.
pub const MOST_GPUS: u32 = 16;

/// When GPUs are shared anew, and which jobs then move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElasticSharing {
    /// When a job comes or ends; a job whose share is unchanged stays in place if it can.
    KeepPlaces,
    /// When a job comes, all jobs of its kind anew, the new one first among equals, as in
    /// sjtu-epcc/arena.
    PlaceAnew,
}

/// What becomes of a job that no number of GPUs ends in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateJobs {
    /// It is refused if it waits, as in the paper, and keeps its number of GPUs if it runs.
    GiveWay,
    /// It bars other jobs from its kind, while it waits until its deadline and while it runs until
    /// its end, as in sjtu-epcc/arena. Only jobs that have just come are tried before it. A job
    /// without a deadline that runs on no number of GPUs bars its kind for ever.
    BarKind,
}

/// ElasticFlow with the speeds that it assumes.
#[derive(Clone, Debug)]
pub struct ElasticFlowPolicy {
    /// How it shares.
    pub sharing: ElasticSharing,
    /// The assumed speeds of models.
    pub table: ThroughputTable,
    /// What a start or another number of GPUs costs.
    pub stall: RestartStall,
    /// When jobs must be over.
    pub deadlines: JobDeadlines,
    /// What becomes of jobs that will be late.
    pub late_jobs: LateJobs,
}

impl ElasticFlowPolicy {
    /// The policy without deadlines.
    pub fn new(sharing: ElasticSharing, table: ThroughputTable, stall: RestartStall) -> Self {
        let deadlines = JobDeadlines::default();
        Self { sharing, table, stall, deadlines, late_jobs: LateJobs::GiveWay }
    }

    /// Waiting jobs in lists of which each is admitted in order: one, or, if late jobs bar their
    /// kind, those that waited before and then each that came since.
    fn list_waiting(&self, waiting: Vec<PlacementRequest>, now: f64) -> Vec<Vec<PlacementRequest>> {
        match self.late_jobs {
            LateJobs::GiveWay => vec![waiting],
            LateJobs::BarKind => {
                let waited =
                    |request: &PlacementRequest| request.submitted_seconds + ROUND_SECONDS <= now;
                let (before, since): (Vec<_>, Vec<_>) = waiting.into_iter().partition(waited);
                let since = since.into_iter().map(|request| vec![request]);
                std::iter::once(before).chain(since).collect()
            }
        }
    }
}

impl PlacementPolicy for ElasticFlowPolicy {
    fn make_decisions(&mut self, state: &ClusterState<'_>) -> Vec<PlacementDecision> {
        let now = state.now_seconds;
        let late = |request: &PlacementRequest| self.deadlines.refuse_late(request, now);
        let mut decisions: Vec<PlacementDecision> = state.waiting.iter().filter_map(late).collect();
        let waiting = state.waiting.iter().filter(|request| late(request).is_none());
        let mut allocation = ClusterAllocation::from_state(state, &self.table);
        let rule = ShareRule { policy: self, now_seconds: now };
        for list in self.list_waiting(waiting.cloned().collect(), now) {
            let (admitted, refusals) = admit_in_order(
                &list,
                allocation,
                |allocation, request| rule.may_be_admitted(allocation, request),
                |allocation, request| {
                    let kind = allocation::requested_kind(request);
                    rule.share_kind(allocation, kind, Some(request))
                },
            );
            allocation = admitted;
            decisions.extend(refusals);
        }
        if self.sharing == ElasticSharing::KeepPlaces {
            // Jobs that ended have left room.
            for kind in 0..self.table.kind_count() {
                let shared = rule.share_kind(&allocation, kind, None);
                allocation = shared.unwrap_or(allocation);
            }
        }
        decisions.extend(allocation.to_decisions(state, self.stall));
        decisions
    }
}

/// How many GPUs jobs get at one time.
#[derive(Clone, Copy, Debug)]
struct ShareRule<'p> {
    policy: &'p ElasticFlowPolicy,
    now_seconds: f64,
}

impl ShareRule<'_> {
    /// Whether the job waits for room at most, rather than being refused.
    fn may_be_admitted(
        &self,
        allocation: &ClusterAllocation<'_>,
        request: &PlacementRequest,
    ) -> bool {
        match self.policy.late_jobs {
            LateJobs::GiveWay => self.satisfactory_share(allocation, request).is_some(),
            LateJobs::BarKind => true,
        }
    }

    /// The allocation with the GPUs of a kind shared anew, among those that hold some and one that
    /// comes; none if their shares do not fit.
    fn share_kind<'a>(
        &self,
        allocation: &ClusterAllocation<'a>,
        kind: u32,
        comes: Option<&PlacementRequest>,
    ) -> Option<ClusterAllocation<'a>> {
        let held = allocation.allocated_jobs().filter(|held| held.shape.kind == kind);
        let held = held.map(|held| held.request.clone());
        let mut jobs: Vec<PlacementRequest> = comes.cloned().into_iter().chain(held).collect();
        if self.policy.sharing == ElasticSharing::KeepPlaces {
            jobs.sort_by_key(|job| job.job);
        }
        let shares = self.assign_shares(allocation, &jobs, allocation.gpus_of_kind(kind))?;
        let kept = match self.policy.sharing {
            ElasticSharing::KeepPlaces => keep_unchanged(allocation, &jobs, &shares),
            ElasticSharing::PlaceAnew => None,
        };
        kept.or_else(|| repack_all(allocation, &jobs, &shares))
    }

    /// The fewest GPUs on which a job meets its deadline if it begins there now: the minimum
    /// satisfactory share.
    fn satisfactory_share(
        &self,
        allocation: &ClusterAllocation<'_>,
        request: &PlacementRequest,
    ) -> Option<u32> {
        let batch = allocation.throughput_table().job_batch(request);
        let in_time = |(gpus, speed): &(u32, f64)| {
            let left = request.remaining_iterations * batch / speed;
            let stall = self.policy.stall.stall_seconds(*gpus);
            let end = deadline::end_seconds(self.now_seconds, stall, left);
            self.policy.deadlines.allow_end(request.job, end)
        };
        running_shares(allocation, request).find(in_time).map(|(gpus, _)| gpus)
    }

    /// What a job gets at least: its minimum satisfactory share, or what it holds if it runs, will
    /// be late and gives way.
    fn least_share(
        &self,
        allocation: &ClusterAllocation<'_>,
        request: &PlacementRequest,
    ) -> Option<u32> {
        let holds = || match self.policy.late_jobs {
            LateJobs::GiveWay => allocation
                .allocated_jobs()
                .find(|held| held.request.job == request.job)
                .map(|held| held.shape.gpu_count()),
            LateJobs::BarKind => None,
        };
        self.satisfactory_share(allocation, request).or_else(holds)
    }

    /// GPUs of each job: its minimum, doubled while that makes the jobs faster and GPUs are left;
    /// none if there are too few for the minima.
    fn assign_shares(
        &self,
        allocation: &ClusterAllocation<'_>,
        jobs: &[PlacementRequest],
        gpus: u32,
    ) -> Option<Vec<u32>> {
        let least = jobs.iter().map(|job| self.least_share(allocation, job));
        let mut shares: Vec<u32> = least.collect::<Option<_>>()?;
        let mut left = gpus.checked_sub(shares.iter().sum())?;
        loop {
            let gain = |job: usize| {
                let now = shares[job];
                let may = now <= left && 2 * now <= MOST_GPUS;
                let twice = compact_speed(allocation, &jobs[job], 2 * now).filter(|_| may)?;
                Some(twice - compact_speed(allocation, &jobs[job], now)?).filter(|gain| *gain > 0.0)
            };
            let gains = (0..jobs.len()).filter_map(|job| Some((job, gain(job)?)));
            let Some((job, _)) = gains.max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a)))
            else {
                return Some(shares);
            };
            left -= shares[job];
            shares[job] *= 2;
        }
    }
}

/// The numbers of GPUs on which a job runs on its kind, and its speed there; the fewest first.
fn running_shares(
    allocation: &ClusterAllocation<'_>,
    request: &PlacementRequest,
) -> impl Iterator<Item = (u32, f64)> {
    let powers = (0..u32::BITS).map(|power| 1 << power);
    let counts = powers.take_while(|gpus| *gpus <= MOST_GPUS);
    counts.filter_map(|gpus| Some((gpus, compact_speed(allocation, request, gpus)?)))
}

fn compact_speed(
    allocation: &ClusterAllocation<'_>,
    request: &PlacementRequest,
    gpus: u32,
) -> Option<f64> {
    let best =
        allocation.throughput_table().best_shape(allocation::requested_kind(request), gpus)?;
    allocation.speed_in(request, best)
}

/// The jobs on their new numbers of GPUs; a job whose number is unchanged stays in place.
fn keep_unchanged<'a>(
    allocation: &ClusterAllocation<'a>,
    jobs: &[PlacementRequest],
    shares: &[u32],
) -> Option<ClusterAllocation<'a>> {
    let had: BTreeMap<u32, u32> = allocation
        .allocated_jobs()
        .map(|held| (held.request.job, held.shape.gpu_count()))
        .collect();
    let changed = jobs.iter().zip(shares).filter(|(job, gpus)| had.get(&job.job) != Some(gpus));
    pack_jobs(allocation.clone(), changed.collect())
}

/// The jobs on as many GPUs as they now have, all placed anew.
fn repack_all<'a>(
    allocation: &ClusterAllocation<'a>,
    jobs: &[PlacementRequest],
    shares: &[u32],
) -> Option<ClusterAllocation<'a>> {
    pack_jobs(allocation.clone(), jobs.iter().zip(shares).collect())
}

/// These jobs on so many GPUs, the largest first and of equals the first, which leaves no gap.
fn pack_jobs<'a>(
    mut allocation: ClusterAllocation<'a>,
    mut jobs: Vec<(&PlacementRequest, &u32)>,
) -> Option<ClusterAllocation<'a>> {
    for (job, _) in &jobs {
        allocation.release_job(job.job);
    }
    jobs.sort_by_key(|(_, gpus)| Reverse(**gpus));
    let mut placed = jobs.iter();
    let all = placed.all(|(job, gpus)| {
        allocation.place_compactly(job, allocation::requested_kind(job), **gpus)
    });
    all.then_some(allocation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::tests::{TestCluster, request};

    /// Speeds of three models on 1, 2, 4 and 8 GPUs of one kind, on hosts of four.
    fn lab() -> TestCluster {
        let mut lab = TestCluster::new(&[(4, 2)]);
        lab.set_speeds("steady", &[(1, 10.0), (2, 19.0), (4, 36.0), (8, 68.0)]);
        lab.set_speeds("flat", &[(1, 12.0), (2, 14.0), (4, 15.0), (8, 14.0)]);
        lab.set_speeds("large", &[(4, 8.0), (8, 15.0)]);
        lab
    }

    fn policy(lab: &TestCluster) -> ElasticFlowPolicy {
        let stall = RestartStall::PRUNED;
        ElasticFlowPolicy::new(ElasticSharing::KeepPlaces, lab.table.clone(), stall)
    }

    fn check(jobs: &[&str], gpus: u32, expect: Option<&[u32]>) {
        let lab = lab();
        let allocation = lab.empty_allocation();
        let rule = ShareRule { policy: &policy(&lab), now_seconds: 0.0 };
        let jobs = jobs.iter().enumerate();
        let jobs: Vec<PlacementRequest> =
            jobs.map(|(job, model)| request(job as u32, 1, model)).collect();
        assert_eq!(rule.assign_shares(&allocation, &jobs, gpus).as_deref(), expect);
    }

    #[test]
    fn a_minimum_is_found_by_doubling() {
        let lab = lab();
        let rule = ShareRule { policy: &policy(&lab), now_seconds: 0.0 };
        let least = |model| rule.least_share(&lab.empty_allocation(), &request(1, 1, model));
        assert_eq!([least("steady"), least("large"), least("none")], [Some(1), Some(4), None]);
    }

    #[test]
    fn gpus_go_where_they_add_most() {
        check(&["steady", "flat"], 6, Some(&[4, 2]));
        check(&["flat"], 8, Some(&[4]));
        check(&["steady", "large"], 8, Some(&[4, 4]));
    }

    /// A job on four of eight GPUs, and another of four that comes.
    #[test]
    fn a_job_keeps_its_place_unless_all_are_placed_anew() {
        let lab = lab();
        let (first, second) = (request(1, 4, "large"), request(2, 4, "large"));
        let mut before = lab.empty_allocation();
        assert!(before.place_compactly(&first, 0, 4));
        let hosts = |sharing| {
            let policy = ElasticFlowPolicy { sharing, ..policy(&lab) };
            let rule = ShareRule { policy: &policy, now_seconds: 0.0 };
            let after = rule.share_kind(&before, 0, Some(&second)).unwrap();
            let hosts = after.allocated_jobs().flat_map(|held| held.gpus.keys().copied());
            hosts.collect::<Vec<_>>()
        };
        let [one, other] = [topology::HostId(0), topology::HostId(1)];
        assert_eq!(hosts(ElasticSharing::KeepPlaces), [one, other]);
        assert_eq!(hosts(ElasticSharing::PlaceAnew), [other, one]);
    }

    #[test]
    fn jobs_whose_minima_do_not_fit_are_not_admitted() {
        check(&["large", "large"], 8, Some(&[4, 4]));
        check(&["large", "large", "flat"], 8, None);
    }

    /// A job of 10,000 iterations and a deadline, which takes 1,310 s on one GPU of `lab`, 846 s on
    /// two, 618 s on four and 487 s on eight, each with its stall and a round.
    fn request_by(job: u32, deadline: f64) -> (PlacementRequest, JobDeadlines) {
        let request =
            PlacementRequest { remaining_iterations: 10_000.0, ..request(job, 1, "steady") };
        (request, JobDeadlines { by_job: BTreeMap::from([(job, deadline)]) })
    }

    #[test]
    fn a_tighter_deadline_takes_more_gpus() {
        let lab = lab();
        for (deadline, least) in [
            (1_310.0, Some(1)),
            (1_309.0, Some(2)),
            (700.0, Some(4)),
            (500.0, Some(8)),
            (480.0, None),
        ] {
            let (job, deadlines) = request_by(1, deadline);
            let policy = ElasticFlowPolicy { deadlines, ..policy(&lab) };
            let rule = ShareRule { policy: &policy, now_seconds: 0.0 };
            assert_eq!(rule.satisfactory_share(&lab.empty_allocation(), &job), least, "{deadline}");
        }
    }

    /// The jobs that start and those that are refused, of these that wait.
    fn decide(
        policy: &mut ElasticFlowPolicy,
        waiting: &[PlacementRequest],
        now: f64,
    ) -> [Vec<u32>; 2] {
        let mut cluster_jobs = lab().empty_jobs();
        for job in waiting {
            cluster_jobs.submit_job(job.clone()).unwrap();
        }
        let [mut started, mut refused] = [vec![], vec![]];
        for decision in policy.make_decisions(&cluster_jobs.state_at(now)) {
            match decision {
                PlacementDecision::Start(start) => started.push(start.job),
                PlacementDecision::Refuse { job, .. } => refused.push(job),
                PlacementDecision::Suspend { .. } => {}
            }
        }
        [started, refused]
    }

    #[test]
    fn jobs_are_admitted_while_their_deadlines_can_all_be_met() {
        // Four GPUs for each of two; eight for the second, beside which the first has none.
        for (second, started) in [(700.0, vec![1, 2]), (500.0, vec![1])] {
            let ((one, mut deadlines), (other, more)) =
                (request_by(1, 700.0), request_by(2, second));
            deadlines.by_job.extend(more.by_job);
            let mut policy = ElasticFlowPolicy { deadlines, ..policy(&lab()) };
            assert_eq!(decide(&mut policy, &[one, other], 0.0), [started, vec![]]);
        }
    }

    #[test]
    fn a_job_that_will_be_late_is_refused_or_bars_those_that_wait() {
        let (late, deadlines) = request_by(1, 480.0);
        let waiting = [late, request(2, 4, "large")];
        for (late_jobs, now, expect) in [
            (LateJobs::GiveWay, 2.0, [vec![2], vec![1]]),
            // The second has just come, then waits behind it, until its deadline has passed.
            (LateJobs::BarKind, 2.0, [vec![2], vec![]]),
            (LateJobs::BarKind, 302.0, [vec![], vec![]]),
            (LateJobs::BarKind, 480.0, [vec![2], vec![1]]),
        ] {
            let deadlines = deadlines.clone();
            let mut policy = ElasticFlowPolicy { deadlines, late_jobs, ..policy(&lab()) };
            assert_eq!(decide(&mut policy, &waiting, now), expect, "{late_jobs:?} at {now}");
        }
    }

    #[test]
    fn a_running_job_that_will_be_late_keeps_its_gpus_or_bars_its_kind() {
        let lab = lab();
        let (late, deadlines) = request_by(1, 480.0);
        let mut before = lab.empty_allocation();
        assert!(before.place_compactly(&late, 0, 2));
        let shares = |late_jobs| {
            let deadlines = deadlines.clone();
            let policy = ElasticFlowPolicy { deadlines, late_jobs, ..policy(&lab) };
            let rule = ShareRule { policy: &policy, now_seconds: 0.0 };
            let jobs = [late.clone(), request(2, 4, "large")];
            rule.assign_shares(&before, &jobs, 7)
        };
        assert_eq!(shares(LateJobs::GiveWay), Some(vec![2, 4]));
        assert_eq!(shares(LateJobs::BarKind), None);
    }
}
