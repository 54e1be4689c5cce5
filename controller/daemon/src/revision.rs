//! Who is behind a revision of the policy or of the fabric, and when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Milliseconds of Unix time.
pub type UnixMs = u64;

/// Who made a change, why and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevisionMetadata {
    /// The author, by the name that they give.
    pub author: String,
    /// The reason that the author gives.
    pub reason: String,
    /// When it was proposed, milliseconds of Unix time.
    pub at_ms: UnixMs,
}
