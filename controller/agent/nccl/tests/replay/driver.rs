//! NCCL's side of the interface: what a rank calls for an operation that goes over the network.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use libloading::Library;
use nccl_profiler_crux::abi::{
    CollectiveDetail, EventDescriptor, EventDetail, EventStateArgs, ProxyOperationDetail,
};

const COLL: u64 = 1 << 1;
const PROXY_OP: u64 = 1 << 3;
const PROXY_STEP: u64 = 1 << 4;
const SEND_GPU_WAIT: c_int = 8;
const SEND_WAIT: c_int = 9;
const CHANNELS: u64 = 4;
const CHUNK: u64 = 1 << 19;

type InitV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

/// The table of functions that every version exports, with `init` and `startEvent` untyped.
#[repr(C)]
struct Interface {
    name: *const c_char,
    init: *const c_void,
    start_event: *const c_void,
    stop_event: unsafe extern "C" fn(*mut c_void) -> c_int,
    record_event_state: unsafe extern "C" fn(*mut c_void, c_int, *const EventStateArgs) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// The opened library. It is never closed, as in a process that trains until it ends.
pub(crate) struct Plugin {
    interface: &'static Interface,
    is_v4: bool,
}

/// A rank in a communicator.
pub(crate) struct Rank<'a> {
    plugin: &'a Plugin,
    context: *mut c_void,
}

impl Plugin {
    pub(crate) fn open(path: &Path, version: &str) -> Self {
        // SAFETY: the library is the one that was built with this test.
        unsafe {
            let library: &'static Library = Box::leak(Box::new(Library::new(path).unwrap()));
            let symbol = CString::new(version).unwrap();
            let interface = library.get::<*const Interface>(symbol.as_bytes_with_nul()).unwrap();
            let interface = interface.as_ref().expect("the symbol has an address");
            assert_eq!(std::ffi::CStr::from_ptr(interface.name), c"Crux");
            Self { interface, is_v4: version.ends_with("v4") }
        }
    }

    pub(crate) fn open_communicator(&self, ranks: u32, rank: u32) -> Rank<'_> {
        let (mut context, mut mask) = (std::ptr::null_mut(), 0);
        let (name, log) = (c"world".as_ptr(), std::ptr::null());
        let (hosts, ranks, rank) = (4, ranks as c_int, rank as c_int);
        // SAFETY: the signatures are those of the version.
        let result = unsafe {
            if self.is_v4 {
                let init: InitV4 = std::mem::transmute(self.interface.init);
                init(&mut context, &mut mask, name, 7, hosts, ranks, rank, log)
            } else {
                let init: InitV5 = std::mem::transmute(self.interface.init);
                init(&mut context, 7, &mut mask, name, hosts, ranks, rank, log)
            }
        };
        assert_eq!(result, 0);
        assert!(!context.is_null());
        assert_eq!(mask, 0b1_1110, "operations, transfers and their steps are profiled");
        Rank { plugin: self, context }
    }
}

impl Rank<'_> {
    pub(crate) fn start_collective(&self, function: &str, count: u64) -> *mut c_void {
        let function = CString::new(function).unwrap();
        let detail = CollectiveDetail {
            sequence: 0,
            function: function.as_ptr(),
            send_buffer: std::ptr::null(),
            receive_buffer: std::ptr::null_mut(),
            count: count as usize,
            root: 0,
            datatype: c"ncclFloat32".as_ptr(),
            channels: CHANNELS as u8,
            warps: 16,
            algorithm: c"RING".as_ptr(),
            protocol: c"SIMPLE".as_ptr(),
        };
        self.start(COLL, std::ptr::null_mut(), EventDetail { coll: detail })
    }

    /// `bytes` to `peer`, in equal shares over the channels and in chunks, the last one smaller.
    pub(crate) fn send_in_channels(&self, operation: *mut c_void, peer: u32, bytes: u64) {
        for channel in 0..CHANNELS {
            let share = bytes * (channel + 1) / CHANNELS - bytes * channel / CHANNELS;
            self.send_channel(operation, peer, channel as u8, share);
            self.receive_channel(operation, peer, channel as u8);
        }
    }

    pub(crate) fn stop(&self, handle: *mut c_void) {
        // SAFETY: a handle is a number to the plugin.
        assert_eq!(unsafe { (self.plugin.interface.stop_event)(handle) }, 0);
    }

    pub(crate) fn close(self) {
        // SAFETY: the context is that of `init`.
        assert_eq!(unsafe { (self.plugin.interface.finalize)(self.context) }, 0);
    }

    fn send_channel(&self, operation: *mut c_void, peer: u32, channel: u8, bytes: u64) {
        let steps = bytes.div_ceil(CHUNK);
        let transfer = self.start(PROXY_OP, operation, proxy(peer, channel, steps, 1));
        let mut left = bytes;
        for _ in 0..steps {
            let step = self.start(PROXY_STEP, transfer, proxy(peer, channel, steps, 1));
            let sent = left.min(CHUNK);
            // The size of the step before, as NCCL has it at this point.
            self.record(step, SEND_GPU_WAIT, CHUNK);
            self.record(step, SEND_WAIT, sent);
            self.stop(step);
            left -= sent;
        }
        self.stop(transfer);
    }

    /// What arrives is reported by who sends it, so this must not count.
    fn receive_channel(&self, operation: *mut c_void, peer: u32, channel: u8) {
        let transfer = self.start(PROXY_OP, operation, proxy(peer, channel, 1, 0));
        assert!(transfer.is_null());
    }

    fn record(&self, handle: *mut c_void, state: c_int, bytes: u64) {
        let arguments = EventStateArgs { transfer_size: bytes as usize };
        let record = self.plugin.interface.record_event_state;
        // SAFETY: the argument is valid during the call.
        assert_eq!(unsafe { record(handle, state, &arguments) }, 0);
    }

    fn start(&self, kind: u64, parent: *mut c_void, detail: EventDetail) -> *mut c_void {
        let start = self.plugin.interface.start_event;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the descriptor is that of the version.
        let result = unsafe {
            if self.plugin.is_v4 {
                let descriptor = EventDescriptor { kind: kind as u8, parent, rank: 0, detail };
                let start: Start<u8> = std::mem::transmute(start);
                start(self.context, &mut handle, &descriptor)
            } else {
                let descriptor = EventDescriptor { kind, parent, rank: 0, detail };
                let start: Start<u64> = std::mem::transmute(start);
                start(self.context, &mut handle, &descriptor)
            }
        };
        assert_eq!(result, 0);
        handle
    }
}

type Start<T> =
    unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const EventDescriptor<T>) -> c_int;

fn proxy(peer: u32, channel: u8, steps: u64, is_send: c_int) -> EventDetail {
    EventDetail {
        proxy_op: ProxyOperationDetail {
            pid: std::process::id() as c_int,
            channel,
            peer: peer as c_int,
            steps: steps as c_int,
            chunk_size: CHUNK as c_int,
            is_send,
        },
    }
}
