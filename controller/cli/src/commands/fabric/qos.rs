//! `crux fabric export qos`: what is set on the queues of switches for a plan.

use comfy_table::Table;
use topology::export::{self, LevelQueue, PortQueues, QueuePlan};
use topology::{Fabric, SwitchId};

use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};

/// Print what plans assume of the queues of switches: DSCP, PFC, ECN and schedulers.
///
/// JSON has the structure and the names of OpenConfig (openconfig-qos), with PFC beside it.
/// Headroom is worked out from rate, length of the cable and MTU, where the fabric document has
/// them; Kmin, Kmax and Pmax are those that HPCC states for DCQCN.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux fabric export qos lab.toml
  crux fabric export qos lab.toml --switch leaf1 --levels 2 --format json")]
pub(crate) struct QosExportArgs {
    /// Fabric document (.toml, .yaml, .json; - is JSON from standard input)
    fabric: String,
    /// Levels of the policy; those of the fabric document, or 8, if not given
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8))]
    levels: Option<u8>,
    /// Only this switch
    #[arg(long, value_name = "NAME")]
    switch: Option<String>,
    #[command(flatten)]
    output: FormatArg,
}

pub(crate) fn run_qos_export(args: &QosExportArgs) -> Result<(), CommandError> {
    let fabric = files::read_fabric(&args.fabric)?;
    let levels = args.levels.unwrap_or_else(|| planner::PolicyDocument::default_levels(&fabric));
    let plan = QueuePlan::new(controller::pipelines::fabric::level_markings(levels));
    let switches: Vec<SwitchId> = match &args.switch {
        None => fabric.switch_ids().collect(),
        Some(name) => vec![fabric.switch_named(name).ok_or_else(|| {
            CommandError::Failed(format!("{}: no switch of the name {name}", args.fabric))
        })?],
    };
    match args.output.format {
        OutputFormat::Json => output::print_json(&export::export_qos(&fabric, &plan, &switches)),
        OutputFormat::Table => {
            let alike = switches_by_queues(&fabric, &plan, &switches);
            for (queues, names) in &alike {
                if alike.len() > 1 {
                    output::print_line(names.join(", "))?;
                }
                output::print_line(queue_table(queues))?;
            }
            output::print_line(port_table(&fabric, &switches))
        }
    }
}

/// The names of switches that have the same queues.
fn switches_by_queues<'a>(
    fabric: &'a Fabric,
    plan: &QueuePlan,
    switches: &[SwitchId],
) -> Vec<(Vec<LevelQueue>, Vec<&'a str>)> {
    let mut alike: Vec<(Vec<LevelQueue>, Vec<&str>)> = Vec::new();
    for switch in switches.iter().map(|id| fabric.switch(*id)) {
        let queues = plan.queues_of(switch);
        match alike.iter_mut().find(|(known, _)| *known == queues) {
            Some((_, names)) => names.push(&switch.name),
            None => alike.push((queues, vec![&switch.name])),
        }
    }
    alike
}

/// The queues of a port, the first served first.
fn queue_table(queues: &[LevelQueue]) -> Table {
    let mut table = output::new_table(["queue", "DSCP", "of answers", "scheduler", "PFC"]);
    for queue in queues {
        table.add_row([
            queue.marking.level.to_string(),
            queue.marking.dscp.to_string(),
            queue.marking.answer_dscp.to_string(),
            "strict".to_owned(),
            if queue.is_lossless { "lossless" } else { "no" }.to_owned(),
        ]);
    }
    table
}

/// Ports of a switch that have the same settings, in one row.
fn port_table(fabric: &Fabric, switches: &[SwitchId]) -> Table {
    let header = ["switch", "ports", "Gb/s", "m", "headroom, bytes", "Kmin", "Kmax", "Pmax"];
    let mut table = output::new_table(header);
    for switch in switches.iter().map(|id| fabric.switch(*id)) {
        let ports = export::port_queues(fabric, switch);
        let mut alike: Vec<(Vec<String>, Vec<u32>)> = Vec::new();
        for port in &ports {
            let settings = port_settings(fabric, port);
            match alike.iter_mut().find(|(known, _)| *known == settings) {
                Some((_, numbers)) => numbers.push(port.port),
                None => alike.push((settings, vec![port.port])),
            }
        }
        for (settings, numbers) in alike {
            let numbers = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            table.add_row([vec![switch.name.clone(), numbers], settings].concat());
        }
    }
    table
}

fn port_settings(fabric: &Fabric, port: &PortQueues) -> Vec<String> {
    let link = fabric.link(port.link);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    vec![
        link.bandwidth.gbps().to_string(),
        or_dash(link.metres.map(|metres| metres.to_string())),
        or_dash(port.headroom_bytes.map(|bytes| bytes.to_string())),
        port.ecn.min_bytes.to_string(),
        port.ecn.max_bytes.to_string(),
        port.ecn.max_probability.to_string(),
    ]
}
