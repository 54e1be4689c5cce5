//! `crux context`: controllers by name, so that commands need no address and no files.
//!
//! The decision: a context changes defaults and nothing else. Options of a command and environment
//! variables (`CRUX_CONTROLLER`, `CRUX_CA`, ...) come before it, and `--help` shows what it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Arg, Command};
use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};
use serde::{Deserialize, Serialize};

/// Variable with the name of the context to use instead of the chosen one.
const CONTEXT: &str = "CRUX_CONTEXT";
/// Options of a client, by their ids.
const OPTIONS: [&str; 5] = ["controller", "token_file", "ca", "cert", "key"];

/// Name controllers with their certificates and tokens, and choose one
///
/// Contexts are kept in crux/contexts.toml in XDG_CONFIG_HOME or ~/.config. Files stay where they
/// are; only their paths are kept.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux context set lab --controller 10.0.0.5:9300 --ca ca.pem --token-file operator.token
  crux context use lab
  crux context list
  CRUX_CONTEXT=staging crux doctor")]
pub(crate) enum ContextCommand {
    /// Add a context or replace it; the first one is chosen
    Set(ContextSetArgs),
    /// Choose a context for all commands that follow
    Use(ContextNameArgs),
    /// Forget a context
    Remove(ContextNameArgs),
    /// List all contexts
    List(ContextListArgs),
}

/// Arguments of `set`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux context set lab --controller 10.0.0.5:9300 --ca ca.pem --token-file operator.token
  crux context set local --controller 127.0.0.1:9300")]
pub(crate) struct ContextSetArgs {
    /// Its name
    name: String,
    /// Where the controller listens (northbound.listen of its configuration)
    #[arg(long, value_name = "HOST:PORT")]
    controller: String,
    /// File with the token that the controller wants
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Speak TLS with a controller that these authorities know (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Certificate to show (PEM)
    #[arg(long, value_name = "FILE", requires = "key", requires = "ca")]
    cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

/// Arguments of `use` and `remove`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux context use lab
  crux context remove lab")]
pub(crate) struct ContextNameArgs {
    /// Its name
    name: String,
}

/// Arguments of `list`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux context list
  crux context list --format json")]
pub(crate) struct ContextListArgs {
    #[command(flatten)]
    output: FormatArg,
}

/// The document with all contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ContextsDocument {
    /// The one that is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<String>,
    #[serde(rename = "context")]
    contexts: BTreeMap<String, ControllerContext>,
}

/// A controller, and what it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControllerContext {
    controller: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cert: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
}

/// Changes or lists the contexts.
pub(crate) fn run_context(command: &ContextCommand) -> Result<(), CommandError> {
    let file = contexts_file().ok_or_else(|| {
        CommandError::input("crux context", "set HOME or XDG_CONFIG_HOME: contexts are kept there")
    })?;
    let mut document = read_contexts(&file)?;
    match command {
        ContextCommand::List(args) => return list_contexts(&document, args.output),
        ContextCommand::Set(args) => {
            document.contexts.insert(args.name.clone(), args.to_context()?);
            document.chosen.get_or_insert_with(|| args.name.clone());
        }
        ContextCommand::Use(args) => {
            document.find(&args.name)?;
            document.chosen = Some(args.name.clone());
        }
        ContextCommand::Remove(args) => {
            document.find(&args.name)?;
            document.contexts.remove(&args.name);
            document.chosen = document.chosen.filter(|chosen| *chosen != args.name);
        }
    }
    write_contexts(&file, &document)?;
    output::print_line(match &document.chosen {
        Some(chosen) => format!("commands talk to {}", document.find(chosen)?.controller),
        None => "no context is chosen".to_owned(),
    })
}

/// `command` with the defaults of the context that the environment or the user has chosen.
///
/// # Errors
/// The file cannot be read, or there is no such context.
pub fn with_context(command: Command) -> Result<Command, CommandError> {
    let Some(file) = contexts_file() else {
        return Ok(command);
    };
    let document = read_contexts(&file)?;
    let wanted = std::env::var(CONTEXT).ok().filter(|name| !name.is_empty());
    Ok(match wanted.or_else(|| document.chosen.clone()) {
        Some(name) => with_defaults(command, document.find(&name)?),
        None => command,
    })
}

/// Clients are those commands whose address of a controller has a default.
fn with_defaults(command: Command, context: &ControllerContext) -> Command {
    let is_address =
        |arg: &Arg| arg.get_id() == "controller" && !arg.get_default_values().is_empty();
    let is_client = command.get_arguments().any(is_address);
    let command = command.mut_subcommands(|below| with_defaults(below, context));
    if !is_client {
        return command;
    }
    command.mut_args(|arg| match context.option(arg.get_id().as_str()) {
        Some(value) => arg.default_value(value),
        None => arg,
    })
}

impl ControllerContext {
    /// The value of an option of a client.
    fn option(&self, id: &str) -> Option<String> {
        let path = |path: &Option<PathBuf>| Some(path.as_ref()?.display().to_string());
        match OPTIONS.iter().position(|option| *option == id)? {
            0 => Some(self.controller.clone()),
            1 => path(&self.token_file),
            2 => path(&self.ca),
            3 => path(&self.cert),
            _ => path(&self.key),
        }
    }
}

impl ContextSetArgs {
    /// With absolute paths, as commands run in any folder.
    fn to_context(&self) -> Result<ControllerContext, CommandError> {
        let absolute = |path: &Option<PathBuf>| match path {
            Some(path) => {
                let found = path.canonicalize();
                found.map(Some).map_err(|error| CommandError::input(path.display(), error))
            }
            None => Ok(None),
        };
        Ok(ControllerContext {
            controller: self.controller.clone(),
            token_file: absolute(&self.token_file)?,
            ca: absolute(&self.ca)?,
            cert: absolute(&self.cert)?,
            key: absolute(&self.key)?,
        })
    }
}

impl ContextsDocument {
    fn find(&self, name: &str) -> Result<&ControllerContext, CommandError> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let remedy = match &known[..] {
                [] => "no context exists yet; add it with crux context set".to_owned(),
                known => format!("there are: {}", known.join(", ")),
            };
            CommandError::input(format_args!("no context `{name}`"), remedy)
        })
    }
}

fn list_contexts(document: &ContextsDocument, format: FormatArg) -> Result<(), CommandError> {
    if format.format == OutputFormat::Json {
        return output::print_json(document);
    }
    let mut table = output::new_table(["", "context", "controller", "ca", "token"]);
    let path = |path: &Option<PathBuf>| {
        path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string())
    };
    for (name, context) in &document.contexts {
        let mark = if document.chosen.as_ref() == Some(name) { "*" } else { "" };
        table.add_row([
            mark.to_owned(),
            name.clone(),
            context.controller.clone(),
            path(&context.ca),
            path(&context.token_file),
        ]);
    }
    output::print_line(table)
}

fn contexts_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")));
    Some(folder?.join("crux/contexts.toml"))
}

/// No file is no context.
fn read_contexts(file: &Path) -> Result<ContextsDocument, CommandError> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        read => read.map_err(|error| CommandError::input(file.display(), error))?,
    };
    toml::from_str(&text).map_err(|error| CommandError::input(file.display(), error))
}

/// In a file beside it first, so that the old one stays whole until the new one is.
fn write_contexts(file: &Path, document: &ContextsDocument) -> Result<(), CommandError> {
    let text = toml::to_string(document).map_err(CommandError::failed)?;
    let beside = file.with_extension("new");
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&beside, text))
        .and_then(|()| fs::rename(&beside, file))
        .map_err(|error| CommandError::input(file.display(), error))
}
