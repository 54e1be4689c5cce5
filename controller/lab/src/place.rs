//! `crux place`: where each placement policy would put a new job in a fabric that runs others.

use ::controller::northbound::planner_input::PlannerInput;
use clap::Arg;
use placement::ModelTable;
use placement::PlacementAlgorithm;
use planner::{PlanInput, Policy};
use simulator::Scheduler;
use simulator::replay::{PlacementAdvice, PlacementQuery};
use topology::host_list::compress_host_list;

use crate::models::read_models;
use command_io::CommandError;
use command_io::InputDocumentArgs;
use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{ClientCredentials, ControllerClient};

/// Say where each placement policy would put a new job, and what that would do to it and to others.
///
/// Iteration times are those that jobs settle into under the scheduler, on the fabric with the jobs
/// that run.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux place --fabric lab.toml --jobs jobs.json --gpus 16 --model gpt-24l/A100
  crux place --controller 127.0.0.1:9300 --gpus 16 --model gpt-24l/A100 --placement hived
  crux place --controller c:9300 --ca roots.pem --token-file t --gpus 8 --model gpt-24l/A100
  crux place --fabric lab.toml --jobs jobs.json --gpus 16 --model gpt-24l/A100 --nodelist")]
#[command(mut_args(or_controller))]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    documents: Option<InputDocumentArgs>,
    /// Ask about what a running controller plans for, instead of documents (northbound.listen of
    /// its configuration)
    #[arg(long, value_name = "HOST:PORT")]
    controller: Option<String>,
    #[command(flatten)]
    credentials: ClientCredentials,
    /// GPUs that the job wants
    #[arg(long)]
    gpus: u32,
    /// What it trains, by its name in the table of models
    #[arg(long)]
    model: String,
    /// More models, or others in place of the built-in ones (TOML)
    #[arg(long, value_name = "FILE")]
    models: Option<String>,
    /// Placement policies by name, separated by commas; all of them if not given
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    placement: Vec<PlacementAlgorithm>,
    /// Who schedules communication
    #[arg(long, value_name = "NAME", default_value = "crux")]
    scheduler: Scheduler,
    /// Draws random placement
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print only the hosts of the placement with the shortest iteration, as Slurm's --nodelist
    /// takes them
    #[arg(long, conflicts_with = "format")]
    nodelist: bool,
    #[command(flatten)]
    output: FormatArg,
}

/// Documents say what runs, or a controller does.
fn or_controller(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "fabric" | "jobs" => {
            arg.required(false).required_unless_present("controller").conflicts_with("controller")
        }
        "policy" => arg.conflicts_with("controller"),
        "token_file" | "ca" | "cert" | "key" => arg.requires("controller"),
        _ => arg,
    }
}

/// What runs, and under which policy.
fn read_input(args: &PlaceArgs) -> Result<(PlanInput, Policy), CommandError> {
    match (&args.documents, &args.controller) {
        (Some(documents), _) => {
            let known = documents.read_documents()?;
            known.findings.iter().for_each(|finding| eprintln!("{finding}"));
            Ok((known.input, known.policy))
        }
        (None, Some(controller)) => {
            let to = ControllerClient::new(controller, &args.credentials);
            let situation: PlannerInput = to.get_json("/v1/planner-input")?;
            situation.resolve_input().map_err(CommandError::document)
        }
        (None, None) => {
            let what = "missing; give --fabric and --jobs, or --controller";
            Err(CommandError::input("what runs", what))
        }
    }
}

pub(crate) fn run_place(args: &PlaceArgs) -> Result<(), CommandError> {
    let (input, policy) = read_input(args)?;
    let models = read_models(args.models.as_deref())?;
    let question = PlacementQuery {
        input: &input,
        policy: &policy,
        scheduler: args.scheduler,
        gpus: args.gpus,
        model: models.by_name(&args.model).ok_or_else(|| unknown_model(&args.model, &models))?,
        models: &models,
        seed: args.seed,
    };
    let placements = match &args.placement[..] {
        [] => &PlacementAlgorithm::ALL[..],
        named => named,
    };
    let advices = placements
        .iter()
        .map(|placement| question.evaluate_policy(*placement).map_err(CommandError::failed))
        .collect::<Result<Vec<PlacementAdvice>, _>>()?;
    if args.nodelist {
        return print_host_list(&advices);
    }
    match args.output.format {
        OutputFormat::Json => output::print_json(&advices),
        OutputFormat::Table => print_advice(&advices),
    }
}

fn unknown_model(name: &str, models: &ModelTable) -> CommandError {
    let known: Vec<&str> = models.iter().map(|model| &model.name[..]).collect();
    CommandError::input(
        "--model",
        format!("no model is called `{name}`; known are {}", known.join(", ")),
    )
}

/// The hosts of the best placement; of several, the first.
fn print_host_list(advices: &[PlacementAdvice]) -> Result<(), CommandError> {
    let possible = advices.iter().filter_map(|advice| Some((advice.iteration_seconds?, advice)));
    let best = possible.min_by(|(one, _), (other, _)| one.total_cmp(other));
    let (_, advice) = best.ok_or_else(|| {
        CommandError::Failed("no placement policy starts this job now".to_owned())
    })?;
    let mut hosts: Vec<&str> = advice.gpus.keys().map(String::as_str).collect();
    hosts.sort_by_key(|host| (host.len(), *host));
    output::print_line(compress_host_list(hosts))
}

fn print_advice(advices: &[PlacementAdvice]) -> Result<(), CommandError> {
    let headings = ["placement", "hosts", "leaves", "iteration s", "alone s", "why"];
    let mut table = output::new_table(headings);
    for advice in advices {
        let [iteration, alone] = [advice.iteration_seconds, advice.alone_seconds]
            .map(|time| time.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.4}")));
        let hosts = advice.gpus.iter().map(|(host, gpus)| format!("{host}:{gpus}"));
        table.add_row([
            advice.placement.clone(),
            hosts.collect::<Vec<_>>().join(" "),
            advice.leaves.to_string(),
            iteration,
            alone,
            advice_reason(advice),
        ]);
    }
    output::print_line(table)
}

/// The reasons for or against a placement, in a sentence.
fn advice_reason(advice: &PlacementAdvice) -> String {
    let mut notes: Vec<String> = advice.refusal.iter().cloned().collect();
    notes.extend(advice.delayed.iter().map(|delayed| {
        let more = (delayed.after_seconds / delayed.before_seconds - 1.0) * 100.0;
        format!("{} iterates {more:.1} % longer", delayed.job)
    }));
    if !advice.moved.is_empty() {
        notes.push(format!("suspends {}", advice.moved.join(", ")));
    }
    match (notes.is_empty(), advice.leaves) {
        (false, _) => notes.join("; "),
        (true, 1) => "one leaf, nobody is delayed".to_owned(),
        (true, leaves) => format!("{leaves} leaves, nobody is delayed"),
    }
}
