//! `crux state`: a store is backed up, looked at and made again from its backup.

use controller::policy_history::PolicyRevision;
use controller::store::{EmbeddedStore, StoreRecord};
use serde_json::Value;

use super::support::{Files, json, printed, refused};

/// A folder with a store that has a term, jobs and two policy revisions.
fn folder_with_store() -> Files {
    let files = Files::with(&[]);
    let store = EmbeddedStore::open(&files.path("crux.redb")).unwrap();
    let jobs = serde_json::from_str(r#"{ "jobs": [{ "id": "gpt", "gpus": { "h1": 8 } }] }"#);
    let revision = |number| {
        let revision = PolicyRevision { number, ..PolicyRevision::default() };
        StoreRecord::Policy(Box::new(revision))
    };
    let records =
        [StoreRecord::Term(7), StoreRecord::Jobs(jobs.unwrap()), revision(1), revision(2)];
    store.write_records(&records).unwrap();
    files
}

#[test]
fn a_restored_store_has_what_the_backed_up_one_had() {
    let files = folder_with_store();
    printed(&files.crux(&["state", "backup", "--store", "crux.redb", "--output", "b.json"]));
    printed(&files.crux(&["state", "restore", "b.json", "again.redb"]));
    let stored =
        |name: &str| -> Value { json(&files.crux(&["state", "check", name, "--format", "json"])) };
    let expected = stored("crux.redb");
    assert_eq!((&expected["term"], &expected["revision"]), (&7.into(), &2.into()));
    assert_eq!((&expected["jobs"], &expected["revisions"]), (&1.into(), &2.into()));
    assert_eq!(stored("b.json"), expected);
    assert_eq!(stored("again.redb"), expected);
    let jobs = json(&files.crux(&["state", "export", "again.redb", "jobs"]));
    assert_eq!(jobs["jobs"][0]["id"], "gpt");
    let missing = files.crux(&["state", "export", "b.json", "plan"]);
    refused(&missing, &["b.json", "no such document"]);
}

#[test]
fn what_is_no_whole_backup_is_refused_and_nothing_is_overwritten() {
    let files = folder_with_store();
    printed(&files.crux(&["state", "backup", "--store", "crux.redb", "--output", "b.json"]));
    let again = files.crux(&["state", "backup", "--store", "crux.redb", "--output", "b.json"]);
    refused(&again, &["b.json"]);
    refused(&files.crux(&["state", "restore", "b.json", "crux.redb"]), &["it exists"]);
    let text = files.text("b.json");
    for (name, changed) in [
        ("changed.json", text.replace("\"term\":7", "\"term\":8")),
        ("part.json", text[..text.len() - 9].to_owned()),
        ("other.redb", "no store".to_owned()),
    ] {
        files.write(name, &changed);
        refused(&files.crux(&["state", "restore", name, "new.redb"]), &[name]);
        assert!(!files.path("new.redb").exists() && !files.path("new.part").exists());
    }
    let open = EmbeddedStore::open(&files.path("crux.redb")).unwrap();
    refused(&files.crux(&["state", "check", "crux.redb"]), &["crux.redb"]);
    drop(open);
}
