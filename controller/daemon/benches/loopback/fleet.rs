//! Fabrics of 500 and of 1,000 switches, which a process of their own serves, all or in part.
//!
//! The decision: the process that is measured has a controller and nothing else of size, so its
//! memory is the controller's. Plans and tables are those of all switches; those that nobody serves
//! have no address. The process of the switches is this benchmark again, with the argument of one
//! of [`FLEETS`]; it writes the addresses to its standard output, reads from its standard input the
//! number of each switch that it shall restart, and ends with it.

use switch_server::p4runtime::ServiceOptions;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use topology::clos::ClosSpec;
use topology::{Fabric, Switch, SwitchId, Tier};

use crate::Failed;
use crate::lab::{Lab, parts};
use crate::serving_process::ServingProcess;

/// Which switches of which fabric are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetKind {
    /// 492 leaves and 8 spines, of which 20 leaves and all spines are served.
    FewOfWide,
    /// 492 leaves and 8 spines.
    Wide,
    /// 28 pods of 32 leaves and 4 spines, 16 cores: 1,024 switches and 114,688 GPUs. With more
    /// cores the selector of a spine would have no room for its groups.
    Thousand,
}

/// What is served for each argument.
pub(crate) const FLEETS: [(&str, FleetKind); 3] = [
    ("--serve-few-of-wide", FleetKind::FewOfWide),
    ("--serve-wide", FleetKind::Wide),
    ("--serve-thousand", FleetKind::Thousand),
];

/// Leaves that are served of the first fabric; those with the lowest ids.
pub(crate) const LEAVES: u32 = 20;

impl FleetKind {
    fn argument(self) -> Result<&'static str, Failed> {
        let found = FLEETS.iter().find(|(_, kind)| *kind == self);
        Ok(found.ok_or("no process serves such a fabric")?.0)
    }

    pub(crate) fn spec(self) -> ClosSpec {
        match self {
            Self::FewOfWide | Self::Wide => {
                ClosSpec { leaves: 492, spines: 8, hosts_per_leaf: 1, ..ClosSpec::default() }
            }
            Self::Thousand => ClosSpec {
                leaves: 32,
                spines: 4,
                hosts_per_leaf: 16,
                pods: 28,
                cores: 16,
                planes: true,
                ..ClosSpec::default()
            },
        }
    }

    fn serves(self, switch: &Switch) -> bool {
        let is_few = switch.tier == Tier::Spine || switch.device_id <= u64::from(LEAVES);
        self != Self::FewOfWide || is_few
    }
}

/// The switches, while they are served.
pub(crate) struct Fleet {
    pub(crate) fabric: Fabric,
    process: ServingProcess,
}

impl Fleet {
    pub(crate) async fn start(kind: FleetKind) -> Result<Self, Failed> {
        let process = ServingProcess::start(kind.argument()?).await?;
        let mut parts = parts(&kind.spec())?;
        let served = parts.switches.iter_mut().filter(|switch| kind.serves(switch));
        for (switch, address) in served.zip(&process.addresses) {
            switch.p4runtime = Some(address.clone());
        }
        Ok(Self { fabric: Fabric::new(parts), process })
    }

    /// Has a switch restart, empty.
    pub(crate) async fn restart_switch(&mut self, switch: SwitchId) -> Result<(), Failed> {
        Ok(self.process.commands.write_all(format!("{}\n", switch.index()).as_bytes()).await?)
    }
}

/// What the process of the switches does.
pub(crate) async fn serve(kind: FleetKind) -> Result<(), Failed> {
    let serves = |switch: &Switch| kind.serves(switch);
    let lab = Lab::serving(&kind.spec(), serves, ServiceOptions::default()).await?;
    let switches = lab.fabric.switches().iter();
    let addresses: Vec<&str> = switches.filter_map(|switch| switch.p4runtime.as_deref()).collect();
    println!("{}", addresses.join(","));
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        lab.restart_switch(command.parse()?).await?;
    }
    Ok(())
}
