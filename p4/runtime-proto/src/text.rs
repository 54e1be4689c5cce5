//! P4Info in protobuf's text format, which is how p4c writes it.
//!
//! The decision: it is read here, once, by the descriptors that are embedded for it; prost itself
//! knows no text format.

use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::FILE_DESCRIPTOR_SET;
use crate::config_v1::P4Info;

/// Why a text is not that of a P4Info message.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// It is not in text format, or names what the message has not.
    #[error(transparent)]
    Syntax(#[from] prost_reflect::text_format::ParseError),
    /// The text is nested too deeply for a message.
    #[error(transparent)]
    Depth(#[from] prost::DecodeError),
}

impl P4Info {
    /// The message that a text stands for.
    ///
    /// # Errors
    /// The text is not that of a P4Info message.
    pub fn from_text(text: &str) -> Result<Self, TextError> {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("our descriptors are valid");
        let kind = pool.get_message_by_name("p4.config.v1.P4Info");
        let kind = kind.expect("our descriptors hold P4Info");
        Ok(DynamicMessage::parse_text_format(kind, text)?.transcode_to()?)
    }
}
