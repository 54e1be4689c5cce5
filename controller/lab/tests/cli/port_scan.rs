//! A default installation, scanned: what its processes listen on, and what that answers to somebody
//! who shows nothing.
//!
//! Listening sockets are those that the kernel has for the processes, not those that are expected.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::northbound::openapi;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use topology::document::{self, DocumentFormat};
use topology::spec::{self, FabricDocument};

use super::support::{Files, json, lab, printed};
use super::tls_hello::{HelloAnswer, STRONG, TLS12, WEAK, offer};

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);
/// TCP sockets that listen, in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// What a server may answer without a right: nothing of the fabric is in it.
const HEALTH_BYTES: usize = 1_024;

/// A process of the installation; it ends with the test.
struct InstalledProcess(Child);

impl Drop for InstalledProcess {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has seen then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl InstalledProcess {
    fn start(files: &Files, arguments: &[&str]) -> Self {
        let mut command = files.command(arguments);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Clock ticks, of which there are 100 in a second, that it has computed.
    fn processor_ticks(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let (_, fields) = text.rsplit_once(')').unwrap();
        let times = fields.split_whitespace().skip(11).take(2);
        times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// The inodes of its sockets.
    fn socket_inodes(&self) -> BTreeSet<String> {
        let folder = format!("/proc/{}/fd", self.0.id());
        let links = fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let names = links.filter_map(|link| link.into_os_string().into_string().ok());
        names
            .filter_map(|name| Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect()
    }

    /// Its sockets in a table of `/proc/net`: the fields of each row.
    fn socket_rows(&self, table: &str, inode_field: usize) -> Vec<Vec<String>> {
        let own = self.socket_inodes();
        let text = fs::read_to_string(format!("/proc/{}/net/{table}", self.0.id())).unwrap();
        let rows = text.lines().skip(1);
        let rows = rows.map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        rows.filter(|row| row.get(inode_field).is_some_and(|inode| own.contains(inode))).collect()
    }

    /// Ports that it listens on, by TCP; and that nothing else of it can be reached from outside.
    fn listening_ports(&self) -> Vec<u16> {
        for table in ["udp", "udp6", "raw", "raw6"] {
            assert_eq!(self.socket_rows(table, 9), Vec::<Vec<String>>::new(), "{table}");
        }
        // The eighth field is the path of a socket that others can connect to.
        let unix = self.socket_rows("unix", 6);
        assert!(unix.iter().all(|row| row.len() < 8), "{unix:?}");
        let rows = ["tcp", "tcp6"].into_iter().flat_map(|table| self.socket_rows(table, 9));
        let listening = rows.filter(|row| row[3] == LISTEN);
        listening
            .map(|row| u16::from_str_radix(row[1].rsplit(':').next().unwrap(), 16).unwrap())
            .collect()
    }

    /// Waits until it listens on one port, and returns it.
    fn only_port(&self) -> SocketAddr {
        let begun = Instant::now();
        loop {
            match self.listening_ports()[..] {
                [port] => return SocketAddr::from(([127, 0, 0, 1], port)),
                [] => assert!(begun.elapsed() < DEADLINE, "it listens on nothing"),
                ref several => panic!("it listens on {several:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What `crux init` makes for a fabric, and the programs that run with it.
struct InitializedFabric {
    files: Files,
    switches: Vec<(InstalledProcess, SocketAddr)>,
    controller: InstalledProcess,
    northbound: SocketAddr,
}

impl InitializedFabric {
    fn start() -> Self {
        let text = lab(1, 200.0, 400.0);
        let fabric = spec::parse_fabric(&text, DocumentFormat::Toml, "lab.toml").unwrap();
        let mut explicit = spec::explicit_document(&fabric);
        let print = |explicit: &FabricDocument| {
            document::print_document(explicit, DocumentFormat::Json).unwrap()
        };
        let files = Files::with(&[("fabric.json", print(&explicit).as_bytes())]);
        let init = ["init", "--folder", "id", "--fabric", "fabric.json"];
        printed(&files.crux(&[&init[..], &["--listen", "127.0.0.1:0"]].concat()));
        let mut switches = Vec::new();
        for switch in &mut explicit.switches {
            let process = start_switch(&files, &switch.name, switch.device_id);
            let address = process.only_port();
            switch.p4runtime = Some(address.to_string());
            switches.push((process, address));
        }
        files.write("fabric.json", &print(&explicit));
        let arguments = ["controller", "--config", "id/controller.toml", "--fabric", "fabric.json"];
        let mut controller = InstalledProcess::start(&files, &arguments);
        // The first line says that all switches hold the plan: the doors that are closed to others
        // are open to it.
        let mut line = String::new();
        BufReader::new(controller.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the controller ended");
        let northbound = controller.only_port();
        Self { files, switches, controller, northbound }
    }

    fn trusted_roots(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.files.path("id/ca.pem")).unwrap();
        roots.add(authority).unwrap();
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }
}

fn start_switch(files: &Files, name: &str, device_id: u64) -> InstalledProcess {
    let [certificate, key] = ["pem", "key.pem"].map(|kind| format!("id/switch-{name}.{kind}"));
    let id = device_id.to_string();
    InstalledProcess::start(
        files,
        &[
            &["switch", "--no-p4", "--device-id", &id, "--priority-queues", "8"][..],
            &["--grpc-server-addr", "127.0.0.1:0", "--grpc-server-ssl"],
            &["--grpc-server-cert", &certificate, "--grpc-server-key", &key],
            &["--grpc-server-cacert", "id/ca.pem", "--grpc-server-with-client-auth"],
            &["--allow-role", "=controller.crux"],
        ]
        .concat(),
    )
}

/// What a server answers to these bytes in the clear.
fn ask_in_the_clear(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request).unwrap();
    let _closed = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _reset = stream.take(1 << 20).read_to_end(&mut answer);
    answer
}

/// The answer over TLS to a request without credentials; none if there is no connection.
async fn ask(server: SocketAddr, tls: &Arc<ClientConfig>, request: &str) -> Option<String> {
    let tcp = TcpStream::connect(server).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await.ok()?;
    let request = format!("{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().ok()?;
    (!answer.is_empty()).then_some(answer)
}

/// Every operation of the HTTP interface, with a name where it needs one.
fn documented_requests() -> Vec<String> {
    let document = openapi::openapi_document();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, operations)| {
        let path = path.replace("{name}", "gpt");
        let methods = operations.as_object().unwrap().keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    operations.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_installation_answers_strangers_with_health_alone() {
    let installation = InitializedFabric::start();
    let tls = installation.trusted_roots();
    let controller = installation.northbound;

    let health = ask(controller, &tls, "GET /health").await.unwrap();
    assert!(health.starts_with("HTTP/1.1 200") && health.len() < HEALTH_BYTES, "{health}");
    assert!(!health.contains("leaf") && !health.contains("spine"), "{health}");
    let mut requests = documented_requests();
    assert!(requests.len() > 12, "{requests:?}");
    requests.extend(["GET /metrics", "GET /v1/events", "POST /v1/session"].map(str::to_owned));
    let rpcs =
        ["crux.northbound.v1.Northbound/ListJobs", "crux.telemetry.v1.Telemetry/StreamReports"];
    requests.extend(rpcs.map(|rpc| format!("POST /{rpc}")));
    requests.push("POST /grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned());
    for request in requests.iter().filter(|request| *request != "GET /health") {
        let answer = ask(controller, &tls, request).await.unwrap();
        let is_refused = ["401", "403", "415"].iter().any(|status| answer[9..].starts_with(status));
        assert!(is_refused, "{request}: {answer}");
        assert!(!answer.contains("leaf") && !answer.contains("spine"), "{request}: {answer}");
    }
    for (_, switch) in &installation.switches {
        assert_eq!(ask(*switch, &tls, "POST /p4.v1.P4Runtime/Capabilities").await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_port_speaks_in_the_clear_or_with_weak_versions_and_ciphers() {
    let installation = InitializedFabric::start();
    let request = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let answer = ask_in_the_clear(installation.northbound, request);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https"), "{answer}");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let switches = installation.switches.iter().map(|(_, address)| *address);
    for switch in switches.clone() {
        // Nothing, or the alert that this is no TLS: no frame of HTTP/2.
        let answer = ask_in_the_clear(switch, preface);
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    }
    for server in switches.chain([installation.northbound]) {
        assert_eq!(offer(server, TLS12, STRONG), HelloAnswer::Accepted, "{server}");
        for version in [0x0300, 0x0301, 0x0302] {
            assert_eq!(offer(server, version, STRONG), HelloAnswer::Refused, "{version:#x}");
        }
        for cipher in WEAK {
            assert_eq!(offer(server, TLS12, &[*cipher]), HelloAnswer::Refused, "{cipher:#x}");
        }
    }
    let audit = ["audit", "--verify", "--file", "id/store.audit", "--format", "json"];
    assert!(json(&installation.files.crux(&audit)).to_string().contains("started"));
    assert_eq!(installation.controller.listening_ports().len(), 1, "still one");
}

/// Files of an installation that anybody may read: certificates, their list, the configuration.
fn is_public(name: &str) -> bool {
    let is_certificate = name.ends_with(".pem") && !name.ends_with(".key.pem");
    is_certificate
        || name.ends_with(".toml")
        || ["certificates.json", "revoked.json"].contains(&name)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_default_installation_writes_is_its_own() {
    let installation = InitializedFabric::start();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(installation.files.path("id")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let metadata = entry.metadata().unwrap();
        let forbidden = if is_public(&name) { 0o022 } else { 0o077 };
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode & forbidden, 0, "{name} has mode {mode:o}");
        found.insert(name);
    }
    // Keys, tokens, the store with its mark, and the trail are among them.
    for name in ["ca.key.pem", "controller.key.pem", "operator.token", "store", "store.audit"] {
        assert!(found.iter().any(|known| known.starts_with(name)), "{name}: {found:?}");
    }
}

/// The certificate that a server presents.
async fn presented_certificate(server: SocketAddr, tls: &Arc<ClientConfig>) -> Vec<u8> {
    let tcp = TcpStream::connect(server).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_presents_a_renewed_certificate_without_a_restart() {
    let installation = InitializedFabric::start();
    let tls = installation.trusted_roots();
    let (_, switch) = installation.switches[0];
    let before = presented_certificate(switch, &tls).await;
    printed(&installation.files.crux(&["cert", "renew", "--folder", "id", "switch-leaf1"]));
    let renewed = installation.files.path("id/switch-leaf1.pem");
    let renewed = CertificateDer::from_pem_file(renewed).unwrap();
    assert_ne!(before, renewed.to_vec());
    let begun = Instant::now();
    while presented_certificate(switch, &tls).await != renewed.to_vec() {
        assert!(begun.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Descriptors of a switch that has too few: those that it starts with, and some connections.
const DESCRIPTORS: usize = 40;

/// Finding H6: a switch without descriptors tried to accept connections in a loop.
#[test]
fn a_switch_without_descriptors_waits() {
    let limited = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"");
    let switch = Command::new("sh")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_crux-lab"), "switch", "--no-p4"])
        .args(["--device-id", "1", "--grpc-server-addr", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let switch = InstalledProcess(switch.unwrap());
    let address = switch.only_port();
    let held: Vec<_> =
        (0..2 * DESCRIPTORS).filter_map(|_| std::net::TcpStream::connect(address).ok()).collect();
    assert!(held.len() > DESCRIPTORS, "only {} connections", held.len());
    std::thread::sleep(Duration::from_millis(500));
    let before = switch.processor_ticks();
    std::thread::sleep(Duration::from_secs(2));
    let spent = switch.processor_ticks() - before;
    assert!(spent < 50, "{spent} of 200 ticks");
}
