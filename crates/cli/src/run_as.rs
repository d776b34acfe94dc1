//! Serving as another user than the one who has started the server.
//!
//! ```text
//!  root: binds the SMB port, makes /run/landfast --exec--> the user: opens shares, keys and everything else
//! ```
//!
//! The program executes itself as that user, so no thread is left that is root's, and may never gain a right again
//! (no_new_privs). Only the listening socket comes along, as standard input. Whatever is read later, on SIGHUP or
//! when it changes, is read as that user: config, users file and keytab have to be readable for it.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities, no_new_privs, set_no_new_privs};

use crate::control::{Place, RUN_DIRECTORY};
use crate::failure::Failure;

/// Who serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// Finds a name of /etc/passwd; `UID:GID` names who is not in there.
    pub(crate) fn find(name: &str) -> Result<Self, Failure> {
        let refused = |why| Failure::ConfigValue { what: "run_as", value: name.to_owned(), why };
        let found = match name.split_once(':') {
            Some((uid, gid)) => match (uid.parse(), gid.parse()) {
                (Ok(uid), Ok(gid)) => Self { uid, gid },
                _ => return Err(refused("write a user's name, or UID:GID")),
            },
            None => {
                let text =
                    fs::read_to_string(PASSWD).map_err(Failure::local("cannot read", PASSWD))?;
                Self::in_passwd(&text, name).ok_or_else(|| {
                    refused("/etc/passwd has no user of that name; UID:GID works too")
                })?
            }
        };
        if found.uid == 0 || found.gid == 0 {
            return Err(refused("that is root"));
        }
        Ok(found)
    }

    // passwd(5): name, password, uid, gid, ...
    fn in_passwd(text: &str, name: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            if name.is_empty() || fields.next()? != name {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            Some(Self { uid, gid: fields.next()?.parse().ok()? })
        })
    }
}

/// Goes on as `account`, where this process is root's; returns at once where it is the account's already. The
/// socket to serve on, if it came along.
pub(crate) fn become_user(
    account: Account,
    listen: SocketAddr,
    control: &Place,
) -> Result<Option<Arc<TcpListener>>, Failure> {
    let is_there = std::env::var_os(HANDED_OVER).is_some();
    if geteuid().is_root() {
        return Err(execute(account, listen, control));
    }
    if (geteuid().as_raw(), getegid().as_raw()) != (account.uid, account.gid) {
        return Err(Failure::RunAs("only root can serve as another user: start it as root"));
    }
    if !is_there {
        return Ok(None);
    }
    check_powerless()?;
    let failed = || Failure::system("cannot take over the listening socket");
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    Ok(Some(Arc::new(TcpListener::from(socket))))
}

// Returns only where it fails.
fn execute(account: Account, listen: SocketAddr, control: &Place) -> Failure {
    let bound = match TcpListener::bind(listen) {
        Ok(bound) => bound,
        Err(source) => {
            return Failure::Start(server::StartError::ConfigListen { address: listen, source });
        }
    };
    if *control == Place::Customary
        && let Err(error) = make_run_directory(account)
    {
        tracing::warn!(%error, "{RUN_DIRECTORY} is not made: landfast status will not find this server");
    }
    if let Err(error) = set_no_new_privs(true) {
        return Failure::system("cannot give up rights")(error.into());
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1));
    // Theirs, and not those of who has started it. Without groups beside the primary one.
    command.uid(account.uid).gid(account.gid);
    command.env_remove("XDG_RUNTIME_DIR").env_remove("HOME").env(HANDED_OVER, "1");
    command.stdin(Stdio::from(OwnedFd::from(bound)));
    Failure::system("cannot go on as the user of run_as")(command.exec())
}

fn make_run_directory(account: Account) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(RUN_DIRECTORY) {
        Ok(()) => std::os::unix::fs::chown(RUN_DIRECTORY, Some(account.uid), Some(account.gid)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

// What the change of user has to have taken away.
fn check_powerless() -> Result<(), Failure> {
    let failed = || Failure::system("cannot see which rights are left");
    let sets = capabilities(None).map_err(|error| failed()(error.into()))?;
    let left = sets.effective | sets.permitted | sets.inheritable;
    let groups = getgroups().map_err(|error| failed()(error.into()))?;
    let is_bound = no_new_privs().map_err(|error| failed()(error.into()))?;
    if left != CapabilitySet::empty() || groups.iter().any(|group| group.is_root()) || !is_bound {
        return Err(Failure::RunAs(
            "rights of root are left after the change of user: not serving",
        ));
    }
    Ok(())
}

/// Where users are listed.
const PASSWD: &str = "/etc/passwd";
/// Set by this program for itself.
const HANDED_OVER: &str = "LANDFAST_LISTENS_ON_STDIN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_or_numbers_and_root_is_refused() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nfiles:x:990:991::/nonexistent:/bin/false\nbad:x:1\n";
        let files = Account { uid: 990, gid: 991 };
        assert_eq!(Account::in_passwd(passwd, "files"), Some(files));
        for none in ["file", "", "bad", "x"] {
            assert_eq!(Account::in_passwd(passwd, none), None, "{none}");
        }
        assert_eq!(Account::find("990:991").unwrap(), files);
        for wrong in ["root", "0:0", "5:0", "x:y", "nobody at all"] {
            assert!(matches!(Account::find(wrong), Err(Failure::ConfigValue { .. })), "{wrong}");
        }
    }
}
