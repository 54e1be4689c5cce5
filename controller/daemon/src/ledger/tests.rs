//! Editions come, end by themselves, and can all be gone back to.

use super::*;

fn content(fairness: f64) -> Content {
    Content {
        policy: PolicyDocument {
            fairness,
            ..PolicyDocument::default()
        },
        temporary: Vec::new(),
    }
}

fn signature(at_ms: UnixMs) -> Signature {
    Signature {
        who: "ada".to_owned(),
        why: "a test".to_owned(),
        at_ms,
    }
}

fn ledger() -> Ledger {
    let first = Edition {
        number: 1,
        content: content(0.0),
        ..Edition::default()
    };
    Ledger::new(first, [])
}

#[test]
fn a_trial_ends_in_what_was_before_unless_it_is_confirmed() {
    let mut ledger = ledger();
    let trial = ledger
        .propose(content(0.5), signature(10), Some(70))
        .unwrap();
    ledger.enter(trial.clone());
    assert_eq!((ledger.due(69), ledger.next_due()), (None, Some(70)));
    let again = ledger.propose(content(0.7), signature(20), None);
    assert_eq!(again, Err(LedgerError::OnTrial(2)));

    let over = ledger.due(70).unwrap();
    assert_eq!((over.number, &over.content), (3, &content(0.0)));
    assert_eq!(
        trial.at(99),
        Edition {
            signature: Signature {
                at_ms: 99,
                ..over.signature.clone()
            },
            ..over
        }
    );

    let confirmed = ledger.confirm().unwrap();
    ledger.enter(confirmed);
    assert_eq!((ledger.due(99), ledger.latest().number), (None, 2));
    assert_eq!(ledger.confirm(), Err(LedgerError::NoTrial));
    assert_eq!(ledger.revert(signature(99)), Err(LedgerError::NoTrial));
}

#[test]
fn overrides_end_one_by_one() {
    let rule = |level| OverrideDocument {
        pattern: "gpt*".to_owned(),
        level: Some(level),
        ..OverrideDocument::default()
    };
    let temporary = [(7, 100), (3, 200)].map(|(level, until_ms)| Temporary {
        rule: rule(level),
        until_ms,
    });
    let edition = Edition {
        number: 1,
        content: Content {
            temporary: temporary.to_vec(),
            ..content(0.0)
        },
        ..Edition::default()
    };
    let policy = edition.content.validate("policy").unwrap();
    assert_eq!(policy.overrides[0].max_level, Some(7));
    let mut ledger = Ledger::new(edition, []);
    assert_eq!(ledger.next_due(), Some(100));
    ledger.enter(ledger.due(100).unwrap());
    assert_eq!(ledger.latest().content.temporary, temporary[1..]);
    ledger.enter(ledger.due(250).unwrap());
    assert_eq!(ledger.latest().content, content(0.0));
    assert_eq!(ledger.next_due(), None);
}

#[test]
fn history_says_what_each_changed() {
    let mut ledger = ledger();
    let second = ledger.propose(content(0.5), signature(10), None).unwrap();
    ledger.enter(second);
    let back = ledger.edition(1).unwrap().content.clone();
    let third = ledger.propose(back, signature(20), None).unwrap();
    ledger.enter(third);
    let history = ledger.history();
    let told: Vec<_> = history
        .iter()
        .map(|(edition, changes)| (edition.number, &changes[..]))
        .collect();
    assert_eq!(told[0], (3, &["fairness: 0.5 -> 0.0".to_owned()][..]));
    assert_eq!(told[1], (2, &["fairness: 0.0 -> 0.5".to_owned()][..]));
    assert_eq!(told[2], (1, &[][..]));
}

#[test]
fn an_edition_that_a_leader_could_not_store_is_forgotten_with_the_next_of_its_number() {
    let mut ledger = ledger();
    let first = ledger.latest().clone();
    let unstored = ledger.propose(content(0.5), signature(10), None).unwrap();
    ledger.enter(unstored);
    ledger.enter(first.clone());
    assert_eq!(ledger.history().len(), 1);
    let next = ledger.propose(content(0.7), signature(20), None).unwrap();
    ledger.enter(next.clone());
    assert_eq!((ledger.latest(), ledger.before()), (&next, Some(&first)));
}

#[test]
fn what_stays_is_no_longer_on_trial_and_without_what_has_ended() {
    let mut ledger = ledger();
    let mut tried = content(0.5);
    tried.temporary = vec![Temporary {
        rule: OverrideDocument::default(),
        until_ms: 50,
    }];
    let trial = ledger.propose(tried, signature(10), Some(70)).unwrap();
    ledger.enter(trial);
    let stays = ledger.stay(70);
    assert_eq!((stays.number, &stays.content), (3, &content(0.5)));
    assert_eq!(stays.at(1_000).number, 3);
}
