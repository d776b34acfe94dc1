//! Hints for a server that does not start: each cause has its own hint.

use std::io::{Error, ErrorKind};

use rdma::EngineError;
use server::StartError;
use tree::{ShareError, ShareOpenError};

/// A hint for the person at the terminal.
pub(crate) fn of(error: &StartError) -> Option<&'static str> {
    match error {
        StartError::ConfigShare(error) => of_share(error),
        StartError::ConfigDuplicateShare(_) => {
            Some("give one of them another name: --share NAME=PATH")
        }
        StartError::ConfigListen { source, .. } => match source.kind() {
            ErrorKind::AddrInUse => Some(
                "another server has that port (ss -ltnp shows which): stop it, or choose another with --listen \
                 ADDR:PORT",
            ),
            ErrorKind::PermissionDenied => Some(
                "ports below 1024 are for root: start it as root with --run-as USER, or by dist/landfast.service, \
                 or choose a port from 1024 on with --listen",
            ),
            ErrorKind::AddrNotAvailable => Some(NO_ADDRESS),
            _ => None,
        },
        StartError::ConfigRdmaListen { source, .. } => of_engine(source),
        StartError::ConfigCapture { .. } => Some(
            "the file of --pcap is made anew: can its directory be written to? A pipe needs its reader first",
        ),
        StartError::HostDescriptors { .. } => {
            Some("raise the hard limit of open files: ulimit -Hn, or LimitNOFILE= of the service")
        }
        _ => None,
    }
}

/// A hint for a directory that cannot be a share.
pub(crate) fn of_share(error: &ShareOpenError) -> Option<&'static str> {
    match error {
        ShareOpenError::ConfigName(_) => Some(
            "a name has 1 to 80 characters, none of \" / \\ [ ] : | < > + = ; , * ?, and is not IPC$",
        ),
        ShareOpenError::ConfigPath { source, .. } => match source {
            ShareError::NotFound | ShareError::PathNotFound => {
                Some("make the directory first; a relative path begins where the server is started")
            }
            ShareError::NotDirectory | ShareError::SpecialFile => {
                Some("a share is a directory: name the one that the file lies in")
            }
            ShareError::AccessDenied => Some(
                "the user that the server runs as must be able to enter and read the directory",
            ),
            _ => None,
        },
        ShareOpenError::ConfigDevice { .. } => Some(
            "only devices of persistent memory (devdax) that the server's user may open are served",
        ),
        ShareOpenError::ConfigPrivateFile { .. } => Some(
            "config, users file, keytab, persistent_opens and all of a store lie outside of every share: in /var/lib/landfast, say",
        ),
        ShareOpenError::ConfigTier { .. } => Some(
            "name a directory that is there, on flash or persistent memory, and let the user of the server write it",
        ),
        ShareOpenError::ConfigJournal { .. } => Some(
            "persistent_opens names a file outside of the share that the server's user may write and nobody else keeps",
        ),
        _ => None,
    }
}

fn of_engine(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::ConfigNoDeviceAt(_) => {
            Some("give an address of an RDMA device to --rdma-listen")
        }
        EngineError::HostIo { errno, .. } => match Error::from_raw_os_error(*errno).kind() {
            ErrorKind::AddrInUse => Some(
                "another server has that port for RDMA (ss -ltnp shows which): choose another with --rdma-listen \
                 ADDR:PORT",
            ),
            ErrorKind::PermissionDenied => {
                Some("ports below 1024 are for root: choose another with --rdma-listen ADDR:PORT")
            }
            ErrorKind::AddrNotAvailable => Some(NO_ADDRESS),
            _ => None,
        },
        _ => None,
    }
}

const NO_ADDRESS: &str = "this machine has no such address: ip address shows those that it has";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_hint_of_its_own() {
        let address = "127.0.0.1:445".parse().unwrap();
        let listen = |kind: ErrorKind| StartError::ConfigListen { address, source: kind.into() };
        let rdma = |errno: rustix::io::Errno| StartError::ConfigRdmaListen {
            address,
            source: EngineError::HostIo { call: "bind", errno: errno.raw_os_error() },
        };
        let path = |source| {
            StartError::ConfigShare(ShareOpenError::ConfigPath { path: "/x".into(), source })
        };
        for (error, word) in [
            (listen(ErrorKind::AddrInUse), "choose another with --listen"),
            (listen(ErrorKind::PermissionDenied), "--run-as"),
            (listen(ErrorKind::AddrNotAvailable), "ip address"),
            (rdma(rustix::io::Errno::ADDRINUSE), "choose another with --rdma-listen"),
            (rdma(rustix::io::Errno::ADDRNOTAVAIL), "ip address"),
            (path(ShareError::NotFound), "make the directory"),
            (path(ShareError::NotDirectory), "a share is a directory"),
            (path(ShareError::AccessDenied), "must be able to enter and read"),
            (StartError::ConfigDuplicateShare("data".into()), "another name"),
        ] {
            let hint = of(&error).unwrap();
            assert!(hint.contains(word), "{error}: {hint}");
        }
    }
}
