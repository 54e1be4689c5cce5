//! Fault injection: faults of a switch, for tests of controllers.
//!
//! A [`FaultScript`] is a value that a test writes out, or draws from a seed and prints;
//! [`FaultInjector`] counts what [`crate::p4runtime`] does and decides when a fault is due. The one
//! decision here: faults are triggered by counts of updates, writes and messages, never by time, so
//! a run with the same requests has the same faults. Each fault happens once, but for limits.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use tonic::Code;

/// One misbehaviour. Counts begin at 1 when the switch begins to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Refuses the `nth` update that writes to `table`.
    RefuseUpdate {
        /// The table's full P4Info name, as `IngressImpl.flow_pin`.
        table: String,
        /// Which update of that table, counted over all writes.
        nth: u64,
        /// The canonical code to refuse it with.
        code: Code,
    },
    /// Holds the `nth` write back before it is carried out.
    DelayWrite {
        /// Which `Write` call of a primary.
        nth: u64,
        /// For how long.
        by: Duration,
    },
    /// Breaks the stream that carries the `nth` message of the switch, after that message.
    DropStream {
        /// Which message, counted over all streams.
        nth: u64,
    },
    /// Restarts the switch empty once the `nth` write has been answered.
    Restart {
        /// Which `Write` call of a primary.
        nth: u64,
    },
    /// Refuses every write of more than so many updates with RESOURCE_EXHAUSTED, as servers with a
    /// limit do.
    LimitWrites {
        /// How many it takes.
        updates: usize,
    },
}

/// Every fault of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultScript(pub Vec<InjectedFault>);

/// What [`FaultScript::from_seed`] draws from.
#[derive(Clone, Debug)]
pub struct FaultMix {
    /// Tables whose updates may be refused, by full P4Info name.
    pub tables: Vec<String>,
    /// Number of refused updates; none if `tables` is empty.
    pub refusals: usize,
    /// Number of delayed writes.
    pub delays: usize,
    /// The longest delay.
    pub longest_delay: Duration,
    /// Number of dropped streams.
    pub drops: usize,
    /// Number of restarts.
    pub restarts: usize,
    /// Every count is drawn from 1 to this.
    pub horizon: u64,
}

impl FaultScript {
    /// Draws an explicit script: the same seed and mix give the same faults.
    #[must_use]
    pub fn from_seed(seed: u64, mix: &FaultMix) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut faults = Vec::new();
        for _ in 0..mix.refusals {
            let Some(table) = mix.tables.choose(&mut random).cloned() else {
                break;
            };
            let nth = random_count(&mut random, mix);
            faults.push(InjectedFault::RefuseUpdate { table, nth, code: Code::Internal });
        }
        for _ in 0..mix.delays {
            let by = mix.longest_delay.mul_f64(random.random_range(0.0..=1.0));
            faults.push(InjectedFault::DelayWrite { nth: random_count(&mut random, mix), by });
        }
        for _ in 0..mix.drops {
            faults.push(InjectedFault::DropStream { nth: random_count(&mut random, mix) });
        }
        for _ in 0..mix.restarts {
            faults.push(InjectedFault::Restart { nth: random_count(&mut random, mix) });
        }
        Self(faults)
    }
}

fn random_count(random: &mut ChaCha8Rng, mix: &FaultMix) -> u64 {
    random.random_range(1..=mix.horizon.max(1))
}

/// The faults of one write, decided before it is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFault {
    /// Hold it back for this long first.
    pub delay: Duration,
    /// Restart the switch empty after the answer.
    pub restart: bool,
    /// Refuse it, for it has more updates than this.
    pub limit: Option<usize>,
}

/// The script together with what has happened so far.
#[derive(Debug, Default)]
pub struct FaultInjector {
    script: FaultScript,
    writes: u64,
    messages: u64,
    updates: BTreeMap<String, u64>,
}

impl FaultInjector {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(script: FaultScript) -> Self {
        Self { script, ..Self::default() }
    }

    /// A primary's write of so many updates arrived.
    pub fn on_write(&mut self, updates: usize) -> WriteFault {
        self.writes += 1;
        let mut found = WriteFault::default();
        for fault in &self.script.0 {
            match *fault {
                InjectedFault::DelayWrite { nth, by } if nth == self.writes => found.delay += by,
                InjectedFault::Restart { nth } if nth == self.writes => found.restart = true,
                InjectedFault::LimitWrites { updates: limit } if updates > limit => {
                    found.limit = Some(limit);
                }
                _ => {}
            }
        }
        found
    }

    /// An update of `table` is about to be carried out: the code to refuse it with, if any.
    pub fn on_update(&mut self, table: &str) -> Option<Code> {
        if self.script.0.is_empty() {
            return None;
        }
        let count = self.updates.entry(table.to_owned()).or_default();
        *count += 1;
        self.script.0.iter().find_map(|fault| match fault {
            InjectedFault::RefuseUpdate { table: of, nth, code } if of == table && nth == count => {
                Some(*code)
            }
            _ => None,
        })
    }

    /// A message was put on a stream: whether to break that stream after it.
    pub fn on_message(&mut self) -> bool {
        self.messages += 1;
        self.script.0.contains(&InjectedFault::DropStream { nth: self.messages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(nth: u64) -> InjectedFault {
        InjectedFault::RefuseUpdate { table: "path".into(), nth, code: Code::Internal }
    }

    #[test]
    fn the_nth_update_of_the_named_table_is_refused_once() {
        let mut faults = FaultInjector::new(FaultScript(vec![refuse(2)]));
        let updates = ["path", "flow_pin", "path", "path"].map(|table| faults.on_update(table));
        assert_eq!(updates, [None, None, Some(Code::Internal), None]);
    }

    #[test]
    fn delays_and_restarts_count_writes() {
        let by = Duration::from_millis(5);
        let script =
            vec![InjectedFault::DelayWrite { nth: 1, by }, InjectedFault::Restart { nth: 2 }];
        let mut faults = FaultInjector::new(FaultScript(script));
        assert_eq!(faults.on_write(1), WriteFault { delay: by, ..WriteFault::default() });
        assert_eq!(faults.on_write(1), WriteFault { restart: true, ..WriteFault::default() });
        assert_eq!(faults.on_write(1), WriteFault::default());
    }

    #[test]
    fn the_nth_message_is_the_last_of_its_stream() {
        let mut faults =
            FaultInjector::new(FaultScript(vec![InjectedFault::DropStream { nth: 2 }]));
        assert_eq!([1, 2, 3].map(|_| faults.on_message()), [false, true, false]);
    }

    #[test]
    fn a_seed_gives_the_same_script_again() {
        let mix = FaultMix {
            tables: vec!["path".into(), "flow_pin".into()],
            refusals: 3,
            delays: 2,
            longest_delay: Duration::from_millis(10),
            drops: 1,
            restarts: 1,
            horizon: 100,
        };
        let script = FaultScript::from_seed(7, &mix);
        assert_eq!(script.0.len(), 7);
        assert_eq!(script, FaultScript::from_seed(7, &mix));
        assert_ne!(script, FaultScript::from_seed(8, &mix));
    }
}
