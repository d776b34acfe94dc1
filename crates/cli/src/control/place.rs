//! Where the control socket is.
//!
//! ```text
//!  --control PATH        there
//!  --control off         nowhere
//!  neither               $XDG_RUNTIME_DIR/landfast/PORT.sock, or /run/landfast/PORT.sock
//! ```
//!
//! PORT is the server's SMB port, so that several servers of one user do not meet.

use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Where to put it, or where to look.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Place {
    /// Among those of this user.
    #[default]
    Customary,
    /// There.
    At(PathBuf),
    /// There is none.
    Nowhere,
}

impl Place {
    /// What `--control` or the config file says.
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
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    runtime.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("landfast")
}

/// The socket of the one server this user runs.
pub(crate) fn only_socket() -> Result<PathBuf, Failure> {
    among(&customary_directory())
}

fn among(directory: &Path) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_socket = |path: &PathBuf| path.metadata().is_ok_and(|of| of.file_type().is_socket());
    // What a killed server has left answers nobody.
    let is_live = |path: &PathBuf| is_socket(path) && UnixStream::connect(path).is_ok();
    let mut live: Vec<PathBuf> =
        entries.take(SOCKETS_MAX).map(|entry| entry.path()).filter(is_live).collect();
    live.sort();
    match live.pop() {
        Some(only) if live.is_empty() => Ok(only),
        Some(another) => {
            live.push(another);
            Err(Failure::ControlAmbiguous(live))
        }
        None => Err(Failure::ControlNobody(directory.into())),
    }
}

// Ports of one machine that anybody would serve on.
const SOCKETS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_only_server_that_lives_is_found_and_of_two_one_has_to_be_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        assert!(matches!(among(directory.path()), Err(Failure::ControlNobody(_))));
        std::fs::write(path("notes.sock"), "no socket").unwrap();
        drop(UnixListener::bind(path("1.sock")).unwrap());
        assert!(matches!(among(directory.path()), Err(Failure::ControlNobody(_))), "a dead one");
        let _one = UnixListener::bind(path("2.sock")).unwrap();
        assert_eq!(among(directory.path()).unwrap(), path("2.sock"));
        let _two = UnixListener::bind(path("3.sock")).unwrap();
        let error = among(directory.path()).unwrap_err();
        assert!(error.to_string().contains("3.sock"), "{error}");
    }

    #[test]
    fn off_is_no_path() {
        assert_eq!(Place::of(Some(Path::new("off"))), Place::Nowhere);
        assert_eq!(Place::of(Some(Path::new("./off"))), Place::At("./off".into()));
        assert_eq!(Place::of(None), Place::Customary);
    }
}
