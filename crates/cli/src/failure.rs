//! The failures of commands, worded so that a person knows what to do next.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use client::{ClientError, SmbUrl};
use server::KeytabFileError;
use server::users::UsersFileError;

use crate::interrupt::Stop;
use crate::replica::ReplicaFailure;
use crate::store::StoreFailure;
use crate::volume::{NbdFailure, VolumeFailure};
use crate::{output, run_as, start_hints, words};

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A local file or directory could not be used.
    #[error("{action} {}: {source}", path.display())]
    LocalFile { action: &'static str, path: PathBuf, source: io::Error },
    /// A local file cannot be replaced, as nothing can be made beside it.
    #[error("cannot make a file beside {}: {source}", path.display())]
    LocalBeside { path: PathBuf, source: io::Error },
    /// The config file is not valid.
    #[error("config file {}: {source}", path.display())]
    ConfigSyntax { path: PathBuf, source: Box<toml::de::Error> },
    /// Others may read the config file, and it holds passwords.
    #[error("others may read {path}, which holds passwords: chmod 600 {path}", path = .0.display())]
    ConfigOpen(PathBuf),
    /// A value on the command line or in the config file makes no sense.
    #[error("{what}{}: {why}", quoted(value))]
    ConfigValue { what: &'static str, value: String, why: &'static str },
    /// Something the operator must name is missing.
    #[error("{0}")]
    ConfigMissing(&'static str),
    /// The users file cannot be used.
    #[error(transparent)]
    Users(#[from] UsersFileError),
    /// The keytab cannot be used.
    #[error(transparent)]
    Keytab(#[from] KeytabFileError),
    /// The server could not start.
    #[error("the server does not start: {0}")]
    Start(#[from] server::StartError),
    /// Users and shares stay unchanged.
    #[error(transparent)]
    Reload(#[from] server::ReloadError),
    /// A directory cannot be used as a share.
    #[error(transparent)]
    Share(#[from] tree::ShareOpenError),
    /// The streams were not swept.
    #[error("nothing was removed: {0}")]
    Sweep(#[from] tree::SweepError),
    /// No server answers on a control socket.
    #[error("no server has a control socket in {}", list(.0))]
    ControlNobody(Vec<PathBuf>),
    /// A server of another user may be running.
    #[error("{} may not be looked into by this user", .0.display())]
    ControlForbidden(PathBuf),
    /// Several servers could answer.
    #[error("several servers run here: {}", list(.0))]
    ControlAmbiguous(Vec<PathBuf>),
    /// The answer on the control socket is invalid.
    #[error("the server at {}: {why}", path.display())]
    ControlAnswer { path: PathBuf, why: String },
    /// A file on a server could not be used.
    #[error("{action} {url}: {}", words::of(source))]
    RemoteFile { action: &'static str, url: String, source: Box<ClientError> },
    /// The remote end, or the way to it, failed.
    #[error("{}", words::of(.0))]
    Remote(#[from] ClientError),
    /// A file exists and cannot be used for this command.
    #[error("{action} {what}: {why}")]
    Unfit { action: &'static str, what: String, why: &'static str },
    /// A file was written to while it was copied.
    #[error("{0} was changed while it was copied: nothing was replaced")]
    Changed(String),
    /// A signal ended the command.
    #[error("stopped by a signal before it was done: nothing was replaced")]
    Stopped(Stop),
    /// A signal asked the command to end.
    #[error("stopped by a signal before it was done")]
    Asked(Stop),
    /// An operation on a region failed.
    #[error(transparent)]
    Region(#[from] client::RegionError),
    /// Push mode was asked for and is not in force.
    #[error("not in push mode: {0}")]
    NotPush(String),
    /// The benchmark was to measure commits on memory that has none.
    #[error(
        "the file lies in memory that a power failure erases (tmpfs): its server refuses commits"
    )]
    NotDurable,
    /// A volume cannot be made, opened, checked or served.
    #[error("{action} {}: {source}", path.display())]
    Volume { action: &'static str, path: PathBuf, source: VolumeFailure },
    /// A group of replicated volumes cannot be described, run or asked.
    #[error(transparent)]
    Replica(#[from] ReplicaFailure),
    /// A store cannot be served or used.
    #[error(transparent)]
    Store(#[from] StoreFailure),
    /// Volumes cannot be offered over NBD.
    #[error(transparent)]
    Nbd(#[from] NbdFailure),
    /// Volumes cannot be files of this machine.
    #[error(transparent)]
    Mount(#[from] fuse::MountError),
    #[error(transparent)]
    Disk(#[from] ublk::DiskError),
    /// The figures cannot be told at an address.
    #[error("metrics: cannot listen on {address}: {source}")]
    Metrics { address: SocketAddr, source: io::Error },
    /// Nothing can be measured in a directory.
    #[error("cannot measure in {}: {what}", path.display())]
    BenchLocal {
        /// The directory.
        path: PathBuf,
        what: String,
    },
    /// The server cannot run as the named user.
    #[error("run_as: {0}")]
    RunAs(&'static str),
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// A system call failed.
    #[error("{action}: {source}")]
    System { action: &'static str, source: io::Error },
    /// A child process did not do its part.
    #[error("{process} {what}")]
    Child { process: &'static str, what: String },
    /// A file lost bytes that were acknowledged as durable.
    #[error("LOST: {0}")]
    Lost(String),
}

impl Failure {
    /// A hint for the person at the terminal.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::LocalFile { source, .. } => hint_of_file(source),
            Self::LocalBeside { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(
                    "it is written beside its name first and then renamed: the directory must let this user make files; \
                 landfast get URL - > FILE writes in place, and leaves half of it where it fails",
                )
            }
            Self::Users(
                UsersFileError::ConfigRead { source, .. }
                | UsersFileError::ConfigWrite { source, .. },
            )
            | Self::Keytab(KeytabFileError::ConfigRead { source, .. }) => hint_of_file(source),
            Self::ConfigOpen(_) => Some(
                "with --run-as it is read as that user: chown it to root and a group of that user, and chmod 640",
            ),
            Self::ConfigMissing(_) => Some("--help behind the command shows examples"),
            Self::Start(error) => start_hints::of(error),
            Self::Share(error) => start_hints::of_share(error),
            Self::ControlNobody(_) => Some(
                "is one running, as this user, and not with --control off? a socket elsewhere is named with --control",
            ),
            Self::ControlForbidden(_) => Some(
                "a server of another user may run there: ask as that user or as root (sudo landfast status)",
            ),
            Self::Volume { source, .. } => source.hint(),
            Self::Replica(failure) => failure.hint(),
            Self::Store(failure) => failure.hint(),
            Self::Mount(error) => hint_of_mount(error),
            Self::NotDurable => Some(
                "start the server with --emulate-persistence to measure without durability, or put the share on a \
                 disk; reads alone (-w 0) need neither",
            ),
            Self::ControlAmbiguous(_) => Some("name one of them with --control"),
            Self::Remote(error) => words::hint(error),
            Self::RemoteFile { source, .. } => words::hint(source),
            Self::Changed(_) => Some("try again when nobody writes to it"),
            Self::Lost(_) => Some("this must never happen: please report it with the output above"),
            _ => None,
        }
    }

    /// The exit status.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Stopped(stop) | Self::Asked(stop) => stop.exit_status(),
            _ if self.is_silent() => READER_GONE,
            _ => 1,
        }
    }

    /// Whether no message is printed, because the reader of the output has gone.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Adds the file or share to an error of the client that names none.
    pub(crate) fn about(self, action: &'static str, url: &SmbUrl) -> Self {
        match self {
            Self::Remote(error) => Self::remote(action, url)(error),
            other => other,
        }
    }

    /// Wraps an error of the client.
    pub(crate) fn remote(action: &'static str, url: &SmbUrl) -> impl FnOnce(ClientError) -> Self {
        let url = output::shown(&url.to_string()).into_owned();
        move |source| Self::RemoteFile { action, url, source: Box::new(source) }
    }

    /// Wraps an error of a volume.
    pub(crate) fn volume(action: &'static str, path: &Path) -> impl Fn(VolumeFailure) -> Self {
        let path = path.to_owned();
        move |source| Self::Volume { action, path: path.clone(), source }
    }

    /// Wraps an error of the local file system.
    pub(crate) fn local(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::LocalFile { action, path, source }
    }

    /// Wraps an error of a system call that concerns no file of the user.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

fn hint_of_mount(error: &fuse::MountError) -> Option<&'static str> {
    match error {
        fuse::MountError::ConfigName(_) => {
            Some("write NAME=PATH for a volume whose file is called so")
        }
        fuse::MountError::ConfigTwice(_) => Some("write NAME=PATH for one of them"),
        fuse::MountError::Mount { error, .. } => match error.kind() {
            io::ErrorKind::NotFound => {
                Some("make the directory; /dev/fuse comes with the kernel's module fuse")
            }
            io::ErrorKind::PermissionDenied => Some(
                "another user than root needs fusermount3, of package fuse3, and a directory of its own",
            ),
            _ => None,
        },
        fuse::MountError::Loop { .. } => Some(
            "loop devices are for root, and come with the kernel's module loop; without --loop the volume is a file",
        ),
    }
}

fn hint_of_file(source: &io::Error) -> Option<&'static str> {
    match source.kind() {
        // rename(2) onto a mount point.
        io::ErrorKind::ResourceBusy => Some(
            "a file that is mounted by itself, as containers are given one, cannot be replaced: mount its directory \
             instead; landfast get URL - > FILE writes in place",
        ),
        io::ErrorKind::PermissionDenied if run_as::is_handed_over() => Some(
            "it is read as the user of run_as, not as root: chown it to root and a group of that user, and chmod 640; a users \
             file or keytab to that user, and chmod 600",
        ),
        _ => None,
    }
}

fn quoted(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" \"{value}\"") }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

// The status that a shell shows for programs that SIGPIPE ends: 128 and its number.
const READER_GONE: u8 = 141;
