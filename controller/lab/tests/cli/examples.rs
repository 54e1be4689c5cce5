//! Examples of the help, run as they are written there, in a folder with the documents that they
//! name. Those that ask a controller are run with [`operations`](super::operations).

use planner::JobsDocument;
use topology::document::{self, DocumentFormat};

use super::support::{Files, lab, printed};

const JOBS: &str = "
[[jobs]]
id = 'gpt'
gpus = { h1 = 8, h3 = 8 }
flop_per_iteration = 4e12
compute_seconds = 0.02
flows = [{ src = 'h1', dst = 'h3', bytes = 2.4e6, udp_src_port = 50000 }]
[[jobs]]
id = 'bert'
gpus = { h2 = 8, h4 = 8 }
flop_per_iteration = 1e11
compute_seconds = 0.02
flows = [{ src = 'h2', dst = 'h4', bytes = 0.8e6, udp_src_port = 50001 }]
";
const EVENTS: &str = "
[[event]]
after_seconds = 0.2
name = 'the cable fails'
link_down = 'leaf1-spine1'
";
const TRACE: &str = "submitted_seconds,gpus,duration_seconds,id,model
0,8,600,a,gpt-24l/A100
60,16,900,b,gpt-24l/A100
";

const TOPO: &str = "ip,DSW,PSW,ASW
0c9d9de1b19e7f39,G6,P10,S14
525c32e31f7143b7,G6,P12,S2
";

/// An example, and what it prints.
type Example = (&'static str, &'static str);

const EXAMPLES: [Example; 24] = [
    ("crux completions bash > /etc/bash_completion.d/crux", "complete -F _crux"),
    ("crux man crux-plan | man -l -", ".TH crux-plan 1"),
    ("crux schema jobs > jobs.schema.json", "\"$schema\""),
    ("crux fabric expand lab.toml --format json > lab.json", "\"spine2\""),
    ("crux fabric import lingjun topo.csv > lingjun.json", "G6.P10.S14"),
    ("crux fabric check lab.toml", "4 hosts"),
    ("crux fabric export qos lab.toml", "lossless"),
    ("crux policy check policy.toml", "ok"),
    ("crux plan --fabric lab.toml --jobs jobs.json", "gpt"),
    ("crux plan --fabric lab.toml --jobs jobs.json --format json > plan.json", "\"flows\""),
    (
        "crux plan --fabric lab.toml --jobs jobs.json --previous plan.json --flows --timing",
        "planned in",
    ),
    (
        "crux place --fabric lab.toml --jobs jobs.json --gpus 16 --model gpt-24l/A100",
        "gpt iterates",
    ),
    ("crux advise --fabric lab.toml --jobs jobs.toml", "ecmp"),
    ("crux simulate --fabric lab.toml --jobs jobs.toml --scheduler crux", "gpt"),
    (
        "crux simulate --fabric lab.toml --jobs jobs.toml --scheduler varys --seconds 60 \
         --levels 3",
        "gpt",
    ),
    (
        "crux compare --fabric lab.toml --jobs jobs.toml --schedulers ecmp,crux --seconds 60 \
         --levels 3",
        "ecmp",
    ),
    ("crux compare --fabric lab.toml --jobs jobs.toml --html comparison.html", "crux"),
    (
        "crux replay --trace jobs.csv --fabric clos.toml --placement hived --scheduler ecmp,crux",
        "hived",
    ),
    ("crux job rehearse --fabric lab.toml --jobs jobs.json", "gpt"),
    (
        "crux job rehearse --fabric lab.toml --jobs jobs.json --events events.toml",
        "the cable fails after 0.200 s",
    ),
    (
        "crux job rehearse --fabric lab.toml --jobs jobs.json --change policy.toml --iterations 4",
        "largest difference",
    ),
    ("crux bench faults --schedules 1 --seed 4711 --explain", "\"divergent\": []"),
    ("crux bench decisions --cases 1 --seed 1 --first 262", "1 cases of seed 1"),
    ("crux bench forwarding --cases 1 --seed 1 --first 17", "1 cases of seed 1"),
];

fn files() -> Files {
    let jobs: JobsDocument =
        document::parse_document(JOBS, DocumentFormat::Toml, "jobs.toml").unwrap();
    let jobs_json = document::print_document(&jobs, DocumentFormat::Json).unwrap();
    let lab = lab(2, 1.0, 1.0);
    Files::with(&[
        ("lab.toml", lab.as_bytes()),
        ("clos.toml", lab.as_bytes()),
        ("jobs.toml", JOBS.as_bytes()),
        ("jobs.json", jobs_json.as_bytes()),
        ("policy.toml", b"[[job]]\nmatch = 'bert'\nlevel = 7\n"),
        ("events.toml", EVENTS.as_bytes()),
        ("jobs.csv", TRACE.as_bytes()),
        ("topo.csv", TOPO.as_bytes()),
    ])
}

/// The words of a command line without what a shell does with the output, and the file that this
/// goes to, if it is one of the folder.
fn words(line: &str) -> (Vec<&str>, Option<&str>) {
    let (line, to) = match line.split_once(" > ") {
        Some((line, to)) => (line, Some(to).filter(|to| !to.starts_with('/'))),
        None => (line.split(" | ").next().unwrap(), None),
    };
    (line.split(' ').skip(1).collect(), to)
}

/// The help of the command that a line calls, and of those above it.
fn help(files: &Files, words: &[&str]) -> String {
    let is_name = |word: &&&str| word.chars().all(|letter| letter.is_ascii_lowercase());
    let names = words.iter().take_while(is_name).count();
    let helps = (1..=names).map(|names| files.crux(&[&words[..names], &["--help"]].concat()));
    helps.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect()
}

#[test]
fn examples_of_the_help_work_as_written() {
    let files = files();
    for (line, expected) in EXAMPLES {
        let (words, to) = words(line);
        let help = help(&files, &words);
        assert!(help.contains(line), "the help does not show: {line}\n{help}");
        let output = files.crux(&words);
        let printed = printed(&output);
        let errors = String::from_utf8_lossy(&output.stderr);
        let is_there = printed.contains(expected) || errors.contains(expected);
        assert!(is_there, "{line}: no {expected:?} in {printed}{errors}");
        if let Some(to) = to {
            files.write(to, printed);
        }
    }
}
