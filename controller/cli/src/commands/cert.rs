//! `crux cert renew`: certificates of a fabric's own authority, issued anew.

use std::path::PathBuf;

use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};
use serde::Serialize;

use super::identity_folder::IdentityFolder;

/// Certificates of a fabric
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux cert renew --folder /etc/crux
  crux cert renew --folder /etc/crux switch-leaf1 --days 90")]
pub(crate) enum CertCommand {
    /// Issue certificates of `crux init` anew, with new keys, by the authority in the folder
    Renew(RenewArgs),
}

/// Arguments of `renew`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux cert renew --folder /etc/crux
  crux cert renew --folder /etc/crux switch-leaf1 --days 90 --format json

A controller presents a renewed certificate to new connections within ten seconds, and presents it
to switches when it connects the next time. Switches read theirs at start.")]
pub(crate) struct RenewArgs {
    /// Certificates to renew, by the names of their files without the ending; all, if left out
    names: Vec<String>,
    /// The folder that `crux init` made
    #[arg(long)]
    folder: PathBuf,
    /// Days that they are valid
    #[arg(long, default_value_t = super::init::CERTIFICATE_DAYS)]
    days: u64,
    #[command(flatten)]
    output: FormatArg,
}

/// A certificate that was issued.
#[derive(Serialize)]
struct RenewedRow {
    certificate: PathBuf,
    names: Vec<String>,
}

pub(crate) fn run_cert(command: &CertCommand) -> Result<(), CommandError> {
    let CertCommand::Renew(args) = command;
    let folder = IdentityFolder::new(&args.folder);
    let inventory = folder.read_inventory().map_err(CommandError::failed)?;
    let known = |name: &String| inventory.iter().any(|one| one.file == *name);
    if let Some(unknown) = args.names.iter().find(|name| !known(name)) {
        return Err(CommandError::input(unknown, "certificates.json has no such certificate"));
    }
    let chosen = |file: &String| args.names.is_empty() || args.names.contains(file);
    let mut rows = Vec::new();
    for certificate in inventory.iter().filter(|one| chosen(&one.file)) {
        folder.issue_certificate(certificate, args.days).map_err(CommandError::failed)?;
        let file = folder.file(&format!("{}.pem", certificate.file));
        rows.push(RenewedRow { certificate: file, names: certificate.names.clone() });
    }
    match args.output.format {
        OutputFormat::Json => output::print_json(&rows),
        OutputFormat::Table => {
            let mut table = output::new_table(["certificate", "for"]);
            for row in &rows {
                table.add_row([row.certificate.display().to_string(), row.names.join(", ")]);
            }
            output::print_line(table)
        }
    }
}
