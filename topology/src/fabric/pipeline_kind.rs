//! Which P4 program a switch runs. The decision: the fabric knows the kinds of programs and nothing
//! of them; what a kind can do is the controller's to say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The P4 program of a switch, by the tables that it has.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PipelineKind {
    /// `fabric.p4`.
    #[default]
    Fabric,
    /// The tables of SAI P4, as SONiC's P4Runtime application has them.
    Sai,
}

impl std::fmt::Display for PipelineKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fabric => "fabric",
            Self::Sai => "sai",
        })
    }
}
