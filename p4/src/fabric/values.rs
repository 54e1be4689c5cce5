//! What entries of `fabric.p4` are made of: values that fit their fields.

use std::net::Ipv4Addr;

use crate::entry::{FieldMatch, RowField};

/// TCP, protocol 6 in IPv4.
const TCP: u8 = 6;
/// UDP, the protocol of RoCEv2.
const UDP: u8 = 17;
/// The UDP destination port of RoCEv2.
const ROCE: u16 = 4791;
/// The EtherType of IPv4.
const IPV4: u16 = 0x0800;

/// A port of a switch: 9 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNumber(u16);

/// A level: 3 bits, the highest served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityLevel(u8);

/// The bits of the ECMP hash by which a switch chooses: those from 0, 8 or 16 on. Groups have at
/// most 64 ports, so that choices by different slices have no bit in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashSlice(u8);

/// An IPv4 prefix with its host bits cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ipv4Prefix {
    address: Ipv4Addr,
    length: u8,
}

/// The five fields that identify a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// The sender.
    pub src: Ipv4Addr,
    /// The receiver.
    pub dst: Ipv4Addr,
    /// The protocol over IPv4.
    pub protocol: u8,
    /// The sender's TCP or UDP port.
    pub sport: u16,
    /// The receiver's TCP or UDP port.
    pub dport: u16,
}

/// What a `job_classify` row matches; what is `None` does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobMatch {
    /// The sender's network.
    pub src: Option<Ipv4Prefix>,
    /// The receiver's network.
    pub dst: Option<Ipv4Prefix>,
    /// The sender's TCP or UDP port.
    pub sport: Option<u16>,
    /// The receiver's TCP or UDP port.
    pub dport: Option<u16>,
}

/// What an `acl_punt` row matches; what is left out does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PuntMatch {
    /// Every packet.
    #[default]
    Any,
    /// Frames of this EtherType.
    EtherType(u16),
    /// Frames that came in by this port.
    IngressPort(PortNumber),
    /// Packets of this protocol over IPv4.
    Protocol(u8),
    /// TCP packets to this port, over IPv4.
    TcpPort(u16),
    /// UDP packets to this port, over IPv4.
    UdpPort(u16),
    /// IPv4 packets with this time to live.
    Ttl(u8),
}

/// A value does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value} is above {max}")]
pub struct OutOfRange {
    /// What the value is.
    pub what: &'static str,
    /// The value.
    pub value: u32,
    /// The greatest value that fits.
    pub max: u32,
}

impl PortNumber {
    const MAX: u16 = 0x1ff;

    /// The port that leads to the controller.
    pub const CPU: Self = Self(255);

    /// The port with this number.
    pub fn new(number: u32) -> Result<Self, OutOfRange> {
        check_range("port", number, Self::MAX.into()).map(Self)
    }

    /// The port number, as in the pipeline.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl PriorityLevel {
    /// The width of a level.
    pub const BITS: u32 = 3;

    /// The level with this number.
    pub fn new(number: u32) -> Result<Self, OutOfRange> {
        check_range("level", number, (1 << Self::BITS) - 1).map(Self)
    }

    /// All levels, the least urgent first.
    pub fn all_levels() -> impl Iterator<Item = Self> {
        (0..1 << Self::BITS).map(Self)
    }

    /// The level as a number, 0 to 7.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The DSCP that carries it through the fabric: the class selector of RFC 2474 §4.2.2.
    pub fn dscp(self) -> u8 {
        self.0 << 3
    }
}

impl HashSlice {
    /// The bits from 0 on, the program's own choice.
    pub const FIRST: Self = Self(0);
    /// The bits from 8 on.
    pub const SECOND: Self = Self(8);
    /// The bits from 16 on.
    pub const THIRD: Self = Self(16);
}

impl Ipv4Prefix {
    /// The addresses that agree with `address` in the first `length` bits, at most 32.
    pub fn new(address: Ipv4Addr, length: u8) -> Result<Self, OutOfRange> {
        let length = check_range("prefix length", length.into(), 32)?;
        let address = Ipv4Addr::from_bits(address.to_bits() & prefix_mask(length));
        Ok(Self { address, length })
    }

    pub(super) fn lpm_field(self, id: u32) -> Option<RowField> {
        RowField::lpm(id, self.address.to_bits().into(), self.length.into(), 32)
    }

    fn ternary_field(self, id: u32) -> Option<RowField> {
        let mask = prefix_mask(self.length).into();
        RowField::ternary(id, self.address.to_bits().into(), mask)
    }
}

impl From<Ipv4Addr> for Ipv4Prefix {
    /// Just this address.
    fn from(address: Ipv4Addr) -> Self {
        Self { address, length: 32 }
    }
}

impl FiveTuple {
    /// A RoCEv2 flow: the UDP source port distinguishes the flows between two NICs.
    pub fn for_roce(src: Ipv4Addr, dst: Ipv4Addr, sport: u16) -> Self {
        let (protocol, dport) = (UDP, ROCE);
        Self { src, dst, protocol, sport, dport }
    }
}

impl JobMatch {
    pub(super) fn match_fields(&self) -> Vec<RowField> {
        let fields = [
            self.src.and_then(|prefix| prefix.ternary_field(1)),
            self.dst.and_then(|prefix| prefix.ternary_field(2)),
            self.dport.map(|port| full_mask_field(3, port, u16::MAX)),
            self.sport.map(|port| full_mask_field(4, port, u16::MAX)),
        ];
        fields.into_iter().flatten().collect()
    }
}

impl PuntMatch {
    /// Keys of IPv4 come with its EtherType, as the program's `@entry_restriction` asks.
    pub(super) fn match_fields(&self) -> Vec<RowField> {
        let ether_type = |value: u16| full_mask_field(1, value, u16::MAX);
        let protocol = |value: u8| full_mask_field(3, value, u8::MAX);
        let dport = |value: u16| full_mask_field(4, value, u16::MAX);
        match *self {
            Self::Any => vec![],
            Self::EtherType(value) => vec![ether_type(value)],
            Self::IngressPort(port) => vec![full_mask_field(2, port.0, PortNumber::MAX)],
            Self::Protocol(value) => vec![ether_type(IPV4), protocol(value)],
            Self::TcpPort(port) => vec![ether_type(IPV4), protocol(TCP), dport(port)],
            Self::UdpPort(port) => vec![ether_type(IPV4), protocol(UDP), dport(port)],
            Self::Ttl(ttl) => vec![ether_type(IPV4), full_mask_field(5, ttl, u8::MAX)],
        }
    }
}

/// A ternary field all of whose bits matter.
fn full_mask_field<T: Into<u128>>(id: u32, value: T, mask: T) -> RowField {
    let (value, mask) = (value.into(), mask.into());
    let matches = FieldMatch::Ternary { value, mask };
    RowField { id, matches }
}

fn check_range<T: TryFrom<u32>>(what: &'static str, value: u32, max: u32) -> Result<T, OutOfRange> {
    let fitting = T::try_from(value).ok().filter(|_| value <= max);
    fitting.ok_or(OutOfRange { what, value, max })
}

/// The bits of an IPv4 address that a prefix of this length fixes.
fn prefix_mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

macro_rules! value_of {
    ($($name:ident),*) => {
        $(
            impl From<$name> for u128 {
                fn from(value: $name) -> Self {
                    value.0.into()
                }
            }

            impl std::fmt::Display for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.0.fmt(f)
                }
            }
        )*
    };
}

value_of!(PortNumber, PriorityLevel, HashSlice);
