//! A cheap estimate of what ways are worth, to choose which ones the fluid model should judge.
//!
//! Players in the order of their worth take what links have left, as if their bytes were spread
//! evenly over time: `t_j = max over e of M_{j,e} / (B_e * free_e)`, `T_j` follows, and every link
//! is then busy for `M_{j,e} / (B_e * T_j)` more. Phases do not enter, so it is no judge.

use std::collections::BTreeMap;

use topology::LinkId;

use super::search_space::SearchSpace;

/// A link always has this share left, so that a job behind others crawls and does not stand.
const LEAST_FREE: f64 = 0.02;

/// Seconds of link in an iteration, by number of the link.
type LinkUses = Vec<(usize, f64)>;

/// The estimate for a setting, ready to be asked about many combinations.
#[derive(Debug)]
pub(super) struct ValueEstimate {
    /// By descending worth of a second of link.
    jobs: Vec<JobEstimate>,
    /// Share of time that is left on each link, and seconds that the player at hand wants of it.
    free_share: Vec<f64>,
    wanted_seconds: Vec<f64>,
}

#[derive(Debug)]
struct JobEstimate {
    job: usize,
    compute_seconds: f64,
    flow_start_seconds: f64,
    worth: f64,
    /// What no choice changes.
    fixed: LinkUses,
    /// Choices with what each option uses.
    choices: Vec<(usize, Vec<LinkUses>)>,
}

/// Numbers of links, in the order in which they are first asked for.
#[derive(Default)]
struct LinkNumbers(BTreeMap<LinkId, usize>);

impl LinkNumbers {
    fn number_of(&mut self, link: LinkId) -> usize {
        let next = self.0.len();
        *self.0.entry(link).or_insert(next)
    }
}

impl ValueEstimate {
    pub(super) fn new(setting: &SearchSpace<'_>) -> Self {
        let mut numbers = LinkNumbers::default();
        let players = 0..setting.jobs.len();
        let mut players: Vec<JobEstimate> =
            players.map(|player| JobEstimate::new(setting, player, &mut numbers)).collect();
        players.sort_by(|a, b| b.link_second_value().total_cmp(&a.link_second_value()));
        let links = numbers.0.len();
        Self { jobs: players, free_share: vec![1.0; links], wanted_seconds: vec![0.0; links] }
    }

    /// Players by descending worth of a second of link.
    pub(super) fn ranked_jobs(&self) -> Vec<usize> {
        self.jobs.iter().map(|timing| timing.job).collect()
    }

    /// Worth of the GPUs that would compute if every job were alone and its ways as good as can be.
    pub(super) fn upper_bound(&self) -> f64 {
        self.jobs.iter().map(JobEstimate::value_alone).sum()
    }

    /// Worth of the GPUs that compute, on average.
    pub(super) fn estimate_value(&mut self, options: &[usize]) -> f64 {
        self.free_share.fill(1.0);
        let mut sum = 0.0;
        for player in &self.jobs {
            let mut seconds = 0.0_f64;
            for (link, wanted) in player.link_uses(options) {
                self.wanted_seconds[*link] += wanted;
                let free = self.free_share[*link].max(LEAST_FREE);
                seconds = seconds.max(self.wanted_seconds[*link] / free);
            }
            let period = player.compute_seconds.max(player.flow_start_seconds + seconds);
            sum += player.worth * player.compute_seconds / period;
            for (link, wanted) in player.link_uses(options) {
                self.wanted_seconds[*link] = 0.0;
                self.free_share[*link] -= wanted / period;
            }
        }
        sum
    }
}

impl JobEstimate {
    fn new(setting: &SearchSpace<'_>, player: usize, numbers: &mut LinkNumbers) -> Self {
        let of = &setting.jobs[player];
        let mut fixed: BTreeMap<usize, f64> = BTreeMap::new();
        for (stream, choice) in of.flows.iter().zip(&setting.choice_of[player]) {
            let sole = match (choice, stream.segments) {
                (_, []) => continue,
                (Some(_), _) => &[],
                (None, [sole, ..]) => &sole[..],
            };
            for link in [stream.ends.0, stream.ends.1].iter().chain(sole) {
                let seconds = stream.bytes / setting.link_capacity(*link);
                *fixed.entry(numbers.number_of(*link)).or_default() += seconds;
            }
        }
        let choices = setting.choices.iter().enumerate();
        let choices = choices.filter(|(_, choice)| choice.job == player);
        let choices = choices.map(|(number, choice)| {
            let stream = &of.flows[choice.flow];
            let segments = stream.segments.iter();
            let mut seconds = |link: &LinkId| {
                (numbers.number_of(*link), stream.bytes / setting.link_capacity(*link))
            };
            let uses = segments.map(|segment| segment.iter().map(&mut seconds).collect());
            (number, uses.collect())
        });
        let choices = choices.collect();
        Self {
            job: player,
            compute_seconds: of.compute_seconds,
            flow_start_seconds: of.overlap_from * of.compute_seconds,
            worth: of.worth,
            fixed: fixed.into_iter().collect(),
            choices,
        }
    }

    /// Seconds on the links that no choice avoids.
    fn fixed_seconds(&self) -> f64 {
        let seconds = self.fixed.iter().map(|(_, seconds)| *seconds);
        seconds.fold(0.0, f64::max)
    }

    /// What a second of link at the best is worth.
    fn link_second_value(&self) -> f64 {
        self.worth * self.compute_seconds / self.fixed_seconds().max(f64::MIN_POSITIVE)
    }

    fn value_alone(&self) -> f64 {
        let period = self.compute_seconds.max(self.flow_start_seconds + self.fixed_seconds());
        if period > 0.0 { self.worth * self.compute_seconds / period } else { self.worth }
    }

    fn link_uses<'a>(&'a self, options: &'a [usize]) -> impl Iterator<Item = &'a (usize, f64)> {
        let chosen = self.choices.iter();
        let chosen = chosen.flat_map(|(choice, uses)| &uses[options[*choice]]);
        self.fixed.iter().chain(chosen)
    }
}
