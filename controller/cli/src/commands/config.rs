//! `crux config`: the file that `crux controller --config` reads.
//!
//! The decision: the check reads the file exactly as the controller does, so what it accepts
//! starts; it then says which fields differ from the defaults, as a field that was meant to is then
//! missed.

mod commented;

use std::collections::BTreeMap;

use ::controller::Config;
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};
use serde::Serialize;
use serde_json::Value;

use crate::controller_files::read_configuration;

pub(crate) use self::commented::commented_configuration;

/// Where the package of the controller keeps its configuration.
const PACKAGED_FILE: &str = "/etc/crux/controller.toml";

/// Check or print the configuration of a controller
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux config check controller.toml
  crux config print > controller.toml")]
pub(crate) enum ConfigCommand {
    /// Check a configuration, the files that it names included, and list what it sets
    Check(ConfigCheckArgs),
    /// Print a configuration with every field: those at their defaults are comments
    Print(ConfigPrintArgs),
}

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux config check
  crux config check controller.toml
  crux config check controller.yaml --format json

An error names file, line and field, and the name that was probably meant. Exit status 2 then.")]
pub(crate) struct ConfigCheckArgs {
    /// The configuration (.toml, .yaml, .json)
    #[arg(default_value = PACKAGED_FILE, value_name = "FILE")]
    file: String,
    #[command(flatten)]
    output: FormatArg,
}

/// Arguments of `print`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux config print > controller.toml
  crux config print old.yaml > controller.toml")]
pub(crate) struct ConfigPrintArgs {
    /// A configuration whose fields are set; without one, every field has its default
    #[arg(value_name = "FILE")]
    file: Option<String>,
}

/// A field that differs from its default.
#[derive(Debug, PartialEq, Serialize)]
struct ChangedField {
    field: String,
    value: Value,
    default: Option<Value>,
}

/// A configuration that a controller accepts.
#[derive(Serialize)]
struct CheckedConfiguration<'a> {
    file: &'a str,
    changed: Vec<ChangedField>,
}

pub(crate) fn run_config(command: &ConfigCommand) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Check(args) => check_configuration(args),
        ConfigCommand::Print(args) => print_configuration(args),
    }
}

fn check_configuration(args: &ConfigCheckArgs) -> Result<(), CommandError> {
    let config = read_configuration(&args.file)?;
    let checked = CheckedConfiguration { file: &args.file, changed: changed_fields(&config)? };
    if args.output.format == OutputFormat::Json {
        return output::print_json(&checked);
    }
    let mut table = output::new_table(["field", "value", "default"]);
    for field in &checked.changed {
        let default = field.default.as_ref().map_or_else(|| "none".to_owned(), Value::to_string);
        table.add_row([field.field.clone(), field.value.to_string(), default]);
    }
    match checked.changed.is_empty() {
        true => output::print_line(format_args!("{}: ok, every field at its default", args.file)),
        false => output::print_line(format_args!("{}: ok\n{table}", args.file)),
    }
}

fn print_configuration(args: &ConfigPrintArgs) -> Result<(), CommandError> {
    let given = match &args.file {
        Some(file) => changed_only(&read_configuration(file)?)?,
        None => Value::Null,
    };
    output::print_line(commented_configuration(&given)?.trim_end())
}

/// The fields of a configuration that differ from the defaults, by path.
fn changed_fields(config: &Config) -> Result<Vec<ChangedField>, CommandError> {
    let mut defaults = BTreeMap::new();
    flatten_fields(to_value(&Config::default())?, String::new(), &mut defaults);
    let mut found = BTreeMap::new();
    flatten_fields(to_value(config)?, String::new(), &mut found);
    let changed = found.into_iter().filter_map(|(field, value)| {
        let default = defaults.get(&field);
        (default != Some(&value)).then(|| ChangedField { default: default.cloned(), field, value })
    });
    Ok(changed.collect())
}

/// The configuration without the fields that have their defaults, sections as objects.
fn changed_only(config: &Config) -> Result<Value, CommandError> {
    Ok(without_defaults(to_value(config)?, &to_value(&Config::default())?))
}

fn without_defaults(value: Value, default: &Value) -> Value {
    let Value::Object(fields) = value else {
        return value;
    };
    let kept = fields.into_iter().filter(|(name, value)| default.get(name) != Some(value));
    let kept = kept.map(|(name, value)| {
        let inner = without_defaults(value, default.get(&name).unwrap_or(&Value::Null));
        (name, inner)
    });
    Value::Object(kept.collect())
}

fn to_value(config: &Config) -> Result<Value, CommandError> {
    serde_json::to_value(config.effective_raw()).map_err(CommandError::failed)
}

/// Adds each value that is no object with its path.
fn flatten_fields(value: Value, path: String, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => fields.into_iter().for_each(|(name, inner)| {
            let separator = if path.is_empty() { "" } else { "." };
            flatten_fields(inner, format!("{path}{separator}{name}"), found);
        }),
        value => drop(found.insert(path, value)),
    }
}
