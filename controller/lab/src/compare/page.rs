//! A comparison as one HTML page that needs nothing else: tables, SVG figures, one style sheet for
//! light and dark.

mod figures;

pub(crate) use figures::scheduler_shade;

use std::fmt::Write;

use command_io::html::escape_html;
use simulator::{LinkTier, SimulationExperiment, SimulationOutcome, Timeline};

use super::{ComparedRuns, table};
use crate::figure::theme::{self, ThemeShade};

const STYLE: &str = include_str!("page/style.css");

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

/// A page with the style that all have.
pub(crate) fn render_html(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\
         @media (prefers-color-scheme: dark) {{\n{}}}\n</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n",
        theme::dark_rules(),
    )
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
    let rows: String = comparison
        .outcomes
        .iter()
        .map(|outcome| {
            format!(
                "<tr><th scope=\"row\">{}{}</th><td>{:.2}&nbsp;%</td><td>{}</td><td>{}</td>\
             <td>{}</td></tr>\n",
                colour_chip(figures::scheduler_shade(&outcome.scheduler)),
                outcome.scheduler,
                outcome.gpu_utilization * 100.0,
                table::utilisation_gain(comparison, outcome),
                table::mean_slowdown(comparison, outcome),
                escape_html(&table::worst_slowdown(comparison, outcome)),
            )
        })
        .collect();
    format!(
        "<div class=\"wide\"><table>\n<thead><tr><th>scheduler</th><th>GPU utilisation</th>\
         <th>points over {}</th><th>mean slowdown</th><th>worst slowdown</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n",
        comparison.outcomes[0].scheduler,
    )
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
                .map(|(level, shade)| legend_entry(&level.to_string(), *shade))
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
    let names = comparison.outcomes.iter().map(|outcome| format!("<th>{}</th>", outcome.scheduler));
    let mut rows = String::new();
    for (index, alone) in comparison.alone.iter().enumerate() {
        let cells = comparison.outcomes.iter().map(|outcome| {
            let job = &outcome.jobs[index];
            let slowdown = comparison.job_slowdowns(outcome)[index];
            format!("<td>{}</td>", table::format_iteration(job.mean_iteration_seconds, slowdown))
        });
        let (name, gpus) = (escape_html(&alone.id), alone.gpus);
        let seconds = table::format_seconds(alone.iteration_seconds);
        let cells: String = cells.collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\">{name}</th><td>{gpus}</td><td>{seconds}</td>{cells}</tr>"
        );
    }
    let body = format!(
        "<div class=\"wide\"><table>\n<thead><tr><th>job</th><th>GPUs</th><th>alone</th>{}</tr>\
         </thead>\n<tbody>\n{rows}</tbody></table></div>\n",
        names.collect::<String>(),
    );
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

pub(crate) fn render_section(heading: &str, about: &str, body: &str) -> String {
    format!("<section>\n<h2>{heading}</h2>\n<p class=\"about\">{about}</p>\n{body}</section>\n")
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

pub(crate) fn full_figure(svg: &str, legend: &str) -> String {
    format!("<figure class=\"full\">{legend}{svg}</figure>\n")
}

/// The schedulers with their colours.
fn scheduler_legend(compared: &ComparedRuns) -> String {
    let outcomes = compared.comparison.outcomes.iter();
    let entries: String = outcomes
        .map(|outcome| {
            legend_entry(&outcome.scheduler, figures::scheduler_shade(&outcome.scheduler))
        })
        .collect();
    format!("<p class=\"legend\">{entries}</p>")
}

pub(crate) fn legend_entry(name: &str, shade: ThemeShade) -> String {
    format!("<span>{}{name}</span> ", colour_chip(shade))
}

pub(crate) fn colour_chip(shade: ThemeShade) -> String {
    let light = shade.css_colour();
    format!("<i class=\"chip\" data-c=\"{light}\" style=\"--c:{light}\"></i>")
}
