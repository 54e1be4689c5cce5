//! Ports on the command line: `PORT@INTERFACE` and `[PORT=]RATE`.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use switch::QueueLimits;
use switch::ports::{PortConfig, PortMedium, PortShape};

/// `PORT@INTERFACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortAttachment {
    pub(crate) port: u16,
    pub(crate) interface: String,
}

/// `[PORT=]RATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRate {
    port: Option<u16>,
    bits_per_second: NonZeroU64,
}

/// The shape of every port.
#[derive(Clone, Debug)]
pub(crate) struct PortShapes {
    every: PortShape,
    of_port: BTreeMap<u16, PortShape>,
}

impl FromStr for PortAttachment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('@').filter(|(_, interface)| !interface.is_empty());
        let (port, interface) = parts.ok_or("not PORT@INTERFACE, as in 1@veth1")?;
        Ok(Self { port: port_number(port)?, interface: interface.to_owned() })
    }
}

impl PortAttachment {
    pub(crate) fn interface_medium(&self) -> PortMedium {
        PortMedium::Interface(self.interface.clone())
    }

    /// As simple_switch names them.
    pub(crate) fn file_medium(&self) -> PortMedium {
        let [input, output] = ["in", "out"]
            .map(|direction| PathBuf::from(format!("{}_{direction}.pcap", self.interface)));
        PortMedium::Files { input, output }
    }
}

impl FromStr for PortRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, rate) = match text.split_once('=') {
            Some((port, rate)) => (Some(port_number(port)?), rate),
            None => (None, text),
        };
        Ok(Self { port, bits_per_second: bits_per_second(rate)? })
    }
}

impl PortShapes {
    pub(crate) fn new(rates: &[PortRate], queue: QueueLimits) -> Self {
        let shape = |rate: Option<&PortRate>| PortShape {
            bits_per_second: rate.map(|rate| rate.bits_per_second),
            queue,
        };
        let of_port = rates.iter().filter_map(|rate| Some((rate.port?, shape(Some(rate)))));
        Self {
            every: shape(rates.iter().rfind(|rate| rate.port.is_none())),
            of_port: of_port.collect(),
        }
    }

    pub(crate) fn port_config(&self, number: u16, medium: PortMedium) -> PortConfig {
        PortConfig {
            number,
            medium,
            shape: self.of_port.get(&number).copied().unwrap_or(self.every),
        }
    }

    /// A port that has a rate and does not exist.
    pub(crate) fn unattached_port(&self, ports: &[PortConfig]) -> Option<u16> {
        self.of_port.keys().copied().find(|number| ports.iter().all(|port| port.number != *number))
    }
}

fn port_number(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| *number < 512);
    number.ok_or_else(|| format!("`{text}` is not a port, 0 to 511"))
}

/// Bits per second; `k`, `M` and `G` stand for powers of 1000.
fn bits_per_second(text: &str) -> Result<NonZeroU64, String> {
    let wrong = || format!("`{text}` is not a rate in bits per second, as 10M or 2.5G");
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor = match &text[unit..] {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..unit].parse().map_err(|_| wrong())?;
    let rate = number * factor;
    let sensible = (1.0..=1e13).contains(&rate);
    let rate = sensible.then_some(rate as u64).and_then(NonZeroU64::new);
    rate.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_and_rates_are_read() {
        let attachment: PortAttachment = "3@veth-3".parse().unwrap();
        assert_eq!((attachment.port, attachment.interface.as_str()), (3, "veth-3"));
        for (text, port, rate) in [
            ("10M", None, 10_000_000),
            ("7=2.5G", Some(7), 2_500_000_000),
            ("1=64k", Some(1), 64_000),
            ("1500", None, 1_500),
        ] {
            let read: PortRate = text.parse().unwrap();
            assert_eq!((read.port, read.bits_per_second.get()), (port, rate), "{text}");
        }
    }

    #[test]
    fn invalid_input_is_refused() {
        for text in ["1", "x@veth", "1@", "512@veth", "-1@veth"] {
            assert!(text.parse::<PortAttachment>().is_err(), "{text}");
        }
        for text in ["", "fast", "10 M", "10m", "0", "-1M", "1e99", "NaN", "x=10M", "512=10M"] {
            assert!(text.parse::<PortRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_has_its_own_rate_or_that_of_all() {
        let rates = ["10M", "2=1G"].map(|text| text.parse().unwrap());
        let shapes = PortShapes::new(&rates, QueueLimits::of_bytes(5));
        let rate = |number| {
            let port = shapes.port_config(number, PortMedium::Interface("x".into()));
            port.shape.bits_per_second.map(NonZeroU64::get)
        };
        assert_eq!([rate(1), rate(2)], [Some(10_000_000), Some(1_000_000_000)]);
        let only = [shapes.port_config(1, PortMedium::Interface("x".into()))];
        assert_eq!(shapes.unattached_port(&only), Some(2));
    }
}
