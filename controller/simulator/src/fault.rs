//! Failures and repairs at given times, as users write them: `leaf1-spine1@10s`, `spine2@90`.
//!
//! A fault is a change of the fabric and when it happens. What it does to flows is not said here:
//! the simulation asks the scheduler again, on the changed fabric.

use topology::{Change, Fabric, LinkId, SwitchId};

/// A change of the fabric at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When, in seconds from the start.
    pub at_seconds: f64,
    /// What changes.
    pub changes: Vec<Change>,
}

/// Why a text is no fault in a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// There is no `@`.
    #[error("`{0}` says not when; write it as leaf1-spine1@10s")]
    NoTime(String),
    /// What stands after the `@` is no time.
    #[error("`{0}` is no time; write seconds from 0, such as 10s or 2.5")]
    Time(String),
    /// What stands before the `@` is nothing of the fabric.
    #[error(
        "the fabric has no switch or cable `{0}`; a cable is leaf1-spine1, or with ports \
             leaf1:4-spine1:1"
    )]
    Part(String),
}

/// What happens to the part that is named.
struct Effect {
    switch: fn(SwitchId) -> Change,
    link: fn(LinkId) -> Change,
}

const FAILURE: Effect = Effect {
    switch: Change::SwitchDown,
    link: Change::LinkDown,
};

const REPAIR: Effect = Effect {
    switch: Change::SwitchUp,
    link: Change::LinkUp,
};

impl Fault {
    /// The part of `fabric` fails that `text` names.
    ///
    /// # Errors
    /// A text without a time, or a part that the fabric does not have.
    pub fn failure(fabric: &Fabric, text: &str) -> Result<Self, FaultError> {
        Self::parse(fabric, text, &FAILURE)
    }

    /// The part of `fabric` works again that `text` names.
    ///
    /// # Errors
    /// A text without a time, or a part that the fabric does not have.
    pub fn repair(fabric: &Fabric, text: &str) -> Result<Self, FaultError> {
        Self::parse(fabric, text, &REPAIR)
    }

    fn parse(fabric: &Fabric, text: &str, effect: &Effect) -> Result<Self, FaultError> {
        let no_time = || FaultError::NoTime(text.to_owned());
        let (part, time) = text.rsplit_once('@').ok_or_else(no_time)?;
        let switch = fabric
            .switch_named(part)
            .map(|switch| vec![(effect.switch)(switch)]);
        let links = || {
            fabric
                .links_named(part)
                .into_iter()
                .map(effect.link)
                .collect()
        };
        let changes: Vec<Change> = switch.unwrap_or_else(links);
        if changes.is_empty() {
            return Err(FaultError::Part(part.to_owned()));
        }
        Ok(Self {
            at_seconds: seconds(time)?,
            changes,
        })
    }
}

fn seconds(text: &str) -> Result<f64, FaultError> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    let number = number
        .ok()
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    number.ok_or_else(|| FaultError::Time(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::trial::Trial;

    #[test]
    fn parts_and_times_are_read() {
        let lab = Trial::lab().fabric;
        let spine = lab.switch_named("spine2").unwrap();
        let link = lab.links_named("leaf1-spine1")[0];
        let cases = [
            ("spine2@90", 90.0, Change::SwitchDown(spine)),
            ("leaf1-spine1@10s", 10.0, Change::LinkDown(link)),
            ("leaf1:4-spine1:1@0.5s", 0.5, Change::LinkDown(link)),
        ];
        for (text, at_seconds, change) in cases {
            let changes = vec![change];
            assert_eq!(
                Fault::failure(&lab, text),
                Ok(Fault {
                    at_seconds,
                    changes
                }),
                "{text}"
            );
        }
        let repair = Fault::repair(&lab, "leaf1-spine1@2").unwrap();
        assert_eq!(repair.changes, [Change::LinkUp(link)]);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let lab = Trial::lab().fabric;
        let cases = [
            (
                "leaf1-spine1",
                FaultError::NoTime("leaf1-spine1".to_owned()),
            ),
            ("leaf1-spine1@soon", FaultError::Time("soon".to_owned())),
            ("leaf1-spine1@-1s", FaultError::Time("-1s".to_owned())),
            ("leaf1-spine1@NaN", FaultError::Time("NaN".to_owned())),
            ("leaf1-leaf2@1s", FaultError::Part("leaf1-leaf2".to_owned())),
            ("@1s", FaultError::Part(String::new())),
        ];
        for (text, error) in cases {
            assert_eq!(Fault::failure(&lab, text), Err(error), "{text}");
        }
    }
}
