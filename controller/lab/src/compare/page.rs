//! A comparison as one HTML page.

mod figures;

pub(crate) use figures::scheduler_shade;

use command_io::html::escape_html;
use simulator::{LinkTier, SimulationExperiment, SimulationOutcome, Timeline};

use super::{ComparedRuns, table};
use crate::page::{
    colour_chip, full_figure, legend_entry, render_html, render_legend, render_section,
    render_table,
};

/// The page.
pub(super) fn render_page(experiment: &SimulationExperiment, compared: &ComparedRuns) -> String {
    let title = format!("Schedulers on {}", escape_html(experiment.input.fabric.name()));
    let body = [
        render_heading(&title, experiment, compared),
        render_summary(compared),
        render_utilisation(compared),
        render_slowdowns(compared),
        render_intensity(compared),
        render_wires(compared),
        render_links(experiment, compared),
        render_iterations(compared),
        render_findings(compared),
    ];
    render_html(&title, &body.concat())
}

fn render_heading(
    title: &str,
    experiment: &SimulationExperiment,
    compared: &ComparedRuns,
) -> String {
    let input = &experiment.input;
    let gpus: u32 = compared.comparison.alone.iter().map(|job| job.gpus).sum();
    let all: u32 = input.fabric.hosts().iter().map(|host| host.gpus).sum();
    format!(
        "<h1>{title}</h1>\n<p class=\"lead\">{} jobs on {gpus} of {all} GPUs, {} s simulated, {} \
         levels.</p>\n",
        input.jobs.len(),
        experiment.seconds,
        experiment.policy.job_levels().len(),
    )
}

fn render_summary(compared: &ComparedRuns) -> String {
    let comparison = &compared.comparison;
    let count = comparison.draws.first().map_or(1, |draws| draws.count);
    let over_draws = format!("over {count} draws of ports");
    let draws_of = |outcome: &SimulationOutcome| {
        let draws = comparison.draws.iter().find(|draws| draws.scheduler == outcome.scheduler);
        let [mean, least, most] = draws.map_or([outcome.gpu_utilization; 3], |draws| {
            let spread = draws.gpu_utilization;
            [spread.mean, spread.least, spread.most]
        });
        let [mean, least, most] = [mean, least, most].map(|share| share * 100.0);
        format!("{mean:.2}&nbsp;% ({least:.2} to {most:.2})")
    };
    let rows = comparison.outcomes.iter().map(|outcome| {
        let chip = colour_chip(figures::scheduler_shade(&outcome.scheduler));
        [
            format!("{chip}{}", outcome.scheduler),
            format!("{:.2}&nbsp;%", outcome.gpu_utilization * 100.0),
            table::utilisation_gain(comparison, outcome),
            table::mean_slowdown(comparison, outcome),
            escape_html(&table::worst_slowdown(comparison, outcome)),
            draws_of(outcome),
        ]
    });
    let over = format!("points over {}", comparison.outcomes[0].scheduler);
    let headings =
        ["scheduler", "GPU utilisation", &over, "mean slowdown", "worst slowdown", &over_draws];
    render_table(headings, rows)
}

fn render_utilisation(compared: &ComparedRuns) -> String {
    render_section(
        "GPU utilisation",
        "Share of the jobs' GPU time in which they computed.",
        &full_figure(&figures::draw_utilisation(&compared.comparison), ""),
    )
}

fn render_slowdowns(compared: &ComparedRuns) -> String {
    let about = "How much longer than alone on the fabric each job iterates on average; the \
                 slowest job first.";
    let body =
        full_figure(&figures::draw_slowdowns(&compared.comparison), &scheduler_legend(compared));
    render_section("Iteration time per job", about, &body)
}

fn render_intensity(compared: &ComparedRuns) -> String {
    let legend = scheduler_legend(compared);
    let about = "Intensity on the wire: the share of each link that a job takes times the FLOP \
                 that a second of its bottleneck link unblocks, summed over links.";
    let body = full_figure(&figures::draw_intensity(compared), &legend);
    render_section("Intensity on the wire over time", about, &body)
}

pub(crate) fn render_wires(compared: &ComparedRuns) -> String {
    let about = "Whose traffic was on the wire at the end of the run, as a share of all links: the \
                 strongest colour for the jobs with the most intensity. The line is the share of \
                 the jobs' GPUs that computed.";
    let runs = compared.comparison.outcomes.iter().zip(&compared.timelines);
    render_section(
        "Whose traffic was on the wire",
        about,
        &runs
            .map(|(outcome, [_, close_up]): (&SimulationOutcome, &[Timeline; 2])| {
                let figures = close_up.tiers.iter().map(|wire| {
                    let name = match wire.tier {
                        LinkTier::Hosts => "links of hosts",
                        LinkTier::Switches => "links between switches",
                    };
                    half_figure(name, &figures::draw_wire(close_up, wire))
                });
                let chips: String = figures::band_shades(close_up.tiers[0].bands.len())
                    .into_iter()
                    .map(colour_chip)
                    .collect();
                let legend = format!("more intense &ensp;{chips} less");
                figure_pair(&outcome.scheduler, &legend, &figures.collect::<String>())
            })
            .collect::<String>(),
    )
}

fn render_links(experiment: &SimulationExperiment, compared: &ComparedRuns) -> String {
    let about = "Share of the links with the most planned traffic, by level, at the end of the \
                 run. The strongest colour is the level that is served first.";
    let runs = compared.comparison.outcomes.iter().zip(&compared.timelines);
    let body: String = runs
        .map(|(outcome, [_, close_up]): (&SimulationOutcome, &[Timeline; 2])| {
            let levels = figures::level_shades(close_up);
            let legend: String = levels
                .iter()
                .map(|(level, shade)| legend_entry(level.to_string(), *shade))
                .collect();
            let series = close_up.links.iter().map(|series| {
                let name = escape_html(&experiment.input.fabric.link_name(series.link));
                let drawn = figures::draw_link(close_up.view, series, &levels);
                half_figure(&name, &drawn)
            });
            let legend = format!("level {legend}");
            figure_pair(&outcome.scheduler, &legend, &series.collect::<String>())
        })
        .collect();
    render_section("Busy share per link and level", about, &body)
}

fn render_iterations(compared: &ComparedRuns) -> String {
    let comparison = &compared.comparison;
    let names = comparison.outcomes.iter().map(|outcome| outcome.scheduler.as_str());
    let rows = comparison.alone.iter().enumerate().map(|(index, alone)| {
        let cells = comparison.outcomes.iter().map(move |outcome| {
            let slowdown = comparison.job_slowdowns(outcome)[index];
            table::format_iteration(outcome.jobs[index].mean_iteration_seconds, slowdown)
        });
        let seconds = table::format_seconds(alone.iteration_seconds);
        [escape_html(&alone.id), alone.gpus.to_string(), seconds].into_iter().chain(cells)
    });
    let body = render_table(["job", "GPUs", "alone"].into_iter().chain(names), rows);
    render_section("Iteration times", "Seconds, and how much longer than alone.", &body)
}

fn render_findings(compared: &ComparedRuns) -> String {
    let of_runs = compared.comparison.outcomes.iter().flat_map(|outcome| {
        let findings = outcome.findings.iter();
        findings.map(move |finding| format!("{}: {finding}", outcome.scheduler))
    });
    let of_input = compared.findings.iter().map(ToString::to_string);
    let items: String =
        of_input.chain(of_runs).map(|text| format!("<li>{}</li>\n", escape_html(&text))).collect();
    if items.is_empty() {
        return String::new();
    }
    render_section("Findings", "", &format!("<ul>\n{items}</ul>\n"))
}

/// Half figures of one scheduler, two beside each other where there is room.
fn figure_pair(scheduler: &str, legend: &str, figures: &str) -> String {
    format!(
        "<h3>{scheduler}</h3>\n<p class=\"legend\">{legend}</p>\n\
         <div class=\"pair\">{figures}</div>\n"
    )
}

fn half_figure(name: &str, svg: &str) -> String {
    format!("<figure><figcaption>{name}</figcaption>{svg}</figure>\n")
}

/// The schedulers with their colours.
fn scheduler_legend(compared: &ComparedRuns) -> String {
    let outcomes = compared.comparison.outcomes.iter();
    render_legend(
        outcomes.map(|outcome| (&outcome.scheduler, figures::scheduler_shade(&outcome.scheduler))),
    )
}
