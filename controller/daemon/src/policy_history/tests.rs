//! Trials, expiry, and the changes of each revision.

use super::*;

fn content(fairness: f64) -> PolicyContent {
    PolicyContent {
        policy: PolicyDocument { fairness, ..PolicyDocument::default() },
        temporary_overrides: Vec::new(),
    }
}

fn metadata(at_ms: UnixMs) -> RevisionMetadata {
    RevisionMetadata { author: "ada".to_owned(), reason: "a test".to_owned(), at_ms }
}

fn terms(until_ms: UnixMs) -> Option<TrialTerms> {
    Some(TrialTerms { until_ms, awaits_confirmation: true })
}

fn history() -> PolicyHistory {
    let first = PolicyRevision { number: 1, content: content(0.0), ..PolicyRevision::default() };
    PolicyHistory::new(first, [])
}

#[test]
fn unconfirmed_trial_restores_the_previous_content() {
    let mut history = history();
    let trial = history.propose_revision(content(0.5), metadata(10), terms(70)).unwrap();
    history.append_revision(trial.clone());
    assert_eq!((history.due_revision(69), history.next_due_ms()), (None, Some(70)));
    let again = history.propose_revision(content(0.7), metadata(20), None);
    assert_eq!(again, Err(PolicyHistoryError::OnTrial(2)));

    let over = history.due_revision(70).unwrap();
    assert_eq!((over.number, &over.content), (3, &content(0.0)));
    assert_eq!(
        trial.effective_at(99),
        PolicyRevision {
            metadata: RevisionMetadata { at_ms: 99, ..over.metadata.clone() },
            ..over
        }
    );

    let confirmed = history.confirm_trial().unwrap();
    history.append_revision(confirmed);
    assert_eq!((history.due_revision(99), history.latest().number), (None, 2));
    assert_eq!(history.confirm_trial(), Err(PolicyHistoryError::NoTrial));
    assert_eq!(history.revert_trial(metadata(99)), Err(PolicyHistoryError::NoTrial));
}

#[test]
fn temporary_overrides_expire_one_by_one() {
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
    let policy = revision.content.validate("policy", 8).unwrap();
    assert_eq!(policy.overrides[0].max_level, Some(7));
    let mut history = PolicyHistory::new(revision, []);
    assert_eq!(history.next_due_ms(), Some(100));
    history.append_revision(history.due_revision(100).unwrap());
    assert_eq!(history.latest().content.temporary_overrides, temporary[1..]);
    history.append_revision(history.due_revision(250).unwrap());
    assert_eq!(history.latest().content, content(0.0));
    assert_eq!(history.next_due_ms(), None);
}

#[test]
fn history_lists_the_changes_of_each_revision() {
    let mut history = history();
    let second = history.propose_revision(content(0.5), metadata(10), None).unwrap();
    history.append_revision(second);
    let back = history.find_revision(1).unwrap().content.clone();
    let third = history.propose_revision(back, metadata(20), None).unwrap();
    history.append_revision(third);
    let history = history.revisions_with_changes();
    let changes_by_number: Vec<_> =
        history.iter().map(|(revision, changes)| (revision.number, &changes[..])).collect();
    assert_eq!(changes_by_number[0], (3, &["fairness: 0.5 -> 0.0".to_owned()][..]));
    assert_eq!(changes_by_number[1], (2, &["fairness: 0.0 -> 0.5".to_owned()][..]));
    assert_eq!(changes_by_number[2], (1, &[][..]));
}

#[test]
fn overrides_come_and_go_in_words() {
    let rule = OverrideDocument {
        pattern: "gpt*".to_owned(),
        level: Some(3),
        ..OverrideDocument::default()
    };
    let with_override = PolicyContent {
        temporary_overrides: vec![TemporaryOverride { rule, until_ms: 1_795_574_310_461 }],
        ..content(0.5)
    };
    let came = content(0.0).changes_to(&with_override);
    let expected = [
        "fairness: 0.0 -> 0.5",
        "override until 2026-11-25 02:38:30 UTC: level = 3, match = \"gpt*\"",
    ];
    assert_eq!(came, expected);
    let gone = with_override.changes_to(&content(0.5));
    assert_eq!(gone, ["no override any more: level = 3, match = \"gpt*\""]);
}

#[test]
fn storing_a_revision_drops_unstored_ones_of_the_same_number() {
    let mut history = history();
    let first = history.latest().clone();
    let unstored = history.propose_revision(content(0.5), metadata(10), None).unwrap();
    history.append_revision(unstored);
    history.append_revision(first.clone());
    assert_eq!(history.revisions_with_changes().len(), 1);
    let next = history.propose_revision(content(0.7), metadata(20), None).unwrap();
    history.append_revision(next.clone());
    assert_eq!((history.latest(), history.previous_revision()), (&next, Some(&first)));
}

#[test]
fn retained_revision_has_no_trial_and_no_expired_overrides() {
    let mut history = history();
    let mut tried = content(0.5);
    tried.temporary_overrides =
        vec![TemporaryOverride { rule: OverrideDocument::default(), until_ms: 50 }];
    let trial = history.propose_revision(tried, metadata(10), terms(70)).unwrap();
    history.append_revision(trial);
    let stays = history.retain_latest(70);
    assert_eq!((stays.number, &stays.content), (3, &content(0.5)));
    assert_eq!(stays.effective_at(1_000).number, 3);
}

#[test]
fn a_clock_that_was_set_back_does_not_prolong_what_expires() {
    let mut tried = content(0.5);
    tried.temporary_overrides =
        vec![TemporaryOverride { rule: OverrideDocument::default(), until_ms: 1_050 }];
    let trial = history().propose_revision(tried, metadata(1_000), terms(1_070)).unwrap();
    // The next run begins 900 ms before the trial did.
    let restarted = trial.clone().effective_at(100);
    assert_eq!(restarted.trial.as_ref().unwrap().until_ms, 170);
    assert_eq!(restarted.content.temporary_overrides[0].until_ms, 150);
    assert_eq!(trial.clone().effective_at(1_020), trial, "no time has gone back");
}

/// Fifty changes with reasons of a mebibyte.
fn history_of_large_revisions() -> PolicyHistory {
    let mut history = history();
    for number in 0..50 {
        let reason = "x".repeat(1 << 20);
        let signature = RevisionMetadata { reason, ..metadata(number) };
        let next = history.propose_revision(content(0.5), signature, None).unwrap();
        history.append_revision(next);
    }
    history
}

/// Finding M1: 300 changes with reasons of a megabyte took 2 GB.
#[test]
fn history_is_bounded_in_bytes() {
    let history = history_of_large_revisions();
    let kept: usize = history.revisions_with_changes().len();
    assert!((15..=17).contains(&kept), "{kept}");
    let restored = PolicyHistory::new(history.latest.clone(), history.earlier.into_values());
    assert_eq!(restored.revisions_with_changes().len(), kept);
}

#[test]
fn pages_of_the_history_follow_each_other() {
    let mut history = history();
    for number in 0..7 {
        let next = history.propose_revision(content(f64::from(number)), metadata(1), None).unwrap();
        history.append_revision(next);
    }
    let all = history.revisions_with_changes();
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let page = history.revision_page(before, 3);
        assert!(page.len() <= 3);
        let Some((last, _)) = page.last() else {
            break;
        };
        before = Some(last.number);
        paged.extend(page);
    }
    assert_eq!(paged, all, "with their changes, which cross pages");
}

#[test]
fn a_page_is_bounded_in_bytes_and_dropped_revisions_are_counted() {
    let history = history_of_large_revisions();
    let page = history.revision_page(None, 1_000).len();
    assert!((3..=5).contains(&page), "{page}");
    let kept = history.revisions_with_changes().len() as u64;
    assert_eq!(history.dropped_revisions() + kept, history.latest().number);
}

/// Finding M8: the policy was locked for 35 s after a crash while a change was verified.
#[test]
fn trial_without_an_operator_ends_at_the_next_start() {
    let terms = TrialTerms { until_ms: 70, awaits_confirmation: false };
    let trial = history().propose_revision(content(0.5), metadata(10), Some(terms)).unwrap();
    let restarted = trial.effective_at(11);
    assert_eq!((restarted.number, &restarted.content), (3, &content(0.0)));
    assert_eq!((restarted.trial, restarted.metadata.reason.as_str()), (None, ABANDONED));
}

/// Finding H8: a broken part was not drained because something else was on trial.
#[test]
fn drains_are_accepted_during_a_trial_and_stay_however_it_ends() {
    let mut history = history();
    let trial = history.propose_revision(content(0.5), metadata(10), terms(70)).unwrap();
    history.append_revision(trial);
    let drain = |fairness| {
        let mut drained = content(fairness);
        drained.policy.drained = vec!["spine1".to_owned()];
        drained
    };
    let refused = history.propose_revision(drain(0.7), metadata(20), None);
    assert_eq!(refused, Err(PolicyHistoryError::OnTrial(2)));
    let drained = history.propose_revision(drain(0.5), metadata(20), None).unwrap();
    history.append_revision(drained);
    assert_eq!(history.due_revision(70).unwrap().content, drain(0.0));
    assert_eq!(history.confirm_trial().unwrap().content, drain(0.5));
}
