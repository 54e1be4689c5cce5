//! `crux cert`: certificates of a fabric's own authority, issued, listed, issued anew, and revoked.

use std::path::PathBuf;

use command_io::CommandError;
use command_io::output::{self, FormatArg, OutputFormat};
use controller::certificates::first_end;
use serde::Serialize;
use topology::count_noun;

use super::identity_folder::{
    IdentityError, IdentityFolder, IssuedCertificate, REVOCATION_LIST, seconds_now,
};

/// Certificates of a fabric
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  crux cert list --folder /etc/crux
  crux cert add --folder /etc/crux switch-leaf9 leaf9.switch.crux 10.0.0.9
  crux cert renew --folder /etc/crux
  crux cert renew --folder /etc/crux switch-leaf1 --days 90
  crux cert revoke --folder /etc/crux switch-leaf1")]
pub(crate) enum CertCommand {
    /// Say until when each certificate is valid. Fails when one has ended
    List(ListArgs),
    /// Issue a certificate for a new switch, by the authority in the folder
    Add(AddArgs),
    /// Issue certificates of `crux init` anew, with new keys, by the authority in the folder
    Renew(RenewArgs),
    /// Revoke certificates before their end, such as those of a switch that was stolen
    Revoke(RevokeArgs),
}

/// Arguments of `list`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux cert list --folder /etc/crux
  crux cert list --folder /etc/crux --format json")]
pub(crate) struct ListArgs {
    /// The folder that `crux init` made
    #[arg(long)]
    folder: PathBuf,
    #[command(flatten)]
    output: FormatArg,
}

/// Arguments of `add`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:  crux cert add --folder /etc/crux switch-leaf9 leaf9.switch.crux 10.0.0.9

Copy to the switch its certificate, its key and ca.pem, and nothing else.")]
pub(crate) struct AddArgs {
    /// Name of the files FILE.pem and FILE.key.pem
    #[arg(value_parser = parse_file_name)]
    file: String,
    /// DNS names and IP addresses that it is for
    #[arg(required = true, value_name = "NAME", value_parser = super::init::parse_server_name)]
    names: Vec<String>,
    /// The folder that `crux init` made
    #[arg(long)]
    folder: PathBuf,
    /// Days that it is valid
    #[arg(long, default_value_t = super::init::CERTIFICATE_DAYS)]
    days: u64,
    #[command(flatten)]
    output: FormatArg,
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
    /// Days that they are valid; without it about a year, so that not all end on the same day
    #[arg(long)]
    days: Option<u64>,
    #[command(flatten)]
    output: FormatArg,
}

/// Arguments of `revoke`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux cert revoke --folder /etc/crux switch-leaf1
  crux cert revoke --folder /etc/crux controller --format json

Revokes what the files have now, in revoked.pem. A controller whose `tls.revoked` or
`northbound.tls.revoked` is that file refuses them within ten seconds, on open connections too; a
switch reads it where --grpc-server-crl names it. `crux cert renew` issues other ones.")]
pub(crate) struct RevokeArgs {
    /// Certificates to revoke, by the names of their files without the ending
    #[arg(required = true)]
    names: Vec<String>,
    /// The folder that `crux init` made
    #[arg(long)]
    folder: PathBuf,
    #[command(flatten)]
    output: FormatArg,
}

/// A certificate that is revoked.
#[derive(Serialize)]
struct RevokedRow {
    certificate: PathBuf,
    serial: String,
    was_revoked: bool,
}

/// A certificate that was issued.
#[derive(Serialize)]
struct IssuedRow {
    certificate: PathBuf,
    names: Vec<String>,
}

/// A certificate of the folder.
#[derive(Serialize)]
struct ListedRow {
    certificate: PathBuf,
    names: Vec<String>,
    /// When it ends, seconds of Unix time; none if it cannot be read.
    ends: Option<u64>,
    /// Days until then; below zero after its end.
    days: Option<i64>,
    /// Whether it is revoked.
    revoked: bool,
}

pub(crate) fn run_cert(command: &CertCommand) -> Result<(), CommandError> {
    match command {
        CertCommand::List(args) => list_certificates(args),
        CertCommand::Add(args) => add_certificate(args),
        CertCommand::Renew(args) => renew_certificates(args),
        CertCommand::Revoke(args) => revoke_certificates(args),
    }
}

fn list_certificates(args: &ListArgs) -> Result<(), CommandError> {
    let folder = IdentityFolder::new(&args.folder);
    let inventory = folder.read_inventory().map_err(CommandError::failed)?;
    let authority = IssuedCertificate { file: "ca".to_owned(), names: Vec::new() };
    let revoked = folder.read_revocations().map_err(CommandError::failed)?;
    let now = i64::try_from(seconds_now()).unwrap_or(i64::MAX);
    let rows = std::iter::once(authority).chain(inventory).map(|certificate| {
        let file = folder.file(&format!("{}.pem", certificate.file));
        let ends = first_end(&file).ok().map(|end| end / 1_000);
        let days = ends.and_then(|end| Some((i64::try_from(end).ok()? - now).div_euclid(86_400)));
        let serial = folder.serial_of(&certificate.file).ok();
        let revoked = revoked.iter().any(|one| serial.as_ref() == Some(&one.serial));
        ListedRow { certificate: file, names: certificate.names, ends, days, revoked }
    });
    let rows: Vec<ListedRow> = rows.collect();
    match args.output.format {
        OutputFormat::Json => output::print_json(&rows)?,
        OutputFormat::Table => {
            let mut table = output::new_table(["certificate", "days left", "for"]);
            for row in &rows {
                let days = match row.days {
                    _ if row.revoked => "revoked".to_owned(),
                    Some(days) => days.to_string(),
                    None => "unreadable".to_owned(),
                };
                let file = row.certificate.display().to_string();
                table.add_row([file, days, row.names.join(", ")]);
            }
            output::print_line(table)?;
        }
    }
    let is_over = |row: &&ListedRow| row.days.is_none_or(|days| days < 0);
    match rows.iter().filter(is_over).count() {
        0 => Ok(()),
        over => Err(CommandError::Failed(format!(
            "{} ended or unreadable; renew (crux cert renew)",
            count_noun(over, "certificate")
        ))),
    }
}

fn add_certificate(args: &AddArgs) -> Result<(), CommandError> {
    let folder = IdentityFolder::new(&args.folder);
    let certificate = IssuedCertificate { file: args.file.clone(), names: args.names.clone() };
    folder.add_certificate(&certificate, args.days).map_err(|error| match error {
        IdentityError::Known(_) => CommandError::document(error),
        error => CommandError::failed(error),
    })?;
    let file = folder.file(&format!("{}.pem", args.file));
    print_issued(&[IssuedRow { certificate: file, names: args.names.clone() }], args.output)
}

/// The name of a file of the folder, and no path.
fn parse_file_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(is_plain) {
        return Err("a name has letters, digits and -_. alone, and no folder".to_owned());
    }
    Ok(text.to_owned())
}

fn print_issued(rows: &[IssuedRow], output: FormatArg) -> Result<(), CommandError> {
    if output.format == OutputFormat::Json {
        return output::print_json(&rows);
    }
    let mut table = output::new_table(["certificate", "for"]);
    for row in rows {
        table.add_row([row.certificate.display().to_string(), row.names.join(", ")]);
    }
    output::print_line(table)
}

fn renew_certificates(args: &RenewArgs) -> Result<(), CommandError> {
    let folder = IdentityFolder::new(&args.folder);
    let inventory = known_certificates(&folder, &args.names)?;
    let chosen = |file: &String| args.names.is_empty() || args.names.contains(file);
    let mut rows = Vec::new();
    for certificate in inventory.iter().filter(|one| chosen(&one.file)) {
        let days = args.days.unwrap_or_else(|| super::init::staggered_days(&certificate.file));
        folder.issue_certificate(certificate, days).map_err(CommandError::failed)?;
        let file = folder.file(&format!("{}.pem", certificate.file));
        rows.push(IssuedRow { certificate: file, names: certificate.names.clone() });
    }
    print_issued(&rows, args.output)
}

fn revoke_certificates(args: &RevokeArgs) -> Result<(), CommandError> {
    let folder = IdentityFolder::new(&args.folder);
    known_certificates(&folder, &args.names)?;
    let mut rows = Vec::new();
    for name in &args.names {
        let serial = folder.serial_of(name).map_err(CommandError::failed)?;
        let is_new = folder.revoke_certificate(name).map_err(CommandError::failed)?;
        let certificate = folder.file(&format!("{name}.pem"));
        rows.push(RevokedRow { certificate, serial, was_revoked: !is_new });
    }
    if args.output.format == OutputFormat::Json {
        return output::print_json(&rows);
    }
    let mut table = output::new_table(["certificate", "serial", "revoked"]);
    for row in &rows {
        let when = if row.was_revoked { "before" } else { "now" };
        let file = row.certificate.display().to_string();
        table.add_row([file, row.serial.clone(), when.to_owned()]);
    }
    output::print_line(table)?;
    let list = folder.file(REVOCATION_LIST);
    output::print_line(format_args!(
        "The list is {}: `tls.revoked` of controllers, --grpc-server-crl of switches.",
        list.display()
    ))
}

/// The certificates of the folder, where those of these names are among them.
fn known_certificates(
    folder: &IdentityFolder,
    names: &[String],
) -> Result<Vec<IssuedCertificate>, CommandError> {
    let inventory = folder.read_inventory().map_err(CommandError::failed)?;
    let known = |name: &String| inventory.iter().any(|one| one.file == *name);
    match names.iter().find(|name| !known(name)) {
        Some(unknown) => {
            Err(CommandError::input(unknown, "certificates.json has no such certificate"))
        }
        None => Ok(inventory),
    }
}
