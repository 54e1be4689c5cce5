//! The secret by which an agent takes over the jobs of the one that ran here before.
//!
//! A controller keeps the jobs of a broken stream for the holder of its lease. The decision: the
//! lease is a file beside the socket or in the spool folder, which only its owner can read, so that
//! an agent that was killed or upgraded has its jobs again at once. Where there is no such file, an
//! agent has a lease of its own, and its successor waits until the jobs are silent for too long.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use tracing::debug;

/// Bytes of a secret; the text has two digits for each.
const SECRET: usize = 16;
/// Read and write for the owner.
const OWNER_ONLY: u32 = 0o600;
/// What others than the owner may do.
const NOT_OWNER: u32 = 0o077;

/// Where the lease of an agent is: beside its socket, else in its spool folder.
pub fn lease_file(socket: Option<&Path>, spool: Option<&Path>) -> Option<PathBuf> {
    let beside = socket.map(|socket| socket.with_extension("lease"));
    beside.or_else(|| spool.map(|spool| spool.join("agent.lease")))
}

/// The lease in a file, which is made where it is missing; without a file, or where that cannot be
/// used, a new one. None if the system has no random numbers.
pub fn load_lease(file: Option<&Path>) -> Option<String> {
    let new = new_lease()?;
    let Some(file) = file else { return Some(new) };
    let kept = keep_lease(file, &new);
    Some(kept.unwrap_or_else(|error| {
        debug!(file = %file.display(), %error, "the lease of this agent is not kept");
        new
    }))
}

/// The lease in `file`, or `new` once it is there.
fn keep_lease(file: &Path, new: &str) -> io::Result<String> {
    if let Some(kept) = read_lease(file)? {
        return Ok(kept);
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    // Renamed into place, so that nobody finds a part of it.
    let draft = file.with_extension(format!("lease.{}", std::process::id()));
    let mut opened =
        OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&draft)?;
    opened.write_all(new.as_bytes())?;
    fs::rename(&draft, file)?;
    Ok(new.to_owned())
}

/// The lease in a file that nobody else can use; none where it has to be made.
fn read_lease(path: &Path) -> io::Result<Option<String>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if file.metadata()?.mode() & NOT_OWNER != 0 {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(4 * SECRET as u64).read_to_string(&mut text)?;
    let text = text.trim();
    let is_lease = text.len() == 2 * SECRET && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(is_lease.then(|| text.to_owned()))
}

fn new_lease() -> Option<String> {
    let mut secret = [0; SECRET];
    SystemRandom::new().fill(&mut secret).ok()?;
    Some(secret.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_successor_has_the_lease_and_nobody_else_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = lease_file(Some(&folder.path().join("run/agent.sock")), None).unwrap();
        let first = load_lease(Some(&file)).unwrap();
        assert_eq!(load_lease(Some(&file)).unwrap(), first);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, OWNER_ONLY);
        assert_eq!(fs::read_dir(folder.path().join("run")).unwrap().count(), 1);
        // A file that others could read, and one without a lease, is replaced.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let second = load_lease(Some(&file)).unwrap();
        assert_ne!(second, first);
        fs::write(&file, "short").unwrap();
        let third = load_lease(Some(&file)).unwrap();
        assert_ne!(third, second);
        assert_eq!(load_lease(Some(&file)).unwrap(), third);
    }

    #[test]
    fn without_a_file_every_agent_has_its_own() {
        let spool = Path::new("/proc/nowhere");
        let file = lease_file(None, Some(spool)).unwrap();
        assert_eq!(file, spool.join("agent.lease"));
        assert_eq!(lease_file(None, None), None);
        for file in [None, Some(&*file)] {
            assert_ne!(load_lease(file), load_lease(file));
        }
    }
}
