//! `crux init` and `crux cert`: a fabric that is closed to others, and whose parts trust each
//! other.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use controller::southbound::SwitchStatus;
use controller::{Config, Controller, northbound};
use planner::Policy;
use switch::{DeviceConfig, EmulatedNetworkBuilder};
use switch_server::p4runtime::{AllowedRole, RoleRules, ServiceOptions, ServiceTls, serve};
use tokio::net::TcpListener;
use tokio::time::timeout;
use topology::SwitchId;
use topology::document::{self, DocumentFormat};
use topology::spec;

use super::support::{Files, RunningProcess, json, lab, printed, refused};

const INIT: [&str; 7] = ["init", "--folder", "id", "--fabric", "fabric.json", "--format", "json"];

/// The configuration that `crux init` made: explained, and accepted by `crux config check`.
fn made_configuration(files: &Files) -> Config {
    let checked = json(&files.crux(&["config", "check", "id/controller.toml", "--format", "json"]));
    let changed = checked["changed"].as_array().unwrap();
    assert!(changed.iter().any(|field| field["field"] == "northbound.listen"), "{checked}");
    let text = files.text("id/controller.toml");
    assert!(text.contains("\n# Updates in one write request."), "{text}");
    Config::parse_text(&text, DocumentFormat::Toml, "controller.toml").unwrap()
}

/// The first line of what a program prints.
async fn first_line(output: Option<impl Read + Send + 'static>) -> String {
    let reading = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        BufReader::new(output.unwrap()).read_line(&mut line).unwrap();
        line
    });
    reading.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_fabric_is_closed_and_its_parts_trust_each_other() {
    let text = lab(1, 200.0, 400.0);
    let fabric = spec::parse_fabric(&text, DocumentFormat::Toml, "lab.toml").unwrap();
    let mut explicit = spec::explicit_document(&fabric);
    let mut listeners = Vec::new();
    for switch in &mut explicit.switches {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        switch.p4runtime = Some(listener.local_addr().unwrap().to_string());
        listeners.push(listener);
    }
    let text = document::print_document(&explicit, DocumentFormat::Json).unwrap();
    let fabric = spec::parse_fabric(&text, DocumentFormat::Json, "fabric.json").unwrap();
    let files = Files::with(&[("fabric.json", text.as_bytes())]);
    let made = json(&files.crux(&INIT));
    assert_eq!(made["certificates"].as_array().unwrap().len(), 5, "{made}");
    for secret in ["ca.key.pem", "controller.key.pem", "switch-leaf1.key.pem", "operator.token"] {
        let mode = files.path("id").join(secret).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    refused(&files.crux(&INIT), &["there is an authority already"]);

    let mut builder = EmulatedNetworkBuilder::new();
    let device =
        |device_id| DeviceConfig { device_id, cpu_port: 255, levels: 8, trusts_dscp: false };
    let switches = fabric.switches().iter();
    let devices: Vec<_> =
        switches.map(|switch| builder.add_device(device(switch.device_id))).collect();
    let handle = builder.spawn().unwrap();
    let client = Some("controller.crux".to_owned());
    let roles = RoleRules(vec![AllowedRole { role: String::new(), client }]);
    let tls_of = |name: &str| {
        let read = |name: &str| std::fs::read(files.path("id").join(name)).unwrap();
        ServiceTls {
            certificate: read(&format!("switch-{name}.pem")),
            key: read(&format!("switch-{name}.key.pem")),
            client_roots: Some(read("ca.pem")),
            revoked: Some(read("revoked.pem")),
        }
    };
    let mut servers = Vec::new();
    for ((switch, listener), device) in fabric.switches().iter().zip(listeners).zip(devices) {
        let tls = Some(tls_of(&switch.name));
        let options = ServiceOptions { tls, roles: roles.clone(), ..ServiceOptions::default() };
        servers.push(serve(listener, handle.device(device), options).await.unwrap());
    }
    printed(&files.crux(&["cert", "add", "--folder", "id", "client", "client.crux"]));
    let mut raw = made_configuration(&files).effective_raw().clone();
    let tls = raw.northbound.tls.as_mut().unwrap();
    tls.client_roots = Some(files.path("id/ca.pem"));
    tls.revoked = Some(files.path("id/revoked.pem"));
    let config = Config::try_from(raw).unwrap();
    let leaf1 = fabric.switches().iter().position(|switch| switch.name == "leaf1").unwrap();
    let started = Controller::start(config.clone(), fabric, Policy::default());
    let controller = started.await.unwrap();
    let generation = controller.desired_tables().generation;
    controller.await_verified(generation, Duration::from_secs(60)).await.unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = northbound::start_server(listener, controller.access(), &config).unwrap();
    let at = server.local_addr().to_string();
    let identity = ["--cert", "id/client.pem", "--key", "id/client.key.pem"];
    let jobs = ["jobs", "--controller", &at, "--ca", "id/ca.pem"];
    let jobs = [&jobs[..], &identity, &["--token-file"]].concat();
    printed(&files.crux(&[&jobs[..], &["id/operator.token"]].concat()));
    let output = files.crux(&[&jobs[..], &["id/report.token"]].concat());
    assert!(!output.status.success(), "reports only");
    let audit = ["audit", "--verify", "--file", "id/store.audit"];
    let audited = files.crux(&audit);
    assert!(printed(&audited).contains(" verified, up to"), "{audited:?}");
    // What the mark of the store knows is missed also where no controller is asked.
    let copy = ["audit", "--verify", "--file", "id/copy.audit"];
    std::fs::write(files.path("id/copy.audit"), files.text("id/store.audit")).unwrap();
    let unmarked = files.crux(&copy);
    let unmarked = printed(&unmarked);
    assert!(unmarked.contains("no store has a mark of this trail"), "{unmarked}");
    std::fs::write(files.path("id/copy.audit"), "").unwrap();
    let emptied = files.crux(&[&copy[..], &["--store", "id/store"]].concat());
    let error = String::from_utf8_lossy(&emptied.stderr);
    assert!(!emptied.status.success() && error.contains("records 1 to 1 are missing"), "{error}");

    let elsewhere = files.crux(&[&copy[..], &["--store", "id/nothing"]].concat());
    let error = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(!elsewhere.status.success() && error.contains("no mark of a trail"), "{error}");

    // Two certificates are stolen: a switch's, whose session is open, and a client's, which follows
    // the events.
    let follow = ["events", "--follow", "--controller", &at, "--ca", "id/ca.pem"];
    let follow = [&follow[..], &identity, &["--token-file", "id/operator.token"]].concat();
    let stolen = ["cert", "revoke", "--folder", "id", "switch-leaf1", "client"];
    let mut follower = files.command(&follow);
    let follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut follower = RunningProcess(follower);
    assert!(!first_line(follower.0.stdout.take()).await.is_empty());
    let revoked = files.crux(&stolen);
    let revoked = printed(&revoked);
    assert!(revoked.contains("now") && revoked.contains("tls.revoked"), "{revoked}");
    assert!(printed(&files.crux(&stolen)).contains("before"));
    let list = files.crux(&["cert", "list", "--folder", "id"]);
    let list = printed(&list);
    assert_eq!(list.matches("revoked").count(), 2, "{list}");
    let is_revoked = |line: &SwitchStatus| {
        line.last_error.as_ref().is_some_and(|error| error.contains("Revoked"))
    };
    let refused_ones = |lines: &BTreeMap<SwitchId, SwitchStatus>| -> Vec<SwitchId> {
        lines.iter().filter(|(_, line)| is_revoked(line)).map(|(id, _)| *id).collect()
    };
    let board = controller.status_board();
    let waiting = board.wait_until(|lines| !refused_ones(lines).is_empty());
    let lines = timeout(Duration::from_secs(60), waiting).await.unwrap();
    assert_eq!(refused_ones(&lines), [SwitchId(u32::try_from(leaf1).unwrap())]);
    // Callers and switches are asked about at times of their own.
    let ended = timeout(Duration::from_secs(60), first_line(follower.0.stderr.take())).await;
    assert!(ended.unwrap().contains("lost the controller"));
    let output = files.crux(&[&jobs[..], &["id/operator.token"]].concat());
    assert!(!output.status.success(), "{output:?}");

    printed(&files.crux(&["cert", "renew", "--folder", "id", "switch-leaf1", "client"]));
    servers[leaf1].replace_certificates(&tls_of("leaf1")).unwrap();
    controller.await_verified(generation, Duration::from_secs(60)).await.unwrap();
    printed(&files.crux(&[&jobs[..], &["id/operator.token"]].concat()));
    server.shutdown().await;
    controller.shutdown().await;
}

#[test]
fn certificates_are_renewed_by_the_same_authority() {
    let mut explicit = lab(1, 200.0, 400.0);
    explicit.push('\n');
    let files = Files::with(&[("fabric.toml", explicit.as_bytes())]);
    printed(&files.crux(&["init", "--folder", "id", "--fabric", "fabric.toml"]));
    let [certificate, authority] = [files.text("id/controller.pem"), files.text("id/ca.pem")];
    printed(&files.crux(&["cert", "renew", "--folder", "id", "controller"]));
    assert_ne!(files.text("id/controller.pem"), certificate);
    assert_eq!(files.text("id/ca.pem"), authority);
    let unknown = files.crux(&["cert", "renew", "--folder", "id", "leaf9"]);
    refused(&unknown, &["no such certificate"]);
    let add = ["cert", "add", "--folder", "id", "switch-leaf9", "leaf9.switch.crux", "10.0.0.9"];
    printed(&files.crux(&add));
    refused(&files.crux(&add), &["already", "cert renew"]);
    refused(&files.crux(&["cert", "add", "--folder", "id", "../x", "x"]), &["no folder"]);
    let listed = json(&files.crux(&["cert", "list", "--folder", "id", "--format", "json"]));
    let rows = listed.as_array().unwrap();
    let days: Vec<i64> = rows.iter().map(|row| row["days"].as_i64().unwrap()).collect();
    // The authority for ten years, the others for about one, and not all until the same day.
    assert!(
        days[0] >= 3_640 && days[1..].iter().all(|days| (330..=365).contains(days)),
        "{days:?}"
    );
    assert_eq!(rows.last().unwrap()["names"][1], "10.0.0.9");
    files.write("id/switch-leaf9.pem", "no certificate");
    let output = files.crux(&["cert", "list", "--folder", "id"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("1 certificate ended or unreadable"), "{errors}");
}

#[test]
fn a_controller_checks_its_documents_without_starting() {
    let fabric = lab(2, 200.0, 400.0);
    let job = |id: &str, host: &str| {
        format!(
            "[[jobs]]\nid = \"{id}\"\ngpus = {{ h1 = 1, {host} = 1 }}\n\
             flop_per_iteration = 1e15\ncompute_seconds = 1.0\n\
             collective = {{ kind = \"ring_all_reduce\", bytes = 1e9 }}\n"
        )
    };
    let jobs = job("a", "h2") + &job("b", "h99");
    let files = Files::with(&[("fabric.toml", fabric.as_bytes()), ("jobs.toml", jobs.as_bytes())]);
    let check = ["controller", "--fabric", "fabric.toml", "--check"];
    assert!(printed(&files.crux(&check)).contains("ok: "));
    let output = files.crux(&[&check[..], &["--jobs", "jobs.toml"]].concat());
    let [table, errors] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(!output.status.success() && errors.contains("1 job would be left out"), "{errors}");
    assert!(table.contains("job b") && table.contains("h99"), "{table}");
}

#[test]
fn files_for_the_packaged_services_are_complete() {
    let fabric = include_str!("../../../../scripts/packaging/examples/local.toml");
    let files = Files::with(&[("local.toml", fabric.as_bytes())]);
    let made = files.crux(&["init", "--service", "--folder", "etc", "--fabric", "local.toml"]);
    printed(&made);
    let text = files.text("etc/fabric.toml");
    let copy = spec::parse_fabric(&text, DocumentFormat::Toml, "fabric.toml").unwrap();
    let given = spec::parse_fabric(fabric, DocumentFormat::Toml, "local.toml").unwrap();
    assert_eq!(copy, given);
    assert!(files.text("etc/controller.toml").contains("path = \"/var/lib/crux/state.redb\""));
    for switch in given.switches() {
        let flags = files.text(&format!("etc/switch-{}.conf", switch.name));
        assert!(
            flags.contains(&format!("--grpc-server-addr {}", switch.p4runtime.as_ref().unwrap()))
        );
        assert!(flags.contains("--grpc-server-with-client-auth --allow-role =controller.crux"));
    }
}

/// Found by attack: a full disk left half an authority, a umask of 0 files that everybody may change,
/// and names went into files and certificates as they were.
#[test]
fn an_authority_is_whole_or_not_there_and_of_its_owner() {
    let fabric = include_str!("../../../../scripts/packaging/examples/local.toml");
    let files = Files::with(&[("local.toml", fabric.as_bytes())]);
    let init = ["init", "--folder", "id", "--fabric", "local.toml"];
    for name in ["", "../../x", "*.evil", "a\u{1b}[2J", "host:9300", "a..b", "-x"] {
        let named = format!("--name={name}");
        refused(&files.crux(&[&init[..], &[&named]].concat()), &["--name", "no wildcard"]);
    }
    let line = format!("umask 0; {} {}", env!("CARGO_BIN_EXE_crux-lab"), init.join(" "));
    // The files of certificates are smaller than a kilobyte, and the configuration is not.
    let half = files.shell(&format!("ulimit -f 1; {line}")).output().unwrap();
    assert!(!half.status.success());
    assert!(!files.path("id/ca.key.pem").exists() && !files.path("id/ca.pem").exists());
    printed(&files.shell(&line).output().unwrap());
    let mut entries = std::fs::read_dir(files.path("id")).unwrap();
    assert!(entries.all(|entry| {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        entry.file_type().unwrap().is_file() && mode & 0o022 == 0
    }));
    assert_eq!(files.path("id").metadata().unwrap().permissions().mode() & 0o777, 0o755);

    let open = files.path("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let init = ["init", "--folder", "open", "--fabric", "local.toml"];
    refused(&files.crux(&init), &["everybody may write to it"]);
}

#[test]
fn a_switch_with_gnmi_on_another_address_has_both_in_its_certificate_and_serves_both() {
    let text = include_str!("../../../../scripts/packaging/examples/local.toml");
    let given = spec::parse_fabric(text, DocumentFormat::Toml, "local.toml").unwrap();
    let mut explicit = spec::explicit_document(&given);
    explicit.switches[0].gnmi = Some("[::2]:9339".to_owned());
    explicit.switches[1].gnmi = Some("gnmi.example:9339".to_owned());
    let text = document::print_document(&explicit, DocumentFormat::Json).unwrap();
    let files = Files::with(&[("fabric.json", text.as_bytes())]);
    let made = json(&files.crux(&[
        "init",
        "--service",
        "--folder",
        "etc",
        "--fabric",
        "fabric.json",
        "--format",
        "json",
    ]));
    let [first, second] = [1, 2].map(|index| made["certificates"][index]["names"].clone());
    assert_eq!(first[2], "::2", "{made}");
    assert_eq!(second[2], "gnmi.example", "{made}");
    let flags = |index: usize| {
        let name = &explicit.switches[index].name;
        files.text(&format!("etc/switch-{name}.conf"))
    };
    assert!(flags(0).contains(" --gnmi [::2]:9339"), "{}", flags(0));
    assert!(flags(1).contains(" --gnmi 0.0.0.0:9339"), "{}", flags(1));
    assert!(!flags(2).contains("--gnmi"), "{}", flags(2));
}
