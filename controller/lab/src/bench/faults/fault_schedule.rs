//! What goes wrong in a world, and when: a value drawn from a seed, which a person can read.

use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use switch::p4runtime::election::ArbitrationDialect;
use tonic::Code;

use super::fault_testbed::SLOTS;

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
/// While a policy is applied, steps come before this many; the change has its answer by then.
const CHANGE_BEATS: u64 = 80;
/// Steps while a policy is applied.
const CHANGE_STEPS: std::ops::RangeInclusive<usize> = 1..=8;
/// Seeds of schedules and of what happens by chance in them are not the same stream.
const STREAM: u64 = 1;
/// What happens while a policy is applied is drawn from another one, so that it changes nothing of
/// what comes before.
const CHANGE_STREAM: u64 = 2;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultStep {
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
    Refuse { switch: usize, updates: u32, code: Code },
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
pub(super) enum LeadershipMode {
    /// The switches, by their elections.
    BySwitches,
    /// etcd, by its leases.
    ByEtcd,
}

impl LeadershipMode {
    /// How much longer everything takes than where switches elect: a lease lasts seconds.
    fn time_factor(self) -> u64 {
        match self {
            Self::BySwitches => 1,
            Self::ByEtcd => 4,
        }
    }
}

/// Everything that happens in a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FaultSchedule {
    /// How switches fill a vacancy.
    pub(super) dialect: ArbitrationDialect,
    /// Who says which controller leads.
    pub(super) led: LeadershipMode,
    /// Steps and when they happen, in milliseconds, ascending.
    pub(super) steps: Vec<(u64, FaultStep)>,
    /// After all of that is mended, an operator applies a policy; what goes wrong from then on.
    pub(super) change: Option<Vec<(u64, FaultStep)>>,
}

impl FaultSchedule {
    /// The schedule of a seed.
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(STREAM);
        let dialect = match random.random() {
            true => ArbitrationDialect::Specification,
            false => ArbitrationDialect::Bmv2,
        };
        let led = match random.random_ratio(1, 3) {
            true => LeadershipMode::ByEtcd,
            false => LeadershipMode::BySwitches,
        };
        let count = random.random_range(STEPS);
        let beats = led.time_factor() * BEAT_MS;
        let steps =
            draw_steps(count, || (beats * random.random_range(0..BEATS), draw_step(&mut random)));
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(CHANGE_STREAM);
        let is_changed = random.random_ratio(1, 2);
        let count = random.random_range(CHANGE_STEPS);
        let change = draw_change_steps(count, beats, &mut random);
        Self { dialect, led, steps, change: is_changed.then_some(change) }
    }

    /// How long the faults last while a policy is applied: longer than an operator waits for it.
    pub(super) fn change_ms(&self) -> u64 {
        self.led.time_factor() * CHANGE_BEATS * BEAT_MS
    }
}

/// So many steps, in the order in which they happen.
fn draw_steps(count: usize, step: impl FnMut() -> (u64, FaultStep)) -> Vec<(u64, FaultStep)> {
    let mut steps: Vec<_> = std::iter::repeat_with(step).take(count).collect();
    steps.sort_by_key(|(at, _)| *at);
    steps
}

/// What goes wrong while a policy is applied. What an operator or a job wants stays as it is, so
/// that there is one change and no other; refusals may outlast the patience for it.
fn draw_change_steps(count: usize, beats: u64, random: &mut ChaCha8Rng) -> Vec<(u64, FaultStep)> {
    draw_steps(count, || {
        let fault = std::iter::repeat_with(|| draw_step(random)).find(|step| {
            !matches!(
                step,
                FaultStep::Jobs { .. } | FaultStep::Policy { .. } | FaultStep::Drain { .. }
            )
        });
        let fault = match fault.expect("most steps are faults") {
            FaultStep::Refuse { switch, code, .. } => {
                FaultStep::Refuse { switch, updates: [2, 1_000][random.random_range(0..2)], code }
            }
            other => other,
        };
        // Most of it while the writes are under way.
        let latest = [CHANGE_BEATS / 8, CHANGE_BEATS][random.random_range(0..2)];
        (beats * random.random_range(0..latest), fault)
    })
}

fn draw_step(random: &mut ChaCha8Rng) -> FaultStep {
    let switch = random.random_range(0..SWITCHES);
    let controller = random.random_range(1..=CONTROLLERS);
    let cable = random.random_range(0..CABLES);
    match random.random_range(0..23) {
        0 => FaultStep::Cut { controller, switch },
        1 => FaultStep::Mend { controller, switch },
        2 => FaultStep::Restart { switch },
        3 => FaultStep::Off { switch },
        4 => FaultStep::On { switch },
        5 => FaultStep::DropStreams { switch },
        6 => FaultStep::Refuse {
            switch,
            updates: random.random_range(1..6),
            code: [Code::Internal, Code::ResourceExhausted][random.random_range(0..2)],
        },
        7 => FaultStep::Intrude { switch, kind: random.random_range(0..3) },
        8 => FaultStep::Kill { controller },
        9 => FaultStep::Start { controller },
        10 | 11 => FaultStep::Jobs { jobs: random.random_range(0..5) },
        12 => FaultStep::Policy { levels: random.random_range(1..=8) },
        13..=15 => FaultStep::Cable { cable, works: random.random() },
        16 => FaultStep::Flap { cable, times: random.random_range(1..6) },
        17 => FaultStep::Partition { controller },
        18 | 19 => FaultStep::Drain {
            part: random.random_range(0..CABLES + SPINES),
            drained: random.random(),
        },
        20 | 21 => FaultStep::Lose { controller },
        _ => FaultStep::Heal { controller },
    }
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[(u64, FaultStep)]) -> fmt::Result {
    let mut steps = steps.iter();
    steps.try_for_each(|(at, step)| writeln!(f, "{at:>5} ms  {step:?}"))
}

impl fmt::Display for FaultSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "led {:?}, switches arbitrate as {:?}", self.led, self.dialect)?;
        write_steps(f, &self.steps)?;
        match &self.change {
            None => Ok(()),
            Some(change) => {
                writeln!(f, "then a policy is applied")?;
                write_steps(f, change)
            }
        }
    }
}
