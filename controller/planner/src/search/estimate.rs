//! A cheap estimate of what ways are worth, to choose which ones the fluid model should judge.
//!
//! Players in the order of their worth take what links have left, as if their bytes were spread
//! evenly over time: `t_j = max over e of M_{j,e} / (B_e * free_e)`, `T_j` follows, and every link
//! is then busy for `M_{j,e} / (B_e * T_j)` more. Phases do not enter, so it is no judge.

use std::collections::BTreeMap;

use topology::LinkId;

use super::setting::Setting;

/// A link always has this share left, so that a job behind others crawls and does not stand.
const LEAST_FREE: f64 = 0.02;

/// Seconds of link in an iteration, by number of the link.
type Uses = Vec<(usize, f64)>;

/// The estimate for a setting, ready to be asked about many combinations.
#[derive(Debug)]
pub(super) struct Estimate {
    /// By descending worth of a second of link.
    players: Vec<Timing>,
    /// Share of time that is left on each link, and seconds that the player at hand wants of it.
    free: Vec<f64>,
    wanted: Vec<f64>,
}

#[derive(Debug)]
struct Timing {
    player: usize,
    compute: f64,
    lead: f64,
    worth: f64,
    /// What no choice changes.
    fixed: Uses,
    /// Choices with what each option uses.
    choices: Vec<(usize, Vec<Uses>)>,
}

/// Numbers of links, in the order in which they are first asked for.
#[derive(Default)]
struct Numbers(BTreeMap<LinkId, usize>);

impl Numbers {
    fn of(&mut self, link: LinkId) -> usize {
        let next = self.0.len();
        *self.0.entry(link).or_insert(next)
    }
}

impl Estimate {
    pub(super) fn new(setting: &Setting<'_>) -> Self {
        let mut numbers = Numbers::default();
        let players = 0..setting.players.len();
        let mut players: Vec<Timing> = players
            .map(|player| Timing::new(setting, player, &mut numbers))
            .collect();
        players.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
        let links = numbers.0.len();
        Self {
            players,
            free: vec![1.0; links],
            wanted: vec![0.0; links],
        }
    }

    /// Players by descending worth of a second of link.
    pub(super) fn ranked(&self) -> Vec<usize> {
        self.players.iter().map(|timing| timing.player).collect()
    }

    /// Worth of the GPUs that would compute if every job were alone and its ways as good as can be.
    pub(super) fn bound(&self) -> f64 {
        self.players.iter().map(Timing::alone).sum()
    }

    /// Worth of the GPUs that compute, on average.
    pub(super) fn of(&mut self, options: &[usize]) -> f64 {
        self.free.fill(1.0);
        let mut sum = 0.0;
        for player in &self.players {
            let mut seconds = 0.0_f64;
            for (link, wanted) in player.uses(options) {
                self.wanted[*link] += wanted;
                let free = self.free[*link].max(LEAST_FREE);
                seconds = seconds.max(self.wanted[*link] / free);
            }
            let period = player.compute.max(player.lead + seconds);
            sum += player.worth * player.compute / period;
            for (link, wanted) in player.uses(options) {
                self.wanted[*link] = 0.0;
                self.free[*link] -= wanted / period;
            }
        }
        sum
    }
}

impl Timing {
    fn new(setting: &Setting<'_>, player: usize, numbers: &mut Numbers) -> Self {
        let of = &setting.players[player];
        let mut fixed: BTreeMap<usize, f64> = BTreeMap::new();
        for (stream, choice) in of.streams.iter().zip(&setting.choice_of[player]) {
            let sole = match (choice, stream.segments) {
                (_, []) => continue,
                (Some(_), _) => &[],
                (None, [sole, ..]) => &sole[..],
            };
            for link in [stream.ends.0, stream.ends.1].iter().chain(sole) {
                let seconds = stream.bytes / setting.capacity(*link);
                *fixed.entry(numbers.of(*link)).or_default() += seconds;
            }
        }
        let choices = setting.choices.iter().enumerate();
        let choices = choices.filter(|(_, choice)| choice.player == player);
        let choices = choices.map(|(number, choice)| {
            let stream = &of.streams[choice.stream];
            let segments = stream.segments.iter();
            let mut seconds =
                |link: &LinkId| (numbers.of(*link), stream.bytes / setting.capacity(*link));
            let uses = segments.map(|segment| segment.iter().map(&mut seconds).collect());
            (number, uses.collect())
        });
        let choices = choices.collect();
        Self {
            player,
            compute: of.compute_seconds,
            lead: of.overlap_from * of.compute_seconds,
            worth: of.worth,
            fixed: fixed.into_iter().collect(),
            choices,
        }
    }

    /// Seconds on the links that no choice avoids.
    fn seconds(&self) -> f64 {
        let seconds = self.fixed.iter().map(|(_, seconds)| *seconds);
        seconds.fold(0.0, f64::max)
    }

    /// What a second of link at the best is worth.
    fn rank(&self) -> f64 {
        self.worth * self.compute / self.seconds().max(f64::MIN_POSITIVE)
    }

    fn alone(&self) -> f64 {
        let period = self.compute.max(self.lead + self.seconds());
        if period > 0.0 {
            self.worth * self.compute / period
        } else {
            self.worth
        }
    }

    fn uses<'a>(&'a self, options: &'a [usize]) -> impl Iterator<Item = &'a (usize, f64)> {
        let chosen = self.choices.iter();
        let chosen = chosen.flat_map(|(choice, uses)| &uses[options[*choice]]);
        self.fixed.iter().chain(chosen)
    }
}
