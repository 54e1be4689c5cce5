//! What an event costs a thread of NCCL, through the C interface, and whether 10^6 events a second
//! are recorded without loss.
//!
//! `cargo bench -p nccl-profiler` prints both; `benches/results/event.txt` has the last figures.

#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_void};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use nccl_profiler_crux::abi::{
    CollectiveDetail, EventDescriptor, EventDetail, EventStateArgs, ProxyOperationDetail,
    ncclProfiler_v6,
};
use nccl_profiler_crux::{DataType, EventRecorder, NcclFunction, StartedOperation};

const COLL: u64 = 1 << 1;
const PROXY_OP: u64 = 1 << 3;
const PROXY_STEP: u64 = 1 << 4;
const SEND_WAIT: c_int = 9;

/// Events of a loop of one operation with two channels of four steps each: starts, ends, states.
const EVENTS_OF_LOOP: u32 = 2 + 2 * (2 + 4 * 3);

fn descriptor(kind: u64, parent: *mut c_void, detail: EventDetail) -> EventDescriptor<u64> {
    EventDescriptor { kind, parent, rank: 0, detail }
}

fn collective() -> EventDetail {
    let name = |name: &'static std::ffi::CStr| name.as_ptr().cast::<c_char>();
    EventDetail {
        coll: CollectiveDetail {
            sequence: 0,
            function: name(c"AllReduce"),
            send_buffer: std::ptr::null(),
            receive_buffer: std::ptr::null_mut(),
            count: 1 << 20,
            root: 0,
            datatype: name(c"ncclBfloat16"),
            channels: 2,
            warps: 16,
            algorithm: name(c"RING"),
            protocol: name(c"SIMPLE"),
        },
    }
}

fn proxy_operation(channel: u8) -> EventDetail {
    let pid = std::process::id() as c_int;
    EventDetail {
        proxy_op: ProxyOperationDetail {
            pid,
            channel,
            peer: 1,
            steps: 4,
            chunk_size: 1 << 19,
            is_send: 1,
        },
    }
}

#[allow(unsafe_code)]
fn open_communicator() -> *mut c_void {
    let (mut context, mut mask) = (std::ptr::null_mut(), 0);
    let name = c"bench".as_ptr();
    let init = ncclProfiler_v6.init;
    // SAFETY: all pointers are valid during the call.
    unsafe { init(&mut context, 7, &mut mask, name, 2, 2, 0, std::ptr::null()) };
    context
}

/// One loop of [`EVENTS_OF_LOOP`] events.
#[allow(unsafe_code)]
fn play_loop(context: *mut c_void) {
    let plugin = &ncclProfiler_v6;
    let start = |kind: u64, parent: *mut c_void, detail: EventDetail| {
        let mut handle = std::ptr::null_mut();
        // SAFETY: all pointers are valid during the call, and `detail` is that of `kind`.
        unsafe { (plugin.start_event)(context, &mut handle, &descriptor(kind, parent, detail)) };
        handle
    };
    // SAFETY: a handle is a number to the plugin.
    let stop = |handle: *mut c_void| unsafe { (plugin.stop_event)(handle) };
    let operation = start(COLL, std::ptr::null_mut(), collective());
    for channel in 0..2 {
        let transfer = start(PROXY_OP, operation, proxy_operation(channel));
        for _ in 0..4 {
            let step = start(PROXY_STEP, transfer, proxy_operation(channel));
            let sent = EventStateArgs { transfer_size: 1 << 19 };
            // SAFETY: the argument is valid during the call.
            unsafe { (plugin.record_event_state)(step, SEND_WAIT, &sent) };
            stop(step);
        }
        stop(transfer);
    }
    stop(operation);
}

fn event_cost(criterion: &mut Criterion) {
    let context = open_communicator();
    criterion.bench_function("loop of 30 events through the C interface", |bencher| {
        bencher.iter(|| play_loop(context));
    });
    let recorder = EventRecorder::new(1 << 10);
    let started = StartedOperation {
        communicator: 0,
        function: NcclFunction::AllReduce,
        datatype: DataType { bytes: 2 },
        count: 1,
        peer: 0,
    };
    criterion.bench_function("the dearest event: time, number and queue", |bencher| {
        bencher.iter(|| {
            recorder.start_operation(&started);
            recorder.queue().pop()
        });
    });
}

/// 10^6 events a second for two seconds, in bursts of a millisecond.
fn sustained_rate(_: &mut Criterion) {
    let context = open_communicator();
    let (began, mut loops) = (Instant::now(), 0_u32);
    let mut busy = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(2) {
        let due = (began.elapsed().as_secs_f64() * 1e6 / f64::from(EVENTS_OF_LOOP)) as u32;
        let burst = Instant::now();
        let count = due.saturating_sub(loops);
        (0..count).for_each(|_| play_loop(context));
        busy += burst.elapsed();
        loops += count;
        std::thread::sleep(Duration::from_millis(1));
    }
    let events = f64::from(loops) * f64::from(EVENTS_OF_LOOP);
    println!(
        "{events:.0} events in {:.2} s ({:.0} a second): {:.0} ns each, {} dropped",
        began.elapsed().as_secs_f64(),
        events / began.elapsed().as_secs_f64(),
        busy.as_nanos() as f64 / events,
        nccl_profiler_crux::abi::dropped_events(),
    );
}

criterion_group!(benches, event_cost, sustained_rate);
criterion_main!(benches);
