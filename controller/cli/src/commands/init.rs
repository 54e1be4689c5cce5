//! `crux init`: everything that a first fabric needs to be closed to others.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, files};
use controller::hexadecimal::{encode_hex, random_secret};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use topology::Fabric;

use super::config::commented_configuration;
use super::identity_folder::{AUTHORITY, IdentityFolder, IssuedCertificate};

/// Days that a certificate is valid.
pub(super) const CERTIFICATE_DAYS: u64 = 365;

/// The name of the controller in its certificate, for `crux switch --allow-role =NAME`.
const CONTROLLER_NAME: &str = "controller.crux";

/// Make an authority, certificates, tokens and a configuration for a fabric.
///
/// The folder gets an authority of its own (`ca.pem`), certificates for the controller and for
/// every switch of the fabric document, a token of role `write` for operators and one of role
/// `report` for hosts, and `controller.toml`, which uses them. Private keys and tokens are readable
/// by their owner alone. Copy to a switch its own certificate and key and `ca.pem`, and nothing
/// else.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux init --folder /etc/crux --fabric lab.toml --name controller.example --name 10.0.0.1
  crux init --folder ./identity --fabric lab.toml --listen 127.0.0.1:9300 --format json

Then:
  crux controller --config /etc/crux/controller.toml --fabric lab.toml
  crux jobs --controller controller.example:9300 --ca ca.pem --token-file operator.token")]
pub(crate) struct InitArgs {
    /// The folder; it must not have an authority yet
    #[arg(long)]
    folder: PathBuf,
    /// Fabric document, with the P4Runtime address of every switch
    #[arg(long)]
    fabric: String,
    /// A DNS name or IP address of the controller, besides localhost; may be given many times
    #[arg(long = "name")]
    names: Vec<String>,
    /// Address that the controller serves
    #[arg(long, default_value = "0.0.0.0:9300")]
    listen: SocketAddr,
    /// Days that certificates are valid; `crux cert renew` issues them anew
    #[arg(long, default_value_t = CERTIFICATE_DAYS)]
    days: u64,
    #[command(flatten)]
    output: FormatArg,
}

/// What was made.
#[derive(Serialize)]
struct MadeFiles {
    folder: PathBuf,
    certificates: Vec<IssuedCertificate>,
    tokens: [&'static str; 2],
    configuration: PathBuf,
}

pub(crate) fn run_init(args: &InitArgs) -> Result<(), CommandError> {
    let fabric = files::read_fabric(&args.fabric)?;
    std::fs::create_dir_all(&args.folder).map_err(CommandError::failed)?;
    let root = args.folder.canonicalize().map_err(CommandError::failed)?;
    let folder = IdentityFolder::new(&root);
    if folder.has_authority() {
        let what = "there is an authority already; `crux cert renew` issues its certificates anew";
        return Err(CommandError::input(args.folder.display(), what));
    }
    let certificates = wanted_certificates(&fabric, &args.names);
    folder.create_authority(&certificates).map_err(CommandError::failed)?;
    for certificate in &certificates {
        folder.issue_certificate(certificate, args.days).map_err(CommandError::failed)?;
    }
    let digests = [create_token(&folder, "operator")?, create_token(&folder, "report")?];
    let configuration = configuration_text(&root, args.listen, &digests)?;
    folder.write_file("controller.toml", configuration.as_bytes()).map_err(CommandError::failed)?;
    print_made(
        args.output,
        &MadeFiles {
            configuration: root.join("controller.toml"),
            folder: root,
            certificates,
            tokens: ["operator.token", "report.token"],
        },
    )
}

/// A certificate for the controller, and one for every switch that has an address.
fn wanted_certificates(fabric: &Fabric, names: &[String]) -> Vec<IssuedCertificate> {
    let own = [CONTROLLER_NAME, "localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let controller = IssuedCertificate {
        file: "controller".to_owned(),
        names: own.into_iter().chain(names.iter().cloned()).collect(),
    };
    let switches = fabric.switches().iter().filter_map(|switch| {
        let (host, _) = switch.p4runtime.as_ref()?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let names = vec![format!("{}.switch.crux", switch.name), host];
        Some(IssuedCertificate { file: format!("switch-{}", switch.name), names })
    });
    std::iter::once(controller).chain(switches).collect()
}

/// Creates a token, and gives its digest in hexadecimal.
fn create_token(folder: &IdentityFolder, name: &str) -> Result<String, CommandError> {
    let token = random_secret();
    let token =
        token.map_err(|_| CommandError::Failed("there are no random numbers".to_owned()))?;
    let written = folder.write_secret(&format!("{name}.token"), token.as_bytes());
    written.map_err(CommandError::failed)?;
    Ok(encode_hex(&Sha256::digest(&token)))
}

/// The configuration that uses all of it, with every other field as a comment.
fn configuration_text(
    root: &Path,
    listen: SocketAddr,
    digests: &[String; 2],
) -> Result<String, CommandError> {
    let file = |name: &str| root.join(name).display().to_string();
    let (certificate, key) = (file("controller.pem"), file("controller.key.pem"));
    let [operator, report] = digests;
    commented_configuration(&json!({
        "store": { "path": file("store") },
        "northbound": {
            "listen": listen,
            "tls": { "certificate": &certificate, "key": &key },
            "tokens": [
                { "name": "operator", "role": "write", "sha256": operator },
                { "name": "report", "role": "report", "sha256": report },
            ],
        },
        "tls": { "ca": file(AUTHORITY), "cert": &certificate, "key": &key },
    }))
}

fn print_made(format: FormatArg, made: &MadeFiles) -> Result<(), CommandError> {
    if format.format == OutputFormat::Json {
        return output::print_json(made);
    }
    let mut table = output::new_table(["file", "what"]);
    table.add_row([AUTHORITY, "authority: what everybody trusts"]);
    for certificate in &made.certificates {
        let names = format!("certificate for {}", certificate.names.join(", "));
        table.add_row([format!("{}.pem", certificate.file), names]);
    }
    table.add_row(["operator.token", "token of role write"]);
    table.add_row(["report.token", "token of role report"]);
    table.add_row(["controller.toml", "configuration of the controller"]);
    output::print_line(format_args!("{}:\n{table}", made.folder.display()))
}
