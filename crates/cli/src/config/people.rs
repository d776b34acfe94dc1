//! Checks accounts against the names in shares: a name denotes one user, in whatever case it is written.

use std::collections::BTreeSet;
use std::ops::Deref;

use serde::Deserialize;
use server::users::check_name;

use super::{Share, User};
use crate::failure::Failure;

/// The accounts of the config file and of the command line; the command line replaces an account of
/// the same name.
///
/// # Errors
/// The file or the command line has a name twice, so that one of its passwords would be ignored; or a name that
/// cannot log on.
pub(super) fn accounts(file: Vec<User>, given: Vec<User>) -> Result<Vec<User>, Failure> {
    let overridden = distinct("--user", &given)?;
    distinct("[[user]]", &file)?;
    file.iter().chain(&given).try_for_each(|user| check_name(&user.name))?;
    let is_left = |user: &User| !overridden.contains(&user.name.to_lowercase());
    Ok(file.into_iter().filter(is_left).chain(given).collect())
}

fn distinct(what: &'static str, users: &[User]) -> Result<BTreeSet<String>, Failure> {
    let mut names = BTreeSet::new();
    for user in users {
        if !names.insert(user.name.to_lowercase()) {
            let why = "there are two accounts of this name; names are compared ignoring case";
            return Err(Failure::ConfigValue { what, value: user.name.clone(), why });
        }
    }
    Ok(names)
}

/// Names in a share; an empty list is not the same as none.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(from = "Vec<String>")]
pub(crate) struct Names {
    names: Vec<String>,
    is_given: bool,
}

impl From<Vec<String>> for Names {
    fn from(names: Vec<String>) -> Self {
        Self { names, is_given: true }
    }
}

impl Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.names
    }
}

/// Refuses a share that gives one user two different rights, or from which the last name was taken: without names
/// everybody may enter, which nobody means who removes one.
pub(super) fn check_share(share: &Share) -> Result<(), Failure> {
    let is_empty = share.users.is_empty() && share.readers.is_empty();
    if is_empty && (share.users.is_given || share.readers.is_given) {
        return Err(Failure::ConfigValue {
            what: "users and readers of share",
            value: share.name.clone(),
            why: "an empty list is nobody: remove the share, name somebody, or leave both lists out for everybody who can \
                  log on",
        });
    }
    let users: BTreeSet<_> = share.users.iter().map(|name| name.to_lowercase()).collect();
    match share.readers.iter().find(|name| users.contains(&name.to_lowercase())) {
        None => Ok(()),
        Some(name) => Err(Failure::ConfigValue {
            what: "readers",
            value: name.clone(),
            why: "the share has this name among its users too, who may do more than read",
        }),
    }
}

/// Refuses a volume that is two files: opens of the one would know nothing of the other's locks and leases.
pub(super) fn check_volumes(shares: &[Share]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match shares.iter().flat_map(|share| &share.volumes).find(|it| !seen.insert(&it.path)) {
        None => Ok(()),
        Some(twice) => Err(Failure::ConfigValue {
            what: "volume",
            value: twice.path.display().to_string(),
            why: "it is named twice, and can be one file of one share",
        }),
    }
}

/// The names in a share by which no known user can log on, each once. A name with a realm belongs to no user:
/// [`check_name`].
pub(crate) fn strangers(share: &Share, knows: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let names = share.users.iter().chain(share.readers.iter()).map(String::as_str);
    let is_strange = |name: &str| check_name(name).is_err() || !knows(name);
    names.filter(|name| is_strange(name) && seen.insert(name.to_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(names: &[&str], password: &str) -> Vec<User> {
        let user = |name: &&str| User { name: (*name).to_owned(), password: password.to_owned() };
        names.iter().map(user).collect()
    }

    #[test]
    fn a_name_is_one_account_in_any_case_and_the_command_line_wins() {
        for twice in [["alice", "alice"], ["alice", "ALICE"]] {
            accounts(users(&twice, "a"), Vec::new()).unwrap_err();
            accounts(Vec::new(), users(&twice, "a")).unwrap_err();
        }
        let both = accounts(users(&["alice", "bob"], "file"), users(&["Alice"], "line")).unwrap();
        assert_eq!(both, [users(&["bob"], "file"), users(&["Alice"], "line")].concat());
    }

    #[test]
    fn a_name_that_is_user_and_reader_of_a_share_is_refused() {
        let mut share = Share::new("data", "/srv".into());
        let names = |names: &[&str]| {
            Names::from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        share.users = names(&["alice"]);
        share.readers = names(&["bob"]);
        check_share(&share).unwrap();
        share.readers = names(&["bob", "Alice"]);
        check_share(&share).unwrap_err();
        assert_eq!(strangers(&share, |name| name == "bob"), ["alice"]);
        share.users = names(&["alice", "bob@corp"]);
        assert_eq!(strangers(&share, |name| name.starts_with("bob")), ["alice", "bob@corp"]);
    }
}
