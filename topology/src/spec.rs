//! The Fabric document: the file people and importers write, and the [`Fabric`] it describes.
//!
//! A document either generates a Clos (`[clos]`) or lists hosts, switches and links. Reading goes
//! one way: text, document, checked fabric. [`document`] goes back and always gives the explicit
//! form, from which [`parse`] makes an equal fabric. Failed and drained parts are state, not
//! structure, and are in no document.

mod explicit;

pub use explicit::document;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clos::{self, ClosSpec};
use crate::document::{self, DocumentError, Format};
use crate::fabric::{Fabric, Tier};
use crate::units::Bandwidth;

/// A fabric as a document: `clos`, or else `switches`, `hosts` and `links`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FabricDocument {
    /// Name of the fabric.
    pub name: String,
    /// A Clos to generate; instead of the lists below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clos: Option<ClosSpec>,
    /// The switches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchDocument>,
    /// The hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostDocument>,
    /// The cables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkDocument>,
}

/// A switch of an explicit document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchDocument {
    /// Unique among hosts and switches; letters, digits and `-_.`.
    pub name: String,
    /// `leaf`, `spine` or `core`.
    pub tier: Tier,
    /// P4Runtime device id.
    pub device_id: u64,
    /// Address of its P4Runtime server, `host:port`; a switch without one is planned for but not
    /// controlled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p4runtime: Option<String>,
}

/// A host of an explicit document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostDocument {
    /// Unique among hosts and switches; letters, digits and `-_.`.
    pub name: String,
    /// GPUs in the host.
    pub gpus: u32,
    /// IPv4 address of each NIC, by NIC index.
    pub ips: Vec<String>,
    /// Ethernet address of each NIC; when left out, 02:00 and the four bytes of the IP address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
}

/// A cable of an explicit document, full duplex.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkDocument {
    /// One end, `name:port`; the port of a host is the index of its NIC.
    pub a: String,
    /// The other end.
    pub b: String,
    /// Capacity of each direction, in Gb/s.
    pub gbps: f64,
}

/// A field whose value makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Path of the field, for example `links[3].b`.
    pub field: String,
    /// What was found and what would be right.
    pub problem: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Why a text is not a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is not a Fabric document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The document describes no fabric.
    #[error("{file}: {}: {}", .error.field, .error.problem)]
    Field {
        /// Name of the file.
        file: String,
        /// The field and its problem.
        error: FieldError,
    },
}

/// The fabric that a document describes; `file` is its name in errors.
///
/// # Errors
/// The text is no Fabric document, or one that makes no sense; the error names the field.
pub fn parse(text: &str, format: Format, file: &str) -> Result<Fabric, SpecError> {
    let document = document::parse::<FabricDocument>(text, format, file)?;
    Fabric::try_from(&document).map_err(|error| SpecError::Field {
        file: file.to_owned(),
        error,
    })
}

impl TryFrom<&FabricDocument> for Fabric {
    type Error = FieldError;

    fn try_from(document: &FabricDocument) -> Result<Self, FieldError> {
        match &document.clos {
            None => explicit::build(document),
            Some(clos) if explicit::is_empty(document) => clos::build(&document.name, clos)
                .map_err(|error| FieldError {
                    field: format!("clos.{}", error.field),
                    ..error
                }),
            Some(_) => Err(FieldError::new(
                "clos",
                "a document has either clos or switches, hosts and links, found both",
            )),
        }
    }
}

/// A speed in Gb/s; the error names the field it came from.
pub(crate) fn speed(field: &str, gbps: f64) -> Result<Bandwidth, FieldError> {
    let problem = || format!("must be a number above 0, found {gbps}");
    Bandwidth::from_gbps(gbps).ok_or_else(|| FieldError::new(field, problem()))
}

/// Refuses the first field whose count is zero.
pub(crate) fn all_at_least_one(counts: &[(&str, u32)]) -> Result<(), FieldError> {
    match counts.iter().find(|&&(_, count)| count == 0) {
        Some((field, _)) => Err(FieldError::new(*field, "must be at least 1, found 0")),
        None => Ok(()),
    }
}

/// Refuses the first field that makes more of something than its limit: field, what, how many, limit.
pub(crate) fn within_limits(sizes: &[(&str, &str, u64, u64)]) -> Result<(), FieldError> {
    match sizes.iter().find(|&&(_, _, found, limit)| found > limit) {
        Some((field, what, found, limit)) => Err(FieldError::new(
            *field,
            format!("makes {found} {what}; at most {limit}"),
        )),
        None => Ok(()),
    }
}

/// Whether hosts and switches may have that name: it must be safe in `name:port` and `a>b`.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
