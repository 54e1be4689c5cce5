//! Switches that are named on the command line, for a fabric that no document describes.

use topology::{Fabric, FabricParts, PipelineKind, ServerAddress, Switch, Tier};

/// A switch from `NAME=HOST:PORT/ID`.
pub(crate) fn parse_switch(text: &str) -> Result<Switch, String> {
    let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.rsplit_once('/')?)));
    let parts = parts.filter(|(_, (address, _))| ServerAddress::parse(address).is_some());
    let (name, (address, id)) = parts.ok_or("write NAME=HOST:PORT/ID, for example s1=h:9559/1")?;
    let device_id = id.parse();
    Ok(Switch {
        name: name.to_owned(),
        tier: Tier::Leaf,
        pipeline: PipelineKind::default(),
        device_id: device_id.map_err(|_| format!("invalid device id `{id}`: not a number"))?,
        p4runtime: Some(address.to_owned()),
        gnmi: None,
        ports: [].into(),
        port_names: [].into(),
        queues: topology::SwitchQueues::default(),
    })
}

/// A fabric of these switches, of whose cables and hosts nothing is known.
pub(crate) fn undiscovered_fabric(switches: &[Switch]) -> Fabric {
    Fabric::new(FabricParts {
        name: "found".to_owned(),
        switches: switches.to_vec(),
        ..FabricParts::default()
    })
}
