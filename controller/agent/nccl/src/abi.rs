//! The profiler interfaces of NCCL, versions 4 to 6, over one recorder.
//!
//! Layouts are those of `src/include/plugin/profiler/profiler_v4.h` to `profiler_v6.h` of NCCL
//! 2.30; only the members that are read are declared. The versions differ in the width of `type`,
//! in the order of the arguments of `init`, and in members behind those that are read. This is the
//! only module with `unsafe`: it reads what NCCL points to, for as long as a call lasts.
//!
//! Every function returns success, because an error of a profiler is of no use to training.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::event::CommunicatorInfo;
use crate::operation::{DataType, NcclFunction};
use crate::recorder::{EventHandle, EventRecorder, StartedOperation, StartedTransfer};
use crate::reporter::{self, CommunicatorChange, CommunicatorChanges, ReportSettings};

const SUCCESS: c_int = 0;

/// Bits of the activation mask and values of `type`.
const PROFILE_COLL: u64 = 1 << 1;
const PROFILE_P2P: u64 = 1 << 2;
const PROFILE_PROXY_OP: u64 = 1 << 3;
const PROFILE_PROXY_STEP: u64 = 1 << 4;
const ACTIVATION_MASK: u64 = PROFILE_COLL | PROFILE_P2P | PROFILE_PROXY_OP | PROFILE_PROXY_STEP;

/// `ncclProfilerProxyStepSendWait`: the data of a step were handed to the network, once a step.
const STATE_SEND_WAIT: c_int = 9;

/// Longest name of a function or a type that is read.
const MAX_NAME: usize = 32;
/// Longest name of a communicator that is kept.
const MAX_COMMUNICATOR_NAME: usize = 128;

/// Begins an event of a communicator and returns its handle.
pub type StartEvent<T> =
    unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const EventDescriptor<T>) -> c_int;
/// Ends what a handle stands for: an event, or a communicator.
pub type StopEvent = unsafe extern "C" fn(*mut c_void) -> c_int;
/// Reports that an event has reached a state, with arguments of that state.
pub type RecordEventState =
    unsafe extern "C" fn(*mut c_void, c_int, *const EventStateArgs) -> c_int;
/// `init` of version 4.
pub type InitializeV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
/// `init` of versions 5 and 6.
pub type InitializeV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

/// `ncclProfiler_v4_t` to `ncclProfiler_v6_t`; `T` is the width of an event's type.
#[repr(C)]
#[derive(Debug)]
pub struct ProfilerInterface<I, T: 'static> {
    /// Name in NCCL's log.
    pub name: *const c_char,
    /// Begins to profile a communicator.
    pub init: I,
    /// Begins an event.
    pub start_event: StartEvent<T>,
    /// Ends an event.
    pub stop_event: StopEvent,
    /// Changes the state of an event.
    pub record_event_state: RecordEventState,
    /// Ends the profile of a communicator.
    pub finalize: StopEvent,
}

// SAFETY: the name is a constant, and the rest are functions.
unsafe impl<I: Sync, T> Sync for ProfilerInterface<I, T> {}

/// `ncclProfilerEventDescr_v4_t` (`T` = `u8`), and those of versions 5 and 6 (`u64`).
#[repr(C)]
pub struct EventDescriptor<T> {
    /// Which event, one bit.
    pub kind: T,
    /// Handle of the event that this one belongs to.
    pub parent: *mut c_void,
    /// The rank that caused it.
    pub rank: c_int,
    /// What `kind` has in addition.
    pub detail: EventDetail,
}

/// The union of an event descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub union EventDetail {
    /// Of a collective operation.
    pub coll: CollectiveDetail,
    /// Of `Send` and `Recv`.
    pub p2p: PointToPointDetail,
    /// Of one channel that the proxy serves.
    pub proxy_op: ProxyOperationDetail,
}

/// The struct `coll` of an event descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CollectiveDetail {
    /// Number of the operation in its communicator.
    pub sequence: u64,
    /// Name of the function.
    pub function: *const c_char,
    /// Address of the input.
    pub send_buffer: *const c_void,
    /// Address of the output.
    pub receive_buffer: *mut c_void,
    /// Count of the elements.
    pub count: usize,
    /// Rank of the root.
    pub root: c_int,
    /// Name of the type.
    pub datatype: *const c_char,
    /// Channels that it uses.
    pub channels: u8,
    /// Warps of a channel.
    pub warps: u8,
    /// Name of the algorithm.
    pub algorithm: *const c_char,
    /// Name of the protocol.
    pub protocol: *const c_char,
}

/// The struct `p2p` of an event descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointToPointDetail {
    /// Name of the function.
    pub function: *const c_char,
    /// Address of the data.
    pub buffer: *mut c_void,
    /// Name of the type.
    pub datatype: *const c_char,
    /// Count of the elements.
    pub count: usize,
    /// The other rank.
    pub peer: c_int,
    /// Channels that it uses.
    pub channels: u8,
}

/// The struct `proxyOp` of an event descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProxyOperationDetail {
    /// Process that the operation comes from, another one with PXN.
    pub pid: c_int,
    /// Number of the channel.
    pub channel: u8,
    /// The other rank.
    pub peer: c_int,
    /// Number of the steps.
    pub steps: c_int,
    /// Bytes of a step at most.
    pub chunk_size: c_int,
    /// Whether it sends.
    pub is_send: c_int,
}

/// `ncclProfilerEventStateArgs_v4_t` and `_v5_t`: of `proxyStep`, the bytes that it sends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventStateArgs {
    /// Bytes of the step.
    pub transfer_size: usize,
}

/// Version 4 of the interface, NCCL 2.26 and later.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v4: ProfilerInterface<InitializeV4, u8> = ProfilerInterface {
    name: c"Crux".as_ptr(),
    init: initialize_v4,
    start_event: start_event::<u8>,
    stop_event,
    record_event_state,
    finalize,
};

/// Version 5 of the interface, NCCL 2.28 and later.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v5: ProfilerInterface<InitializeV5, u64> = ProfilerInterface {
    name: c"Crux".as_ptr(),
    init: initialize_v5,
    start_event: start_event::<u64>,
    stop_event,
    record_event_state,
    finalize,
};

/// Version 6 of the interface, with operations of copy engines, which are not recorded.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v6: ProfilerInterface<InitializeV5, u64> = ProfilerInterface {
    name: c"Crux".as_ptr(),
    init: initialize_v5,
    start_event: start_event::<u64>,
    stop_event,
    record_event_state,
    finalize,
};

/// What a process has of the plugin, once.
struct ProcessState {
    recorder: EventRecorder,
    changes: CommunicatorChanges,
    communicators: AtomicU32,
    /// The process whose thread drains the queue; a fork has none.
    reporting_process: AtomicU32,
}

static STATE: OnceLock<ProcessState> = OnceLock::new();

impl ProcessState {
    fn get() -> &'static Self {
        STATE.get_or_init(|| Self {
            recorder: EventRecorder::new(reporter::QUEUE_CAPACITY),
            changes: CommunicatorChanges::default(),
            communicators: AtomicU32::new(0),
            reporting_process: AtomicU32::new(0),
        })
    }

    /// Whether a thread of this process drains the queue; starts it if none does.
    fn ensure_reporter(&'static self) -> bool {
        let process = std::process::id();
        if self.reporting_process.swap(process, Ordering::AcqRel) == process {
            return true;
        }
        let settings = ReportSettings::from_environment();
        let thread = thread::Builder::new().name("crux-nccl".to_owned());
        let run = move || reporter::run_reporter(&self.recorder, &self.changes, &settings);
        let is_started = thread.spawn(run).is_ok();
        if !is_started {
            self.reporting_process.store(0, Ordering::Release);
        }
        is_started
    }

    /// The context of a new communicator, or none if it cannot be profiled.
    fn open_communicator(&'static self, info: CommunicatorInfo) -> Option<*mut c_void> {
        let number = self.communicators.fetch_add(1, Ordering::Relaxed);
        let change = CommunicatorChange::Opened(CommunicatorInfo { number, ..info });
        let is_open = self.ensure_reporter() && self.changes.add(change);
        is_open.then(|| (number as usize + 1) as *mut c_void)
    }
}

/// Events of this process that were lost, as the messages report it.
pub fn dropped_events() -> u64 {
    STATE.get().map_or(0, |state| state.recorder.queue().dropped())
}

/// What `init` of every version has in common.
struct InitArguments {
    context: *mut *mut c_void,
    activation_mask: *mut c_int,
    name: *const c_char,
    id: u64,
    hosts: c_int,
    ranks: c_int,
    rank: c_int,
}

impl InitArguments {
    /// # Safety
    /// The pointers are null or valid.
    unsafe fn open_communicator(self) -> c_int {
        let count = |value: c_int| u32::try_from(value).unwrap_or(0);
        // SAFETY: NCCL passes null or a string that ends with a zero byte.
        let name = unsafe { read_name(self.name, MAX_COMMUNICATOR_NAME) };
        let info = CommunicatorInfo {
            number: 0,
            id: self.id,
            name: String::from_utf8_lossy(name).into_owned(),
            hosts: count(self.hosts),
            ranks: count(self.ranks),
            rank: count(self.rank),
        };
        let context = ProcessState::get().open_communicator(info);
        // SAFETY: both are null or point to variables of NCCL.
        unsafe {
            if let (Some(to), Some(mask)) = (self.context.as_mut(), self.activation_mask.as_mut()) {
                // NCCL does not finalize a null context.
                *to = context.unwrap_or(std::ptr::null_mut());
                *mask = if context.is_some() { ACTIVATION_MASK as c_int } else { *mask };
            }
        }
        SUCCESS
    }
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn initialize_v4(
    context: *mut *mut c_void,
    activation_mask: *mut c_int,
    name: *const c_char,
    id: u64,
    hosts: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    let arguments = InitArguments { context, activation_mask, name, id, hosts, ranks, rank };
    // SAFETY: NCCL passes valid pointers.
    unsafe { arguments.open_communicator() }
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn initialize_v5(
    context: *mut *mut c_void,
    id: u64,
    activation_mask: *mut c_int,
    name: *const c_char,
    hosts: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    let arguments = InitArguments { context, activation_mask, name, id, hosts, ranks, rank };
    // SAFETY: NCCL passes valid pointers.
    unsafe { arguments.open_communicator() }
}

unsafe extern "C" fn start_event<T: Copy + Into<u64>>(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *const EventDescriptor<T>,
) -> c_int {
    // SAFETY: NCCL passes valid pointers, and the union has the member that `kind` names.
    unsafe {
        let (Some(handle), Some(descriptor)) = (handle.as_mut(), descriptor.as_ref()) else {
            return SUCCESS;
        };
        let started = start_known_event(context, descriptor);
        *handle = started.0 as *mut c_void;
    }
    SUCCESS
}

/// # Safety
/// The union of the descriptor has the member that its kind names.
unsafe fn start_known_event<T: Copy + Into<u64>>(
    context: *mut c_void,
    descriptor: &EventDescriptor<T>,
) -> EventHandle {
    let Some(state) = STATE.get() else { return EventHandle::NONE };
    let Some(communicator) = (context as usize).checked_sub(1) else { return EventHandle::NONE };
    let communicator = communicator as u32;
    let recorder = &state.recorder;
    let parent = EventHandle(descriptor.parent as u64);
    // SAFETY: by the contract of this function.
    unsafe {
        match descriptor.kind.into() {
            PROFILE_COLL => {
                let CollectiveDetail { function, datatype, count, root, .. } =
                    descriptor.detail.coll;
                let names = [function, datatype];
                recorder.start_operation(&describe_operation(communicator, names, count, root))
            }
            PROFILE_P2P => {
                let PointToPointDetail { function, datatype, count, peer, .. } =
                    descriptor.detail.p2p;
                let names = [function, datatype];
                recorder.start_operation(&describe_operation(communicator, names, count, peer))
            }
            PROFILE_PROXY_OP => {
                start_proxy_operation(state, communicator, parent, &descriptor.detail.proxy_op)
            }
            PROFILE_PROXY_STEP => recorder.start_step(parent),
            _ => EventHandle::NONE,
        }
    }
}

/// What an operation is, from the names of its function and its type.
///
/// # Safety
/// The names are null, or strings that end with a zero byte.
unsafe fn describe_operation(
    communicator: u32,
    names: [*const c_char; 2],
    count: usize,
    peer: c_int,
) -> StartedOperation {
    // SAFETY: by the contract of this function.
    let [function, datatype] = names.map(|name| unsafe { read_name(name, MAX_NAME) });
    StartedOperation {
        communicator,
        function: NcclFunction::from_name(function),
        datatype: DataType::from_name(datatype),
        count: count as u64,
        peer,
    }
}

/// Only what is sent counts; the receiver's side would count it twice.
fn start_proxy_operation(
    state: &ProcessState,
    communicator: u32,
    parent: EventHandle,
    operation: &ProxyOperationDetail,
) -> EventHandle {
    let positive = |value: c_int| u64::try_from(value).unwrap_or(0);
    let is_own = u32::try_from(operation.pid) == Ok(std::process::id());
    if operation.is_send == 0 {
        return EventHandle::NONE;
    }
    state.recorder.start_transfer(&StartedTransfer {
        communicator: is_own.then_some(communicator),
        parent: if is_own { parent } else { EventHandle::NONE },
        peer: u32::try_from(operation.peer).unwrap_or(u32::MAX),
        max_bytes: positive(operation.steps) * positive(operation.chunk_size),
    })
}

unsafe extern "C" fn stop_event(handle: *mut c_void) -> c_int {
    if let Some(state) = STATE.get() {
        state.recorder.stop_event(EventHandle(handle as u64));
    }
    SUCCESS
}

unsafe extern "C" fn record_event_state(
    handle: *mut c_void,
    event_state: c_int,
    arguments: *const EventStateArgs,
) -> c_int {
    if event_state != STATE_SEND_WAIT {
        return SUCCESS;
    }
    // SAFETY: null or valid; this state belongs to a step, for which the union has this member.
    let arguments = unsafe { arguments.as_ref() };
    if let (Some(state), Some(arguments)) = (STATE.get(), arguments) {
        let handle = EventHandle(handle as u64);
        state.recorder.record_step_bytes(handle, arguments.transfer_size as u64);
    }
    SUCCESS
}

unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    if let (Some(state), Some(number)) = (STATE.get(), (context as usize).checked_sub(1)) {
        let _is_noted = state.changes.add(CommunicatorChange::Closed(number as u32));
    }
    SUCCESS
}

/// At most `limit` bytes of a name; nothing for a null pointer.
///
/// # Safety
/// The pointer is null, or points to a string that ends with a zero byte and outlives the result.
unsafe fn read_name<'a>(name: *const c_char, limit: usize) -> &'a [u8] {
    if name.is_null() {
        return &[];
    }
    // SAFETY: by the contract of this function.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    &bytes[..bytes.len().min(limit)]
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// Offsets that a C++ compiler gives for NCCL's headers, version 2.30.
    #[test]
    fn layouts_are_those_of_the_headers() {
        let detail = offset_of!(EventDescriptor<u64>, detail);
        assert_eq!(detail, offset_of!(EventDescriptor<u8>, detail));
        assert_eq!(detail, 24);
        assert_eq!(offset_of!(EventDescriptor<u8>, parent), 8);
        assert_eq!(offset_of!(EventDescriptor<u8>, rank), 16);
        assert_eq!(size_of::<EventDescriptor<u8>>(), 104);
        let coll = [
            offset_of!(CollectiveDetail, function),
            offset_of!(CollectiveDetail, count),
            offset_of!(CollectiveDetail, root),
            offset_of!(CollectiveDetail, datatype),
            offset_of!(CollectiveDetail, channels),
            offset_of!(CollectiveDetail, algorithm),
            offset_of!(CollectiveDetail, protocol),
        ];
        assert_eq!(coll.map(|offset| detail + offset), [32, 56, 64, 72, 80, 88, 96]);
        let p2p = [
            offset_of!(PointToPointDetail, datatype),
            offset_of!(PointToPointDetail, count),
            offset_of!(PointToPointDetail, peer),
        ];
        assert_eq!(p2p.map(|offset| detail + offset), [40, 48, 56]);
        let proxy = [
            offset_of!(ProxyOperationDetail, channel),
            offset_of!(ProxyOperationDetail, peer),
            offset_of!(ProxyOperationDetail, steps),
            offset_of!(ProxyOperationDetail, chunk_size),
            offset_of!(ProxyOperationDetail, is_send),
        ];
        assert_eq!(proxy.map(|offset| detail + offset), [28, 32, 36, 40, 44]);
        assert_eq!(size_of::<ProfilerInterface<InitializeV4, u8>>(), 48);
        assert_eq!(offset_of!(ProfilerInterface<InitializeV5, u64>, record_event_state), 32);
        assert_eq!(size_of::<EventStateArgs>(), 8);
    }
}
