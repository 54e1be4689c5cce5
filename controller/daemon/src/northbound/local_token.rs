//! The token of a controller that has none configured: a file of its user.
//!
//! The decision: a controller without tokens is not open but serves its own user. The file is the
//! same for every controller of a user on a machine, so that `crux` finds it without being told.

use std::io;
use std::path::Path;

use api::private_file::write_private_once;
use sha2::{Digest, Sha256};

use crate::config::{AccessGrant, AccessRole, AccessToken, NorthboundConfig};
use crate::hexadecimal::random_secret;

/// The owner of the token, in the history of policies.
const NAME: &str = "local";

/// Lets the owner of `file` do everything where the configuration says of nobody what they may do.
/// The file is created with the first token. Returns whether it is needed.
///
/// # Errors
/// The file cannot be created, or others can read it.
pub fn admit_file_owner(config: &mut NorthboundConfig, file: &Path) -> io::Result<bool> {
    if config.has_access_rules() {
        return Ok(false);
    }
    let secret = random_secret();
    let secret = secret.map_err(|_| io::Error::other("the system has no random numbers"))?;
    let token = text_of(&write_private_once(file, (secret + "\n").as_bytes())?);
    if token.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty: delete it"));
    }
    config.tokens.push(AccessToken {
        sha256: Sha256::digest(token).into(),
        grants: AccessGrant {
            name: NAME.to_owned(),
            role: AccessRole::Write,
            hosts: Vec::new(),
            tenants: Vec::new(),
        },
    });
    Ok(true)
}

fn text_of(content: &[u8]) -> String {
    String::from_utf8_lossy(content).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn the_file_is_created_once_and_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("crux/token");
        let admitted = || {
            let mut config = Config::default().northbound;
            assert!(admit_file_owner(&mut config, &file).unwrap());
            config.tokens
        };
        let tokens = admitted();
        assert_eq!(tokens, admitted());
        assert_eq!((tokens.len(), tokens[0].grants.role), (1, AccessRole::Write));
        let mut open = Config::default().northbound;
        open.anyone = true;
        assert!(!admit_file_owner(&mut open, &file).unwrap() && open.tokens.is_empty());
    }
}
