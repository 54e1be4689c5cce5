//! Which controller a command talks to: its option, then the environment, then the context.

use std::process::Output;

use super::support::{Files, json, printed, refused};

/// Ports that nobody serves, so that the error says where the command went.
fn asked(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, address) = complaint.split_once("no controller answers at 127.0.0.1:").unwrap();
    address.chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn options_come_before_the_environment_and_that_before_the_context() {
    let files = Files::with(&[]);
    let set = |name: &str, port: u16| {
        let at = format!("127.0.0.1:{port}");
        let output = files.crux(&["context", "set", name, "--controller", &at]);
        printed(&output).trim().to_owned()
    };
    assert_eq!(set("lab", 2), "commands talk to 127.0.0.1:2");
    assert_eq!(set("staging", 3), "commands talk to 127.0.0.1:2", "the first one is chosen");
    assert_eq!(asked(&files.crux(&["jobs"])), "2");
    assert_eq!(asked(&files.crux(&["policy", "show"])), "2");
    let with = |variable: &str, value: &str| {
        asked(&files.command(&["drain", "spine1"]).env(variable, value).output().unwrap())
    };
    assert_eq!(with("CRUX_CONTEXT", "staging"), "3");
    assert_eq!(with("CRUX_CONTROLLER", "127.0.0.1:4"), "4");
    let mut both = files.command(&["jobs", "--controller", "127.0.0.1:5"]);
    assert_eq!(asked(&both.env("CRUX_CONTROLLER", "127.0.0.1:4").output().unwrap()), "5");
    let help = files.crux(&["jobs", "--help"]);
    assert!(printed(&help).contains("[default: 127.0.0.1:2]"), "{}", printed(&help));

    printed(&files.crux(&["context", "use", "staging"]));
    assert_eq!(asked(&files.crux(&["jobs"])), "3");
    let list = json(&files.crux(&["context", "list", "--format", "json"]));
    assert_eq!(list["chosen"], "staging");
    printed(&files.crux(&["context", "remove", "staging"]));
    assert!(printed(&files.crux(&["context", "list"])).contains("lab"));
}

#[test]
fn errors_name_the_context_or_the_file() {
    let files = Files::with(&[]);
    refused(&files.crux(&["context", "use", "lab"]), &["crux context set"]);
    let set = ["context", "set", "lab", "--controller", "h:1", "--ca", "nowhere.pem"];
    refused(&files.crux(&set), &["nowhere.pem"]);
    let broken = files.path("crux");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(files.path("crux/contexts.toml"), "chosen = 5").unwrap();
    refused(&files.crux(&["jobs"]), &["contexts.toml"]);
    std::fs::write(files.path("crux/contexts.toml"), "").unwrap();
    let output = files.command(&["jobs"]).env("CRUX_CONTEXT", "lab").output().unwrap();
    refused(&output, &["no context `lab`"]);
}
