//! Names of the interfaces that are ports of emulated switches.
//!
//! The commands that make interfaces and `crux controller --carriers`, which takes their carrier
//! for the state of cables, must agree on them. The decision: Mininet's name where the kernel has
//! room for it, else one made of the position of the switch in the document.

use topology::{Fabric, SwitchId};

/// The longest name that Linux gives an interface.
const MAX_INTERFACE_NAME: usize = 15;

/// The name of a port: `leaf1-eth3`, or `s12-eth3` for the twelfth switch of the document where its
/// own name is too long.
pub fn port_interface(fabric: &Fabric, switch: SwitchId, port: u32) -> String {
    let name = format!("{}-eth{port}", fabric.switch(switch).name);
    match name.len() <= MAX_INTERFACE_NAME {
        true => name,
        false => format!("s{}-eth{port}", switch.index() + 1),
    }
}

#[cfg(test)]
mod tests {
    use topology::clos::{ClosSpec, build_clos};
    use topology::spec::{self, FabricDocument};

    use super::*;

    #[test]
    fn long_names_become_numbers() {
        let fabric = build_clos("lab", &ClosSpec::default()).unwrap();
        let first = fabric.switches()[0].name.clone();
        assert_eq!(port_interface(&fabric, SwitchId(0), 3), format!("{first}-eth3"));

        let mut document = spec::explicit_document(&fabric);
        let long = "pod7-rack12-leaf-a".to_owned();
        document.switches[0].name.clone_from(&long);
        for link in &mut document.links {
            for end in [&mut link.a, &mut link.b] {
                *end = end.replace(&format!("{first}:"), &format!("{long}:"));
            }
        }
        let renamed = Fabric::try_from(&FabricDocument { ..document }).unwrap();
        let switch = renamed.switch_named(&long).unwrap();
        assert_eq!(port_interface(&renamed, switch, 3), format!("s{}-eth3", switch.index() + 1));
    }
}
