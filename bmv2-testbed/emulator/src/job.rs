//! A training job as the network sees it: compute, communicate, iterate
//! (`docs/algorithms` "the fluid model"; Crux §3.1).
//!
//! Sans-IO: told of time and finished flows, it answers when to wake it and when to start its
//! flows. Communication may begin once part of the computation is done; the flows of an iteration
//! start together; the iteration ends when both computation and the last flow have ended, and the
//! next one begins at that instant. Computation is a timer.
//!
//! The decision: the barrier between the hosts of a job costs nothing. Real frameworks spend
//! microseconds there; that is in the published compute times already.

use crate::transport::Nanos;

/// The rhythm of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// Duration of the computation of one iteration; at least 1.
    pub compute_ns: Nanos,
    /// Communication may begin so long after the start of an iteration; at most `compute_ns`.
    pub communicate_after_ns: Nanos,
    /// Flows of one iteration.
    pub flows: u32,
}

/// What the job wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Call [`Training::wake`] at this instant.
    WakeAt(Nanos),
    /// Start every flow of the iteration now.
    StartFlows,
}

/// The flows of the present iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Communication {
    NotYet,
    Flows(u32),
}

/// A job in training.
#[derive(Clone, Debug)]
pub struct Training {
    rhythm: Rhythm,
    communication: Communication,
    /// When each iteration began; the last one is under way.
    begun: Vec<Nanos>,
}

impl Training {
    /// A job that has not begun.
    pub fn new(rhythm: Rhythm) -> Self {
        let compute_ns = rhythm.compute_ns.max(1);
        let communicate_after_ns = rhythm.communicate_after_ns.min(compute_ns);
        Self {
            rhythm: Rhythm {
                compute_ns,
                communicate_after_ns,
                ..rhythm
            },
            communication: Communication::NotYet,
            begun: Vec::new(),
        }
    }

    /// Time has come to `now`, which is the start of the job or was asked for by
    /// [`Effect::WakeAt`]. Waking at other times does no harm.
    pub fn wake(&mut self, now: Nanos) -> Vec<Effect> {
        if self.begun.is_empty() {
            self.begun.push(now);
        }
        self.advance(now)
    }

    /// A flow of the present iteration has been sent and acknowledged.
    pub fn flow_done(&mut self, now: Nanos) -> Vec<Effect> {
        if let Communication::Flows(left) = &mut self.communication {
            *left = left.saturating_sub(1);
        }
        self.advance(now)
    }

    /// Iterations that have ended.
    pub fn iterations(&self) -> usize {
        self.begun.len().saturating_sub(1)
    }

    /// When each iteration began, the one under way included.
    pub fn begun(&self) -> &[Nanos] {
        &self.begun
    }

    /// Its rhythm.
    pub fn rhythm(&self) -> Rhythm {
        self.rhythm
    }

    fn advance(&mut self, now: Nanos) -> Vec<Effect> {
        let mut effects = Vec::new();
        loop {
            let Some(&begun) = self.begun.last() else {
                return effects;
            };
            let communicate_at = begun + self.rhythm.communicate_after_ns;
            let computed_at = begun + self.rhythm.compute_ns;
            match self.communication {
                Communication::NotYet if now < communicate_at => {
                    effects.push(Effect::WakeAt(communicate_at));
                    return effects;
                }
                Communication::NotYet => {
                    self.communication = Communication::Flows(self.rhythm.flows);
                    effects.push(Effect::StartFlows);
                    if now < computed_at {
                        effects.push(Effect::WakeAt(computed_at));
                    }
                }
                Communication::Flows(0) if now >= computed_at => {
                    self.begun.push(now);
                    self.communication = Communication::NotYet;
                }
                Communication::Flows(_) => return effects,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RHYTHM: Rhythm = Rhythm {
        compute_ns: 100,
        communicate_after_ns: 40,
        flows: 2,
    };

    #[test]
    fn computation_that_outlasts_communication_sets_the_pace() {
        let mut job = Training::new(RHYTHM);
        assert_eq!(job.wake(0), [Effect::WakeAt(40)]);
        assert_eq!(job.wake(40), [Effect::StartFlows, Effect::WakeAt(100)]);
        assert_eq!(job.flow_done(60), []);
        assert_eq!(job.flow_done(70), []);
        assert_eq!(job.wake(100), [Effect::WakeAt(140)]);
        assert_eq!(job.begun(), [0, 100]);
    }

    #[test]
    fn communication_that_outlasts_computation_sets_the_pace() {
        let mut job = Training::new(RHYTHM);
        job.wake(5);
        job.wake(45);
        job.flow_done(60);
        assert_eq!(job.wake(105), []);
        assert_eq!(job.flow_done(150), [Effect::WakeAt(190)]);
        assert_eq!((job.iterations(), job.begun()), (1, [5, 150].as_slice()));
    }

    #[test]
    fn a_job_without_flows_only_computes() {
        let mut job = Training::new(Rhythm { flows: 0, ..RHYTHM });
        job.wake(0);
        for turn in 1..=3 {
            job.wake(turn * 100 - 60);
            job.wake(turn * 100);
        }
        assert_eq!(job.iterations(), 3);
    }

    #[test]
    fn without_overlap_communication_waits_for_the_computation() {
        let mut job = Training::new(Rhythm {
            communicate_after_ns: 500,
            ..RHYTHM
        });
        assert_eq!(job.wake(0), [Effect::WakeAt(100)]);
        assert_eq!(job.wake(100), [Effect::StartFlows]);
    }

    #[test]
    fn early_waking_changes_nothing() {
        let mut job = Training::new(RHYTHM);
        job.wake(0);
        assert_eq!(job.wake(10), [Effect::WakeAt(40)]);
        assert_eq!(
            (job.iterations(), job.flow_done(11)),
            (0, vec![Effect::WakeAt(40)])
        );
    }
}
