//! Flags that say how emulated hosts send and what the switches' queues do.

use controller::forecast::DcqcnConvergence;
use emulator::{
    DcqcnOptions, HostTransport, RetrySettings, SwitchQueues, TestbedOptions, TimeScale,
    dcqcn::DcqcnParameters, transport::LossRecovery,
};
use schemars::JsonSchema;
use serde::Deserialize;
use switch::MarkingPoint;
use topology::Fabric;

use command_io::CommandError;
use command_io::files;

/// How hosts send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransportChoice {
    /// A fixed window for each connection; queues have room for all
    #[default]
    Window,
    /// DCQCN, over switches that mark, share one buffer and pause
    Dcqcn,
}

/// How fast hosts of `fabric` converge under DCQCN, at the scale of the jobs.
pub(crate) fn dcqcn_convergence(
    options: &DcqcnOptions,
    fabric: &Fabric,
    scale: TimeScale,
) -> DcqcnConvergence {
    let rates = fabric.nics().iter().map(|nic| fabric.link(nic.uplink).bandwidth.gbps() * 1e9);
    let link_bps = rates.fold(0.0, f64::max);
    let parameters = options.parameters_at(link_bps, scale);
    DcqcnConvergence {
        timer_seconds: parameters.increase_timer_ns as f64 / 1e9 * scale.factor(),
        additive_share: parameters.additive_bps / link_bps,
    }
}

/// What a sender repeats after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RecoveryChoice {
    /// Everything from the first packet that is missing
    GoBackN,
    /// What is missing
    SelectiveRepeat,
}

/// Flags of hosts and of the switches between them.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Transport")]
pub(crate) struct TransportFlags {
    /// Priority levels of the switches, all of them lossless under DCQCN
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) levels: u8,
    #[command(flatten)]
    pub(crate) hosts: HostTransportFlags,
}

/// Flags of hosts.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Transport")]
pub(crate) struct HostTransportFlags {
    /// How hosts send
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    pub(crate) transport: TransportChoice,
    /// What senders repeat after a loss [default: go-back-n, and selective-repeat on a fabric that
    /// sprays]
    #[arg(long, value_enum, value_name = "METHOD")]
    recovery: Option<RecoveryChoice>,
    #[command(flatten)]
    dcqcn: DcqcnFlags,
}

/// Flags of DCQCN and of the queues under it.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "DCQCN")]
pub(crate) struct DcqcnFlags {
    /// NCCL_IB_TIMEOUT of the jobs: a timeout is 4.096 us times two to this power
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=31))]
    ib_timeout: u8,
    /// NCCL_IB_RETRY_CNT of the jobs: timeouts in a row that a connection survives
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(0..=7))]
    ib_retry_count: u32,
    /// Share of each port that each level but the highest gets at least, under DCQCN
    #[arg(long, default_value_t = 0.0, value_parser = parse_share)]
    lower_share: f64,
    /// Parameters of DCQCN and of the queues, instead of the published ones (docs/queues.md)
    #[arg(long, value_name = "FILE")]
    queue_parameters: Option<String>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let sensible = (0.0..=0.14).contains(&share);
    sensible.then_some(share).ok_or_else(|| "not from 0 to 0.14: seven levels share it".to_owned())
}

impl TransportFlags {
    /// The options of a testbed.
    ///
    /// # Errors
    /// The file of parameters cannot be read or has a value out of range.
    pub(crate) fn testbed_options(&self) -> Result<TestbedOptions, CommandError> {
        Ok(TestbedOptions { levels: self.levels, ..self.hosts.testbed_options()? })
    }
}

impl HostTransportFlags {
    /// The options of a testbed whose switches have all levels.
    ///
    /// # Errors
    /// The file of parameters cannot be read or has a value out of range.
    pub(crate) fn testbed_options(&self) -> Result<TestbedOptions, CommandError> {
        let transport = match self.transport {
            TransportChoice::Window => HostTransport::Window,
            TransportChoice::Dcqcn => HostTransport::Dcqcn(self.dcqcn.options()?),
        };
        let recovery = self.recovery.map(|choice| match choice {
            RecoveryChoice::GoBackN => LossRecovery::GoBackN,
            RecoveryChoice::SelectiveRepeat => LossRecovery::SelectiveRepeat,
        });
        Ok(TestbedOptions { transport, recovery, ..TestbedOptions::default() })
    }
}

impl DcqcnFlags {
    /// # Errors
    /// The file of parameters cannot be read or has a value out of range.
    pub(crate) fn options(&self) -> Result<DcqcnOptions, CommandError> {
        let mut options = DcqcnOptions {
            retries: RetrySettings {
                ib_timeout: self.ib_timeout,
                retry_count: self.ib_retry_count,
            },
            queues: SwitchQueues { lower_share: self.lower_share, ..SwitchQueues::default() },
            ..DcqcnOptions::default()
        };
        if let Some(file) = &self.queue_parameters {
            let document: QueueDocument = files::parse_document(file)?;
            document.check().map_err(|error| CommandError::input(file, error))?;
            document.apply(&mut options);
        }
        Ok(options)
    }
}

/// Parameters of DCQCN and of queues; absent ones are as published.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueueDocument {
    dcqcn: DcqcnDocument,
    queues: QueueThresholds,
}

/// DCQCN, for NICs of `link_gbps`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DcqcnDocument {
    /// The rate for which steps of increase are given; 40 by default, as in the paper.
    link_gbps: Option<f64>,
    /// `g`, above 0 and at most 1.
    gain: Option<f64>,
    /// `K`, in microseconds.
    alpha_timer_us: Option<f64>,
    /// `T`, in microseconds.
    increase_timer_us: Option<f64>,
    /// `B`, in bytes.
    increase_bytes: Option<u64>,
    /// `F`.
    fast_recovery_steps: Option<u32>,
    /// `R_AI`, in Mb/s.
    additive_mbps: Option<f64>,
    /// `R_HAI`, in Mb/s.
    hyper_mbps: Option<f64>,
    /// The least rate, in Mb/s.
    minimum_mbps: Option<f64>,
    /// `N`, in microseconds.
    notification_interval_us: Option<f64>,
    /// Adapters cut a rate at the end of each such period in which a notification came, in
    /// microseconds; if not given, they cut it at each.
    reduce_period_us: Option<f64>,
}

/// Queues of switches.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueueThresholds {
    /// `Kmin` for each Gb/s, in bytes.
    kmin_bytes_per_gbps: Option<f64>,
    /// `Kmax` for each Gb/s, in bytes.
    kmax_bytes_per_gbps: Option<f64>,
    /// `Pmax`, 0 to 1.
    pmax: Option<f64>,
    /// Whether a packet is marked when it joins its queue or when it leaves it.
    marking_point: Option<MarkingPointChoice>,
    /// Packet buffer of a switch, in bytes.
    buffer_bytes: Option<u64>,
    /// `alpha` of the shared buffer.
    buffer_alpha: Option<f64>,
    /// How far below its threshold a priority group resumes, in bytes.
    xon_offset_bytes: Option<u64>,
    /// Pauses that last longer are broken, in microseconds.
    pause_limit_us: Option<f64>,
    /// Draws the marks.
    seed: Option<u64>,
}

/// When a mark is decided.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum MarkingPointChoice {
    /// When the packet joins its queue.
    Enqueue,
    /// When it leaves its queue.
    Dequeue,
}

impl From<MarkingPointChoice> for MarkingPoint {
    fn from(choice: MarkingPointChoice) -> Self {
        match choice {
            MarkingPointChoice::Enqueue => Self::Enqueue,
            MarkingPointChoice::Dequeue => Self::Dequeue,
        }
    }
}

impl QueueDocument {
    fn check(&self) -> Result<(), String> {
        let Self { dcqcn, queues } = self;
        let positive = [
            ("dcqcn.link_gbps", dcqcn.link_gbps),
            ("dcqcn.gain", dcqcn.gain),
            ("dcqcn.alpha_timer_us", dcqcn.alpha_timer_us),
            ("dcqcn.increase_timer_us", dcqcn.increase_timer_us),
            ("dcqcn.additive_mbps", dcqcn.additive_mbps),
            ("dcqcn.hyper_mbps", dcqcn.hyper_mbps),
            ("dcqcn.minimum_mbps", dcqcn.minimum_mbps),
            ("dcqcn.notification_interval_us", dcqcn.notification_interval_us),
            ("dcqcn.reduce_period_us", dcqcn.reduce_period_us),
            ("queues.kmin_bytes_per_gbps", queues.kmin_bytes_per_gbps),
            ("queues.kmax_bytes_per_gbps", queues.kmax_bytes_per_gbps),
            ("queues.buffer_alpha", queues.buffer_alpha),
            ("queues.pause_limit_us", queues.pause_limit_us),
        ];
        for (field, value) in positive {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                return Err(format!("{field} is {value}: give a number above 0"));
            }
        }
        for (field, value) in [("dcqcn.gain", dcqcn.gain), ("queues.pmax", queues.pmax)] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                return Err(format!("{field} is {value}: give a number from 0 to 1"));
            }
        }
        Ok(())
    }

    fn apply(&self, options: &mut DcqcnOptions) {
        let queues = &mut options.queues;
        let given = &self.queues;
        let set = |to: &mut f64, value: Option<f64>| *to = value.unwrap_or(*to);
        set(&mut queues.marking.kmin_bytes_per_gbps, given.kmin_bytes_per_gbps);
        set(&mut queues.marking.kmax_bytes_per_gbps, given.kmax_bytes_per_gbps);
        set(&mut queues.marking.pmax, given.pmax);
        set(&mut queues.buffer_alpha, given.buffer_alpha);
        queues.marking_point = given.marking_point.map_or(queues.marking_point, Into::into);
        queues.buffer_bytes = given.buffer_bytes.unwrap_or(queues.buffer_bytes);
        queues.xon_offset_bytes = given.xon_offset_bytes.unwrap_or(queues.xon_offset_bytes);
        queues.seed = given.seed.unwrap_or(queues.seed);
        queues.pause_limit_ns = given.pause_limit_us.map(nanos_of).or(queues.pause_limit_ns);
        options.parameters = self.dcqcn.parameters();
    }
}

impl DcqcnDocument {
    /// None where nothing is given: then steps follow the rate of each NIC.
    fn parameters(&self) -> Option<DcqcnParameters> {
        let is_given = [
            self.link_gbps,
            self.gain,
            self.alpha_timer_us,
            self.increase_timer_us,
            self.additive_mbps,
            self.hyper_mbps,
            self.minimum_mbps,
            self.notification_interval_us,
            self.reduce_period_us,
        ];
        let counts = self.increase_bytes.is_some() || self.fast_recovery_steps.is_some();
        if !counts && is_given.iter().all(Option::is_none) {
            return None;
        }
        let published = DcqcnParameters::published(self.link_gbps.unwrap_or(40.0) * 1e9);
        let timer = |given: Option<f64>, default: u64| given.map_or(default, nanos_of);
        let rate = |given: Option<f64>, default: f64| given.map_or(default, |mbps| mbps * 1e6);
        Some(DcqcnParameters {
            gain: self.gain.unwrap_or(published.gain),
            alpha_timer_ns: timer(self.alpha_timer_us, published.alpha_timer_ns),
            increase_timer_ns: timer(self.increase_timer_us, published.increase_timer_ns),
            increase_bytes: self.increase_bytes.unwrap_or(published.increase_bytes).max(1),
            fast_recovery_steps: self.fast_recovery_steps.unwrap_or(published.fast_recovery_steps),
            additive_bps: rate(self.additive_mbps, published.additive_bps),
            hyper_bps: rate(self.hyper_mbps, published.hyper_bps),
            minimum_bps: rate(self.minimum_mbps, published.minimum_bps),
            notification_interval_ns: timer(
                self.notification_interval_us,
                published.notification_interval_ns,
            ),
            reduce_period_ns: self.reduce_period_us.map(nanos_of),
        })
    }
}

fn nanos_of(micros: f64) -> u64 {
    ((micros * 1e3) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use topology::document::{DocumentFormat, parse_document};

    use super::*;

    fn parse(text: &str) -> Option<QueueDocument> {
        parse_document(text, DocumentFormat::Toml, "queues.toml").ok()
    }

    #[test]
    fn documents_change_what_they_name_and_nothing_else() {
        let text = "[dcqcn]\nlink_gbps = 100\nincrease_timer_us = 300\n[queues]\npmax = 0.2\n";
        let document = parse(text).unwrap();
        let mut options = DcqcnOptions::default();
        document.apply(&mut options);
        let parameters = options.parameters.unwrap();
        assert_eq!((parameters.increase_timer_ns, parameters.additive_bps), (300_000, 100e6));
        let mut expected = SwitchQueues::default();
        expected.marking.pmax = 0.2;
        assert_eq!(options.queues, expected);
    }

    #[test]
    fn marks_may_be_decided_late_and_cuts_at_the_end_of_a_period() {
        let text = "[dcqcn]\nreduce_period_us = 4\n[queues]\nmarking_point = \"dequeue\"\n";
        let mut options = DcqcnOptions::default();
        parse(text).unwrap().apply(&mut options);
        assert_eq!(options.parameters.unwrap().reduce_period_ns, Some(4_000));
        assert_eq!(options.queues.marking_point, MarkingPoint::Dequeue);
    }

    #[test]
    fn values_out_of_range_and_unknown_fields_are_refused() {
        for (text, named) in [
            ("[dcqcn]\ngain = 0\n", "dcqcn.gain"),
            ("[queues]\npmax = 1.5\n", "queues.pmax"),
            ("[queues]\npause_limit_us = -1\n", "queues.pause_limit_us"),
        ] {
            let document = parse(text).unwrap();
            assert!(document.check().unwrap_err().contains(named));
        }
        assert!(parse("[queues]\nkmin = 1\n").is_none());
    }
}
