//! Revisions come, end by themselves, and can all be gone back to.

use super::*;

fn content(fairness: f64) -> PolicyContent {
    PolicyContent {
        policy: PolicyDocument { fairness, ..PolicyDocument::default() },
        temporary_overrides: Vec::new(),
    }
}

fn signature(at_ms: UnixMs) -> RevisionMetadata {
    RevisionMetadata { author: "ada".to_owned(), reason: "a test".to_owned(), at_ms }
}

fn ledger() -> PolicyHistory {
    let first = PolicyRevision { number: 1, content: content(0.0), ..PolicyRevision::default() };
    PolicyHistory::new(first, [])
}

#[test]
fn a_trial_ends_in_what_was_before_unless_it_is_confirmed() {
    let mut ledger = ledger();
    let trial = ledger.propose_revision(content(0.5), signature(10), Some(70)).unwrap();
    ledger.append_revision(trial.clone());
    assert_eq!((ledger.due_revision(69), ledger.next_due_ms()), (None, Some(70)));
    let again = ledger.propose_revision(content(0.7), signature(20), None);
    assert_eq!(again, Err(PolicyHistoryError::OnTrial(2)));

    let over = ledger.due_revision(70).unwrap();
    assert_eq!((over.number, &over.content), (3, &content(0.0)));
    assert_eq!(
        trial.effective_at(99),
        PolicyRevision {
            metadata: RevisionMetadata { at_ms: 99, ..over.metadata.clone() },
            ..over
        }
    );

    let confirmed = ledger.confirm_trial().unwrap();
    ledger.append_revision(confirmed);
    assert_eq!((ledger.due_revision(99), ledger.latest().number), (None, 2));
    assert_eq!(ledger.confirm_trial(), Err(PolicyHistoryError::NoTrial));
    assert_eq!(ledger.revert_trial(signature(99)), Err(PolicyHistoryError::NoTrial));
}

#[test]
fn overrides_end_one_by_one() {
    let rule = |level| OverrideDocument {
        pattern: "gpt*".to_owned(),
        level: Some(level),
        ..OverrideDocument::default()
    };
    let temporary = [(7, 100), (3, 200)]
        .map(|(level, until_ms)| TemporaryOverride { rule: rule(level), until_ms });
    let revision = PolicyRevision {
        number: 1,
        content: PolicyContent { temporary_overrides: temporary.to_vec(), ..content(0.0) },
        ..PolicyRevision::default()
    };
    let policy = revision.content.validate("policy").unwrap();
    assert_eq!(policy.overrides[0].max_level, Some(7));
    let mut ledger = PolicyHistory::new(revision, []);
    assert_eq!(ledger.next_due_ms(), Some(100));
    ledger.append_revision(ledger.due_revision(100).unwrap());
    assert_eq!(ledger.latest().content.temporary_overrides, temporary[1..]);
    ledger.append_revision(ledger.due_revision(250).unwrap());
    assert_eq!(ledger.latest().content, content(0.0));
    assert_eq!(ledger.next_due_ms(), None);
}

#[test]
fn history_says_what_each_changed() {
    let mut ledger = ledger();
    let second = ledger.propose_revision(content(0.5), signature(10), None).unwrap();
    ledger.append_revision(second);
    let back = ledger.find_revision(1).unwrap().content.clone();
    let third = ledger.propose_revision(back, signature(20), None).unwrap();
    ledger.append_revision(third);
    let history = ledger.revisions_with_changes();
    let told: Vec<_> =
        history.iter().map(|(revision, changes)| (revision.number, &changes[..])).collect();
    assert_eq!(told[0], (3, &["fairness: 0.5 -> 0.0".to_owned()][..]));
    assert_eq!(told[1], (2, &["fairness: 0.0 -> 0.5".to_owned()][..]));
    assert_eq!(told[2], (1, &[][..]));
}

#[test]
fn an_edition_that_a_leader_could_not_store_is_forgotten_with_the_next_of_its_number() {
    let mut ledger = ledger();
    let first = ledger.latest().clone();
    let unstored = ledger.propose_revision(content(0.5), signature(10), None).unwrap();
    ledger.append_revision(unstored);
    ledger.append_revision(first.clone());
    assert_eq!(ledger.revisions_with_changes().len(), 1);
    let next = ledger.propose_revision(content(0.7), signature(20), None).unwrap();
    ledger.append_revision(next.clone());
    assert_eq!((ledger.latest(), ledger.previous_revision()), (&next, Some(&first)));
}

#[test]
fn what_stays_is_no_longer_on_trial_and_without_what_has_ended() {
    let mut ledger = ledger();
    let mut tried = content(0.5);
    tried.temporary_overrides =
        vec![TemporaryOverride { rule: OverrideDocument::default(), until_ms: 50 }];
    let trial = ledger.propose_revision(tried, signature(10), Some(70)).unwrap();
    ledger.append_revision(trial);
    let stays = ledger.retain_latest(70);
    assert_eq!((stays.number, &stays.content), (3, &content(0.5)));
    assert_eq!(stays.effective_at(1_000).number, 3);
}
