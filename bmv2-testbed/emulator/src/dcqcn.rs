//! DCQCN, the congestion control of RoCE NICs (Zhu et al., *Congestion Control for Large-Scale RDMA
//! Deployments*, SIGCOMM 2015, §3.1 and figures 5 to 7).
//!
//! Switches mark packets by the length of their queue. The receiver's NIC, the *notification
//! point*, answers marked packets of a connection with at most one congestion notification (CNP) in
//! an interval ([`NotificationPoint`]). The sender's NIC, the *reaction point*, cuts the rate of
//! the connection at each notification and raises it by a timer and a byte counter
//! ([`ReactionPoint`]). [`RatePacer`] spaces the packets of a connection by that rate.
//!
//! Sans-IO. The decision: timers are not events. `alpha` and the steps of increase that have become
//! due are worked off when the rate is asked for, so a connection that nobody slows down costs
//! nothing.

use switch::Nanos;

use crate::roce::{MTU, OVERHEAD};

/// The parameters of both points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnParameters {
    /// `g`: the weight of a notification in `alpha`.
    pub gain: f64,
    /// `K`: `alpha` decays each time that this passes without a notification.
    pub alpha_timer_ns: Nanos,
    /// `T`: the rate is raised each time that this passes without a notification.
    pub increase_timer_ns: Nanos,
    /// `B`: and each time that so many bytes are sent.
    pub increase_bytes: u64,
    /// `F`: steps of either kind in which the rate only returns to its target.
    pub fast_recovery_steps: u32,
    /// `R_AI`: bits per second that a step adds to the target after that.
    pub additive_bps: f64,
    /// `R_HAI`: the same once both timer and byte counter are past `F`.
    pub hyper_bps: f64,
    /// No cut goes below this rate.
    pub minimum_bps: f64,
    /// `N`: notifications of one connection are at least so far apart.
    pub notification_interval_ns: Nanos,
    /// How adapters react, where they do not do it as the paper has it: from the first notification
    /// on, the rate is cut at the end of each such period in which one came, and `alpha` follows a
    /// clock of period `K` (NVIDIA, *DCQCN CC parameters*: `rate_reduce_monitor_period`). None: at
    /// each notification.
    pub reduce_period_ns: Option<Nanos>,
}

/// The link rate for which the paper gives its parameters, in bits per second.
const PUBLISHED_RATE: f64 = 40e9;
/// No timer is shrunk below this: feedback takes a round trip, which does not shrink, and adapters
/// send notifications at least 4 us apart by default (NVIDIA, *DCQCN CC parameters*,
/// `min_time_between_cnps`).
const SHORTEST_TIMER_NS: f64 = 4_000.0;
/// On slow links a round trip is this many packets at least: one at each of four hops, there and
/// back.
const ROUND_TRIP_PACKETS: f64 = 8.0;

impl DcqcnParameters {
    /// The parameters of the paper, which gives them for 40 Gb/s: `g` = 1/256, `K` = `T` = 55 us,
    /// `B` = 10 MB, `F` = 5, `R_AI` = 40 Mb/s, `N` = 50 us (§5.2 and figure 14). Steps of increase
    /// grow with the rate of the link. `R_HAI` is ten times `R_AI` and the least rate is 1 Mb/s, as
    /// in the defaults of adapters (NVIDIA, *DCQCN CC parameters*: `rpg_hai_rate` 50,
    /// `rpg_ai_rate` 5, `rpg_min_rate` 1); the paper does not print them.
    ///
    /// On links below 5 Gb/s, which emulations have, a round trip is longer than `T`: timers are
    /// stretched to one, steps with them, and the least rate is 1/40,000 of the link, as it is at
    /// 40 Gb/s.
    pub fn published(link_bps: f64) -> Self {
        let growth = link_bps / PUBLISHED_RATE;
        let round_trip_ns = ROUND_TRIP_PACKETS * f64::from(MTU + OVERHEAD) * 8e9 / link_bps;
        let stretch = (round_trip_ns / 55_000.0).max(1.0);
        let timer = |published: f64| (published * stretch) as Nanos;
        Self {
            gain: 1.0 / 256.0,
            alpha_timer_ns: timer(55_000.0),
            increase_timer_ns: timer(55_000.0),
            increase_bytes: 10_000_000,
            fast_recovery_steps: 5,
            additive_bps: 40e6 * growth * stretch,
            hyper_bps: 400e6 * growth * stretch,
            minimum_bps: 1e6 * growth.min(1.0),
            notification_interval_ns: timer(50_000.0),
            reduce_period_ns: None,
        }
    }

    /// These parameters in an emulation whose sizes and computation are divided by `scale`: timers
    /// and byte counter shrink by it as far as feedback allows, and the steps of increase grow for
    /// the rest, so that a rate recovers over the same part of an iteration.
    pub fn shrunk(self, scale: f64) -> Self {
        let shortened =
            |timer: Nanos| (timer as f64 / scale).max(SHORTEST_TIMER_NS.min(timer as f64));
        let timer = shortened(self.increase_timer_ns);
        let shrunk = timer / self.increase_timer_ns as f64;
        // Steps per scaled second are fewer by this than steps per second were.
        let growth = shrunk * scale;
        Self {
            alpha_timer_ns: shortened(self.alpha_timer_ns) as Nanos,
            increase_timer_ns: timer as Nanos,
            increase_bytes: (self.increase_bytes as f64 * shrunk) as u64,
            additive_bps: self.additive_bps * growth,
            hyper_bps: self.hyper_bps * growth,
            notification_interval_ns: shortened(self.notification_interval_ns) as Nanos,
            reduce_period_ns: self.reduce_period_ns.map(|period| shortened(period) as Nanos),
            ..self
        }
    }
}

/// The receiver's end of a connection: when marked packets are answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotificationPoint {
    next: Nanos,
    sent: u64,
}

impl NotificationPoint {
    /// A marked packet has arrived; whether a notification is to be sent.
    pub fn handle_mark(&mut self, interval_ns: Nanos, now: Nanos) -> bool {
        let notifies = now >= self.next;
        if notifies {
            self.next = now + interval_ns;
            self.sent += 1;
        }
        notifies
    }

    /// How many notifications it has sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

/// The sender's end of a connection: its rate.
#[derive(Clone, Debug)]
pub struct ReactionPoint {
    parameters: DcqcnParameters,
    link_bps: f64,
    current_bps: f64,
    target_bps: f64,
    alpha: f64,
    /// Up to when the decay of `alpha` has been worked off.
    alpha_since: Nanos,
    /// When the timer next raises the rate; none while it is that of the link.
    increase_due: Option<Nanos>,
    bytes: u64,
    timer_steps: u32,
    byte_steps: u32,
    notifications: u64,
    /// Clocks of an adapter, from the first notification on.
    clocks: Option<AdapterClocks>,
}

/// What an adapter has seen since its clocks last ticked, and when they tick next.
#[derive(Clone, Copy, Debug)]
struct AdapterClocks {
    alpha_due: Nanos,
    alpha_notified: bool,
    reduce_due: Nanos,
    reduce_notified: bool,
}

impl ReactionPoint {
    /// A connection that starts at the rate of its link.
    pub fn new(parameters: DcqcnParameters, link_bps: f64) -> Self {
        Self {
            parameters,
            link_bps,
            current_bps: link_bps,
            target_bps: link_bps,
            alpha: 1.0,
            alpha_since: 0,
            increase_due: None,
            bytes: 0,
            timer_steps: 0,
            byte_steps: 0,
            notifications: 0,
            clocks: None,
        }
    }

    /// A notification has arrived: the rate is cut, or will be when the period of the adapter ends.
    pub fn handle_notification(&mut self, now: Nanos) {
        self.advance_to(now);
        self.notifications += 1;
        if let Some(period) = self.parameters.reduce_period_ns {
            // The first starts the clocks, and `alpha` is 1 then.
            let clocks = self.clocks.get_or_insert(AdapterClocks {
                alpha_due: now + self.parameters.alpha_timer_ns.max(1),
                alpha_notified: false,
                reduce_due: now + period.max(1),
                reduce_notified: false,
            });
            clocks.alpha_notified |= self.notifications > 1;
            clocks.reduce_notified = true;
            return;
        }
        if self.notifications > 1 {
            self.decay_alpha(now);
        }
        self.reduce_rate(now);
        self.alpha = (1.0 - self.parameters.gain) * self.alpha + self.parameters.gain;
        self.alpha_since = now;
    }

    /// A cut (equation 1).
    fn reduce_rate(&mut self, now: Nanos) {
        self.target_bps = self.current_bps;
        self.current_bps *= 1.0 - self.alpha / 2.0;
        self.current_bps = self.current_bps.max(self.parameters.minimum_bps);
        self.increase_due = Some(now + self.parameters.increase_timer_ns);
        (self.bytes, self.timer_steps, self.byte_steps) = (0, 0, 0);
    }

    /// The connection has sent so many bytes.
    pub fn handle_sent(&mut self, bytes: u32) {
        if self.increase_due.is_none() {
            return;
        }
        self.bytes += u64::from(bytes);
        if self.bytes >= self.parameters.increase_bytes {
            self.bytes -= self.parameters.increase_bytes;
            self.byte_steps += 1;
            self.raise_rate();
        }
    }

    /// The rate at `now`, in bits per second.
    pub fn rate_at(&mut self, now: Nanos) -> f64 {
        self.advance_to(now);
        self.current_bps
    }

    /// When the rate changes by itself; none at the rate of the link.
    pub fn next_increase(&self) -> Option<Nanos> {
        self.increase_due
    }

    /// Whether the rate is that of the link.
    pub fn is_unlimited(&self) -> bool {
        self.increase_due.is_none() && self.clocks.is_none()
    }

    /// How many notifications have arrived.
    pub fn notifications(&self) -> u64 {
        self.notifications
    }

    fn advance_to(&mut self, now: Nanos) {
        while let Some(due) = self.increase_due.filter(|due| *due <= now) {
            self.tick_clocks(due);
            // A cut has put the step off.
            if self.increase_due == Some(due) {
                self.increase_due = Some(due + self.parameters.increase_timer_ns);
                self.timer_steps += 1;
                self.raise_rate();
            }
        }
        self.tick_clocks(now);
    }

    /// Works off the clocks of an adapter up to `now`, in the order in which they tick.
    fn tick_clocks(&mut self, now: Nanos) {
        while let Some(mut clocks) = self.clocks {
            let due = clocks.alpha_due.min(clocks.reduce_due);
            if due > now {
                return;
            }
            if clocks.alpha_due == due {
                let weight = f64::from(u8::from(clocks.alpha_notified)) * self.parameters.gain;
                self.alpha = (1.0 - self.parameters.gain) * self.alpha + weight;
                clocks.alpha_due += self.parameters.alpha_timer_ns.max(1);
                clocks.alpha_notified = false;
            }
            if clocks.reduce_due == due {
                if clocks.reduce_notified {
                    self.reduce_rate(due);
                }
                clocks.reduce_due += self.parameters.reduce_period_ns.unwrap_or(1).max(1);
                clocks.reduce_notified = false;
            }
            self.clocks = Some(clocks);
        }
    }

    /// `alpha` without notifications since the last one (equation 2).
    fn decay_alpha(&mut self, now: Nanos) {
        let passed = (now - self.alpha_since) / self.parameters.alpha_timer_ns.max(1);
        let steps = i32::try_from(passed).unwrap_or(i32::MAX);
        self.alpha *= (1.0 - self.parameters.gain).powi(steps);
    }

    /// A step of increase (equations 3 and 4).
    fn raise_rate(&mut self) {
        let (most, least) =
            (self.timer_steps.max(self.byte_steps), self.timer_steps.min(self.byte_steps));
        let steps = self.parameters.fast_recovery_steps;
        if least > steps {
            self.target_bps += f64::from(least - steps) * self.parameters.hyper_bps;
        } else if most > steps {
            self.target_bps += self.parameters.additive_bps;
        }
        self.target_bps = self.target_bps.min(self.link_bps);
        self.current_bps = (self.current_bps + self.target_bps) / 2.0;
        // Halving never reaches it; the rest is less than a header in a packet.
        if self.current_bps >= 0.999 * self.link_bps {
            self.current_bps = self.link_bps;
            self.increase_due = None;
        }
    }
}

/// The spacing of one connection's packets.
#[derive(Clone, Debug)]
pub struct RatePacer {
    reaction: ReactionPoint,
    /// When the last packet may have begun, in picoseconds, and its bytes.
    last_ps: u64,
    last_bytes: u32,
}

const PICOS_PER_NANO: u64 = 1_000;

impl RatePacer {
    /// A connection that has sent nothing.
    pub fn new(reaction: ReactionPoint) -> Self {
        Self { reaction, last_ps: 0, last_bytes: 0 }
    }

    /// When the next packet may be sent, if not now.
    pub fn wait_until(&mut self, now: Nanos) -> Option<Nanos> {
        if self.reaction.is_unlimited() {
            return None;
        }
        let due = self.due_ps(now).div_ceil(PICOS_PER_NANO);
        (due > now).then(|| self.reaction.next_increase().map_or(due, |step| due.min(step)))
    }

    /// A packet of so many bytes is sent at `now`.
    pub fn handle_sent(&mut self, bytes: u32, now: Nanos) {
        let now_ps = now * PICOS_PER_NANO;
        self.last_ps = match self.reaction.is_unlimited() {
            true => now_ps,
            // A packet that goes late because others had their turn does not delay those after it;
            // idle time is not saved up beyond one packet.
            false => {
                let due = self.due_ps(now);
                let gap = due.saturating_sub(self.last_ps);
                due.max(now_ps.saturating_sub(gap))
            }
        };
        self.last_bytes = bytes;
        self.reaction.handle_sent(bytes);
    }

    /// A notification has arrived.
    pub fn handle_notification(&mut self, now: Nanos) {
        self.reaction.handle_notification(now);
    }

    /// What its rate comes from.
    pub fn reaction(&mut self) -> &mut ReactionPoint {
        &mut self.reaction
    }

    /// How many notifications have arrived.
    pub fn notifications(&self) -> u64 {
        self.reaction.notifications()
    }

    fn due_ps(&mut self, now: Nanos) -> u64 {
        let rate = self.reaction.rate_at(now);
        self.last_ps + (f64::from(self.last_bytes) * 8e12 / rate) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: f64 = 40e9;
    const MICROSECOND: Nanos = 1_000;

    fn reaction() -> ReactionPoint {
        ReactionPoint::new(DcqcnParameters::published(LINK), LINK)
    }

    #[test]
    fn the_first_notification_halves_the_rate_and_it_returns_in_five_steps() {
        let mut point = reaction();
        point.handle_notification(0);
        assert_eq!(point.rate_at(0), LINK / 2.0);
        // Fast recovery: halfway to the target at each step, 1 - 2^-(n + 1).
        for step in 1..=5 {
            let expected = LINK * (1.0 - 0.5_f64.powi(step + 1));
            let found = point.rate_at(step as Nanos * 55 * MICROSECOND);
            assert!((found / expected - 1.0).abs() < 1e-12, "step {step}: {found}");
        }
    }

    #[test]
    fn alpha_decays_without_notifications() {
        let mut point = reaction();
        point.handle_notification(0);
        // 100 times K: alpha is (255/256)^100 = 0.676; the cut is half of it.
        let later = 100 * 55 * MICROSECOND;
        point.handle_notification(later);
        let expected = LINK * (1.0 - (255.0_f64 / 256.0).powi(100) / 2.0);
        assert!((point.rate_at(later) / expected - 1.0).abs() < 1e-3);
    }

    /// Notifications at 0 and 30 us, and a clock of 50 us: one cut at 50 us, none at 100 us, and
    /// one at 150 us for that of 120 us.
    #[test]
    fn an_adapter_cuts_at_the_end_of_its_period() {
        let parameters = DcqcnParameters {
            reduce_period_ns: Some(50 * MICROSECOND),
            ..DcqcnParameters::published(LINK)
        };
        let mut point = ReactionPoint::new(parameters, LINK);
        let at = |point: &mut ReactionPoint, micros: Nanos| point.rate_at(micros * MICROSECOND);
        point.handle_notification(0);
        point.handle_notification(30 * MICROSECOND);
        assert_eq!((at(&mut point, 49), at(&mut point, 50)), (LINK, LINK / 2.0));
        assert!(!point.is_unlimited());
        // The step of increase is 55 us after the cut.
        assert_eq!((at(&mut point, 104), at(&mut point, 105)), (LINK / 2.0, 0.75 * LINK));
        point.handle_notification(120 * MICROSECOND);
        // alpha: notified within the first 55 us, not within the second.
        let alpha = 255.0 / 256.0;
        assert_eq!(at(&mut point, 150), 0.75 * LINK * (1.0 - alpha / 2.0));
    }

    #[test]
    fn additive_increase_follows_fast_recovery() {
        let parameters = DcqcnParameters::published(LINK);
        let mut point = reaction();
        // Two cuts in a row: the target is half of the link.
        point.handle_notification(0);
        point.handle_notification(1);
        let at_step = |step: Nanos| 1 + step * 55 * MICROSECOND;
        point.rate_at(at_step(5));
        assert_eq!(point.target_bps, LINK / 2.0);
        point.rate_at(at_step(5 + 10));
        assert_eq!(point.target_bps, LINK / 2.0 + 10.0 * parameters.additive_bps);
        // 10 MB six times over are past F too: hyper increase by the step above it.
        let before = point.target_bps;
        (0..6 * 10_000_000 / 1_000).for_each(|_| point.handle_sent(1_000));
        let additive = 5.0 * parameters.additive_bps;
        assert!((point.target_bps - before - additive - parameters.hyper_bps).abs() < 1.0);
    }

    #[test]
    fn notifications_are_an_interval_apart() {
        let mut point = NotificationPoint::default();
        let marks = (0..1_000).map(|at| at * MICROSECOND);
        let answered: Vec<Nanos> =
            marks.filter(|at| point.handle_mark(50 * MICROSECOND, *at)).collect();
        assert_eq!((answered.len(), answered[1], point.sent()), (20, 50 * MICROSECOND, 20));
    }

    #[test]
    fn packets_are_spaced_by_the_rate() {
        let mut pacer = RatePacer::new(reaction());
        assert_eq!(pacer.wait_until(0), None);
        pacer.handle_sent(1_000, 0);
        pacer.handle_notification(0);
        let (mut now, mut sent) = (0, 0);
        // Until the first step: 20 Gb/s are a packet each 400 ns.
        while now < 50 * MICROSECOND {
            match pacer.wait_until(now) {
                Some(due) => now = due,
                None => {
                    pacer.handle_sent(1_000, now);
                    sent += 1;
                }
            }
        }
        assert_eq!(sent, 124);
    }

    #[test]
    fn a_shrunk_emulation_recovers_over_the_same_part_of_an_iteration() {
        let published = DcqcnParameters::published(LINK);
        for scale in [1.0, 5.0, 1000.0] {
            let shrunk = published.shrunk(scale);
            let slope = |p: &DcqcnParameters| p.additive_bps / p.increase_timer_ns as f64;
            assert!((slope(&shrunk) / slope(&published) / scale - 1.0).abs() < 1e-3, "{scale}");
            assert!(shrunk.notification_interval_ns >= 4_000);
        }
        assert_eq!(published.shrunk(1.0), published);
    }

    #[test]
    fn timers_of_slow_links_outlast_a_round_trip() {
        let at = |link_bps| DcqcnParameters::published(link_bps);
        assert_eq!(at(5e9).increase_timer_ns, 55_000);
        let slow = at(10e6);
        // Eight packets of 4,154 bytes.
        assert_eq!(slow.increase_timer_ns, 26_585_600);
        let slope = |p: DcqcnParameters| p.additive_bps / p.increase_timer_ns as f64;
        assert!((slope(slow) / slope(at(40e9)) * 4_000.0 - 1.0).abs() < 1e-6);
    }

    /// Two connections on one link of 40 Gb/s, at which marks follow the published ramp: a fluid
    /// queue in steps of a microsecond, each connection notified at most every 50 us.
    fn share_link(starts: [f64; 2], seconds: f64) -> [f64; 2] {
        let mut points = starts.map(|rate| {
            let mut point = reaction();
            point.handle_notification(0);
            (point.current_bps, point.target_bps) = (rate, rate);
            point
        });
        let (mut queue, mut next, mut sums) = (0.0_f64, [0; 2], [0.0; 2]);
        let mut draw = 1_u64;
        let steps = (seconds * 1e6) as u64;
        for now in (0..steps).map(|step| step * MICROSECOND) {
            let rates = [0, 1].map(|flow| points[flow].rate_at(now));
            queue = (queue + (rates[0] + rates[1] - LINK) * 1e-6 / 8.0).max(0.0);
            let part = ((queue - 5e3) / 195e3).clamp(0.0, 1.0);
            let probability = if part < 1.0 { part * 0.01 } else { 1.0 };
            for flow in 0..2 {
                let packets = rates[flow] * 1e-6 / 8.0 / 1_000.0;
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let marked =
                    1.0 - (1.0 - probability).powf(packets) > (draw >> 33) as f64 / 2_147_483_648.0;
                if marked && now >= next[flow] {
                    next[flow] = now + 50 * MICROSECOND;
                    points[flow].handle_notification(now);
                }
                points[flow].handle_sent((rates[flow] * 1e-6 / 8.0) as u32);
                if now * 2 >= steps * MICROSECOND {
                    sums[flow] += rates[flow] / (steps as f64 / 2.0);
                }
            }
        }
        sums
    }

    #[test]
    fn two_flows_converge_to_equal_rates_as_published() {
        // Figure 11 of the paper: flows that start at 40 and 5 Gb/s share a link of 40 Gb/s.
        let rates = share_link([35e9, 5e9], 0.4);
        let fairness =
            (rates[0] + rates[1]).powi(2) / (2.0 * (rates[0].powi(2) + rates[1].powi(2)));
        assert!(fairness > 0.98, "{rates:?}");
        let used = (rates[0] + rates[1]) / LINK;
        assert!((0.93..=1.05).contains(&used), "{rates:?}");
    }
}
