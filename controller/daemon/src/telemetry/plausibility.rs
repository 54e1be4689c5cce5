//! Physical limits that every announcement and window must respect.
//!
//! The decision: bounds are physical. A GPU does not compute faster than any that is built, a NIC
//! does not send more than its cable takes, nothing lasts longer than the window. A liar within
//! these bounds gets the rank of the job that it pretends to be, and no more.

use planner::Job;
use topology::{Fabric, NicId};

use super::ReportWindow;
use super::profile::UNKNOWN_FLOP;

/// No GPU does more in a second, FLOP: twice the sparse FP4 peak of an NVIDIA B200 (NVIDIA HGX B200
/// data sheet: 144e15 for 8 of them, so 18e15 each), rounded up.
const PEAK_FLOPS: f64 = 4e16;

/// Clocks of hosts and of windows differ by at most this share.
const SLACK: f64 = 1.1;

/// The longest window, seconds.
const MAX_WINDOW: f64 = 3_600.0;

/// Why a window cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ImplausibleWindow {
    /// NaN or a negative number.
    #[error("{0} is not a number from 0")]
    InvalidNumber(&'static str),
    /// No length, or one that nobody reports.
    #[error("a window of {0} s; a window has more than 0 and at most {MAX_WINDOW}")]
    Length(f64),
    /// Something lasted longer than the window.
    #[error("{what} of {seconds} s in a window of {window} s")]
    ExceedsWindow {
        /// The field.
        what: &'static str,
        /// What it says.
        seconds: f64,
        /// The window.
        window: f64,
    },
    /// More work than its GPUs can do.
    #[error("{flop:.1e} FLOP in {seconds} s on {gpus} GPUs; no GPU does {PEAK_FLOPS:.0e} a second")]
    TooMuchWork {
        /// The work.
        flop: f64,
        /// The window.
        seconds: f64,
        /// The job's GPUs.
        gpus: u32,
    },
    /// Flows that the job did not announce.
    #[error("bytes of {found} flows; the job announced {announced}")]
    FlowCount {
        /// How many are in the window.
        found: usize,
        /// How many there are.
        announced: usize,
    },
    /// More bytes than the cable of a NIC takes.
    #[error("flow {flow} sent {bytes:.1e} bytes in {seconds} s, more than its cable takes")]
    TooManyBytes {
        /// The flow, from 0.
        flow: usize,
        /// Its bytes.
        bytes: f64,
        /// The window.
        seconds: f64,
    },
    /// Iterations that begin out of order or outside of the window.
    #[error("iterations begin in no order, or outside of the window")]
    IterationStarts,
}

/// Why an announcement cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(super) enum ImplausibleAnnouncement {
    /// An iteration that computes for longer than any.
    #[error("compute_seconds of {0}; an iteration has at most {MAX_WINDOW}")]
    Length(f64),
    /// More work than its GPUs can do.
    #[error(
        "{flop:.1e} FLOP in {seconds} s of computation on {gpus} GPUs; no GPU does \
         {PEAK_FLOPS:.0e} a second"
    )]
    TooMuchWork {
        /// The work of an iteration.
        flop: f64,
        /// Its computation.
        seconds: f64,
        /// The job's GPUs.
        gpus: u32,
    },
    /// More bytes than the cable of a NIC takes.
    #[error("flow {flow} of {bytes:.1e} bytes; its cable takes an hour for fewer")]
    TooManyBytes {
        /// The flow, from 0.
        flow: usize,
        /// Its bytes in an iteration.
        bytes: f64,
    },
}

/// Whether a job can be as it was announced. Its numbers are valid, as documents check them.
pub(super) fn check_announcement(
    job: &Job,
    fabric: &Fabric,
) -> Result<(), ImplausibleAnnouncement> {
    let (flop, seconds, gpus) = (job.flop_per_iteration, job.compute_seconds, job.gpu_count());
    if seconds > MAX_WINDOW {
        return Err(ImplausibleAnnouncement::Length(seconds));
    }
    if flop > UNKNOWN_FLOP && flop > f64::from(gpus) * PEAK_FLOPS * seconds * SLACK {
        return Err(ImplausibleAnnouncement::TooMuchWork { flop, seconds, gpus });
    }
    for (number, flow) in job.flows.iter().enumerate() {
        if flow.bytes > nic_rate(fabric, flow.src) * MAX_WINDOW {
            let bytes = flow.bytes;
            return Err(ImplausibleAnnouncement::TooManyBytes { flow: number, bytes });
        }
    }
    Ok(())
}

/// Bytes per second of all ports of a NIC.
fn nic_rate(fabric: &Fabric, nic: NicId) -> f64 {
    fabric.uplinks_of(nic).map(|link| link.bandwidth.bytes_per_second()).sum()
}

/// Whether `window` can be true of `job` in `fabric`.
pub(super) fn check_window(
    window: &ReportWindow,
    job: &Job,
    fabric: &Fabric,
) -> Result<(), ImplausibleWindow> {
    check_numbers(window)?;
    check_times(window)?;
    let seconds = window.seconds;
    let gpus = job.gpu_count();
    if window.flop > f64::from(gpus) * PEAK_FLOPS * seconds * SLACK {
        return Err(ImplausibleWindow::TooMuchWork { flop: window.flop, seconds, gpus });
    }
    check_bytes(window, job, fabric)
}

fn check_numbers(window: &ReportWindow) -> Result<(), ImplausibleWindow> {
    let numbers = [
        ("flop", window.flop),
        ("compute_seconds", window.compute_seconds),
        ("communication_seconds", window.communication_seconds),
    ];
    let flows = window.flow_bytes.iter().map(|bytes| ("flow_bytes", *bytes));
    let mut all = numbers.into_iter().chain(flows);
    let wrong = all.find(|(_, value)| !(value.is_finite() && *value >= 0.0));
    wrong.map_or(Ok(()), |(field, _)| Err(ImplausibleWindow::InvalidNumber(field)))
}

fn check_times(window: &ReportWindow) -> Result<(), ImplausibleWindow> {
    let length = window.seconds;
    if !(length > 0.0 && length <= MAX_WINDOW) {
        return Err(ImplausibleWindow::Length(length));
    }
    let spans = [
        ("compute_seconds", window.compute_seconds),
        ("communication_seconds", window.communication_seconds),
    ];
    if let Some((what, seconds)) = spans.into_iter().find(|(_, span)| *span > length * SLACK) {
        return Err(ImplausibleWindow::ExceedsWindow { what, seconds, window: length });
    }
    let (starts, allowed) = (&window.iteration_starts, 0.0..=length * SLACK);
    let is_sound = starts.is_sorted() && starts.iter().all(|start| allowed.contains(start));
    is_sound.then_some(()).ok_or(ImplausibleWindow::IterationStarts)
}

/// Each flow by itself: together, flows of a NIC may have waited for each other in any way. Nothing
/// is wrong with bytes that are not known.
fn check_bytes(window: &ReportWindow, job: &Job, fabric: &Fabric) -> Result<(), ImplausibleWindow> {
    let (found, announced) = (window.flow_bytes.len(), job.flows.len());
    if found != announced && found != 0 {
        return Err(ImplausibleWindow::FlowCount { found, announced });
    }
    let seconds = window.seconds;
    for (number, (flow, bytes)) in job.flows.iter().zip(&window.flow_bytes).enumerate() {
        if *bytes > nic_rate(fabric, flow.src) * seconds * SLACK {
            return Err(ImplausibleWindow::TooManyBytes { flow: number, bytes: *bytes, seconds });
        }
    }
    Ok(())
}
