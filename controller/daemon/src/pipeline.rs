//! The seam between the controller and the P4 program of its switches.
//!
//! [`SwitchPipeline`] is everything that the daemon asks of a program: its P4Info and device
//! configuration, what it is capable of, the rows that discovery needs, its counters, and the
//! attribution of what they count; [`PipelineWiring`] is the switches of one fabric that run it,
//! prepared for lowering. The
//! implementations are in [`pipelines`](crate::pipelines). The decision: nothing outside
//! `pipelines/` names a table, field or counter of a program, so that another program is another
//! folder there; a test of `pipelines` reads the source for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use p4::codec::{CounterCell, PacketOut};
use p4::entry::{EntryKey, TableEntry, TableId};
use p4::{ForwardingPipeline, SwitchTables};
use planner::{Plan, PlannedFlow, SwitchCapabilities};
use topology::{Fabric, Finding, LinkId, NicId, PipelineKind, SwitchId};

/// A P4 program, as far as the controller depends on it.
pub trait SwitchPipeline: Debug + Send + Sync {
    /// What documents call it.
    fn kind(&self) -> PipelineKind;

    /// P4Info, device configuration and cookie.
    fn program(&self) -> &'static ForwardingPipeline;

    /// Whether a program with these tables is one of this kind, of whatever version.
    fn recognizes(&self, tables: &BTreeSet<TableId>) -> bool;

    /// What every switch that runs the program can do; part of the planner's input.
    fn capabilities(&self) -> SwitchCapabilities;

    /// Prepares some switches of a fabric for lowering.
    ///
    /// # Errors
    /// The tables of the program are too small for the fabric.
    fn wire_fabric(
        &self,
        fabric: &Fabric,
        switches: BTreeSet<SwitchId>,
    ) -> Result<Box<dyn PipelineWiring>, WiringError>;

    /// The P4Runtime role that owns the program's tables (`@p4runtime_role`); empty where the role
    /// without a name does.
    fn role(&self) -> &'static str;

    /// Whether a switch is read whole, because its server reads nothing less.
    fn is_read_whole(&self) -> bool;

    /// Whether a switch reports flows of hosts that belong to no job.
    fn reports_flows(&self) -> bool;

    /// The rows by which a switch sends probes, ARP and neighbour discovery to the controller.
    fn punts(&self) -> Vec<TableEntry>;

    /// The tables of [`SwitchPipeline::punts`] and those that limit them.
    fn punt_tables(&self) -> &'static [TableId];

    /// The tables of pins, whose sizes limit how many flows can be pinned at a switch.
    fn pin_tables(&self) -> &'static [TableId];

    /// Those of [`SwitchPipeline::pin_tables`] whose rows count what they match.
    fn counted_pin_tables(&self) -> &'static [TableId];

    /// A packet that leaves by a port; none where the port does not exist or is the controller's.
    fn packet_out(&self, port: u16, payload: Vec<u8>) -> Option<PacketOut>;

    /// The entries that count what jobs send under a plan, at the switches that run the program.
    fn attributed_entries(&self, fabric: &Fabric, plan: &Plan) -> Vec<AttributedEntry>;

    /// The entry that pins a flow at the leaf where it enters, and counts it; none for a flow
    /// without a port.
    fn entry_pin(&self, fabric: &Fabric, flow: &PlannedFlow) -> Option<EntryKey>;

    /// The entry that counts what is sent from one NIC to another without a pin, at the leaf where
    /// it enters, if that has one for this pair.
    fn pair_entry(&self, fabric: &Fabric, pair: (NicId, NicId)) -> Option<EntryKey>;

    /// The DSCP that stands for a level in packets; none where the program has no such mapping.
    fn level_dscp(&self, level: u8) -> Option<u8>;

    /// The P4Info id of the counter that counts by port and level; none where nothing does.
    fn port_level_counter(&self) -> Option<u32>;

    /// The cells of that counter at the switches that run the program, for `levels` levels.
    fn port_level_cells(&self, fabric: &Fabric, levels: u8) -> Vec<PortLevelCell>;

    /// The cells that count what is refused of hosts, at the switches that run the program.
    fn refusal_cells(&self, fabric: &Fabric) -> Vec<RefusalCell>;
}

/// What switches send to the controller by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchReports {
    /// Probes of link discovery, ARP and neighbour discovery.
    pub probes: bool,
    /// RoCEv2 flows of hosts that belong to no job.
    pub unknown_flows: bool,
}

/// Switches of a fabric prepared for lowering: all that depends on neither plan nor failures.
pub trait PipelineWiring: Debug + Send + Sync {
    /// Adds the rows of these reports to all tables that are lowered.
    fn enable_reports(&mut self, reports: SwitchReports);

    /// What of a plan the switches have no room for.
    fn find_shortages(&self, fabric: &Fabric, plan: &Plan) -> PlanShortages;

    /// The lowering of plans to the tables of the switches.
    fn start_lowering(&self) -> Box<dyn PipelineLowering>;

    /// Takes the ports of failed parts of `fabric` out of use in the tables of the switches; no
    /// plan is needed.
    fn protect_tables(&self, fabric: &Fabric, tables: &mut BTreeMap<SwitchId, Arc<SwitchTables>>);
}

/// Lowers plans to the tables of some switches, one after the other.
///
/// A lowering continues from the one before: it looks at what has changed, and shares all else of
/// the tables with it. What it makes depends on fabric and plan alone.
pub trait PipelineLowering: Debug + Send {
    /// The tables that the switches should hold under a plan, on the fabric of the wiring with any
    /// failures and drains; those of a switch where nothing has changed are the very same.
    fn lower_plan(&mut self, fabric: &Fabric, plan: &Plan)
    -> BTreeMap<SwitchId, Arc<SwitchTables>>;
}

/// What of a plan some switches have no room for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanShortages {
    /// Positions in [`Plan::flows`] of the pinned flows that go by ECMP instead, with the first
    /// switch on the path of each that has no room.
    pub spilled: BTreeMap<usize, SwitchId>,
    /// The names of these flows, and of jobs whose packets do not get their level.
    pub findings: Vec<Finding>,
}

/// An entry with a direct counter, and the job that its bytes are attributed to.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributedEntry {
    /// The switch that holds it.
    pub switch: SwitchId,
    /// The entry.
    pub key: EntryKey,
    /// Index of the job in the plan.
    pub job: usize,
    /// The link by which the flow reaches its host; none where any may be.
    pub arrival_link: Option<LinkId>,
}

/// A cell of the port and level counter, and the link that it measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLevelCell {
    /// The switch that counts.
    pub switch: SwitchId,
    /// The cell.
    pub cell: CounterCell,
    /// The link that leaves by the port.
    pub link: LinkId,
    /// The priority level.
    pub level: u8,
}

/// A cell that counts refused packets, and the link by which they come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCell {
    /// The switch that counts.
    pub switch: SwitchId,
    /// The cell.
    pub cell: CounterCell,
    /// The link from the host.
    pub link: LinkId,
    /// Why they are refused.
    pub reason: RefusalReason,
}

/// Why a switch does not forward a packet of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// A version or a length is wrong.
    BadHeader,
    /// The checksum of its header is wrong.
    BadChecksum,
    /// Its source is the address of no host.
    MartianSource,
    /// Its source is the address of a host elsewhere.
    ForeignSource,
}

impl RefusalReason {
    /// What findings and metrics call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::BadHeader => "bad_header",
            Self::BadChecksum => "bad_checksum",
            Self::MartianSource => "martian_source",
            Self::ForeignSource => "foreign_source",
        }
    }
}

/// Why switches cannot hold the tables of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiringError {
    /// A port number that the program does not know, or keeps for the controller.
    #[error("{port}: {valid}")]
    PortNumber {
        /// The port, as `leaf1:4`.
        port: String,
        /// Which ports there are.
        valid: String,
    },
    /// More leaves than ids for them.
    #[error("the fabric has {0} leaves; switches can tell 65535 apart")]
    TooManyLeaves(usize),
    /// More equal-cost ports than a group may have.
    #[error("{switch} has {ports} equal-cost ports to one leaf; a group holds {max}")]
    GroupTooLarge {
        /// Name of the switch.
        switch: String,
        /// How many it has.
        ports: usize,
        /// How many fit.
        max: usize,
    },
    /// More rows than a table has.
    #[error("{switch} needs {needed} {what}; it holds {max}")]
    TooManyRows {
        /// Name of the switch.
        switch: String,
        /// What it needs.
        what: &'static str,
        /// How many.
        needed: usize,
        /// How many fit.
        max: usize,
    },
    /// More equal-cost ports to all leaves together than the selector of the groups has members.
    #[error(
        "{switch} has {members} equal-cost ports to all other leaves together; the selector of its \
         groups holds {max}: use fewer leaves, or fewer spines"
    )]
    TooManyMembers {
        /// Name of the switch.
        switch: String,
        /// How many it has.
        members: usize,
        /// How many fit.
        max: usize,
    },
}
