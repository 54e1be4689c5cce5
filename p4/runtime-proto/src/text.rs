//! P4Info in protobuf's text format, which is how p4c writes it.
//!
//! The decision: it is read here, once, by the descriptors that are embedded for it; prost itself
//! knows no text format.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

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
        // Decoding the descriptors takes longer than reading the text, hence once for a process.
        static KIND: LazyLock<MessageDescriptor> = LazyLock::new(|| {
            let pool =
                DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("our descriptors are valid");
            pool.get_message_by_name("p4.config.v1.P4Info").expect("our descriptors hold P4Info")
        });
        Ok(DynamicMessage::parse_text_format(KIND.clone(), text)?.transcode_to()?)
    }
}
