//! Who changes a policy, and why, for the history.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ::controller::northbound::service::{ConfirmPolicyRequest, RollbackPolicyRequest};

/// Author and reason of the change.
#[derive(clap::Args)]
pub(crate) struct ChangeAuthorArgs {
    /// Why the policy changes, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Who changes it, for the history; without it, the user's name
    #[arg(long)]
    author: Option<String>,
}

impl ChangeAuthorArgs {
    pub(crate) fn author_name(&self) -> String {
        self.author.clone().unwrap_or_else(user_name)
    }

    pub(super) fn confirm_request(&self) -> ConfirmPolicyRequest {
        ConfirmPolicyRequest { author: self.author_name(), reason: self.reason.clone() }
    }

    pub(super) fn rollback_request(&self, revision: Option<u64>) -> RollbackPolicyRequest {
        RollbackPolicyRequest { author: self.author_name(), reason: self.reason.clone(), revision }
    }
}

/// The user as the environment names it, else the account: services and containers set no variable.
fn user_name() -> String {
    let variable = |name| std::env::var(name).ok().filter(|name| !name.is_empty());
    let named = ["USER", "LOGNAME"].into_iter().find_map(variable);
    named.or_else(current_account).unwrap_or_else(|| "unknown".to_owned())
}

fn current_account() -> Option<String> {
    let number = fs::metadata("/proc/self").ok()?.uid();
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    Some(account_name(&accounts, number).unwrap_or_else(|| format!("user {number}")))
}

/// The account with a number in a text in the form of `/etc/passwd`.
fn account_name(accounts: &str, number: u32) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_their_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(account_name(accounts, 1000).as_deref(), Some("ada"));
        assert_eq!(account_name(accounts, 1001), None);
        assert!(current_account().is_some());
    }
}
