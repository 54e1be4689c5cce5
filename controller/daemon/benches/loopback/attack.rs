//! Hostile callers of a controller, in a process of their own.
//!
//! The process is this benchmark again, with [`ATTACK`] as its argument, the kind of the attack and
//! the address of the controller. It attacks until its standard input ends, and then writes how
//! long each refusal took, in microseconds, to its standard output.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Failed;
use crate::samples::Samples;

/// The argument of the process that attacks.
pub(crate) const ATTACK: &str = "--attack";

/// Clients that ask for previews.
const PREVIEWS: usize = 600;
/// Clients that send nested YAML.
const NESTERS: usize = 3;
/// Connections of each kind.
const CONNECTIONS: usize = 2_000;
/// Between a refusal and the next request.
const PAUSE: Duration = Duration::from_millis(50);

/// How long refusals took.
type RefusalTimes = Arc<Mutex<Vec<Duration>>>;

/// What attackers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttackKind {
    /// Clients ask for previews, and again after each answer.
    Previews,
    /// Clients send nested documents.
    NestedYaml,
    /// Connections that send nothing, or a byte a second.
    HeldConnections,
}

const KINDS: [(&str, AttackKind); 3] = [
    ("previews", AttackKind::Previews),
    ("nested-yaml", AttackKind::NestedYaml),
    ("held-connections", AttackKind::HeldConnections),
];

/// A process that attacks until it is ended.
pub(crate) struct AttackProcess(Child);

impl AttackProcess {
    pub(crate) async fn start(at: SocketAddr, kind: AttackKind) -> Result<Self, Failed> {
        let name = KINDS.iter().find(|(_, known)| *known == kind).map(|(name, _)| *name);
        let process = Command::new(std::env::current_exe()?)
            .args([ATTACK, name.ok_or("an unknown attack")?, &at.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self(process))
    }

    /// Ends it; how long its refusals took.
    pub(crate) async fn end(mut self) -> Result<Samples, Failed> {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().await?;
        let mut samples = Samples::default();
        for line in String::from_utf8(output.stdout)?.lines() {
            samples.push(Duration::from_micros(line.parse()?));
        }
        Ok(samples)
    }
}

/// What the process of attackers does.
pub(crate) async fn attack(arguments: &[String]) -> Result<(), Failed> {
    let place = arguments.iter().position(|argument| argument == ATTACK).ok_or("no attack")?;
    let [kind, at] = arguments.get(place + 1..place + 3).ok_or("no kind or address")? else {
        return Err("no kind or address".into());
    };
    let kind = KINDS.iter().find(|(name, _)| name == kind).ok_or("an unknown attack")?.1;
    let (at, refusals) = (at.parse()?, RefusalTimes::default());
    let mut tasks = JoinSet::new();
    match kind {
        AttackKind::Previews => {
            (0..PREVIEWS).for_each(|client| drop(tasks.spawn(preview_again(at, client))));
        }
        AttackKind::NestedYaml => {
            (0..NESTERS).for_each(|_| drop(tasks.spawn(send_yaml(at, refusals.clone()))));
        }
        AttackKind::HeldConnections => {
            (0..2 * CONNECTIONS).for_each(|number| drop(tasks.spawn(hold_connection(at, number))));
        }
    }
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    for refusal in refusals.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{}", refusal.as_micros());
    }
    // Its connections end with the process.
    std::process::exit(0)
}

/// The response to a request from the loopback address `from`.
pub(crate) async fn exchange(
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
async fn send_yaml(at: SocketAddr, refusals: RefusalTimes) {
    let text = "[".repeat(400_000);
    let body = format!(r#"{{"policy": {{"file": "p.yaml", "text": "{text}"}}}}"#);
    loop {
        let begun = Instant::now();
        let answer = exchange(at, 5, "POST /v1/policy/preview", "nester", &body).await;
        if answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 422")) {
            refusals.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed());
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
