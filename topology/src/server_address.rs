//! Where a server of a switch listens: P4Runtime or gNMI, `host:port`.

use std::net::Ipv6Addr;

use crate::spec::is_valid_name;

/// The parts of an address `host:port`, an IPv6 address being in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAddress<'a> {
    /// A name or an IP address, with the brackets of IPv6.
    pub host: &'a str,
    /// The port; not 0.
    pub port: u16,
}

impl<'a> ServerAddress<'a> {
    /// The parts of `text`, if a client can call it.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let is_host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
            None => is_valid_name(host),
        };
        let port = port.parse().ok().filter(|port| *port > 0)?;
        is_host.then_some(Self { host, port })
    }

    /// The name or IP address without the brackets of IPv6.
    pub fn bare_host(&self) -> &'a str {
        self.host.trim_matches(['[', ']'])
    }
}
