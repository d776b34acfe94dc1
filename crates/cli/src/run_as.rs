//! Serving as another user than the user who started the server.
//!
//! ```text
//!  root: binds the SMB port, makes /run/landfast/UID --exec--> the user: opens shares, keys and everything else
//! ```
//!
//! The program executes itself as that user, so no thread of root is left, and it can never gain a right again
//! (no_new_privs). It inherits only the listening socket, as standard input. As after a logon, the process has the groups of
//! /etc/group that list the user, and none of the groups of the user who started the server. Config, users file and keytab
//! are later read as that user, on SIGHUP or when they change: they must be readable for that user.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitySet, capabilities, no_new_privs, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::control::{Place, RUN_DIRECTORY, make_run_directory};
use crate::failure::Failure;

/// The user and groups to serve as.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Groups beside the primary one.
    pub(crate) groups: Vec<u32>,
}

impl Account {
    /// Finds a name of /etc/passwd and its groups of /etc/group; `UID:GID` names a user who is not listed,
    /// with that group alone.
    pub(crate) fn find(name: &str) -> Result<Self, Failure> {
        let refused = |why| Failure::ConfigValue { what: "run_as", value: name.to_owned(), why };
        let found = match name.split_once(':') {
            Some((uid, gid)) => match (uid.parse(), gid.parse()) {
                (Ok(uid), Ok(gid)) => Self { uid, gid, groups: Vec::new() },
                _ => return Err(refused("write a user's name, or UID:GID")),
            },
            None => {
                let read =
                    |path| fs::read_to_string(path).map_err(Failure::local("cannot read", path));
                let found = Self::in_passwd(&read(PASSWD)?, name).ok_or_else(|| {
                    refused("/etc/passwd has no user of that name; UID:GID works too")
                })?;
                Self { groups: groups_of(&read(GROUP)?, name), ..found }
            }
        };
        if found.uid == 0 || found.gid == 0 {
            return Err(refused("that is root"));
        }
        if found.groups.contains(&0) {
            return Err(refused("/etc/group has that user in the group of root"));
        }
        Ok(found)
    }

    /// Whether the account is in a group.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    // passwd(5): name, password, uid, gid, ...
    fn in_passwd(text: &str, name: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            if name.is_empty() || fields.next()? != name {
                return None;
            }
            let uid = fields.nth(1)?.parse().ok()?;
            Some(Self { uid, gid: fields.next()?.parse().ok()?, groups: Vec::new() })
        })
    }
}

// group(5): name, password, gid, names of its members.
fn groups_of(text: &str, name: &str) -> Vec<u32> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let gid = fields.nth(2)?.parse().ok()?;
        fields.next()?.split(',').any(|member| member.trim() == name).then_some(gid)
    };
    text.lines().filter_map(of_line).collect()
}

/// Listens for clients that use TCP.
pub(crate) fn listen(address: SocketAddr) -> Result<Arc<TcpListener>, Failure> {
    let failed = |source| Failure::Start(server::StartError::ConfigListen { address, source });
    TcpListener::bind(address).map(Arc::new).map_err(failed)
}

/// The addresses of the server: for clients, and for `landfast status`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doors<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) control: &'a Place,
}

/// Whether this process was started by root and has become another user's.
pub(crate) fn is_handed_over() -> bool {
    std::env::var_os(HANDED_OVER).is_some()
}

/// Continues as `account`, if this process is root's; returns at once if it is the account's already. Returns
/// the socket to serve on, if the process inherited it. Without `doors` nothing is made or bound.
pub(crate) fn become_user(
    account: &Account,
    doors: Option<Doors<'_>>,
) -> Result<Option<Arc<TcpListener>>, Failure> {
    if geteuid().is_root() {
        return match execute(account, doors) {
            Ok(never) => match never {},
            Err(failure) => Err(failure),
        };
    }
    if (geteuid().as_raw(), getegid().as_raw()) != (account.uid, account.gid) {
        return Err(Failure::RunAs("only root can serve as another user: start it as root"));
    }
    if !is_handed_over() {
        return Ok(None);
    }
    // The kernel names a process after the file that it executes, here `exe`.
    let named = rustix::thread::set_name(c"landfast");
    named.map_err(|errno| Failure::system("cannot take a name")(errno.into()))?;
    check_powerless()?;
    if doors.is_none() {
        return Ok(None);
    }
    let failed = || Failure::system("cannot take over the listening socket");
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    Ok(Some(Arc::new(TcpListener::from(socket))))
}

fn execute(account: &Account, doors: Option<Doors<'_>>) -> Result<Infallible, Failure> {
    let bound = doors.map(|doors| listen(doors.address)).transpose()?;
    if doors.is_some_and(|doors| *doors.control == Place::Customary)
        && let Err(error) = make_run_directory(account.uid, account.gid)
    {
        tracing::warn!(%error, "{RUN_DIRECTORY} is not made: landfast status will not find this server");
    }
    let failed = || Failure::system("cannot give up rights");
    set_no_new_privs(true).map_err(|errno| failed()(errno.into()))?;
    change_user(account).map_err(|errno| failed()(errno.into()))?;
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    // Found by the name that the program was started by, now and after it executes itself.
    command.arg0(arguments.next().unwrap_or_else(|| "landfast".into()));
    command.args(arguments);
    // These variables belong to the user who started the program.
    command.env_remove("XDG_RUNTIME_DIR").env_remove("HOME").env(HANDED_OVER, "1");
    if let Some(bound) = &bound {
        command.stdin(Stdio::from(bound.as_fd().try_clone_to_owned().map_err(failed())?));
    }
    Err(Failure::system("cannot go on as the user of run_as")(command.exec()))
}

// The change applies to this thread, the only one, which then executes the program.
fn change_user(account: &Account) -> rustix::io::Result<()> {
    let groups: Vec<_> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (gid, uid) = (Gid::from_raw(account.gid), Uid::from_raw(account.uid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

// Checks that the change of user has taken all capabilities away.
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

/// The list of users.
const PASSWD: &str = "/etc/passwd";
/// The list of groups.
const GROUP: &str = "/etc/group";
/// Set by this program for its second start.
const HANDED_OVER: &str = "LANDFAST_LISTENS_ON_STDIN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_or_numbers_and_root_is_refused() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nfiles:x:990:991::/nonexistent:/bin/false\nbad:x:1\n";
        let files = Account { uid: 990, gid: 991, groups: Vec::new() };
        assert_eq!(Account::in_passwd(passwd, "files"), Some(files.clone()));
        for none in ["file", "", "bad", "x"] {
            assert_eq!(Account::in_passwd(passwd, none), None, "{none}");
        }
        assert_eq!(Account::find("990:991").unwrap(), files);
        for wrong in ["root", "0:0", "5:0", "x:y", "nobody at all"] {
            assert!(matches!(Account::find(wrong), Err(Failure::ConfigValue { .. })), "{wrong}");
        }
    }
    #[test]
    fn an_account_has_the_groups_that_list_its_user() {
        let group = "root:x:0:\nfiles:x:991:\ndisk:x:6:other,files\ntape:x:26:files2\nbad:x:y:files\nshort:x:7\n\
            media:x:44:files\n";
        assert_eq!(groups_of(group, "files"), [6, 44]);
        assert!(groups_of(group, "nobody").is_empty());
    }
}
