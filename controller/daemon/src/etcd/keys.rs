//! Where in etcd everything is stored: documents and numbers in JSON, under one prefix.
//!
//! ```text
//! PREFIX/leader               number of the controller that leads; hangs on its lease
//! PREFIX/leader_address       where operators reach it; hangs on its lease
//! PREFIX/controllers/NUMBER   a controller that is there; hangs on its lease
//! PREFIX/reach/NUMBER         whether most switches answer it; hangs on its lease
//! PREFIX/generation           generations up to this one may be used up
//! PREFIX/policy               the edition of the policy that is in force
//! PREFIX/policy_revisions/N    every revision of the policy, by its number
//! PREFIX/jobs                 all jobs that documents tell of
//! PREFIX/reported_jobs        all jobs that report themselves
//! PREFIX/fabric               the fabric, where it was found
//! PREFIX/fabric_history       the fabrics that operators gave, the last in force
//! PREFIX/plan                 the manifest of the plan in force
//! PREFIX/_plan/ELECTION.NUMBER/INDEX
//!                             a piece of that plan
//! ```
//!
//! A watch covers the keys that begin with a letter: it would otherwise send every piece of every
//! plan to all members, which read what the manifest names anyway.
//!
//! The decision: etcd has the same documents as the embedded
//! [`store`](crate::store), so a person can read and a controller of another fabric file can use
//! them.

use serde::Serialize;

use super::plan_pieces::PlanManifest;
use crate::policy_history::PolicyRevision;
use crate::store::StoreRecord;

/// A key with its value.
pub(super) type KeyValueRow = (Vec<u8>, Vec<u8>);

/// The keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct EtcdKeys {
    prefix: String,
}

impl EtcdKeys {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/').to_owned();
        Self { prefix }
    }

    pub(super) fn leader_key(&self) -> Vec<u8> {
        self.prefixed_key("leader")
    }

    pub(super) fn leader_address_key(&self) -> Vec<u8> {
        self.prefixed_key("leader_address")
    }

    pub(super) fn controller_key(&self, number: u32) -> Vec<u8> {
        self.prefixed_key(&format!("controllers/{number}"))
    }

    pub(super) fn reach_key(&self, number: u32) -> Vec<u8> {
        self.prefixed_key(&format!("reach/{number}"))
    }

    /// The first of the keys that say what controllers reach, and what comes after the last.
    pub(super) fn reach_range(&self) -> (Vec<u8>, Vec<u8>) {
        // 0 comes after the slash.
        (self.prefixed_key("reach/"), self.prefixed_key("reach0"))
    }

    pub(super) fn generation_key(&self) -> Vec<u8> {
        self.prefixed_key("generation")
    }

    pub(super) fn policy_key(&self) -> Vec<u8> {
        self.prefixed_key("policy")
    }

    pub(super) fn jobs_key(&self) -> Vec<u8> {
        self.prefixed_key("jobs")
    }

    pub(super) fn reported_jobs_key(&self) -> Vec<u8> {
        self.prefixed_key("reported_jobs")
    }

    pub(super) fn fabric_key(&self) -> Vec<u8> {
        self.prefixed_key("fabric")
    }

    pub(super) fn fabric_history_key(&self) -> Vec<u8> {
        self.prefixed_key("fabric_history")
    }

    pub(super) fn plan_key(&self) -> Vec<u8> {
        self.prefixed_key("plan")
    }

    pub(super) fn plan_piece_key(&self, plan: &PlanManifest, index: u32) -> Vec<u8> {
        let mut key = self.plan_pieces_range(plan).0;
        key.extend(format!("{index:06}").into_bytes());
        key
    }

    /// The first of the keys of a plan's pieces, and what comes after the last.
    pub(super) fn plan_pieces_range(&self, plan: &PlanManifest) -> (Vec<u8>, Vec<u8>) {
        let PlanManifest { election, number, .. } = plan;
        let end = |end| self.prefixed_key(&format!("_plan/{election:020}.{number:020}{end}"));
        // 0 comes after the slash.
        (end('/'), end('0'))
    }

    /// The first of the keys of all pieces, and what comes after the last.
    pub(super) fn all_pieces_range(&self) -> (Vec<u8>, Vec<u8>) {
        (self.prefixed_key("_plan/"), self.prefixed_key("_plan0"))
    }

    /// The first of the keys that are watched, and what comes after the last: all but the pieces of
    /// plans, as an underscore comes before the letters.
    pub(super) fn watched_range(&self) -> (Vec<u8>, Vec<u8>) {
        let end = format!("{}0", self.prefix).into_bytes();
        (self.prefixed_key("a"), end)
    }

    /// Where the latest record of its kind is stored, and as what.
    pub(super) fn latest_row(&self, record: &StoreRecord) -> KeyValueRow {
        match record {
            // A term is a revision of etcd itself.
            StoreRecord::Term(term) => (self.prefixed_key("term"), to_json(term)),
            StoreRecord::Generation(generation) => (self.generation_key(), to_json(generation)),
            StoreRecord::Policy(policy) => (self.policy_key(), to_json(policy)),
            StoreRecord::Jobs(jobs) => (self.jobs_key(), to_json(jobs)),
            StoreRecord::ReportedJobs(jobs) => (self.reported_jobs_key(), to_json(jobs)),
            StoreRecord::Fabric(fabric) => (self.fabric_key(), to_json(fabric)),
            StoreRecord::FabricHistory(history) => (self.fabric_history_key(), to_json(history)),
        }
    }

    /// Where an edition stays when it is not in force any more. Numbers sort as they count.
    pub(super) fn revision_row(&self, revision: &PolicyRevision) -> KeyValueRow {
        let number = revision.number;
        (self.prefixed_key(&format!("policy_revisions/{number:020}")), to_json(revision))
    }

    fn prefixed_key(&self, name: &str) -> Vec<u8> {
        format!("{}/{name}", self.prefix).into_bytes()
    }
}

pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and documents are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_but_the_pieces_of_plans_are_watched() {
        let keys = EtcdKeys::new("/crux/");
        let (first, end) = keys.watched_range();
        let last = PolicyRevision { number: u64::MAX, ..PolicyRevision::default() };
        let all = [
            keys.leader_key(),
            keys.leader_address_key(),
            keys.controller_key(7),
            keys.reach_key(7),
            keys.latest_row(&StoreRecord::Generation(3)).0,
            keys.revision_row(&last).0,
            keys.plan_key(),
        ];
        for key in all {
            assert!(first < key && key < end, "{}", String::from_utf8_lossy(&key));
        }
        assert_eq!(keys.jobs_key(), b"/crux/jobs");
        let (first, end) = keys.reach_range();
        let within = |key: Vec<u8>| first <= key && key < end;
        assert!(within(keys.reach_key(0)) && within(keys.reach_key(u32::MAX)));
        assert!(!within(keys.reported_jobs_key()) && !within(keys.policy_key()));
    }

    #[test]
    fn the_pieces_of_a_plan_are_its_own() {
        let keys = EtcdKeys::new("/crux");
        let of = |election, number| PlanManifest { election, number, pieces: 2 };
        let (plan, watched) = (of(12, 3), keys.watched_range());
        let (first, end) = keys.plan_pieces_range(&plan);
        let (first_of_all, end_of_all) = keys.all_pieces_range();
        for (other, is_own) in [(of(12, 3), true), (of(12, 4), false), (of(9, 3), false)] {
            for index in [0, 1, 999_999] {
                let key = keys.plan_piece_key(&other, index);
                assert_eq!(first <= key && key < end, is_own, "{other:?}");
                assert!(first_of_all <= key && key < end_of_all);
                assert!(!(watched.0 <= key && key < watched.1));
            }
        }
    }
}
