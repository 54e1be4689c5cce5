//! NCCL's side of the interface: what a rank calls for an operation that goes over the network.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

use libloading::Library;
use nccl_profiler_crux::abi::{
    CollectiveDetail, EventDescriptor, EventDetail, EventStateArgs, InitializeV4, InitializeV5,
    ProfilerInterface, ProxyOperationDetail,
};

const COLL: u64 = 1 << 1;
const PROXY_OP: u64 = 1 << 3;
const PROXY_STEP: u64 = 1 << 4;
const SEND_GPU_WAIT: c_int = 8;
const SEND_WAIT: c_int = 9;
const CHANNELS: u64 = 4;
const CHUNK: u64 = 1 << 19;

/// The functions of a version of the interface.
#[derive(Clone, Copy)]
enum ProfilerFunctions {
    V4(&'static ProfilerInterface<InitializeV4, u8>),
    V5(&'static ProfilerInterface<InitializeV5, u64>),
}

/// The opened library. It is never closed, as in a process that trains until it ends.
pub(crate) struct ProfilerPlugin(ProfilerFunctions);

/// A rank in a communicator.
pub(crate) struct CommunicatorRank {
    functions: ProfilerFunctions,
    context: *mut c_void,
}

impl ProfilerPlugin {
    pub(crate) fn open(path: &Path, version: &str) -> Self {
        let symbol = CString::new(version).unwrap();
        // SAFETY: the library is the one that was built with this test, and the symbol's type is
        // that of its version.
        unsafe {
            let library: &'static Library = Box::leak(Box::new(Library::new(path).unwrap()));
            Self(match version {
                "ncclProfiler_v4" => ProfilerFunctions::V4(find_interface(library, &symbol)),
                _ => ProfilerFunctions::V5(find_interface(library, &symbol)),
            })
        }
    }

    pub(crate) fn open_communicator(&self, ranks: u32, rank: u32) -> CommunicatorRank {
        let (mut context, mut mask) = (std::ptr::null_mut(), 0);
        let (name, log) = (c"world".as_ptr(), std::ptr::null());
        let (hosts, ranks, rank) = (4, ranks as c_int, rank as c_int);
        // SAFETY: the pointers are valid during the call.
        let result = unsafe {
            match self.0 {
                ProfilerFunctions::V4(table) => {
                    (table.init)(&mut context, &mut mask, name, 7, hosts, ranks, rank, log)
                }
                ProfilerFunctions::V5(table) => {
                    (table.init)(&mut context, 7, &mut mask, name, hosts, ranks, rank, log)
                }
            }
        };
        assert_eq!(result, 0);
        assert!(!context.is_null());
        assert_eq!(mask, 0b1_1110, "operations, transfers and their steps are profiled");
        CommunicatorRank { functions: self.0, context }
    }
}

/// # Safety
/// The symbol is an interface of this type.
unsafe fn find_interface<I, T>(
    library: &'static Library,
    symbol: &CStr,
) -> &'static ProfilerInterface<I, T> {
    // SAFETY: by the contract of this function; the name is a constant of the library.
    unsafe {
        let symbol = symbol.to_bytes_with_nul();
        let interface = library.get::<*const ProfilerInterface<I, T>>(symbol).unwrap();
        let interface = interface.as_ref().expect("the symbol has an address");
        assert_eq!(CStr::from_ptr(interface.name), c"Crux");
        interface
    }
}

impl CommunicatorRank {
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
        let stop_event = match self.functions {
            ProfilerFunctions::V4(table) => table.stop_event,
            ProfilerFunctions::V5(table) => table.stop_event,
        };
        // SAFETY: a handle is a number to the plugin.
        assert_eq!(unsafe { stop_event(handle) }, 0);
    }

    pub(crate) fn close(self) {
        let finalize = match self.functions {
            ProfilerFunctions::V4(table) => table.finalize,
            ProfilerFunctions::V5(table) => table.finalize,
        };
        // SAFETY: the context is that of `init`.
        assert_eq!(unsafe { finalize(self.context) }, 0);
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
        let record = match self.functions {
            ProfilerFunctions::V4(table) => table.record_event_state,
            ProfilerFunctions::V5(table) => table.record_event_state,
        };
        // SAFETY: the argument is valid during the call.
        assert_eq!(unsafe { record(handle, state, &arguments) }, 0);
    }

    fn start(&self, kind: u64, parent: *mut c_void, detail: EventDetail) -> *mut c_void {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the descriptor is that of the version.
        let result = unsafe {
            match self.functions {
                ProfilerFunctions::V4(table) => {
                    let descriptor = EventDescriptor { kind: kind as u8, parent, rank: 0, detail };
                    (table.start_event)(self.context, &mut handle, &descriptor)
                }
                ProfilerFunctions::V5(table) => {
                    let descriptor = EventDescriptor { kind, parent, rank: 0, detail };
                    (table.start_event)(self.context, &mut handle, &descriptor)
                }
            }
        };
        assert_eq!(result, 0);
        handle
    }
}

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
