//! Events to many readers: how long until the last of them has heard of a change, and what readers
//! cost the process, their own ends included.

use std::net::SocketAddr;
use std::time::Duration;

use controller::northbound;
use controller::{Config, Controller, StateEvent};
use planner::{JobsDocument, Policy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use topology::clos::{self, ClosSpec};
use topology::document::{self, DocumentFormat};

use crate::samples::Samples;
use crate::{DEADLINE, Failed};

/// Changes that are made, one after the other.
const CHANGES: usize = 100;

/// What each of them is known by.
const MARK: &[u8] = b"\"kind\":\"plan_adopted\"";

const JOBS: [&str; 2] = ["a", "b"];

pub(crate) async fn measure() -> Result<(), Failed> {
    let mut alone = 0.0;
    for readers in [1, 100] {
        let cost = with(readers).await?;
        match readers {
            1 => alone = cost,
            _ => println!("events: {readers} readers take {:.1} times as much", cost / alone),
        }
    }
    Ok(())
}

/// Milliseconds of processor time for each change.
async fn with(readers: usize) -> Result<f64, Failed> {
    let fabric = clos::build_clos("lab", &ClosSpec::default())?;
    let started = Controller::start(Config::default(), fabric.clone(), Policy::default());
    let controller = started.await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut config = Config::default();
    config.northbound.anyone = true;
    let server = northbound::start_server(listener, controller.access(), &config)?;
    let (received, mut receipts) = mpsc::channel(2 * readers);
    for _ in 0..readers {
        tokio::spawn(read(server.local_addr(), received.clone()));
    }
    all_of(readers, &mut receipts).await?;
    let mut delays = Samples::default();
    let before = processor_ms()?;
    for change in 0..CHANGES {
        let text = job(JOBS[change % 2]);
        let jobs: JobsDocument =
            document::parse_document(&text, DocumentFormat::Toml, "jobs.toml")?;
        let jobs = jobs.resolve_jobs(&fabric, "jobs.toml")?.jobs;
        controller.submit_event(StateEvent::JobsChanged(jobs)).await?;
        let decided = Instant::now();
        all_of(readers, &mut receipts).await?;
        delays.push(decided.elapsed());
    }
    let cost = (processor_ms()? - before) / CHANGES as f64;
    println!("events: {readers} readers, {cost:.2} ms of processor time for each change");
    delays.print(&format!("events: until the last of {readers} readers has heard"));
    server.shutdown().await;
    controller.shutdown().await;
    Ok(cost)
}

fn job(name: &str) -> String {
    format!(
        "[[jobs]]\nid = '{name}'\ngpus = {{ h1 = 8, h5 = 8 }}\nflop_per_iteration = 1e15\n\
         compute_seconds = 1.0\n\
         flows = [{{ src = 'h1', dst = 'h5', bytes = 1e9, udp_src_port = 50000 }}]\n"
    )
}

/// Says each time that it reads of a plan.
async fn read(at: SocketAddr, received: mpsc::Sender<()>) -> Result<(), Failed> {
    let mut stream = TcpStream::connect(at).await?;
    let request = "GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut rest = Vec::new();
    loop {
        if stream.read_buf(&mut rest).await? == 0 {
            return Ok(());
        }
        let mut end = 0;
        for (at, window) in rest.windows(MARK.len()).enumerate() {
            if window == MARK {
                end = at + MARK.len();
                received.send(()).await?;
            }
        }
        rest.drain(..end);
    }
}

async fn all_of(readers: usize, receipts: &mut mpsc::Receiver<()>) -> Result<(), Failed> {
    for _ in 0..readers {
        timeout(DEADLINE, receipts.recv()).await?.ok_or("no reader is left")?;
    }
    Ok(())
}

/// Processor time of this process so far; Linux counts it in hundredths of a second.
fn processor_ms() -> Result<f64, Failed> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(") ").ok_or("no fields in /proc/self/stat")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(10 * ticks).as_secs_f64() * 1e3)
}
