//! What fails in a testbed, and when: a value drawn from a seed, printable for a person.

use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use switch_server::p4runtime::election::SwitchDialect;
use tonic::Code;

use super::fault_testbed::SLOTS;
use super::foreign_primary::ForeignPrimary;
use super::hostile_client::{FalseReport, PreviewFlood};
use super::lying_switch::SwitchLie;
use super::machine_phase::MachineStep;

/// Controllers of a testbed, numbered from 1.
pub(super) const CONTROLLERS: u32 = 2;
/// Switches of a testbed: two leaves, two spines.
pub(super) const SWITCHES: usize = 4;
/// etcd, as an index beside the switches: it comes after them.
pub(super) const ETCD: usize = SWITCHES;
/// Cables between leaves and spines.
pub(super) const CABLES: usize = 4;
/// Spine switches of a testbed.
pub(super) const SPINES: usize = 2;
/// Steps happen at multiples of this, in slots in which no message arrives.
const BEAT_MS: u64 = SLOTS;
/// The last step comes before this many.
const BEATS: u64 = 128;
/// Steps of a schedule.
const STEPS: std::ops::RangeInclusive<usize> = 4..=24;
/// While a policy is applied, steps come before this many beats; the change has its response by
/// then.
const CHANGE_BEATS: u64 = 80;
/// Steps while a policy is applied.
const CHANGE_STEPS: std::ops::RangeInclusive<usize> = 1..=8;
/// The random stream of schedules; messages in the testbed draw from others.
const STREAM: u64 = 1;
/// The random stream of steps during a policy change, a separate one so that adding it did not
/// change earlier schedules.
const CHANGE_STREAM: u64 = 2;
/// The random stream of steps of hostile parties, separate for the same reason.
const HOSTILE_STREAM: u64 = 3;
/// The random stream of failing machines.
const MACHINE_STREAM: u64 = 4;
/// The random stream of primaries that are not ours.
const FOREIGN_STREAM: u64 = 5;
/// Steps while a switch belongs to somebody else.
const FOREIGN_STEPS: std::ops::RangeInclusive<usize> = 1..=10;
/// Steps while machines fail.
const MACHINE_STEPS: std::ops::RangeInclusive<usize> = 2..=10;
/// Steps of hostile parties.
const HOSTILE_STEPS: std::ops::RangeInclusive<usize> = 2..=10;

/// One fault, repair or input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultStep {
    /// A controller and a switch lose their connection.
    Cut { controller: u32, switch: usize },
    /// A controller loses its connection to every switch.
    Partition { controller: u32 },
    /// A controller loses its connection to etcd, if there is one.
    Lose { controller: u32 },
    /// All connections of a controller are restored.
    Heal { controller: u32 },
    /// The connection of a controller and a switch is restored.
    Mend { controller: u32, switch: usize },
    /// A switch restarts, empty.
    Restart { switch: usize },
    /// A switch stops.
    Off { switch: usize },
    /// A stopped switch starts, empty.
    On { switch: usize },
    /// A switch ends all its streams.
    DropStreams { switch: usize },
    /// A switch refuses some updates, or has no room for them.
    Refuse { switch: usize, updates: u32, code: Code },
    /// Another client adds, changes or removes an entry.
    Intrude { switch: usize, kind: u32 },
    /// A controller is killed.
    Kill { controller: u32 },
    /// A killed controller is started again.
    Start { controller: u32 },
    /// The controllers receive another set of jobs.
    Jobs { jobs: u32 },
    /// The operator changes the policy.
    Policy { levels: u8 },
    /// The operator drains an element or ends its drain: a cable, or beyond those a spine.
    Drain { part: usize, drained: bool },
    /// A cable fails or recovers.
    Cable { cable: usize, works: bool },
    /// A cable fails and recovers so many times, without a pause.
    Flap { cable: usize, times: u32 },
    /// A switch begins to lie.
    Lie { switch: usize, lie: SwitchLie },
    /// A client has previews computed, many at once.
    Preview { controller: u32, flood: PreviewFlood },
    /// A reporter sends what is not its to report, or cannot be true.
    Report { report: FalseReport },
    /// A machine fails, or works again.
    Machine(MachineStep),
}

/// What elects the leading controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeadershipMode {
    /// The switches, by their elections.
    Switches,
    /// etcd, by its leases.
    Etcd,
}

impl LeadershipMode {
    /// The factor by which steps are slower than where switches elect: a lease lasts seconds.
    fn time_factor(self) -> u64 {
        match self {
            Self::Switches => 1,
            Self::Etcd => 4,
        }
    }
}

/// All steps of one run, with the options of the testbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FaultSchedule {
    /// How switches arbitrate after the primary has left.
    pub(super) dialect: SwitchDialect,
    /// What elects the leading controller.
    pub(super) led: LeadershipMode,
    /// Whether controllers store what must survive a restart.
    pub(super) has_disks: bool,
    /// Steps with their times in milliseconds, ascending.
    pub(super) steps: Vec<(u64, FaultStep)>,
    /// Steps while an operator applies a policy, after all earlier faults have ended.
    pub(super) change: Option<Vec<(u64, FaultStep)>>,
    /// Steps of hostile parties, after all that.
    pub(super) hostile: Option<Vec<(u64, FaultStep)>>,
    /// Steps while machines fail, after everything else has ended.
    pub(super) machines: Option<Vec<(u64, FaultStep)>>,
    /// Whom a switch belongs to at last, and steps meanwhile.
    pub(super) foreign: Option<(ForeignPrimary, Vec<(u64, FaultStep)>)>,
}

impl FaultSchedule {
    /// The schedule of a seed.
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = random_stream(seed, STREAM);
        let dialect = match random.random() {
            true => SwitchDialect::Specification,
            false => SwitchDialect::Bmv2,
        };
        let led = match random.random_ratio(1, 3) {
            true => LeadershipMode::Etcd,
            false => LeadershipMode::Switches,
        };
        let count = random.random_range(STEPS);
        let beats = led.time_factor() * BEAT_MS;
        let steps =
            draw_steps(count, || (beats * random.random_range(0..BEATS), draw_step(&mut random)));
        let mut random = random_stream(seed, CHANGE_STREAM);
        let is_changed = random.random_ratio(1, 2);
        let count = random.random_range(CHANGE_STEPS);
        let change = draw_change_steps(count, beats, &mut random);
        let change = is_changed.then_some(change);
        let mut random = random_stream(seed, HOSTILE_STREAM);
        let is_hostile = random.random_ratio(1, 2);
        let count = random.random_range(HOSTILE_STEPS);
        let hostile = draw_steps(count, || {
            (beats * random.random_range(0..CHANGE_BEATS), draw_hostile_step(&mut random))
        });
        let hostile = is_hostile.then_some(hostile);
        let mut random = random_stream(seed, MACHINE_STREAM);
        let has_disks = random.random() && led != LeadershipMode::Etcd;
        let do_fail = random.random_ratio(1, 2);
        let count = random.random_range(MACHINE_STEPS);
        let machines = draw_steps(count, || {
            let step = match random.random_ratio(2, 3) {
                true => FaultStep::Machine(MachineStep::draw(led, &mut random)),
                false => draw_step(&mut random),
            };
            (beats * random.random_range(0..CHANGE_BEATS), step)
        });
        let machines = do_fail.then_some(machines);
        let mut random = random_stream(seed, FOREIGN_STREAM);
        let is_given_away = random.random_ratio(1, 2);
        let primary = ForeignPrimary::draw(&mut random);
        let count = random.random_range(FOREIGN_STEPS);
        let mut meanwhile = draw_change_steps(count, beats, &mut random);
        meanwhile.retain(|(_, step)| primary.outlasts(*step));
        let foreign = is_given_away.then_some((primary, meanwhile));
        Self { dialect, led, has_disks, steps, change, hostile, machines, foreign }
    }

    /// How long the faults last while a policy is applied: longer than an operator waits for it.
    /// Hostile parties are as long at work.
    pub(super) fn change_ms(&self) -> u64 {
        self.led.time_factor() * CHANGE_BEATS * BEAT_MS
    }
}

/// One of the random streams of a seed.
pub(super) fn random_stream(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// Draws so many steps, in the order of their times.
fn draw_steps(count: usize, step: impl FnMut() -> (u64, FaultStep)) -> Vec<(u64, FaultStep)> {
    let mut steps: Vec<_> = std::iter::repeat_with(step).take(count).collect();
    steps.sort_by_key(|(at, _)| *at);
    steps
}

/// Draws the steps during a policy change. Jobs, policy and drains stay as they are, so that there
/// is one change; refusals may last longer than its deadline.
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
        // Half of them at the beginning, while the writes are in progress.
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

/// Draws a step of a hostile party, or one that gives the controllers something to write.
fn draw_hostile_step(random: &mut ChaCha8Rng) -> FaultStep {
    match random.random_range(0..8) {
        0..=2 => FaultStep::Lie {
            switch: random.random_range(0..SWITCHES),
            lie: SwitchLie::ALL[random.random_range(0..SwitchLie::ALL.len())],
        },
        3 => FaultStep::Preview {
            controller: random.random_range(1..=CONTROLLERS),
            flood: PreviewFlood::ALL[random.random_range(0..PreviewFlood::ALL.len())],
        },
        4 | 5 => FaultStep::Report {
            report: FalseReport::ALL[random.random_range(0..FalseReport::ALL.len())],
        },
        6 => FaultStep::Jobs { jobs: random.random_range(0..5) },
        _ => FaultStep::Cable { cable: random.random_range(0..CABLES), works: random.random() },
    }
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[(u64, FaultStep)]) -> fmt::Result {
    let mut steps = steps.iter();
    steps.try_for_each(|(at, step)| writeln!(f, "{at:>5} ms  {step:?}"))
}

impl fmt::Display for FaultSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disks = if self.has_disks { ", with disks" } else { "" };
        writeln!(f, "led {:?}{disks}, switches arbitrate as {:?}", self.led, self.dialect)?;
        write_steps(f, &self.steps)?;
        let phases = [
            ("a policy is applied", &self.change),
            ("parties are hostile", &self.hostile),
            ("machines fail", &self.machines),
        ];
        for (what, steps) in phases {
            if let Some(steps) = steps {
                writeln!(f, "then {what}")?;
                write_steps(f, steps)?;
            }
        }
        if let Some((primary, steps)) = &self.foreign {
            writeln!(f, "then a switch is somebody else's: {primary:?}")?;
            write_steps(f, steps)?;
        }
        Ok(())
    }
}
