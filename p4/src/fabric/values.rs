//! What entries of `fabric.p4` are made of: values that fit their fields.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::entry::{FieldMatch, RowField};

/// TCP, protocol 6 in IPv4.
const TCP: u8 = 6;
/// UDP, the protocol of RoCEv2.
const UDP: u8 = 17;
/// The UDP destination port of RoCEv2.
const ROCE: u16 = 4791;
/// The next header of ICMPv6.
const ICMPV6: u8 = 58;
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

/// A version of the Internet Protocol, with tables of its own in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpVersion {
    /// Addresses of 32 bits.
    #[default]
    V4,
    /// Addresses of 128 bits.
    V6,
}

/// An IP prefix with its host bits cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    address: IpAddr,
    length: u8,
}

/// The fields by which a flow is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The sender.
    pub src: IpAddr,
    /// The receiver, of the same IP version.
    pub dst: IpAddr,
    /// The sender's TCP or UDP port.
    pub sport: u16,
    /// What else it is told by.
    pub transport: FlowTransport,
}

/// The rest of the fields by which a flow is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowTransport {
    /// The protocol over IP, and the receiver's TCP or UDP port.
    Port {
        /// 6 or 17.
        protocol: u8,
        /// The receiver's port.
        dport: u16,
    },
    /// RoCEv2, and the queue pair of the receiver: for connections that share all ports.
    QueuePair(u32),
}

/// Where a flow is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PinPoint {
    /// At the leaf where it enters, by this port.
    Edge(PortNumber),
    /// At a switch inside the fabric.
    Transit,
}

/// What a `job_classify` row matches; what is `None` does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobMatch {
    /// The version of both networks.
    pub version: IpVersion,
    /// The sender's network.
    pub src: Option<IpPrefix>,
    /// The receiver's network.
    pub dst: Option<IpPrefix>,
    /// The sender's TCP or UDP port.
    pub sport: Option<u16>,
    /// The receiver's TCP or UDP port.
    pub dport: Option<u16>,
    /// Whether the packet may have a job by its pair of NICs.
    pub pairs: PairedPackets,
}

/// What a row does with packets that have a job by their pair of NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairedPackets {
    /// It matches them as any others.
    #[default]
    Matched,
    /// It leaves them as they are.
    LeftOut,
}

/// Why a packet of IP was dropped before it was routed, as `fabric.p4` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// A version, header length or total length that is wrong (RFC 1812 §5.2.2).
    BadHeader = 1,
    /// A checksum of the IPv4 header that is wrong (RFC 1812 §4.2.2.5).
    BadChecksum = 2,
    /// A source that no host has: a group, a loopback, this network (RFC 1812 §5.3.7).
    Martian = 3,
    /// The source of a host elsewhere.
    Foreign = 4,
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
    /// ICMPv6 packets of this type.
    Icmpv6(u8),
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
    pub(super) const MAX: u16 = 0x1ff;

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

    /// The DSCP of RoCEv2 answers that travel at this level, so that every switch can limit them.
    pub fn answer_dscp(self) -> u8 {
        self.dscp() | 1
    }
}

impl Refusal {
    /// The width of a reason.
    pub const BITS: u32 = 3;

    /// In the order of their numbers.
    pub const ALL: [Self; 4] = [Self::BadHeader, Self::BadChecksum, Self::Martian, Self::Foreign];
}

impl HashSlice {
    /// The bits from 0 on, the program's own choice.
    pub const FIRST: Self = Self(0);
    /// The bits from 8 on.
    pub const SECOND: Self = Self(8);
    /// The bits from 16 on.
    pub const THIRD: Self = Self(16);

    /// 2^16 times what the choice of a tier grows by from one packet of a connection to the next: 1 at
    /// the first tier, which sees all packets. Above it, 2^16 divided by the golden ratio and by its
    /// square, so that every so many packets are spread as evenly as all.
    pub(super) fn stride(self) -> u32 {
        match self {
            Self::FIRST => 1 << 16,
            Self::SECOND => 0x9e37_79b9,
            _ => 0x61c8_8647,
        }
    }
}

impl IpVersion {
    /// The version of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The width of its addresses.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The greatest address, as a number.
    fn max(self) -> u128 {
        u128::MAX >> (128 - u32::from(self.bits()))
    }
}

impl IpPrefix {
    /// The addresses that agree with `address` in the first `length` bits, at most 32 or 128.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, OutOfRange> {
        let version = IpVersion::of(address);
        let length = check_range("prefix length", length.into(), version.bits().into())?;
        let bits = address_bits(address) & prefix_mask(version, length);
        let address = match version {
            // The mask of IPv4 leaves no bit above the 32nd.
            IpVersion::V4 => Ipv4Addr::from_bits(bits as u32).into(),
            IpVersion::V6 => Ipv6Addr::from_bits(bits).into(),
        };
        Ok(Self { address, length })
    }

    /// The version of its addresses.
    pub fn version(self) -> IpVersion {
        IpVersion::of(self.address)
    }

    /// The fewest prefixes that have the addresses of these and no others, ascending.
    pub fn join_all(prefixes: impl IntoIterator<Item = Self>) -> Vec<Self> {
        // What covers others comes before them.
        let ascending: BTreeSet<Self> = prefixes.into_iter().collect();
        let mut joined: Vec<Self> = Vec::new();
        for mut prefix in ascending {
            if joined.last().is_some_and(|last| last.covers(prefix)) {
                continue;
            }
            while let Some(whole) = joined.last().and_then(|last| last.join(prefix)) {
                joined.pop();
                prefix = whole;
            }
            joined.push(prefix);
        }
        joined
    }

    fn covers(self, other: Self) -> bool {
        self.length <= other.length && Self::new(other.address, self.length) == Ok(self)
    }

    /// The prefix of which these are the halves, if they are.
    fn join(self, other: Self) -> Option<Self> {
        let whole = Self::new(self.address, self.length.checked_sub(1)?).ok()?;
        (self.length == other.length && self != other && whole.covers(other)).then_some(whole)
    }

    pub(crate) fn lpm_field(self, id: u32) -> Option<RowField> {
        let width = self.version().bits().into();
        RowField::lpm(id, address_bits(self.address), self.length.into(), width)
    }

    fn ternary_field(self, id: u32) -> Option<RowField> {
        let mask = prefix_mask(self.version(), self.length);
        RowField::ternary(id, address_bits(self.address), mask)
    }
}

impl<A: Into<IpAddr>> From<A> for IpPrefix {
    /// Just this address.
    fn from(address: A) -> Self {
        let address = address.into();
        Self { address, length: IpVersion::of(address).bits() }
    }
}

impl FlowKey {
    /// A RoCEv2 flow: the UDP source port tells the flows between two NICs apart.
    pub fn for_roce(src: impl Into<IpAddr>, dst: impl Into<IpAddr>, sport: u16) -> Self {
        let transport = FlowTransport::Port { protocol: UDP, dport: ROCE };
        Self { src: src.into(), dst: dst.into(), sport, transport }
    }

    /// The version of both addresses; none if they differ.
    pub fn version(&self) -> Option<IpVersion> {
        let [src, dst] = [self.src, self.dst].map(IpVersion::of);
        (src == dst).then_some(src)
    }
}

impl JobMatch {
    pub(super) fn match_fields(&self) -> Vec<RowField> {
        let fields = [
            self.src.and_then(|prefix| prefix.ternary_field(1)),
            self.dst.and_then(|prefix| prefix.ternary_field(2)),
            self.dport.map(|port| full_mask_field(3, port, u16::MAX)),
            self.sport.map(|port| full_mask_field(4, port, u16::MAX)),
            (self.pairs == PairedPackets::LeftOut).then(|| full_mask_field(5, 0, u32::MAX)),
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
            Self::Icmpv6(kind) => {
                vec![full_mask_field(2, ICMPV6, u8::MAX), full_mask_field(3, kind, u8::MAX)]
            }
        }
    }
}

/// A ternary field all of whose bits matter.
pub(super) fn full_mask_field<T: Into<u128>>(id: u32, value: T, mask: T) -> RowField {
    let (value, mask) = (value.into(), mask.into());
    let matches = FieldMatch::Ternary { value, mask };
    RowField { id, matches }
}

fn check_range<T: TryFrom<u32>>(what: &'static str, value: u32, max: u32) -> Result<T, OutOfRange> {
    let fitting = T::try_from(value).ok().filter(|_| value <= max);
    fitting.ok_or(OutOfRange { what, value, max })
}

/// An address as a number of 32 or 128 bits.
pub(super) fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The bits of an address that a prefix of this length fixes.
fn prefix_mask(version: IpVersion, length: u8) -> u128 {
    let free = u32::from(version.bits().saturating_sub(length));
    u128::MAX.checked_shl(free).unwrap_or(0) & version.max()
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
