//! What hostile callers cost a controller of 500 switches, 28 of which answer, and everybody else.
//!
//! Four times the same measurements are taken: repairs after a cable has failed, and the answer to
//! a reader of jobs. First nobody else calls; then 600 clients ask for previews, three send nested
//! YAML, and 4,000 connections are half-open or slow, while switches restart. The decision: the
//! controller, its northbound address and the clients are in this process, the switches in another
//! ([`Fleet`]). The clients' share of its memory is counted as the controller's.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use controller::config::{AccessRole, RawToken};
use controller::hexadecimal::encode_hex;
use controller::liveness::{FabricPart, PartHealth};
use controller::{Config, ControllerHandle, RawConfig, StateEvent, northbound};
use planner::{Flow, Job};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use topology::{Fabric, HostId, LinkId, SwitchId, Tier};

use crate::fleet::{self, Fleet};
use crate::lab::{control, job};
use crate::samples::Samples;
use crate::{DEADLINE, Failed};

/// How long previews are asked for, and connections are held.
const ATTACK: Duration = Duration::from_secs(60);
/// How long everything else is measured.
const QUIET: Duration = Duration::from_secs(20);
/// Clients that ask for previews.
const PREVIEWS: usize = 600;
/// Connections of each kind.
const CONNECTIONS: usize = 2_000;
/// Between two requests of the reader, and between two repairs.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than a plan for all switches takes.
const PLAN_DEADLINE: Duration = Duration::from_secs(300);
const JOBS: u32 = 100;

pub(crate) async fn measure() -> Result<(), Failed> {
    let mut fleet = Fleet::start().await?;
    let controller = start_controller(&fleet.fabric).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let config = Config::try_from(closed())?;
    let server = northbound::start_server(listener, controller.access(), &config)?;
    let at = server.local_addr();
    println!(
        "tables of 500 switches, 28 of them verified; resident memory {} MiB",
        resident_mib()?
    );
    let measured = Measured { controller: &controller, fabric: &fleet.fabric.clone(), at };

    measured.watch("nobody else calls", QUIET, Attack::default()).await?;
    let attack = Attack::default();
    for client in 0..PREVIEWS {
        attack.spawn(preview_again(at, client));
    }
    measured.watch("600 clients ask for previews", ATTACK, attack).await?;
    let attack = Attack::default();
    for _ in 0..3 {
        attack.spawn(send_yaml(at, attack.longest_us.clone()));
    }
    measured.watch("three clients send 400 kB of nested YAML", QUIET, attack).await?;
    let attack = Attack::default();
    for number in 0..2 * CONNECTIONS {
        attack.spawn(hold_connection(at, number));
    }
    let restarts = restart_switches(&mut fleet, &controller);
    let what = "2,000 half-open and 2,000 slow connections, and leaves restart";
    let (watched, restarted) = tokio::join!(measured.watch(what, ATTACK, attack), restarts);
    watched?;
    restarted?.print("  a leaf that restarts, until it is verified again");
    controller.shutdown().await;
    Ok(())
}

/// Tasks of attackers, which end when they are dropped.
#[derive(Default)]
struct Attack {
    tasks: RefCell<JoinSet<()>>,
    /// The longest that an attacker waited for a refusal, microseconds.
    longest_us: Arc<AtomicU64>,
}

impl Attack {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.borrow_mut().spawn(task);
    }
}

struct Measured<'a> {
    controller: &'a ControllerHandle,
    fabric: &'a Fabric,
    at: SocketAddr,
}

impl Measured<'_> {
    /// Measures while an attack goes on, and prints the figures.
    async fn watch(&self, what: &str, lasts: Duration, attack: Attack) -> Result<(), Failed> {
        println!("{what}");
        let ends = Instant::now() + lasts;
        let (repairs, reads, memory) =
            tokio::join!(self.repair_until(ends), self.read_until(ends), peak_memory(ends));
        repairs?.print("  a cable that fails, until its ports are out of use");
        reads?.print("  GET /v1/jobs of another caller");
        println!("  resident memory at most {} MiB", memory?);
        let longest = attack.longest_us.load(Ordering::Relaxed);
        if longest > 0 {
            println!("  refused after {:.2} ms at most", longest as f64 / 1e3);
        }
        Ok(())
    }

    async fn repair_until(&self, ends: Instant) -> Result<Samples, Failed> {
        let leaves = self.fabric.switches_of_tier(Tier::Leaf);
        let cables: Vec<LinkId> =
            leaves.map(|leaf| self.fabric.up_links(leaf)[0]).take(10).collect();
        let mut samples = Samples::default();
        for cable in cables.iter().cycle() {
            if Instant::now() >= ends {
                break;
            }
            let generation = self.controller.desired_tables().generation;
            let begun = Instant::now();
            self.controller.report_health(FabricPart::Cable(*cable), PartHealth::Down).await?;
            let ports = self.controller.await_verified(generation + 1, DEADLINE).await?;
            samples.push(ports.verified - begun);
            self.controller.report_health(FabricPart::Cable(*cable), PartHealth::Up).await?;
            self.settle().await?;
        }
        Ok(samples)
    }

    /// Waits until everything so far is planned and verified.
    async fn settle(&self) -> Result<(), Failed> {
        sleep(PAUSE).await;
        let policy = planner::Policy::default();
        let receipt = self.controller.submit_event(StateEvent::PolicyChanged(policy)).await?;
        self.controller.await_verified(receipt.generation, PLAN_DEADLINE).await?;
        Ok(())
    }

    async fn read_until(&self, ends: Instant) -> Result<Samples, Failed> {
        let mut samples = Samples::default();
        while Instant::now() < ends {
            let begun = Instant::now();
            let answer = exchange(self.at, 1, "GET /v1/jobs", "reader", "").await?;
            if !answer.starts_with("HTTP/1.1 200") {
                return Err(format!("the reader is refused: {answer}").into());
            }
            samples.push(begun.elapsed());
            sleep(PAUSE).await;
        }
        Ok(samples)
    }
}

async fn start_controller(fabric: &Fabric) -> Result<ControllerHandle, Failed> {
    let fast = |raw: &mut RawConfig| {
        *raw = closed();
        raw.liveness.hold_down_ms = 1;
        raw.liveness.hold_down_longest_ms = 1;
    };
    let controller = control(fabric, fast).await?;
    let jobs = (0..JOBS).map(|number| pair_job(fabric, number)).collect();
    let receipt = controller.submit_event(StateEvent::JobsChanged(jobs)).await?;
    controller.await_verified(receipt.generation, PLAN_DEADLINE).await?;
    Ok(controller)
}

/// A job of two hosts on different leaves.
fn pair_job(fabric: &Fabric, number: u32) -> Job {
    let [from, to] = [HostId(number % 10), HostId(10 + number % 10)];
    let flow = |port: u16| Flow {
        src: fabric.host(from).nics[0],
        dst: fabric.host(to).nics[0],
        bytes: 1e9,
        udp_src_port: Some(0xC000 + 4 * number as u16 + port),
    };
    job(number, [from, to].into_iter(), (0..4).map(flow))
}

/// A configuration with one token for each kind of caller.
fn closed() -> RawConfig {
    let mut raw = RawConfig::default();
    let names = ["reader", "previewer0", "previewer1", "previewer2", "nester"];
    let tokens = names.map(|name| RawToken {
        name: name.to_owned(),
        role: AccessRole::Read,
        sha256: encode_hex(&Sha256::digest(name)),
        hosts: Vec::new(),
        tenants: Vec::new(),
    });
    raw.northbound.tokens = tokens.to_vec();
    raw
}

/// The response to a request from the loopback address `from`.
async fn exchange(
    at: SocketAddr,
    from: u8,
    what: &str,
    token: &str,
    body: &str,
) -> Result<String, Failed> {
    let mut stream = connect(at, from).await?;
    let length = body.len();
    let request = format!(
        "{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\nauthorization: Bearer {token}\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn connect(at: SocketAddr, from: u8) -> Result<TcpStream, Failed> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, from)), 0))?;
    Ok(socket.connect(at).await?)
}

/// Asks for a preview, and again after every answer.
async fn preview_again(at: SocketAddr, client: usize) {
    let body = r#"{"policy": {"file": "p.toml", "text": "fairness = 0.2"}}"#;
    let token = format!("previewer{}", client % 3);
    loop {
        let from = 2 + (client % 3) as u8;
        let answer = exchange(at, from, "POST /v1/policy/preview", &token, body).await;
        if !answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            // What `Retry-After` says.
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Sends nested YAML, and again after every refusal.
async fn send_yaml(at: SocketAddr, longest_us: Arc<AtomicU64>) {
    let text = "[".repeat(400_000);
    let body = format!(r#"{{"policy": {{"file": "p.yaml", "text": "{text}"}}}}"#);
    loop {
        let begun = Instant::now();
        let answer = exchange(at, 5, "POST /v1/policy/preview", "nester", &body).await;
        if answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 422")) {
            longest_us.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
        sleep(PAUSE).await;
    }
}

/// Holds a connection that sends nothing, or a byte of its headers a second; opens another one when
/// it is closed.
async fn hold_connection(at: SocketAddr, number: usize) {
    let from = 10 + (number % 10) as u8;
    loop {
        if let Ok(mut stream) = connect(at, from).await {
            if number.is_multiple_of(2) {
                drop(stream.read(&mut [0; 1]).await);
            } else {
                drop(stream.write_all(b"GET /v1/jobs HTTP/1.1\r\nx-slow: ").await);
                while stream.write_all(b"x").await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Restarts one leaf after the other; how long each takes until it is verified again.
async fn restart_switches(
    fleet: &mut Fleet,
    controller: &ControllerHandle,
) -> Result<Samples, Failed> {
    let (mut samples, ends) = (Samples::default(), Instant::now() + ATTACK);
    for switch in (10..fleet::LEAVES).map(SwitchId).cycle() {
        if Instant::now() >= ends {
            break;
        }
        let board = controller.status_board();
        let before = board.switch_status(switch).map_or(0, |status| status.failures);
        let begun = Instant::now();
        fleet.restart_switch(switch).await?;
        let is_back = board.wait_until(|statuses| {
            let status = statuses.get(&switch);
            status.is_some_and(|status| status.failures > before && status.verified.is_some())
        });
        timeout(DEADLINE, is_back).await?;
        samples.push(begun.elapsed());
        sleep(PAUSE).await;
    }
    Ok(samples)
}

/// The most resident memory of this process until then, MiB.
async fn peak_memory(ends: Instant) -> Result<u64, Failed> {
    let mut peak = 0;
    while Instant::now() < ends {
        peak = peak.max(resident_mib()?);
        sleep(PAUSE).await;
    }
    Ok(peak)
}

fn resident_mib() -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? / 1_024)
}
