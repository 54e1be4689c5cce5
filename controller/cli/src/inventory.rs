//! Switches that are named on the command line, for a fabric that no document describes.

use topology::{Fabric, Parts, Switch, Tier};

/// A switch from `NAME=HOST:PORT/ID`.
pub(crate) fn switch(text: &str) -> Result<Switch, String> {
    let parts = text.split_once('=');
    let parts = parts.and_then(|(name, rest)| Some((name, rest.rsplit_once('/')?)));
    let (name, (address, id)) = parts.ok_or("write NAME=HOST:PORT/ID, for example s1=h:9559/1")?;
    let device_id = id.parse();
    Ok(Switch {
        name: name.to_owned(),
        tier: Tier::Leaf,
        device_id: device_id.map_err(|_| format!("{id} is no device id; they are numbers"))?,
        p4runtime: Some(address.to_owned()),
        ports: [].into(),
    })
}

/// A fabric of these switches, of whose cables and hosts nothing is known.
pub(crate) fn fabric(switches: &[Switch]) -> Fabric {
    Fabric::new(Parts {
        name: "found".to_owned(),
        switches: switches.to_vec(),
        ..Parts::default()
    })
}
