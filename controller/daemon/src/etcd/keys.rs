//! Where in etcd everything is stored: documents and numbers in JSON, under one prefix.
//!
//! ```text
//! PREFIX/leader               number of the controller that leads; hangs on its lease
//! PREFIX/controllers/NUMBER   a controller that is there; hangs on its lease
//! PREFIX/generation           generations up to this one may be used up
//! PREFIX/policy               the edition of the policy that is in force
//! PREFIX/policies/NUMBER      every edition, by its number
//! PREFIX/jobs                 all jobs that documents tell of
//! PREFIX/told                 all jobs that tell of themselves
//! PREFIX/fabric               the fabric, where it was found
//! ```
//!
//! The decision: what is stored are the same documents as in the embedded
//! [`store`](crate::store), so a person can read and a controller of another fabric file can use
//! them.

use serde::Serialize;

use crate::ledger::Edition;
use crate::store::Record;

/// A key with its value.
pub(super) type Row = (Vec<u8>, Vec<u8>);

/// The keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/').to_owned();
        Self { prefix }
    }

    pub(super) fn leader(&self) -> Vec<u8> {
        self.key("leader")
    }

    pub(super) fn controller(&self, number: u32) -> Vec<u8> {
        self.key(&format!("controllers/{number}"))
    }

    pub(super) fn generation(&self) -> Vec<u8> {
        self.key("generation")
    }

    pub(super) fn policy(&self) -> Vec<u8> {
        self.key("policy")
    }

    pub(super) fn jobs(&self) -> Vec<u8> {
        self.key("jobs")
    }

    pub(super) fn told(&self) -> Vec<u8> {
        self.key("told")
    }

    pub(super) fn fabric(&self) -> Vec<u8> {
        self.key("fabric")
    }

    /// The first of all keys, and what comes after the last.
    pub(super) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        // 0 comes after the slash.
        let end = format!("{}0", self.prefix).into_bytes();
        (self.key(""), end)
    }

    /// Where the latest record of its kind is stored, and as what.
    pub(super) fn latest(&self, record: &Record) -> Row {
        match record {
            // A term is a revision of etcd itself.
            Record::Term(term) => (self.key("term"), text(term)),
            Record::Generation(generation) => (self.generation(), text(generation)),
            Record::Policy(policy) => (self.policy(), text(policy)),
            Record::Jobs(jobs) => (self.jobs(), text(jobs)),
            Record::Told(jobs) => (self.told(), text(jobs)),
            Record::Fabric(fabric) => (self.fabric(), text(fabric)),
        }
    }

    /// Where an edition stays when it is not in force any more. Numbers sort as they count.
    pub(super) fn edition(&self, edition: &Edition) -> Row {
        let number = edition.number;
        (self.key(&format!("policies/{number:020}")), text(edition))
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}/{name}", self.prefix).into_bytes()
    }
}

fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and documents are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_within_the_range_of_all() {
        let keys = Keys::new("/crux/");
        let (first, end) = keys.all();
        let last = Edition {
            number: u64::MAX,
            ..Edition::default()
        };
        let all = [
            keys.leader(),
            keys.controller(7),
            keys.latest(&Record::Generation(3)).0,
            keys.edition(&last).0,
        ];
        for key in all {
            assert!(
                first < key && key < end,
                "{}",
                String::from_utf8_lossy(&key)
            );
        }
        assert_eq!(keys.jobs(), b"/crux/jobs");
    }
}
