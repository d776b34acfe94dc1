//! Users kept in a file: names and NT hashes.
//!
//! ```text
//!  # comment
//!  alice:nt:8846f7eaee8fb117ad06bdd830b7586c
//! ```
//!
//! An NT hash is as good as the password, so a file that others may read is refused. The server checks the
//! file whenever a user logs on and once a second: the sessions of a user who is no longer in the file end.
//! If the file cannot be read then, the users stay unchanged.
//!
//! Spec: MS-NLMP §3.3.1 (NTOWFv1).

mod change;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use basics::ordered::{Mutex, MutexGuard};
use smb::auth::{Credentials, NtHash, UserList, UserStore};
use thiserror::Error;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::limits::USER_NAME_MAX;
use crate::lock_order as order;
/// The users of a file, and some more.
#[derive(Debug)]
pub struct UsersFile {
    path: PathBuf,
    more: UserList,
    read: Mutex<Read, order::Users>,
}

/// The file as it was last read.
#[derive(Debug)]
struct Read {
    stamp: Stamp,
    users: UserList,
    /// How often the file was read.
    revision: u64,
    /// The state in which the file could not be read, which is logged once.
    unread: Option<Option<Stamp>>,
}

/// Tells one state of the file from another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl UsersFile {
    /// Reads the file; `more` are further users.
    ///
    /// # Errors
    /// The file cannot be read, is too long or malformed, or others may read it.
    pub fn open(path: impl Into<PathBuf>, more: UserList) -> Result<Self, UsersFileError> {
        let path = path.into();
        let (stamp, users) = load(&path)?;
        let read = Mutex::new(Read { stamp, users, revision: 0, unread: None });
        Ok(Self { path, more, read })
    }

    /// Sets the password of a user, or removes the user, in a file that is made if it does not
    /// exist.
    ///
    /// # Durability
    /// After `Ok` the change survives power loss; before that the file has its old or its new content. A file
    /// that is made may be empty before.
    ///
    /// # Errors
    /// The name cannot stand in the file or cannot log on; the file cannot be read or written; or other changes
    /// of it do not end.
    pub fn change(path: &Path, user: &str, password: Option<&str>) -> Result<(), UsersFileError> {
        let hash = password.map(NtHash::of_password);
        // An account of any name may be removed.
        let cannot_log_on = user.contains([':', '\n', '\r', '#', '\\']);
        if hash.is_some() && (user.is_empty() || cannot_log_on || user.trim() != user) {
            return Err(UsersFileError::ConfigName(user.to_owned()));
        }
        if let (Some(_), Err(unreachable)) = (password, check_name(user)) {
            return Err(unreachable);
        }
        change::change(path, user, hash.as_ref())
    }
}

impl UsersFile {
    // The present content, or the content when the file could last be read.
    fn read_again(&self) -> MutexGuard<'_, Read, order::Users> {
        let mut read = self.read.lock();
        let now = std::fs::metadata(&self.path).ok().map(|found| Stamp::of(&found));
        if now != Some(read.stamp) {
            match load(&self.path) {
                Ok((stamp, users)) => {
                    info!(path = %self.path.display(), "the users are read again");
                    let revision = read.revision + 1;
                    *read = Read { stamp, users, revision, unread: None };
                }
                Err(error) if read.unread != Some(now) => {
                    warn!(
                        %error,
                        path = %self.path.display(),
                        "the users stay as they were read before: who was removed since then may log on still"
                    );
                    read.unread = Some(now);
                }
                Err(_) => {}
            }
        }
        read
    }
}

impl UserStore for UsersFile {
    fn lookup(&self, user: &str, domain: &str) -> Option<Credentials> {
        let found = self.read_again().users.lookup(user, domain);
        found.or_else(|| self.more.lookup(user, domain))
    }

    fn revision(&self) -> u64 {
        self.read_again().revision
    }

    // From the last read: a logon checks whether that is still current.
    fn each(&self, show: &mut dyn FnMut(&str)) {
        self.read.lock().users.each(show);
        self.more.each(show);
    }
}

impl Stamp {
    pub(crate) fn of(found: &std::fs::Metadata) -> Self {
        let modified = (found.mtime(), found.mtime_nsec());
        Self { inode: found.ino(), size: found.size(), modified }
    }
}

/// Checks that a user can log on by a name: the part behind an @ is a realm, which no account has, and a logon by a
/// longer name than this server takes is refused.
///
/// # Errors
/// No user can log on by this name.
pub fn check_name(user: &str) -> Result<(), UsersFileError> {
    if user.contains('@') {
        return Err(UsersFileError::ConfigRealm(user.to_owned()));
    }
    if user.chars().count() > USER_NAME_MAX {
        return Err(UsersFileError::ConfigNameTooLong);
    }
    Ok(())
}

/// Reads the text of a users file.
///
/// # Errors
/// A line is neither empty, a comment nor a user.
pub fn parse(text: &str) -> Result<BTreeMap<String, NtHash>, UsersFileError> {
    let mut users = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let user = line.split_once(":nt:").and_then(|(name, hex)| Some((name, hash(hex)?)));
        match user {
            Some((name, hash)) if !name.is_empty() && !name.contains(':') => {
                users.insert(name.to_lowercase(), hash);
            }
            _ => return Err(UsersFileError::ConfigLine(number)),
        }
    }
    Ok(users)
}

/// The text of a users file. It holds secrets.
pub fn emit(users: &BTreeMap<String, NtHash>) -> Zeroizing<String> {
    let mut text = Zeroizing::new(HEADING.to_owned());
    for (name, hash) in users {
        push_line(&mut text, name, hash);
    }
    text
}

// The same text with one user changed: comments and the order of the lines stay.
fn edit(
    text: &str,
    user: &str,
    hash: Option<&NtHash>,
) -> Result<Zeroizing<String>, UsersFileError> {
    let user = user.to_lowercase();
    let is_known = parse(text)?.contains_key(&user);
    if !is_known && hash.is_none() {
        return Err(UsersFileError::ConfigNoUser(user));
    }
    // The text never moves while it grows: the old memory would not be wiped.
    let room = text.len() + HEADING.len() + user.len() + LINE_MAX;
    let mut edited = Zeroizing::new(String::with_capacity(room));
    if text.is_empty() {
        edited.push_str(HEADING);
    }
    let mut hash = hash;
    for line in text.lines() {
        if line.trim().split_once(':').is_some_and(|(name, _)| name.to_lowercase() == user) {
            if let Some(hash) = hash.take() {
                push_line(&mut edited, &user, hash);
            }
        } else {
            edited.push_str(line);
            edited.push('\n');
        }
    }
    if let Some(hash) = hash {
        push_line(&mut edited, &user, hash);
    }
    Ok(edited)
}

fn push_line(text: &mut String, name: &str, hash: &NtHash) {
    text.push_str(name);
    text.push_str(":nt:");
    for byte in hash.reveal() {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).expect("four bits"));
        }
    }
    text.push('\n');
}

fn hash(hex: &str) -> Option<NtHash> {
    let digits: Option<Vec<u8>> =
        hex.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = Zeroizing::new(digits?);
    let mut hash = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(NtHash::new(hash))
}

fn load(path: &Path) -> Result<(Stamp, UserList), UsersFileError> {
    let failed = |source| UsersFileError::ConfigRead { path: path.to_owned(), source };
    let (stamp, text) = text_of(path, &File::open(path).map_err(failed)?)?;
    let mut list = UserList::new();
    for (name, hash) in parse(&text)? {
        list.add_hash(&name, hash);
    }
    Ok((stamp, list))
}

fn text_of(path: &Path, file: &File) -> Result<(Stamp, Zeroizing<String>), UsersFileError> {
    let failed = |source| UsersFileError::ConfigRead { path: path.to_owned(), source };
    let found = file.metadata().map_err(failed)?;
    if found.mode() & 0o077 != 0 {
        return Err(UsersFileError::ConfigOpen(path.to_owned()));
    }
    check_length(path, found.size())?;
    let mut text = Zeroizing::new(String::new());
    // The file may have grown since. A truncated read would leave out users.
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    check_length(path, u64::try_from(read).unwrap_or(u64::MAX))?;
    Ok((Stamp::of(&found), text))
}

fn check_length(path: &Path, bytes: u64) -> Result<(), UsersFileError> {
    match bytes > FILE_MAX {
        true => Err(UsersFileError::ConfigTooLong(path.to_owned())),
        false => Ok(()),
    }
}

/// Why a users file cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsersFileError {
    /// The file cannot be read.
    #[error("cannot read the users in {path}: {source}", path = .path.display())]
    ConfigRead {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the users to {path}: {source}", path = .path.display())]
    ConfigWrite {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// Others may read the file, and its content is as good as passwords.
    #[error("others may read {path}: chmod 600 it", path = .0.display())]
    ConfigOpen(PathBuf),
    /// The file is longer than a users file may be.
    #[error("{path} is longer than the {FILE_MAX} bytes of a users file", path = .0.display())]
    ConfigTooLong(PathBuf),
    /// A line is not `NAME:nt:HASH`.
    #[error("line {0} of the users is not NAME:nt: and 32 hexadecimal digits")]
    ConfigLine(u32),
    /// The file cannot hold this name.
    #[error("{0:?} cannot be the name of a user: no : # \\ in it, no space at its ends")]
    ConfigName(String),
    /// No logon finds this name.
    #[error(
        "nobody could log on as {0:?}: an account is named without @ and what follows it, and whoever logs on with \
         a realm is found by what stands before the @"
    )]
    ConfigRealm(String),
    /// The name is longer than a logon may send.
    #[error("the name of a user has at most {USER_NAME_MAX} characters")]
    ConfigNameTooLong,
    /// Another process changes the file, and does not end.
    #[error("others change {path} all the time: nothing was changed", path = .0.display())]
    ConfigBusy(PathBuf),
    /// There is no user of that name.
    #[error("there is no user {0:?}")]
    ConfigNoUser(String),
}

const HEADING: &str = "# Users of landfast: written by `landfast passwd`, as good as passwords.\n";
/// Bytes of a users file: some ten thousand users.
const FILE_MAX: u64 = 1 << 20;
/// Bytes of a line without the name, and of a missing line end before it.
const LINE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    // MS-NLMP §4.2.2.1.2: NTOWFv1("Password").
    const GOLDEN: &str = "# c\n\nUser:nt:a4f49c406510bdcab6824ee7c30fd852\n";

    #[test]
    fn a_line_is_a_name_and_the_hash_of_its_password() {
        let users = parse(GOLDEN).unwrap();
        assert!(users["user"] == NtHash::of_password("Password"));
        assert!(emit(&users).ends_with("user:nt:a4f49c406510bdcab6824ee7c30fd852\n"));
        for odd in ["user", "user:nt:", "user:nt:00", ":nt:a4f49c406510bdcab6824ee7c30fd852", "a:b"]
        {
            assert!(matches!(parse(odd), Err(UsersFileError::ConfigLine(1))), "{odd}");
        }
    }

    #[test]
    fn a_name_that_cannot_log_on_is_refused_a_password() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        let set = |user: &str| UsersFile::change(&path, user, Some("secret"));
        assert!(matches!(set("alice@corp"), Err(UsersFileError::ConfigRealm(_))));
        assert!(matches!(set(&"a".repeat(257)), Err(UsersFileError::ConfigNameTooLong)));
        assert!(!path.exists());
        set(&"a".repeat(256)).unwrap();
        // An account of an older version, by which no user can log on, can be removed.
        let hash = "a4f49c406510bdcab6824ee7c30fd852";
        std::fs::write(&path, format!("alice@corp:nt:{hash}\nbob:nt:{hash}\n")).unwrap();
        UsersFile::change(&path, "alice@corp", None).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("alice"));
    }

    #[test]
    fn a_password_counts_as_soon_as_it_is_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        UsersFile::change(&path, "Alice", Some("first")).unwrap();
        let mut more = UserList::new();
        more.add_password("config", "secret");
        let users = UsersFile::open(&path, more).unwrap();
        let hash = |name: &str| users.lookup(name, "").map(|found| found.nt_hash);
        assert!(hash("ALICE") == Some(NtHash::of_password("first")));
        assert!(hash("config").is_some() && hash("bob").is_none());
        UsersFile::change(&path, "alice", Some("second")).unwrap();
        UsersFile::change(&path, "bob", Some("b")).unwrap();
        assert!(hash("alice") == Some(NtHash::of_password("second")));
        UsersFile::change(&path, "bob", None).unwrap();
        assert!(hash("bob").is_none());
        assert!(matches!(
            UsersFile::change(&path, "bob", None),
            Err(UsersFileError::ConfigNoUser(_))
        ));
        // A file that cannot be read changes nothing.
        std::fs::write(&path, "nonsense").unwrap();
        assert!(hash("alice").is_some());
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        UsersFile::change(&path, "alice", Some("first")).unwrap();
        let users = UsersFile::open(&path, UserList::new()).unwrap();
        let filler = format!("#{}\n", " ".repeat(1 << 20));
        let text = filler + &std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text).unwrap();
        let refused = UsersFile::open(&path, UserList::new()).unwrap_err();
        let expected =
            format!("{} is longer than the 1048576 bytes of a users file", path.display());
        assert_eq!(refused.to_string(), expected);
        assert!(users.lookup("alice", "").is_some(), "as it was read before");
        let refused = UsersFile::change(&path, "bob", Some("b"));
        assert!(matches!(refused, Err(UsersFileError::ConfigTooLong(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        std::fs::write(&path, GOLDEN).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = UsersFile::open(&path, UserList::new());
        assert!(matches!(refused, Err(UsersFileError::ConfigOpen(_))));
    }
}
