//! Units of links, as types: files use gigabits per second, formulas bytes per second.

use std::net::IpAddr;

/// The capacity of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bandwidth {
    gbps: f64,
}

impl Bandwidth {
    /// From gigabits per second, the unit of fabric documents. `None` unless finite and above zero.
    pub fn from_gbps(gbps: f64) -> Option<Self> {
        (gbps.is_finite() && gbps > 0.0).then_some(Self { gbps })
    }

    /// In gigabits per second, the unit of fabric documents.
    pub fn gbps(self) -> f64 {
        self.gbps
    }

    /// In bytes per second, the unit of the formulas (`B_e` of Crux §3.1).
    pub fn bytes_per_second(self) -> f64 {
        self.gbps * 1e9 / 8.0
    }
}

/// An Ethernet address of six bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// What every switch answers hosts that ask for an address: locally administered, the same
    /// everywhere, so that a host that moves to another leaf keeps its neighbour entry.
    pub const GATEWAY: Self = Self([0x02, 0, 0, 0, 0, 0xfe]);

    /// The address of a NIC for which a document gives none, locally administered and unicast:
    /// 02:00 and the bytes of an IPv4 address; or 06, the last two bytes of the /64 of an IPv6
    /// address, and the last three of the address.
    pub fn from_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                Self([0x02, 0x00, a, b, c, d])
            }
            IpAddr::V6(ip) => {
                let bytes = ip.octets();
                Self([0x06, bytes[6], bytes[7], bytes[13], bytes[14], bytes[15]])
            }
        }
    }
}

impl std::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::str::FromStr for MacAddress {
    type Err = InvalidMacAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(InvalidMacAddress)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| InvalidMacAddress)?;
        }
        parts.next().is_none().then_some(Self(bytes)).ok_or(InvalidMacAddress)
    }
}

/// The text is not six pairs of hexadecimal digits separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address such as 02:00:0a:00:01:01")]
pub struct InvalidMacAddress;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_refuses_what_is_no_capacity() {
        for gbps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Bandwidth::from_gbps(gbps), None);
        }
        let link = Bandwidth::from_gbps(200.0).unwrap();
        assert_eq!((link.gbps(), link.bytes_per_second()), (200.0, 25e9));
    }

    #[test]
    fn mac_round_trips_and_refuses_other_text() {
        let mac: MacAddress = "02:00:0a:00:01:fe".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:0a:00:01:fe");
        for text in
            ["", "02:00:0a:00:01", "02:00:0a:00:01:fe:00", "2:0:a:0:1:1", "0g:00:00:00:00:00"]
        {
            assert_eq!(text.parse::<MacAddress>(), Err(InvalidMacAddress));
        }
    }
}
