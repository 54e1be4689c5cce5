//! What goes wrong in a world, and when: a value drawn from a seed, which a person can read.

use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use switch::election::Dialect;
use tonic::Code;

use super::world::SLOTS;

/// Controllers of a world, numbered from 1.
pub(super) const CONTROLLERS: u32 = 2;
/// Switches of a world: two leaves, two spines.
pub(super) const SWITCHES: usize = 4;
/// etcd, among those that a controller may be cut off from: it comes after the switches.
pub(super) const ETCD: usize = SWITCHES;
/// Cables between them.
pub(super) const CABLES: usize = 4;
/// Spines.
pub(super) const SPINES: usize = 2;
/// Steps happen at multiples of this, when no message arrives.
const BEAT_MS: u64 = SLOTS;
/// The last step comes before this many.
const BEATS: u64 = 128;
/// Steps of a schedule.
const STEPS: std::ops::RangeInclusive<usize> = 4..=24;
/// Seeds of schedules and of what happens by chance in them are not the same stream.
const STREAM: u64 = 1;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A controller and a switch no longer hear each other.
    Cut { controller: u32, switch: usize },
    /// A controller hears no switch, and none hears it.
    Partition { controller: u32 },
    /// A controller and etcd no longer hear each other, if there is one.
    Lose { controller: u32 },
    /// It hears all of them again.
    Heal { controller: u32 },
    /// They do again.
    Mend { controller: u32, switch: usize },
    /// A switch restarts, empty.
    Restart { switch: usize },
    /// A switch stops.
    Off { switch: usize },
    /// It runs again, empty.
    On { switch: usize },
    /// A switch ends all its streams.
    DropStreams { switch: usize },
    /// A switch refuses some updates, or has no room for them.
    Refuse {
        switch: usize,
        updates: u32,
        code: Code,
    },
    /// Somebody else adds, changes or removes an entry.
    Intrude { switch: usize, kind: u32 },
    /// A controller is killed.
    Kill { controller: u32 },
    /// It is started again.
    Start { controller: u32 },
    /// The controllers are told of other jobs.
    Jobs { jobs: u32 },
    /// The operator changes the policy.
    Policy { levels: u8 },
    /// The operator drains a part, or gives it back: a cable, or past those a spine.
    Drain { part: usize, drained: bool },
    /// A cable fails, or works again.
    Cable { cable: usize, works: bool },
    /// A cable fails and works again, so many times, as fast as it is looked at.
    Flap { cable: usize, times: u32 },
}

/// Who says which controller leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Led {
    /// The switches, by their elections.
    BySwitches,
    /// etcd, by its leases.
    ByEtcd,
}

impl Led {
    /// How much longer everything takes than where switches elect: a lease lasts seconds.
    fn pace(self) -> u64 {
        match self {
            Self::BySwitches => 1,
            Self::ByEtcd => 4,
        }
    }
}

/// Everything that happens in a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// How switches fill a vacancy.
    pub(super) dialect: Dialect,
    /// Who says which controller leads.
    pub(super) led: Led,
    /// Steps and when they happen, in milliseconds, ascending.
    pub(super) steps: Vec<(u64, Step)>,
}

impl Schedule {
    /// The schedule of a seed.
    pub(super) fn drawn(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(STREAM);
        let dialect = match random.random() {
            true => Dialect::Specification,
            false => Dialect::Bmv2,
        };
        let led = match random.random_ratio(1, 3) {
            true => Led::ByEtcd,
            false => Led::BySwitches,
        };
        let count = random.random_range(STEPS);
        let step = |_| {
            let beat = random.random_range(0..BEATS);
            (led.pace() * beat * BEAT_MS, step(&mut random))
        };
        let mut steps: Vec<_> = (0..count).map(step).collect();
        steps.sort_by_key(|(at, _)| *at);
        Self {
            dialect,
            led,
            steps,
        }
    }
}

fn step(random: &mut ChaCha8Rng) -> Step {
    let switch = random.random_range(0..SWITCHES);
    let controller = random.random_range(1..=CONTROLLERS);
    let cable = random.random_range(0..CABLES);
    match random.random_range(0..23) {
        0 => Step::Cut { controller, switch },
        1 => Step::Mend { controller, switch },
        2 => Step::Restart { switch },
        3 => Step::Off { switch },
        4 => Step::On { switch },
        5 => Step::DropStreams { switch },
        6 => Step::Refuse {
            switch,
            updates: random.random_range(1..6),
            code: [Code::Internal, Code::ResourceExhausted][random.random_range(0..2)],
        },
        7 => Step::Intrude {
            switch,
            kind: random.random_range(0..3),
        },
        8 => Step::Kill { controller },
        9 => Step::Start { controller },
        10 | 11 => Step::Jobs {
            jobs: random.random_range(0..5),
        },
        12 => Step::Policy {
            levels: random.random_range(1..=8),
        },
        13..=15 => Step::Cable {
            cable,
            works: random.random(),
        },
        16 => Step::Flap {
            cable,
            times: random.random_range(1..6),
        },
        17 => Step::Partition { controller },
        18 | 19 => Step::Drain {
            part: random.random_range(0..CABLES + SPINES),
            drained: random.random(),
        },
        20 | 21 => Step::Lose { controller },
        _ => Step::Heal { controller },
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "led {:?}, switches arbitrate as {:?}",
            self.led, self.dialect
        )?;
        self.steps
            .iter()
            .try_for_each(|(at, step)| writeln!(f, "{at:>5} ms  {step:?}"))
    }
}
