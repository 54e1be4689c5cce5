//! The life of a job: waiting, computing, communicating, draining, and again.

use super::{Due, Engine, Strand};
use crate::clock::Ticks;
use crate::job::JobIndex;
use crate::observer::Phase;

/// No iteration is shorter, whatever the input: 1 microsecond. Time then always passes.
const SHORTEST: Ticks = Ticks(1_000_000);

/// A job in the engine.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) class: u32,
    pub(super) start: Ticks,
    pub(super) compute: Ticks,
    /// Computation before flows start.
    pub(super) lead: Ticks,
    /// Iterations to run.
    pub(super) limit: u64,
    /// Strand of each flow, and each strand once.
    pub(super) flows: Vec<u32>,
    pub(super) strands: Vec<u32>,
    pub(super) phase: Phase,
    /// How much later the next iteration begins than it could.
    pub(super) postponed: Ticks,
    /// When the iteration began, when the last of its bytes so far arrives, and strands that send.
    pub(super) begun: Ticks,
    pub(super) arrival: Ticks,
    pub(super) sending: u32,
    /// When its last iteration ended, if it is finished.
    pub(super) ended: Ticks,
    /// Totals of what has ended.
    pub(super) iterations: u64,
    pub(super) iterated: Ticks,
    pub(super) bytes: f64,
}

impl Running {
    /// Forgets everything it did and waits for its start.
    pub(super) fn rewind(&mut self) {
        self.phase = Phase::Waiting;
        self.postponed = Ticks(0);
        self.sending = 0;
        (self.iterations, self.iterated, self.bytes) = (0, Ticks(0), 0.0);
    }
}

impl Engine {
    /// The job in a place that is known to be taken: one of the agenda's or of a strand's.
    fn running(&mut self, job: JobIndex) -> &mut Running {
        self.jobs[job.0 as usize]
            .as_mut()
            .expect("agenda and strands name jobs that are there")
    }

    fn enter(&mut self, job: JobIndex, phase: Phase) {
        self.running(job).phase = phase;
        self.turns.push((job, phase));
    }

    pub(super) fn job_is_due(&mut self, job: JobIndex) {
        match self.running(job).phase {
            Phase::Waiting => self.begin(job),
            Phase::Computing => self.communicate(job),
            Phase::Draining => self.end_iteration(job),
            // Strands, not the job, say when these end.
            Phase::Communicating | Phase::Finished => {}
        }
    }

    fn begin(&mut self, job: JobIndex) {
        let now = self.now;
        let running = self.running(job);
        let postponed = std::mem::take(&mut running.postponed);
        if postponed > Ticks(0) {
            self.agenda.set(Due::Job(job).id(), now.after(postponed));
            return self.enter(job, Phase::Waiting);
        }
        (running.begun, running.arrival) = (now, now);
        let lead = running.lead;
        self.enter(job, Phase::Computing);
        if lead > Ticks(0) {
            self.agenda.set(Due::Job(job).id(), now.after(lead));
        } else {
            self.communicate(job);
        }
    }

    /// Starts all flows together. Those without bytes have arrived after their latency.
    fn communicate(&mut self, job: JobIndex) {
        let now = self.now;
        self.enter(job, Phase::Communicating);
        let running = self.jobs[job.0 as usize]
            .as_mut()
            .expect("it has just entered a phase");
        for &id in &running.strands {
            let strand = &mut self.strands[id as usize];
            if strand.bytes > 0.0 {
                (strand.left, strand.rate, strand.since) = (strand.bytes, 0.0, now);
                running.sending += 1;
                self.sharing.start(id);
            } else {
                running.arrival = running.arrival.max(now.after(strand.latency));
            }
        }
        if running.sending == 0 {
            self.drain(job);
        }
    }

    pub(super) fn strand_ends(&mut self, id: u32) {
        let now = self.now;
        self.sharing.stop(id);
        self.changes.strands.push(id);
        let sent = self.sharing.weight(id) * self.strands[id as usize].bytes;
        let strand = &mut self.strands[id as usize];
        (strand.left, strand.rate, strand.since) = (0.0, 0.0, now);
        let Strand { job, latency, .. } = *strand;
        let running = self.running(job);
        running.bytes += sent;
        running.arrival = running.arrival.max(now.after(latency));
        running.sending -= 1;
        if running.sending == 0 {
            self.drain(job);
        }
    }

    /// Waits for the rest of the computation and the last bytes.
    fn drain(&mut self, job: JobIndex) {
        let now = self.now;
        self.enter(job, Phase::Draining);
        let running = self.running(job);
        let computed = running.begun.after(running.compute);
        let end = computed
            .max(running.arrival)
            .max(running.begun.after(SHORTEST));
        if end > now {
            self.agenda.set(Due::Job(job).id(), end);
        } else {
            self.end_iteration(job);
        }
    }

    fn end_iteration(&mut self, job: JobIndex) {
        let now = self.now;
        let running = self.running(job);
        running.iterations += 1;
        running.iterated.0 += now.0 - running.begun.0;
        if running.iterations < running.limit {
            self.begin(job);
        } else {
            running.ended = now;
            self.finished.push_back(job);
            self.enter(job, Phase::Finished);
        }
    }
}
