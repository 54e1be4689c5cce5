//! What an installation may do, by its unit files, and how a release is built.

use std::fs;
use std::path::Path;

use toml::Table;

/// The text of a file of the repository.
fn tree_file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The values of a setting in a unit file.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    let pairs = unit.lines().filter_map(|line| line.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).collect()
}

/// Finding M10: there were no unit files.
#[test]
fn units_have_no_right_that_they_do_not_need() {
    let units = [
        ("crux-controller.service", ""),
        ("crux-agent.service", ""),
        ("crux-switch@.service", "CAP_NET_RAW"),
    ];
    for (name, capabilities) in units {
        let unit = tree_file(&format!("scripts/packaging/{name}"));
        for (setting, value) in [
            ("User", "crux"),
            ("NoNewPrivileges", "yes"),
            ("ProtectSystem", "strict"),
            ("CapabilityBoundingSet", capabilities),
            ("AmbientCapabilities", capabilities),
        ] {
            assert_eq!(settings(&unit, setting), [value], "{name}: {setting}");
        }
        for limit in ["MemoryMax", "TasksMax", "LimitNOFILE"] {
            assert_eq!(settings(&unit, limit).len(), 1, "{name}: {limit}");
        }
    }
}

/// Finding M10: overflows went unnoticed in a release.
#[test]
fn released_code_checks_for_overflows() {
    let manifest: Table = tree_file("Cargo.toml").parse().unwrap();
    let profiles = manifest["profile"].as_table().unwrap();
    assert_eq!(profiles["release"]["overflow-checks"].as_bool(), Some(true));
    for profile in ["dist", "bench"] {
        let own = profiles[profile].as_table().unwrap();
        assert!(!own.contains_key("overflow-checks"), "{profile} inherits those of release");
    }
    let exempt = profiles["release"]["package"].as_table().unwrap();
    for package in ["controller", "api", "topology", "agent"] {
        assert!(!exempt.contains_key(package), "{package} computes with numbers of callers");
    }
}
