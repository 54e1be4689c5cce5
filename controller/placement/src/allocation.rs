//! A tentative assignment of GPUs to jobs, on which policies for several kinds of GPU try changes:
//! the GPUs of each job, its speed there, and its speed after a move.
//!
//! Such a policy tries things out on an [`ClusterAllocation`] and keeps the one it likes;
//! [`ClusterAllocation::to_decisions`] is the difference to what runs. Jobs have powers of two of
//! one kind, evenly on hosts.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use planner::{CollectiveDocument, CollectiveKind};
use topology::HostId;

use super::crius::layers::LayeredModel;
use super::throughput::{GpuShape, ThroughputTable};
use super::{
    ClusterState, FreeGpus, GpuCluster, GpusByHost, IterationPace, PlacementDecision,
    PlacementRequest, PlannedIteration, StartDecision,
};

/// What it takes until a job goes on after its GPUs have changed: its plan is searched anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RestartStall {
    /// Seconds for each GPU.
    pub per_gpu_seconds: f64,
    /// Longest stall, in seconds.
    pub most_seconds: f64,
}

impl RestartStall {
    /// Among the plans that Crius leaves (macro/macro_def.py of sjtu-epcc/arena).
    pub const PRUNED: Self = Self { per_gpu_seconds: 10.0, most_seconds: 40.0 };

    /// Among all plans, as on the testbed (macro/macro_def.py of sjtu-epcc/arena).
    pub const ALL_PLANS: Self = Self { per_gpu_seconds: 150.0, most_seconds: 400.0 };

    /// Seconds for a job on so many GPUs.
    pub fn stall_seconds(&self, gpus: u32) -> f64 {
        (self.per_gpu_seconds * f64::from(gpus)).min(self.most_seconds)
    }
}

/// A job and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatedJob {
    /// Its request.
    pub request: PlacementRequest,
    /// How its GPUs lie.
    pub shape: GpuShape,
    /// Number of its GPUs.
    pub gpus: GpusByHost,
    /// How fast it is there ([`ThroughputTable::job_speed`]).
    pub speed: f64,
    /// Seconds of an iteration there.
    pub iteration_seconds: f64,
}

impl AllocatedJob {
    /// A job on these GPUs; none if it cannot run there.
    fn new(
        table: &ThroughputTable,
        request: &PlacementRequest,
        shape: GpuShape,
        gpus: GpusByHost,
    ) -> Option<Self> {
        let speed = table.job_speed(request, shape)?;
        Some(Self {
            request: request.clone(),
            shape,
            gpus,
            speed,
            iteration_seconds: table.job_batch(request) / speed,
        })
    }
}

/// The jobs that hold GPUs, and the GPUs that are free.
#[derive(Clone, Debug)]
pub struct ClusterAllocation<'a> {
    cluster: &'a GpuCluster,
    table: &'a ThroughputTable,
    free: FreeGpus,
    held: BTreeMap<u32, AllocatedJob>,
}

impl<'a> ClusterAllocation<'a> {
    /// The running jobs. A job of unknown speed keeps its GPUs and is never changed.
    pub fn from_state(state: &ClusterState<'a>, table: &'a ThroughputTable) -> Self {
        let held = state.running.iter().filter_map(|running| {
            let (host, _) = running.gpus.first_key_value()?;
            let shape = GpuShape::from_gpus(state.cluster.hosts[host.index()].kind, &running.gpus)?;
            let held = AllocatedJob::new(table, &running.request, shape, running.gpus.clone())?;
            Some((held.request.job, held))
        });
        Self { cluster: state.cluster, table, free: state.free_gpus(), held: held.collect() }
    }

    /// Hosts of the cluster.
    pub fn cluster(&self) -> &'a GpuCluster {
        self.cluster
    }

    /// The speeds that it compares.
    pub fn throughput_table(&self) -> &'a ThroughputTable {
        self.table
    }

    /// The jobs that hold GPUs, by number.
    pub fn allocated_jobs(&self) -> impl DoubleEndedIterator<Item = &AllocatedJob> + Clone {
        self.held.values()
    }

    /// The speeds of all jobs together.
    pub fn total_speed(&self) -> f64 {
        self.allocated_jobs().map(|held| held.speed).sum()
    }

    /// GPUs of a kind, taken or not.
    pub fn gpus_of_kind(&self, kind: u32) -> u32 {
        let hosts = self.cluster.hosts.iter().filter(|host| host.kind == kind);
        hosts.map(|host| host.gpus).sum()
    }

    /// How fast a job would be in a shape; none if it could not run.
    pub fn speed_in(&self, request: &PlacementRequest, shape: GpuShape) -> Option<f64> {
        self.table.job_speed(request, shape)
    }

    /// Takes the GPUs of a job back.
    pub fn release_job(&mut self, job: u32) -> Option<AllocatedJob> {
        let held = self.held.remove(&job)?;
        self.free.return_gpus(&held.gpus);
        Some(held)
    }

    /// Gives a job back what it held; false if some of it is taken.
    pub fn restore_job(&mut self, held: AllocatedJob) -> bool {
        let free = self.free.contains_all(&held.gpus);
        if free {
            self.free.take_gpus(&held.gpus);
            self.held.insert(held.request.job, held);
        }
        free
    }

    /// Gives a job exactly this shape; false if it cannot run so, or there is no room.
    pub fn place_job(&mut self, request: &PlacementRequest, shape: GpuShape) -> bool {
        let room = self.find_room(shape);
        let held = room.and_then(|gpus| AllocatedJob::new(self.table, request, shape, gpus));
        held.is_some_and(|held| self.restore_job(held))
    }

    /// Gives a job GPUs on as few hosts as hold them.
    pub fn place_compactly(&mut self, request: &PlacementRequest, kind: u32, gpus: u32) -> bool {
        let best = self.table.best_shape(kind, gpus);
        best.is_some_and(|best| self.place_job(request, best))
    }

    /// Gives a job GPUs on as few hosts as have room.
    pub fn place_anywhere(&mut self, request: &PlacementRequest, kind: u32, gpus: u32) -> bool {
        let best = self.table.best_shape(kind, gpus);
        let mut shapes = std::iter::successors(best, GpuShape::spread_out);
        shapes.any(|shape| self.place_job(request, shape))
    }

    /// This, after jobs on single hosts have moved together so that there is room for `shape`; none
    /// if that does not help.
    pub fn with_merged_jobs(&self, shape: GpuShape) -> Option<Self> {
        let mut after = self.clone();
        while after.find_room(shape).is_none() {
            after = after.with_one_more_host(shape)?;
        }
        Some(after)
    }

    /// This, after a job gave half of its GPUs back; none if it has one, or is too large for half.
    pub fn with_halved_job(&self, job: u32) -> Option<Self> {
        let held = self.held.get(&job)?;
        let (hosts, gpus_per_host) = match (held.shape.hosts, held.shape.gpus_per_host) {
            (1, gpus) => (1, gpus / 2),
            (hosts, gpus) => (hosts / 2, gpus),
        };
        let shape = GpuShape { hosts, gpus_per_host, ..held.shape };
        let hosts = held.gpus.keys().take(hosts as usize);
        let gpus = hosts.map(|host| (*host, gpus_per_host)).collect();
        let half = AllocatedJob::new(self.table, &held.request, shape, gpus)?;
        let mut after = self.clone();
        after.release_job(job);
        after.restore_job(half).then_some(after)
    }

    /// What is to be done so that this runs instead of what runs now.
    pub fn to_decisions(
        &self,
        state: &ClusterState<'a>,
        stall: RestartStall,
    ) -> Vec<PlacementDecision> {
        let before: BTreeMap<u32, &GpusByHost> =
            state.running.iter().map(|running| (running.request.job, &running.gpus)).collect();
        let known = Self::from_state(state, self.table);
        let stays = |held: &AllocatedJob| before.get(&held.request.job) == Some(&&held.gpus);
        let moved = known.allocated_jobs().filter(|held| {
            let now = self.held.get(&held.request.job);
            !now.is_some_and(stays)
        });
        let suspended = moved.map(|held| PlacementDecision::Suspend { job: held.request.job });
        let started = self.allocated_jobs().filter(|held| !stays(held));
        let started =
            started.map(|held| PlacementDecision::Start(self.start_decision(held, stall)));
        suspended.chain(started).collect()
    }

    /// How a job begins on what it holds.
    ///
    /// Speeds are measured with the network for the job alone, so what it sends may overlap with
    /// all of an iteration and costs only where others are in the way. It sends its gradients.
    fn start_decision(&self, held: &AllocatedJob, stall: RestartStall) -> StartDecision {
        let layers = held.request.model.as_deref().and_then(LayeredModel::by_name);
        let gradients = layers.map_or(0.0, |model| {
            let bytes = model.layers.iter().map(|layer| layer.parameter_bytes);
            bytes.sum()
        });
        let planned = PlannedIteration {
            compute_seconds: held.iteration_seconds,
            overlap_from: 0.0,
            collective: CollectiveDocument {
                bytes: Some(gradients),
                channels: Some(1),
                ..CollectiveDocument::new(CollectiveKind::RingAllReduce)
            },
        };
        let pace = if self.table.has_rows_for(&held.request) {
            IterationPace::Planned(planned)
        } else {
            IterationPace::Model
        };
        StartDecision {
            pace,
            stall_seconds: stall.stall_seconds(held.shape.gpu_count()),
            ..StartDecision::new(held.request.job, held.gpus.clone())
        }
    }

    /// Hosts with room for a shape, the emptiest first.
    fn find_room(&self, shape: GpuShape) -> Option<GpusByHost> {
        let mut hosts: Vec<(HostId, u32)> = self
            .free_hosts_of_kind(shape.kind)
            .filter(|(_, free)| *free >= shape.gpus_per_host)
            .collect();
        hosts.sort_by_key(|(host, free)| (Reverse(*free), *host));
        let taken = hosts.into_iter().take(shape.hosts as usize);
        let gpus: GpusByHost = taken.map(|(host, _)| (host, shape.gpus_per_host)).collect();
        (gpus.len() == shape.hosts as usize).then_some(gpus)
    }

    fn free_hosts_of_kind(&self, kind: u32) -> impl Iterator<Item = (HostId, u32)> + '_ {
        let hosts = self.free.hosts();
        hosts.filter(move |(host, _)| self.cluster.hosts[host.index()].kind == kind)
    }

    /// This with one more host that has room for its part of a shape. Jobs move only to hosts that
    /// have not, so that no room is lost.
    fn with_one_more_host(&self, shape: GpuShape) -> Option<Self> {
        let mut short: Vec<(HostId, u32)> = self
            .free_hosts_of_kind(shape.kind)
            .filter(|(_, free)| (1..shape.gpus_per_host).contains(free))
            .collect();
        short.sort_by_key(|(host, free)| (Reverse(*free), *host));
        short.iter().find_map(|(host, _)| self.with_room_on(*host, shape))
    }

    /// This after jobs left `host` until it has room for its part of a shape, the smallest first.
    fn with_room_on(&self, host: HostId, shape: GpuShape) -> Option<Self> {
        let on = self
            .allocated_jobs()
            .filter(|held| held.shape.hosts == 1 && held.gpus.contains_key(&host));
        let mut leaving: Vec<&AllocatedJob> = on.collect();
        leaving.sort_by_key(|held| (held.shape.gpu_count(), held.request.job));
        let mut after = self.clone();
        for held in leaving {
            let fullest = after
                .free_hosts_of_kind(shape.kind)
                .filter(|(other, free)| {
                    let fits = (held.shape.gpu_count()..shape.gpus_per_host).contains(free);
                    *other != host && fits
                })
                .min_by_key(|(other, free)| (*free, *other));
            let Some((other, _)) = fullest else {
                continue;
            };
            let mut moved = after.release_job(held.request.job)?;
            moved.gpus = GpusByHost::from([(other, moved.shape.gpu_count())]);
            after.restore_job(moved);
            if after.free.on_host(host) >= shape.gpus_per_host {
                return Some(after);
            }
        }
        None
    }
}

/// The requested kind of GPU; the first if the job requests none.
pub fn requested_kind(request: &PlacementRequest) -> u32 {
    request.kind.unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{ClusterHost, ClusterJobs};

    /// A cluster with made-up speeds.
    pub(in super::super) struct TestCluster {
        cluster: GpuCluster,
        pub(in super::super) table: ThroughputTable,
    }

    impl TestCluster {
        /// For each kind the GPUs of a host and the number of hosts.
        pub(in super::super) fn new(kinds: &[(u32, usize)]) -> Self {
            let hosts = kinds.iter().enumerate().flat_map(|(kind, (gpus, hosts))| {
                let host = ClusterHost { gpus: *gpus, leaf: 0, kind: kind as u32 };
                std::iter::repeat_n(host, *hosts)
            });
            let cluster = GpuCluster {
                hosts: hosts.collect(),
                kinds: (0..kinds.len()).map(|kind| kind.to_string()).collect(),
            };
            let table = ThroughputTable::new(&cluster);
            Self { cluster, table }
        }

        /// Speeds of a model on the first kind.
        pub(in super::super) fn set_speeds(&mut self, model: &str, speeds: &[(u32, f64)]) {
            self.set_speeds_on(0, model, speeds);
        }

        /// Speeds of a model on a kind.
        pub(in super::super) fn set_speeds_on(
            &mut self,
            kind: u32,
            model: &str,
            speeds: &[(u32, f64)],
        ) {
            for (gpus, speed) in speeds {
                let shape = self.table.best_shape(kind, *gpus).unwrap();
                self.table.insert(model, shape, *speed);
            }
        }

        /// No job has GPUs.
        pub(in super::super) fn empty_allocation(&self) -> ClusterAllocation<'_> {
            ClusterAllocation {
                cluster: &self.cluster,
                table: &self.table,
                free: FreeGpus::all_free(&self.cluster),
                held: BTreeMap::new(),
            }
        }

        /// A cluster without jobs.
        pub(in super::super) fn empty_jobs(&self) -> ClusterJobs {
            ClusterJobs::new(self.cluster.clone())
        }
    }

    pub(in super::super) fn request(job: u32, gpus: u32, model: &str) -> PlacementRequest {
        PlacementRequest {
            job,
            gpus,
            kind: Some(0),
            submitted_seconds: f64::from(job),
            remaining_seconds: 60.0,
            remaining_iterations: 60.0,
            model: Some(model.to_owned()),
            tenant: None,
        }
    }

    #[test]
    fn a_job_that_moves_makes_room_for_a_whole_host() {
        let mut lab = TestCluster::new(&[(2, 2)]);
        lab.set_speeds("m", &[(1, 10.0), (2, 19.0)]);
        let mut allocation = lab.empty_allocation();
        let shape = lab.table.best_shape(0, 1).unwrap();
        assert!(
            allocation.place_job(&request(1, 1, "m"), shape)
                && allocation.place_job(&request(2, 1, "m"), shape)
        );
        // The emptiest host is taken first, so each has one.
        let pair = lab.table.best_shape(0, 2).unwrap();
        assert!(!allocation.place_job(&request(3, 2, "m"), pair));
        let mut merged = allocation.with_merged_jobs(pair).unwrap();
        assert!(merged.place_job(&request(3, 2, "m"), pair));
        assert_eq!(merged.total_speed(), 39.0);
        // Spread out it is a tenth slower, and no other job moves.
        assert!(allocation.place_anywhere(&request(3, 2, "m"), 0, 2));
        assert_eq!(allocation.total_speed(), 20.0 + 0.9 * 19.0);
    }

    #[test]
    fn half_of_a_job_stays_where_it_was() {
        let mut lab = TestCluster::new(&[(2, 2)]);
        lab.set_speeds("m", &[(1, 10.0), (2, 19.0), (4, 30.0)]);
        let mut allocation = lab.empty_allocation();
        assert!(allocation.place_compactly(&request(1, 4, "m"), 0, 4));
        let half = allocation.with_halved_job(1).unwrap();
        let quarter = half.with_halved_job(1).unwrap();
        assert_eq!([half.total_speed(), quarter.total_speed()], [19.0, 10.0]);
        assert!(quarter.with_halved_job(1).is_none());
    }

    #[test]
    fn a_difference_is_who_stops_and_who_starts() {
        let mut lab = TestCluster::new(&[(2, 2)]);
        lab.set_speeds("m/4", &[(1, 10.0), (2, 20.0)]);
        let mut cluster_jobs = lab.empty_jobs();
        for job in [1, 2] {
            cluster_jobs.submit_job(request(job, 1, "m/4")).unwrap();
        }
        let state = cluster_jobs.state_at(0.0);
        let mut allocation = ClusterAllocation::from_state(&state, &lab.table);
        assert!(allocation.place_compactly(&state.waiting[0], 0, 2));
        let started = allocation.to_decisions(&state, RestartStall::PRUNED);
        let [PlacementDecision::Start(start)] = &started[..] else {
            panic!("{started:?}");
        };
        assert_eq!((start.job, start.stall_seconds), (1, 20.0));
        let IterationPace::Planned(iteration) = &start.pace else {
            panic!("{:?}", start.pace);
        };
        assert_eq!(iteration.compute_seconds, 4.0 / 20.0);
        cluster_jobs.apply_decision(&started[0]).unwrap();
        let state = cluster_jobs.state_at(0.0);
        let mut allocation = ClusterAllocation::from_state(&state, &lab.table);
        assert!(allocation.to_decisions(&state, RestartStall::PRUNED).is_empty());
        allocation = allocation.with_halved_job(1).unwrap();
        let changed = allocation.to_decisions(&state, RestartStall::PRUNED);
        assert_eq!(changed[0], PlacementDecision::Suspend { job: 1 });
        assert_eq!(changed.len(), 2);
        for decision in &changed {
            cluster_jobs.apply_decision(decision).unwrap();
        }
    }
}
