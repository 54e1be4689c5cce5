//! 492 leaves and 8 spines, of which 20 leaves and all spines are served by a process of their own.
//!
//! The decision: the process that is measured has a controller and nothing else of size, so its
//! memory is the controller's. Plans and tables are those of all 500 switches; those that nobody
//! serves have no address, because a machine of two cores cannot be 500 switches. The process of
//! the switches is this benchmark again, with [`SERVE_FLEET`] as its argument; it writes the
//! addresses to its standard output, reads from its standard input the number of each switch that
//! it shall restart, and ends with it.

use switch::p4runtime::ServiceOptions;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use topology::clos::ClosSpec;
use topology::{Fabric, Switch, SwitchId, Tier};

use crate::Failed;
use crate::lab::{Lab, parts};
use crate::serving_process::ServingProcess;

/// The argument of the process that serves the switches.
pub(crate) const SERVE_FLEET: &str = "--serve-fleet";

/// The largest fabric of these benchmarks.
pub(crate) fn spec() -> ClosSpec {
    ClosSpec { leaves: 492, spines: 8, hosts_per_leaf: 1, ..ClosSpec::default() }
}

/// Leaves that are served; those with the lowest ids.
pub(crate) const LEAVES: u32 = 20;

fn is_served(switch: &Switch) -> bool {
    switch.tier == Tier::Spine || switch.device_id <= u64::from(LEAVES)
}

/// The switches, while they are served.
pub(crate) struct Fleet {
    pub(crate) fabric: Fabric,
    process: ServingProcess,
}

impl Fleet {
    pub(crate) async fn start() -> Result<Self, Failed> {
        let process = ServingProcess::start(SERVE_FLEET).await?;
        let mut parts = parts(&spec())?;
        let served = parts.switches.iter_mut().filter(|switch| is_served(switch));
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
pub(crate) async fn serve() -> Result<(), Failed> {
    let lab = Lab::serving(&spec(), is_served, ServiceOptions::default()).await?;
    let switches = lab.fabric.switches().iter();
    let addresses: Vec<&str> = switches.filter_map(|switch| switch.p4runtime.as_deref()).collect();
    println!("{}", addresses.join(","));
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        lab.restart_switch(command.parse()?).await?;
    }
    Ok(())
}
