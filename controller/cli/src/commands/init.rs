//! `crux init`: everything that a first fabric needs to be closed to others.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use command_io::output::{self, FormatArg, OutputFormat};
use command_io::{CommandError, files};
use controller::hexadecimal::{encode_hex, random_secret};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use topology::document::{self, DocumentFormat};
use topology::{Fabric, ServerAddress, Switch, spec};

use super::config::commented_configuration;
use super::identity_folder::{
    AUTHORITY, AUTHORITY_KEY, IdentityFolder, IssuedCertificate, REVOCATION_LIST,
};

/// Days that a certificate is valid.
pub(super) const CERTIFICATE_DAYS: u64 = 365;
/// Days over which the ends of certificates are spread.
const STAGGERED_DAYS: u64 = 30;

/// The name of the controller in its certificate, for `crux switch --allow-role =NAME`.
const CONTROLLER_NAME: &str = "controller.crux";

/// The folder of the packaged services.
const SERVICE_FOLDER: &str = "/etc/crux";
/// The store of the packaged controller.
const SERVICE_STATE: &str = "/var/lib/crux/state.redb";

/// The tokens and their roles.
const TOKENS: [(&str, &str); 3] =
    [("operator", "write"), ("report", "report"), ("monitor", "read")];

/// Make an authority, certificates, tokens and a configuration for a fabric.
///
/// The folder gets an authority of its own (`ca.pem`), certificates for the controller and for
/// every switch of the fabric document, tokens of the roles `write` for operators, `report` for
/// hosts and `read` for Prometheus, and `controller.toml`, which uses them. Private keys and tokens
/// are readable by their owner alone. Copy to a switch its own certificate and key and `ca.pem`,
/// and nothing else.
///
/// With --service the folder is that of the packaged services, /etc/crux: it also gets the fabric
/// document and the flags of every embedded switch (`switch-NAME.conf`), the controller keeps its
/// state in /var/lib/crux, and all files belong to the owner of the folder.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  crux init --folder /etc/crux --fabric lab.toml --name controller.example --name 10.0.0.1
  crux init --folder ./identity --fabric lab.toml --listen 127.0.0.1:9300 --format json
  crux init --service --fabric lab.toml --name controller.example
  crux init --service --folder etc --mounted-at /etc/crux --fabric lab.toml --name crux

Then:
  crux controller --config /etc/crux/controller.toml --fabric lab.toml
  crux jobs --controller controller.example:9300 --ca ca.pem --token-file operator.token")]
pub(crate) struct InitArgs {
    /// The folder; it must not have an authority yet
    #[arg(long, required_unless_present = "service")]
    folder: Option<PathBuf>,
    /// Prepare the services of the Debian package
    #[arg(long)]
    service: bool,
    /// The folder as the services see it, where it is mounted elsewhere, as in a container
    #[arg(long, value_name = "FOLDER", requires = "folder")]
    mounted_at: Option<PathBuf>,
    /// Fabric document, with the P4Runtime address of every switch
    #[arg(long)]
    fabric: String,
    /// A DNS name or IP address of the controller, besides localhost; may be given many times
    #[arg(long = "name", value_parser = parse_server_name)]
    names: Vec<String>,
    /// Address that the controller serves
    #[arg(long, default_value = "0.0.0.0:9300")]
    listen: SocketAddr,
    /// Days that certificates are valid; `crux cert renew` issues them anew
    #[arg(long)]
    days: Option<u64>,
    #[command(flatten)]
    output: FormatArg,
}

/// What was made.
#[derive(Serialize)]
struct MadeFiles {
    folder: PathBuf,
    certificates: Vec<IssuedCertificate>,
    tokens: [&'static str; 3],
    configuration: PathBuf,
}

pub(crate) fn run_init(args: &InitArgs) -> Result<(), CommandError> {
    let fabric = files::read_fabric(&args.fabric)?;
    let folder = args.folder.as_deref().unwrap_or(Path::new(SERVICE_FOLDER));
    let created = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    created.map_err(CommandError::failed)?;
    let root = folder.canonicalize().map_err(CommandError::failed)?;
    if IdentityFolder::new(&root).has_authority() {
        let what = "there is an authority already; `crux cert renew` issues its certificates anew";
        return Err(CommandError::input(root.display(), what));
    }
    let mode = root.metadata().map_err(CommandError::failed)?.mode();
    if mode & 0o002 != 0 {
        let what = "everybody may write to it, and replace what it will have; chmod 755 it, or name \
                    another --folder";
        return Err(CommandError::input(root.display(), what));
    }
    let draft = DraftFolder::create(&root)?;
    let folder = IdentityFolder::new(draft.path());
    let certificates = wanted_certificates(&fabric, &args.names);
    folder.create_authority(&certificates).map_err(CommandError::failed)?;
    for certificate in &certificates {
        let days = args.days.unwrap_or_else(|| staggered_days(&certificate.file));
        folder.issue_certificate(certificate, days).map_err(CommandError::failed)?;
    }
    let mut tokens = Vec::new();
    for (name, role) in TOKENS {
        let sha256 = create_token(&folder, name)?;
        tokens.push(json!({ "name": name, "role": role, "sha256": sha256 }));
    }
    let seen = args.mounted_at.as_deref().unwrap_or(&root);
    let store = if args.service { PathBuf::from(SERVICE_STATE) } else { seen.join("store") };
    let configuration = configuration_text(seen, &store, args.listen, &tokens)?;
    folder.write_file("controller.toml", configuration.as_bytes()).map_err(CommandError::failed)?;
    if args.service {
        write_service_files(&folder, seen, &fabric)?;
    }
    draft.publish(&root)?;
    let made = MadeFiles {
        configuration: root.join("controller.toml"),
        folder: root,
        certificates,
        tokens: ["operator.token", "report.token", "monitor.token"],
    };
    print_made(args.output, &made)?;
    match args.output.format {
        OutputFormat::Json => Ok(()),
        OutputFormat::Table => output::print_line(next_steps(args, &made)),
    }
}

/// Where everything is written first, beside nothing that counts: where the disk is full half-way, no
/// half of an authority is left. Removed when it is dropped.
struct DraftFolder(PathBuf);

impl DraftFolder {
    fn create(root: &Path) -> Result<Self, CommandError> {
        let path = root.join(".init-new");
        drop(std::fs::remove_dir_all(&path));
        let created = DirBuilder::new().mode(0o700).create(&path).and_then(|()| {
            // Files are given to the owner of their folder.
            let owner = root.metadata()?;
            match path.metadata()?.uid() == owner.uid() {
                true => Ok(()),
                false => chown(&path, Some(owner.uid()), Some(owner.gid())),
            }
        });
        created.map_err(CommandError::failed)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Moves everything to its place, which takes no room; the key of the authority last, as it says
    /// that there is one.
    fn publish(self, root: &Path) -> Result<(), CommandError> {
        let entries =
            std::fs::read_dir(&self.0).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut names: Vec<OsString> =
            entries.map_err(CommandError::failed)?.iter().map(|entry| entry.file_name()).collect();
        names.sort_by_key(|name| name == AUTHORITY_KEY);
        for name in names {
            std::fs::rename(self.0.join(&name), root.join(&name)).map_err(CommandError::failed)?;
        }
        Ok(())
    }
}

impl Drop for DraftFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A DNS name or IP address that a certificate may be for.
pub(super) fn parse_server_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && label.chars().all(is_plain)
    };
    let is_name = text.len() <= 253 && text.split('.').all(is_label);
    if is_name || text.parse::<IpAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    Err("a DNS name has labels of letters, digits and -_, with dots between them and no wildcard; an IP \
         address has no port"
        .to_owned())
}

/// The commands that come next.
fn next_steps(args: &InitArgs, made: &MadeFiles) -> String {
    let folder = made.folder.display();
    let start = match args.service {
        true => "systemctl enable --now crux-controller".to_owned(),
        false => format!(
            "crux controller --config {} --fabric {}",
            made.configuration.display(),
            args.fabric
        ),
    };
    let host = args.names.first().map_or("localhost", String::as_str);
    format!(
        "\nThen:\n  {start}\n  crux doctor --controller {host}:{} --ca {folder}/{AUTHORITY} \
         --token-file {folder}/operator.token",
        args.listen.port()
    )
}

/// Days that a certificate of this name is valid, where nobody says: one that is forgotten must not
/// end on the same day as all others.
pub(super) fn staggered_days(file: &str) -> u64 {
    let digest = Sha256::digest(file);
    CERTIFICATE_DAYS - u64::from(digest[0]) % STAGGERED_DAYS
}

/// A certificate for the controller, and one for every switch that has an address.
fn wanted_certificates(fabric: &Fabric, names: &[String]) -> Vec<IssuedCertificate> {
    let own = [CONTROLLER_NAME, "localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let controller = IssuedCertificate {
        file: "controller".to_owned(),
        names: own.into_iter().chain(names.iter().cloned()).collect(),
    };
    let switches = fabric.switches().iter().filter_map(|switch| {
        let p4runtime = ServerAddress::parse(switch.p4runtime.as_ref()?)?.bare_host();
        let gnmi = switch.gnmi.as_deref().and_then(ServerAddress::parse);
        let gnmi = gnmi.map(|address| address.bare_host()).filter(|host| *host != p4runtime);
        let hosts = std::iter::once(p4runtime).chain(gnmi).map(str::to_owned);
        let names = std::iter::once(format!("{}.switch.crux", switch.name)).chain(hosts);
        Some(IssuedCertificate { file: format!("switch-{}", switch.name), names: names.collect() })
    });
    std::iter::once(controller).chain(switches).collect()
}

/// Where a switch of this address listens. A name is resolved where controllers are; the switch
/// listens on all of its addresses.
fn listening_address(address: &ServerAddress<'_>) -> String {
    let is_ip = address.bare_host().parse::<IpAddr>().is_ok();
    let host = if is_ip { address.host } else { "0.0.0.0" };
    format!("{host}:{}", address.port)
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

/// The fabric document, and the flags of an embedded switch for every one that has an address.
fn write_service_files(
    folder: &IdentityFolder,
    root: &Path,
    fabric: &Fabric,
) -> Result<(), CommandError> {
    let document = spec::explicit_document(fabric);
    let text = document::print_document(&document, DocumentFormat::Toml);
    let text = text.map_err(CommandError::failed)?;
    folder.write_file("fabric.toml", text.as_bytes()).map_err(CommandError::failed)?;
    for switch in fabric.switches() {
        let Some(flags) = switch_flags(root, switch) else {
            continue;
        };
        let name = format!("switch-{}.conf", switch.name);
        folder.write_file(&name, flags.as_bytes()).map_err(CommandError::failed)?;
    }
    Ok(())
}

/// Flags of `crux switch` that serve a switch to this fabric's controller alone.
fn switch_flags(root: &Path, switch: &Switch) -> Option<String> {
    let p4runtime = ServerAddress::parse(switch.p4runtime.as_ref()?)?;
    let file = |name: &str| root.join(name).display().to_string();
    let mut flags = vec![
        format!("--no-p4 --device-id {} --priority-queues 8", switch.device_id),
        format!("--grpc-server-addr {} --grpc-server-ssl", listening_address(&p4runtime)),
        format!("--grpc-server-cert {}", file(&format!("switch-{}.pem", switch.name))),
        format!("--grpc-server-key {}", file(&format!("switch-{}.key.pem", switch.name))),
        format!("--grpc-server-cacert {} --grpc-server-with-client-auth", file(AUTHORITY)),
        format!("--allow-role ={CONTROLLER_NAME}"),
    ];
    if let Some(gnmi) = switch.gnmi.as_deref().and_then(ServerAddress::parse) {
        flags.push(format!("--gnmi {}", listening_address(&gnmi)));
    }
    Some(format!("# Add the ports: -i PORT@INTERFACE\nFLAGS=\"{}\"\n", flags.join(" ")))
}

/// The configuration that uses all of it, with every other field as a comment.
fn configuration_text(
    root: &Path,
    store: &Path,
    listen: SocketAddr,
    tokens: &[serde_json::Value],
) -> Result<String, CommandError> {
    let file = |name: &str| root.join(name).display().to_string();
    let (certificate, key) = (file("controller.pem"), file("controller.key.pem"));
    commented_configuration(&json!({
        "store": { "path": store },
        "northbound": {
            "listen": listen,
            "tls": { "certificate": &certificate, "key": &key },
            "tokens": tokens,
        },
        "tls": { "ca": file(AUTHORITY), "revoked": file(REVOCATION_LIST), "cert": &certificate, "key": &key },
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
    table.add_row([REVOCATION_LIST, "certificates that are revoked (crux cert revoke)"]);
    table.add_row(["operator.token", "token of role write"]);
    table.add_row(["report.token", "token of role report"]);
    table.add_row(["monitor.token", "token of role read"]);
    table.add_row(["controller.toml", "configuration of the controller"]);
    output::print_line(format_args!("{}:\n{table}", made.folder.display()))
}
