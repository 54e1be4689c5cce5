//! Failures and repairs at given times, in the notation of users: `leaf1-spine1@10s`, `spine2@90`.
//!
//! A fault is a change of the fabric and its time. The simulation passes the changed fabric to the
//! scheduler, which decides about the flows.

use topology::{AvailabilityChange, Fabric, LinkId, SwitchId};

/// A change of the fabric at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricFault {
    /// When, in seconds from the start.
    pub at_seconds: f64,
    /// Changes of availability to apply.
    pub changes: Vec<AvailabilityChange>,
}

/// Why a text is no fault in a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultParseError {
    /// There is no `@`.
    #[error("`{0}` has no time; write PART@TIME, such as leaf1-spine1@10s")]
    MissingTime(String),
    /// What stands after the `@` is no time.
    #[error("invalid time `{0}`: write seconds from 0, such as 10s or 2.5")]
    InvalidTime(String),
    /// What stands before the `@` is nothing of the fabric.
    #[error(
        "the fabric has no switch or cable `{0}`; a cable is leaf1-spine1, or with ports \
             leaf1:4-spine1:1"
    )]
    UnknownElement(String),
}

/// What happens to the part that is named.
struct FaultEffect {
    switch: fn(SwitchId) -> AvailabilityChange,
    link: fn(LinkId) -> AvailabilityChange,
}

const FAILURE: FaultEffect =
    FaultEffect { switch: AvailabilityChange::SwitchDown, link: AvailabilityChange::LinkDown };

const REPAIR: FaultEffect =
    FaultEffect { switch: AvailabilityChange::SwitchUp, link: AvailabilityChange::LinkUp };

impl FabricFault {
    /// The part of `fabric` fails that `text` names.
    ///
    /// # Errors
    /// A text without a time, or a part that the fabric does not have.
    pub fn parse_failure(fabric: &Fabric, text: &str) -> Result<Self, FaultParseError> {
        Self::parse_with_effect(fabric, text, &FAILURE)
    }

    /// The part of `fabric` works again that `text` names.
    ///
    /// # Errors
    /// A text without a time, or a part that the fabric does not have.
    pub fn parse_repair(fabric: &Fabric, text: &str) -> Result<Self, FaultParseError> {
        Self::parse_with_effect(fabric, text, &REPAIR)
    }

    fn parse_with_effect(
        fabric: &Fabric,
        text: &str,
        effect: &FaultEffect,
    ) -> Result<Self, FaultParseError> {
        let (part, time) =
            text.rsplit_once('@').ok_or_else(|| FaultParseError::MissingTime(text.to_owned()))?;
        let switch = fabric.switch_named(part).map(|switch| vec![(effect.switch)(switch)]);
        let changes: Vec<AvailabilityChange> = switch
            .unwrap_or_else(|| fabric.links_named(part).into_iter().map(effect.link).collect());
        if changes.is_empty() {
            return Err(FaultParseError::UnknownElement(part.to_owned()));
        }
        Ok(Self { at_seconds: parse_seconds(time)?, changes })
    }
}

fn parse_seconds(text: &str) -> Result<f64, FaultParseError> {
    let number = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse::<f64>()
        .ok()
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    number.ok_or_else(|| FaultParseError::InvalidTime(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::test_input::TestInput;

    #[test]
    fn parts_and_times_are_read() {
        let lab = TestInput::on_lab_fabric().fabric;
        let spine = lab.switch_named("spine2").unwrap();
        let link = lab.links_named("leaf1-spine1")[0];
        let cases = [
            ("spine2@90", 90.0, AvailabilityChange::SwitchDown(spine)),
            ("leaf1-spine1@10s", 10.0, AvailabilityChange::LinkDown(link)),
            ("leaf1:4-spine1:1@0.5s", 0.5, AvailabilityChange::LinkDown(link)),
        ];
        for (text, at_seconds, change) in cases {
            let changes = vec![change];
            assert_eq!(
                FabricFault::parse_failure(&lab, text),
                Ok(FabricFault { at_seconds, changes }),
                "{text}"
            );
        }
        let repair = FabricFault::parse_repair(&lab, "leaf1-spine1@2").unwrap();
        assert_eq!(repair.changes, [AvailabilityChange::LinkUp(link)]);
    }

    #[test]
    fn invalid_faults_are_named() {
        let lab = TestInput::on_lab_fabric().fabric;
        let cases = [
            ("leaf1-spine1", FaultParseError::MissingTime("leaf1-spine1".to_owned())),
            ("leaf1-spine1@soon", FaultParseError::InvalidTime("soon".to_owned())),
            ("leaf1-spine1@-1s", FaultParseError::InvalidTime("-1s".to_owned())),
            ("leaf1-spine1@NaN", FaultParseError::InvalidTime("NaN".to_owned())),
            ("leaf1-leaf2@1s", FaultParseError::UnknownElement("leaf1-leaf2".to_owned())),
            ("@1s", FaultParseError::UnknownElement(String::new())),
        ];
        for (text, error) in cases {
            assert_eq!(FabricFault::parse_failure(&lab, text), Err(error), "{text}");
        }
    }
}
