//! The audit trail of a controller that is served: who was let in, refused, and changed the policy.

use controller::audit::{AuditAction, AuditRecord, AuditTrail, verify_chain};
use controller::config::{AccessRole, RawToken};
use sha2::{Digest, Sha256};

use crate::http::ask_with;
use crate::lab::{Lab, config, serve_controller};

const ORDER: &str = r#"{"change": {"policy": {"file": "p.toml", "text": "fairness = 0.2"}},
    "author": "the night shift", "reason": "a test", "confirm_within_seconds": 600}"#;

fn token(name: &str, role: AccessRole) -> RawToken {
    let digest = Sha256::digest(name);
    let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = name.to_owned();
    RawToken { name, role, sha256, hosts: Vec::new(), tenants: Vec::new() }
}

/// Finding M4: a confirmation had no author, refusals were nowhere, and an attacker's requests
/// used up the operator's rate.
#[tokio::test(flavor = "multi_thread")]
async fn everybody_who_was_let_in_refused_or_changed_something_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trail");
    let audited = |raw: &mut controller::RawConfig| {
        raw.audit.path = Some(path.clone());
        raw.northbound.anyone = false;
        raw.northbound.requests_per_second = 20;
        raw.northbound.tokens =
            vec![token("ada", AccessRole::Write), token("eve", AccessRole::Read)];
    };
    let lab = Lab::new().await;
    let controller = lab.control(audited).await;
    let server = serve_controller(&controller, &config(audited)).await;
    let at = server.local_addr();
    for _ in 0..100 {
        let (status, _) = ask_with(at, "/v1/jobs", None, "Bearer guess").await;
        assert!(status == 401 || status == 429, "{status}");
    }
    let confirm = Some(r#"{"author": "", "reason": "it works"}"#);
    let requests = [
        ("Bearer eve", "/v1/policy/apply", Some(ORDER), 403),
        ("Bearer ada", "/v1/policy/apply", Some(ORDER), 200),
        ("Bearer ada", "/v1/policy/confirm", confirm, 200),
        ("Bearer ada", "/v1/policy/confirm", confirm, 422),
        ("Bearer eve", "/v1/audit-records", None, 403),
    ];
    for (who, path, body, expected) in requests {
        let (status, answer) = ask_with(at, path, body, who).await;
        assert_eq!(status, expected, "{who} {path}: {answer}");
    }
    let (status, listed) = ask_with(at, "/v1/audit-records", None, "Bearer ada").await;
    let listed: Vec<AuditRecord> = serde_json::from_str(&listed).unwrap();
    let stored = AuditTrail::read_files(&path).unwrap();
    assert_eq!((status, verify_chain(&stored)), (200, Ok(())));
    assert!(listed.iter().rev().eq(&stored), "{listed:#?}");

    let of = |action| stored.iter().map(|one| &one.entry).filter(move |one| one.action == action);
    assert_eq!(of(AuditAction::Started).count(), 1);
    let guesses = of(AuditAction::Denied).filter(|one| one.reason.contains("unknown token"));
    assert_eq!(guesses.count(), 1, "100 guesses are one record: {stored:#?}");
    assert!(of(AuditAction::Denied).any(|one| one.reason.contains("`eve` may read")));
    assert_eq!(of(AuditAction::Admitted).map(|one| &*one.who).collect::<Vec<_>>(), ["ada"]);
    let applied = of(AuditAction::PolicyApplied).next().unwrap();
    let who = "ada (says the night shift)";
    assert_eq!((&*applied.who, &*applied.reason), (who, "a test"));
    let confirmed = of(AuditAction::PolicyConfirmed).next().unwrap();
    assert_eq!((&*confirmed.who, &*confirmed.reason), ("ada", "it works"));
    assert_eq!(of(AuditAction::PolicyRefused).count(), 1);
    server.shutdown().await;
    controller.shutdown().await;
}
