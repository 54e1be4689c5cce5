//! How a controller calls the ports of a PINS switch: by SONiC's names, or by their ids in digits
//! as with `--use_port_ids`.

use std::collections::BTreeMap;

use crate::run::action::DROP_PORT;

/// The names of ports. Without any, a port is called by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortNames {
    numbers: BTreeMap<String, u16>,
    names: BTreeMap<u16, String>,
}

/// Names that do not tell ports apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortNameError {
    /// Two ports have one name, or one has none.
    #[error("port {0} needs a name of its own, not `{1}`")]
    Name(u16, String),
    /// A port has two names.
    #[error("port {0} has two names")]
    Port(u16),
}

impl PortNames {
    /// Ports that are called by these names alone.
    ///
    /// # Errors
    /// A name or a port is there twice, or a name is empty.
    pub fn new(names: impl IntoIterator<Item = (u16, String)>) -> Result<Self, PortNameError> {
        let mut known = Self::default();
        for (number, name) in names {
            if name.is_empty() || known.numbers.insert(name.clone(), number).is_some() {
                return Err(PortNameError::Name(number, name));
            }
            if known.names.insert(number, name).is_some() {
                return Err(PortNameError::Port(number));
            }
        }
        Ok(known)
    }

    /// The port of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u16> {
        if !self.names.is_empty() {
            return self.numbers.get(name).copied();
        }
        let number = name.parse().ok().filter(|number: &u16| *number < DROP_PORT);
        number.filter(|number| number.to_string() == name)
    }

    /// The name of the interface of a port: `EthernetN` by its number where it has none.
    pub fn interface_name(&self, number: u16) -> String {
        let configured = self.names.get(&number).cloned();
        configured.unwrap_or_else(|| format!("Ethernet{number}"))
    }

    /// The name of a port.
    #[must_use]
    pub fn name(&self, number: u16) -> Option<String> {
        if self.names.is_empty() {
            return Some(number.to_string());
        }
        self.names.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_ids_or_names_and_never_both() {
        let ids = PortNames::default();
        assert_eq!((ids.number("12"), ids.name(12)), (Some(12), Some("12".into())));
        for wrong in ["", "012", "+12", "511", "Ethernet12", "70000"] {
            assert_eq!(ids.number(wrong), None, "{wrong}");
        }
        let names = PortNames::new([(1, "Ethernet0".into()), (2, "Ethernet8".into())]).unwrap();
        assert_eq!((names.number("Ethernet8"), names.name(2)), (Some(2), Some("Ethernet8".into())));
        assert_eq!((names.number("2"), names.name(3)), (None, None));
        let twice = PortNames::new([(1, "a".into()), (2, "a".into())]);
        assert_eq!(twice, Err(PortNameError::Name(2, "a".into())));
        let renamed = PortNames::new([(1, "a".into()), (1, "b".into())]);
        assert_eq!(renamed, Err(PortNameError::Port(1)));
        assert!(PortNames::new([(1, String::new())]).is_err());
    }
}
