//! The path of the control socket.
//!
//! ```text
//!   --control PATH        that path
//!   --control off         no socket
//!  neither               $XDG_RUNTIME_DIR/landfast/PORT.sock, or else
//!    of root             /run/landfast/PORT.sock
//!    of another user     /run/landfast/UID/PORT.sock
//! ```
//!
//! Every user may pass through /run/landfast if root has made it, and only the server's user and root may open a
//! socket in it.
//!
//! PORT is the server's SMB port, so that several servers of one user do not collide. A server that a service
//! manager starts has no XDG_RUNTIME_DIR, and a user who logs on has one: `landfast status` looks in both places,
//! and in /run/user/UID if it has none itself. `landfast status` of root finds the servers of all users in
//! /run/landfast.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _, fchown,
};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use crate::failure::Failure;

/// Where the server makes the socket, or where `landfast status` looks for it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Place {
    /// In the directory of this user.
    #[default]
    Customary,
    /// At this path.
    At(PathBuf),
    /// The server makes no socket.
    Nowhere,
}

impl Place {
    /// The place that `--control` or the config file names.
    pub(crate) fn of(path: Option<&Path>) -> Self {
        match path {
            None => Self::Customary,
            Some(path) if path.as_os_str() == "off" => Self::Nowhere,
            Some(path) => Self::At(path.into()),
        }
    }
}

/// The directory of the sockets of this user.
pub(super) fn customary_directory() -> PathBuf {
    let user = geteuid();
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("landfast"),
        None if user.is_root() => PathBuf::from(RUN_DIRECTORY),
        None => directory_of(user.as_raw()),
    }
}

fn directory_of(user: u32) -> PathBuf {
    Path::new(RUN_DIRECTORY).join(user.to_string())
}

/// Makes the directory of this user's sockets, if it does not exist.
pub(super) fn make(directory: &Path) -> io::Result<()> {
    if directory == Path::new(RUN_DIRECTORY) {
        return make_passage();
    }
    ready(DirBuilder::new().mode(0o700).create(directory))
}

/// Makes, as root, the socket directory of a server that will run as another user.
pub(crate) fn make_run_directory(user: u32, group: u32) -> io::Result<()> {
    make_passage()?;
    let directory = directory_of(user);
    match DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => fchown(open(&directory)?, Some(user), Some(group)),
        other => ready(other),
    }
}

// A user who may not list the directory can still pass. A directory that a service manager made is left
// unchanged.
fn make_passage() -> io::Result<()> {
    ready(DirBuilder::new().mode(0o755).create(RUN_DIRECTORY))?;
    let passage = open(Path::new(RUN_DIRECTORY))?;
    match passage.metadata()?.uid() {
        // Restores the bits that the umask has cleared.
        0 => passage.set_permissions(Permissions::from_mode(0o755)),
        _ => Ok(()),
    }
}

// Follows no link: another user may have put it there.
fn open(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::empty())?.into())
}

fn ready(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The socket of the one server that this user may ask.
pub(crate) fn only_socket() -> Result<PathBuf, Failure> {
    let of_logon = PathBuf::from(format!("/run/user/{}/landfast", geteuid().as_raw()));
    let mut directories = vec![customary_directory(), of_logon, PathBuf::from(RUN_DIRECTORY)];
    directories.extend(of_users(Path::new(RUN_DIRECTORY)));
    among(&each_once(directories))
}

fn each_once(mut directories: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    directories.retain(|directory| seen.insert(directory.clone()));
    directories
}

fn of_users(passage: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(passage).into_iter().flatten().flatten().take(SOCKETS_MAX);
    let is_number = |name: &OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    entries.filter(|entry| is_number(&entry.file_name())).map(|entry| entry.path()).collect()
}

fn among(directories: &[PathBuf]) -> Result<PathBuf, Failure> {
    let is_socket = |path: &PathBuf| path.metadata().is_ok_and(|of| of.file_type().is_socket());
    let mut live = BTreeSet::new();
    let mut forbidden = None;
    for directory in directories {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries.flatten().take(SOCKETS_MAX),
            Err(error) => {
                if error.kind() == ErrorKind::PermissionDenied {
                    forbidden = Some(directory.clone());
                }
                continue;
            }
        };
        for path in entries.map(|entry| entry.path()).filter(is_socket) {
            match UnixStream::connect(&path) {
                Ok(_) => drop(live.insert(path)),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => forbidden = Some(path),
                // A socket that a killed server has left does not answer.
                Err(_) => {}
            }
        }
    }
    match (live.pop_first(), forbidden) {
        (Some(only), _) if live.is_empty() => Ok(only),
        (Some(another), _) => {
            Err(Failure::ControlAmbiguous(std::iter::once(another).chain(live).collect()))
        }
        (None, Some(forbidden)) => Err(Failure::ControlForbidden(forbidden)),
        (None, None) => Err(Failure::ControlNobody(directories.to_vec())),
    }
}

/// The directory for the sockets of servers that no user session started.
pub(crate) const RUN_DIRECTORY: &str = "/run/landfast";
// More ports than anybody serves on one machine.
const SOCKETS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn status_finds_the_only_running_server_and_refuses_to_choose_between_two() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| directory.path().join(name);
        let search = || among(&[directory.path().to_path_buf(), elsewhere.path().into()]);
        assert!(matches!(search(), Err(Failure::ControlNobody(_))));
        std::fs::write(path("notes.sock"), "no socket").unwrap();
        drop(UnixListener::bind(path("1.sock")).unwrap());
        assert!(matches!(search(), Err(Failure::ControlNobody(_))), "a dead one");
        let _one = UnixListener::bind(path("2.sock")).unwrap();
        assert_eq!(search().unwrap(), path("2.sock"));
        let _two = UnixListener::bind(elsewhere.path().join("3.sock")).unwrap();
        let error = search().unwrap_err();
        assert!(error.to_string().contains("3.sock"), "{error}");
    }

    #[test]
    fn each_socket_directory_is_searched_and_named_once() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let named =
            paths(&["/run/landfast", "/run/user/0/landfast", "/run/landfast", "/run/landfast/7"]);
        assert_eq!(
            each_once(named),
            paths(&["/run/landfast", "/run/user/0/landfast", "/run/landfast/7"])
        );
    }

    #[test]
    fn off_is_no_path() {
        assert_eq!(Place::of(Some(Path::new("off"))), Place::Nowhere);
        assert_eq!(Place::of(Some(Path::new("./off"))), Place::At("./off".into()));
        assert_eq!(Place::of(None), Place::Customary);
    }
}
