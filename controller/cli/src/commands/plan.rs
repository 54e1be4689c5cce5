//! `crux plan`: the plan for a fabric and its jobs, offline, with the reasons.

mod curve;

use std::collections::BTreeSet;
use std::time::Instant;

use comfy_table::Table;
use planner::{Plan, PlanDocument, PlannedJobDocument};
use topology::{Fabric, Finding};

use super::comparison_table;
use command_io::CommandError;
use command_io::files;
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{InputDocumentArgs, InputDocuments};

/// Plan paths and levels for a fabric and its jobs, without touching a switch.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux plan --fabric lab.toml --jobs jobs.json
  crux plan --fabric lab.toml --jobs jobs.json --format json > plan.json
  crux plan --fabric lab.toml --jobs jobs.json --previous plan.json --flows --timing
  crux plan --fabric lab.toml --jobs jobs.json --curve")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    documents: InputDocumentArgs,
    /// The plan in force (JSON of an earlier crux plan): what runs stays unless something is gained
    #[arg(long)]
    previous: Option<String>,
    /// Also print the path of every flow
    #[arg(long)]
    flows: bool,
    /// Instead of the plan: what is forecast under several limits of the slowdown (`slowdown_limit`)
    #[arg(long, conflicts_with_all = ["flows", "timing"])]
    curve: bool,
    /// Say on standard error how long planning took, reading and printing not counted
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    output: FormatArg,
}

/// Links that a table shows.
const BUSIEST: usize = 10;

pub(crate) fn run_plan(args: &PlanArgs) -> Result<(), CommandError> {
    let InputDocuments { input, policy, mut findings } = args.documents.read_documents()?;
    let recalled =
        args.previous.as_deref().map(|file| read_previous(file, &input.fabric)).transpose()?;
    let (previous, lost) = recalled.unzip();
    findings.extend(lost.into_iter().flatten());
    let (input, policy) = policy.with_adopted_jobs(input);

    if args.curve {
        return curve::print_curve(
            &input,
            &policy,
            previous.as_ref(),
            findings,
            args.output.format,
        );
    }
    let started = Instant::now();
    let (plan, mut report) = planner::plan(&input, &policy, previous.as_ref());
    let took = started.elapsed();
    if args.timing {
        eprintln!("planned in {:.3} ms", took.as_secs_f64() * 1e3);
    }

    report.findings.splice(0..0, findings);
    let document = PlanDocument::new(&input.fabric, &plan, &report);
    match args.output.format {
        OutputFormat::Json => output::print_json(&document),
        OutputFormat::Table => print_tables(&document, args.flows),
    }
}

fn read_previous(file: &str, fabric: &Fabric) -> Result<(Plan, Vec<Finding>), CommandError> {
    let document: PlanDocument = files::parse_document(file)?;
    Ok(document.restore_plan(fabric))
}

fn print_tables(plan: &PlanDocument, flows: bool) -> Result<(), CommandError> {
    output::print_line(format_args!("plan, generation {}", plan.generation))?;
    output::print_line(job_table(plan))?;
    if flows {
        output::print_line(format_args!("\n{}", flow_table(plan)))?;
    }
    output::print_line(format_args!("\n{}", link_table(plan)))?;
    output::print_line(quality_line(plan))?;
    for comparison in &plan.comparisons {
        let is_sprayed =
            |job: &PlannedJobDocument| job.sprayed && comparison.jobs.contains(&job.id);
        comparison_table::print_comparison(comparison, plan.jobs.iter().any(is_sprayed))?;
    }
    plan.findings.iter().try_for_each(output::print_line)
}

fn job_table(plan: &PlanDocument) -> Table {
    let headings = ["job", "level", "rank", "intensity TFLOP/s", "t s", "k", "priority TFLOP/s"];
    let mut table = output::new_table(headings);
    let mut jobs: Vec<_> = plan.jobs.iter().collect();
    jobs.sort_by_key(|job| job.rank);
    for job in jobs {
        table.add_row([
            job.id.clone(),
            job.level.to_string(),
            job.rank.to_string(),
            format!("{:.1}", job.intensity / 1e12),
            format!("{:.4}", job.bottleneck_seconds),
            format!("{:.2}", job.correction),
            format!("{:.1}", job.priority / 1e12),
        ]);
    }
    table
}

fn flow_table(plan: &PlanDocument) -> Table {
    let sprayed = plan.jobs.iter().filter(|job| job.sprayed).map(|job| job.id.as_str());
    let sprayed: BTreeSet<&str> = sprayed.collect();
    let mut table = output::new_table(["job", "UDP port", "path", "pinned"]);
    for flow in &plan.flows {
        if sprayed.contains(flow.job.as_str()) {
            let ends = format!("{} > {}, sprayed", flow.src, flow.dst);
            table.add_row([flow.job.as_str(), "any", &ends, "no"]);
            continue;
        }
        let pinned = match (flow.pinned, flow.moved) {
            (true, true) => "moved",
            (true, false) => "yes",
            (false, _) => "no",
        };
        let path = flow.path.join(" > ");
        let port = flow.udp_src_port.map_or("any".to_owned(), |port| port.to_string());
        table.add_row([flow.job.as_str(), &port, &path, pinned]);
    }
    table
}

fn link_table(plan: &PlanDocument) -> Table {
    let mut table = output::new_table(["busiest links", "load", "jobs"]);
    let mut links: Vec<_> = plan.links.iter().collect();
    links.sort_by(|a, b| b.load.total_cmp(&a.load));
    for link in links.into_iter().take(BUSIEST) {
        table.add_row([link.link.clone(), format!("{:.3}", link.load), link.jobs.join(", ")]);
    }
    table
}

fn quality_line(plan: &PlanDocument) -> String {
    let cut = &plan.compression;
    let kept = if cut.total_weight > 0.0 { cut.cut_weight / cut.total_weight } else { 1.0 };
    format!(
        "largest load {:.3}, at least {:.3} on any paths; compression keeps {:.1} % of the order",
        plan.bounds.max_load,
        plan.bounds.max_load_lower_bound,
        kept * 100.0,
    )
}
