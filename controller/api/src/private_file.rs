//! Files that only their owner may read: keys, tokens, the store, recordings.
//!
//! The decision: what this program creates, nobody else can read; and a key that others can read is
//! refused instead of used, because it may no longer be a secret.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;
use nix::unistd::geteuid;

/// Read and write for the owner.
const OWNER_ONLY: u32 = 0o600;

/// Drafts of this process, for names that no two threads share.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// What others than the owner and the group may do.
const OTHERS: u32 = 0o007;

/// Creates a file that only the owner can read, and opens it to append; it must not exist.
///
/// # Errors
/// It exists or cannot be created.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(OWNER_ONLY).open(path)
}

/// Makes sure that a file exists which only the owner can read. One that exists keeps its content.
///
/// # Errors
/// It cannot be created or changed.
pub fn ensure_private(path: &Path) -> io::Result<()> {
    match create_private(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::metadata(path)?.mode() & 0o077 {
                0 => Ok(()),
                _ => fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY)),
            }
        }
        Err(error) => Err(error),
    }
}

/// The content of a secret file.
///
/// # Errors
/// It cannot be read, is no plain file, belongs to another user than this one or root, or everybody
/// can read or write it.
pub fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would block until it has a writer.
    let options = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).clone();
    let mut file = options.open(path)?;
    let metadata = file.metadata()?;
    let refuse = |what: String| {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {what}", path.display())))
    };
    if !metadata.is_file() {
        return refuse("it is no plain file".to_owned());
    }
    let (own, owner) = (geteuid().as_raw(), metadata.uid());
    // Root reads what belongs to the users of services.
    if own != 0 && ![own, 0].contains(&owner) {
        return refuse(format!(
            "it belongs to user {owner}, who may change it; take a file of your own"
        ));
    }
    let mode = metadata.mode() & 0o777;
    if mode & OTHERS != 0 {
        let text = format!(
            "everybody on this machine may use it (mode {mode:04o}); make it private with \
             `chmod 600 {}`",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Writes a secret file as a whole, in a folder that is created for the owner alone, and gives what
/// it holds: the content, or that of another process which was first.
///
/// # Errors
/// It cannot be written or read.
pub fn write_private_once(path: &Path, content: &[u8]) -> io::Result<Vec<u8>> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("new-{}-{number}", std::process::id()));
    let written = create_private(&draft).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    // A link appears at once and as a whole, and never replaces a file.
    let linked = written.and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => removed?,
    }
    read_private(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_of_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/token");
        assert_eq!(write_private_once(&path, b"first").unwrap(), b"first");
        assert_eq!(write_private_once(&path, b"second").unwrap(), b"first");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!([mode(&path), mode(path.parent().unwrap())], [0o600, 0o700]);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let refused = read_private(&path).unwrap_err().to_string();
        assert!(refused.contains("mode 0644") && refused.contains("chmod 600"), "{refused}");
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let refused = read_private(&pipe).unwrap_err().to_string();
        assert!(refused.contains("no plain file"), "{refused}");
        ensure_private(&path).unwrap();
        assert_eq!((mode(&path), read_private(&path).unwrap()), (0o600, b"first".to_vec()));
    }
}
