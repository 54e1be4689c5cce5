//! The device config of a pipeline: BMv2 JSON, bare or in the wrapper of before P4Runtime 1.0.
//!
//! simple_switch_grpc takes both, and the clients of the P4 tutorials still send the wrapper
//! (`p4.tmp.P4DeviceConfig`). The decision: it is recognised by its form. JSON begins with a brace,
//! which begins no message of protobuf, so neither is taken for the other.

use std::borrow::Cow;

use prost::Message;

/// `p4.tmp.P4DeviceConfig`, without what says how bmv2 swaps programs.
#[derive(Clone, PartialEq, Message)]
struct P4DeviceConfig {
    #[prost(bytes = "vec", tag = "3")]
    device_data: Vec<u8>,
}

/// The JSON in a device config.
pub(super) fn unwrap_json(device_config: &[u8]) -> Cow<'_, [u8]> {
    match P4DeviceConfig::decode(device_config) {
        Ok(wrapper) if !wrapper.device_data.is_empty() => {
            tracing::warn!("the device config is a P4DeviceConfig, which P4Runtime 1.0 dropped");
            Cow::Owned(wrapper.device_data)
        }
        _ => Cow::Borrowed(device_config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_taken_bare_and_wrapped() {
        let json = br#"{"program": "wire"}"#;
        let wrapper = P4DeviceConfig { device_data: json.to_vec() };
        // `reassign`, which p4runtime_lib sets, stands in front.
        let wrapped = [&[0x08, 0x01], wrapper.encode_to_vec().as_slice()].concat();
        for given in [json.as_slice(), &wrapped] {
            assert_eq!(*unwrap_json(given), *json);
        }
        for other in [b"".as_slice(), b"\n {}", b"\x08\x01", b"not json"] {
            assert_eq!(*unwrap_json(other), *other);
        }
    }
}
