//! Every command of the documentation's shell blocks is run, beside a controller with embedded
//! switches whose hosts send, in a folder that has the documents which pages name; or it is in [`NOT_RUN`] with the
//! reason. A test of the help parses all of them. What tutorial and exercises show in `console`
//! blocks is run, and its output compared, by scripts/strangers-hour.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use controller::northbound::local_token;
use controller::{Config, RawConfig};
use planner::JobsDocument;
use topology::document::{self, DocumentFormat};

use super::operations::{self, Stage};
use super::support::{Files, lab};

/// Why a command of a page is parsed and not run.
#[derive(Clone, Copy, Debug)]
enum NotRun {
    /// It runs until it is stopped, or shows a screen.
    Endless,
    /// It needs root, a NIC, a kernel module or a package that is installed.
    Privileges,
    /// It needs data or a service that this test does not have.
    OutsideData,
    /// It takes longer than a test may; by hand, `scripts/strangers-hour` or CI.
    Minutes,
    /// `schedulers` or `operations` run it with what it needs.
    AnotherTest,
}

/// Programs that are run: the one under test, what changes a document of a page, and a client.
const RUN: [&str; 3] = ["crux ", "sed ", "curl "];

/// Beginnings of commands that are not run.
const NOT_RUN: [(&str, NotRun); 36] = [
    ("crux agent --controller", NotRun::Endless),
    ("crux agent --host h1 --jobs jobs.toml --dry-run", NotRun::Endless),
    ("crux agent --once --seconds 20", NotRun::Minutes),
    ("crux agent --queue-pairs", NotRun::Privileges),
    ("crux bench queues --megabytes 4 --seeds 10", NotRun::Minutes),
    ("crux compare --fabric fabric.json", NotRun::Minutes),
    ("crux compare --fabric topology/fabrics/crux-clos-173x16.toml", NotRun::Minutes),
    ("crux context set here", NotRun::Privileges),
    ("crux controller", NotRun::Endless),
    ("crux demo", NotRun::Minutes),
    ("crux events --follow", NotRun::Endless),
    ("crux fabric check ecmp.json", NotRun::OutsideData),
    ("crux fabric check pod.json", NotRun::OutsideData),
    ("crux fabric export containerlab st.json", NotRun::OutsideData),
    ("crux fabric export p4utils ecmp.json", NotRun::OutsideData),
    ("crux fabric import containerlab srl-telemetry-lab", NotRun::OutsideData),
    ("crux fabric import containerlab clos3.yml", NotRun::OutsideData),
    ("crux fabric import p4utils p4-learning", NotRun::OutsideData),
    ("crux fabric import p4utils tutorials", NotRun::OutsideData),
    ("crux fabric import slurm shown.conf", NotRun::OutsideData),
    ("crux fabric rollback", NotRun::AnotherTest),
    ("crux init --service", NotRun::Privileges),
    ("crux jobs kubernetes watch", NotRun::Endless),
    ("crux jobs slurm sync", NotRun::AnotherTest),
    ("crux jobs --controller ctl:9300", NotRun::AnotherTest),
    ("crux replay --trace", NotRun::OutsideData),
    ("crux state restore", NotRun::AnotherTest),
    ("curl -s --cacert", NotRun::AnotherTest),
    ("curl -sN", NotRun::Endless),
    ("crux audit --file", NotRun::AnotherTest),
    ("crux top", NotRun::AnotherTest),
    ("crux switch", NotRun::Privileges),
    ("crux config check /etc", NotRun::Privileges),
    ("crux fabric discover", NotRun::OutsideData),
    ("crux lab", NotRun::Privileges),
    ("crux replay-incident", NotRun::AnotherTest),
];

/// Pages that an operator has beside a live fabric: after each of their commands the wires are
/// compared with the plan.
const OPERATORS_PAGES: [&str; 2] = ["docs/operations.md", "docs/recipes.md"];

/// A command of a page.
struct PageCommand {
    page: String,
    line: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All pages with their texts, by path from the root, ascending.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec!["README.md".to_owned(), "SECURITY.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("{folder}/{name}");
            match name.ends_with(".md") {
                true => paths.push(path),
                false if root().join(&path).is_dir() => folders.push(path),
                false => {}
            }
        }
    }
    paths.sort();
    let read = |path: String| {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The commands of the shell blocks of all pages, in their order.
fn shell_commands() -> Vec<PageCommand> {
    let mut commands = Vec::new();
    for (page, text) in pages() {
        let blocks = text.split("```").skip(1).step_by(2);
        let blocks = blocks.filter_map(|block| block.strip_prefix("sh\n"));
        let lines = blocks.map(|block| block.replace("\\\n", " "));
        for line in lines.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>()) {
            if RUN.iter().any(|program| line.starts_with(program)) {
                commands.push(PageCommand { page: page.clone(), line });
            }
        }
    }
    commands
}

/// A folder with the documents that pages name.
fn files() -> Files {
    let jobs: JobsDocument =
        document::parse_document(operations::JOBS, DocumentFormat::Toml, "jobs.toml").unwrap();
    let jobs_json = document::print_document(&jobs, DocumentFormat::Json).unwrap();
    let lab = lab(2, 200.0, 400.0);
    let files = Files::with(&[
        ("lab.toml", lab.as_bytes()),
        ("clos.toml", lab.as_bytes()),
        ("jobs.json", jobs_json.as_bytes()),
        ("jobs.toml", operations::JOBS.as_bytes()),
        ("policy.toml", b"[[job]]\nmatch = 'bert'\nlevel = 1\n"),
        ("events.toml", b"[[event]]\nafter_seconds = 0.2\nlink_down = 'leaf1-spine1'\n"),
    ]);
    for folder in ["etc", "run", "state", "bin"] {
        std::fs::create_dir(files.path(folder)).unwrap();
    }
    for folder in ["topology", "controller", "bmv2-testbed"] {
        symlink(root().join(folder), files.path(folder)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_crux-lab"), files.path("bin/crux")).unwrap();
    files
}

/// Runs a line as a shell does, in the folder, beside the controller. Folders of services and the
/// address of the example's controller are those of the test.
fn run_line(files: &Files, at: SocketAddr, line: &str) -> Result<(), String> {
    let address = at.to_string();
    let moved = [
        ("10.0.0.1:9300", &*address),
        ("127.0.0.1:9300", &*address),
        ("/etc/crux", "etc"),
        ("/etc/slurm", "etc"),
        ("/run/crux", "run"),
        ("/var/lib/crux", "state"),
        ("~/.local/state", "."),
        // A refusal is a failure.
        ("curl -s ", "curl -s --fail-with-body "),
    ];
    let moved = moved.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
    let line = &moved;
    let paths =
        format!("{}:{}", files.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut shell: Command = files.shell(line);
    shell.env("PATH", paths).env("USER", "ada").env("CRUX_CONTROLLER", &address);
    shell.env("TOKEN", files.text("crux/token").trim());
    shell.envs([("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "h[1-2]")]);
    let output = shell.output().unwrap();
    let [printed, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}\n{printed}{errors}", output.status)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_all_pages_work_as_written() {
    let files = files();
    let mut raw = RawConfig::default();
    raw.store.path = Some(files.path("state/store.redb"));
    let mut config = Config::try_from(raw).unwrap();
    local_token::admit_file_owner(&mut config.northbound, &files.path("crux/token")).unwrap();
    let stage = Stage::open(&config).await;
    let at = stage.address();
    stage.send().await;
    let mut failures = Vec::new();
    let mut unused: Vec<&str> = NOT_RUN.iter().map(|(beginning, _)| *beginning).collect();
    let mut run = 0;
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    for PageCommand { page, line } in shell_commands() {
        let excepted = NOT_RUN.iter().find(|(beginning, _)| line.starts_with(beginning));
        if let Some((beginning, _)) = excepted {
            unused.retain(|one| one != beginning);
            continue;
        }
        if line.starts_with("curl ") && !has_curl {
            println!("left out, no curl: {line}");
            continue;
        }
        run += 1;
        let result = run_line(&files, at, &line);
        failures.extend(result.err().map(|error| format!("{page}: {error}")));
        if OPERATORS_PAGES.contains(&&*page) {
            let contradictions = stage.contradictions().await.into_iter();
            failures.extend(contradictions.map(|what| format!("{page}: after {line}: {what}")));
        }
    }
    stage.close().await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{run} commands were run; no page has {unused:?}");
    assert!(run > 60, "{run} commands were found");
}
