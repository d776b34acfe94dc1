//! Why a command failed, said so that a person knows what to do next.

use std::io;
use std::path::PathBuf;

use rdma::EngineError;
use smb::NtStatus;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A local file or directory could not be used.
    #[error("{action} {}: {source}", path.display())]
    LocalFile { action: &'static str, path: PathBuf, source: io::Error },
    /// The config file is not valid.
    #[error("config file {}: {source}", path.display())]
    ConfigSyntax { path: PathBuf, source: Box<toml::de::Error> },
    /// A value on the command line or in the config file makes no sense.
    #[error("{what} \"{value}\": {why}")]
    ConfigValue { what: &'static str, value: String, why: &'static str },
    /// Something the operator must name is missing.
    #[error("{0}")]
    ConfigMissing(&'static str),
    /// The users file cannot be used.
    #[error(transparent)]
    Users(#[from] server::users::UsersFileError),
    /// The keytab cannot be used.
    #[error(transparent)]
    Keytab(#[from] server::KeytabFileError),
    /// The server could not start.
    #[error("the server did not start: {0}")]
    Start(#[from] server::StartError),
    /// A directory cannot be used as a share.
    #[error(transparent)]
    Share(#[from] server::share::ShareOpenError),
    /// Streams were not swept out.
    #[error("nothing was removed: {0}")]
    Sweep(#[from] server::share::SweepError),
    /// No server to ask.
    #[error("no server of this user has a control socket in {}", .0.display())]
    ControlNobody(PathBuf),
    /// Several servers to ask.
    #[error("several servers run here: {}", list(.0))]
    ControlAmbiguous(Vec<PathBuf>),
    /// The answer on the control socket.
    #[error("the server at {}: {why}", path.display())]
    ControlAnswer { path: PathBuf, why: String },
    /// The remote end, or the way to it, failed.
    #[error(transparent)]
    Remote(#[from] client::ClientError),
    /// A region failed.
    #[error(transparent)]
    Region(#[from] client::RegionError),
    /// Push mode was asked for and is not in force.
    #[error("not in push mode: {0}")]
    NotPush(String),
    /// A system call failed.
    #[error("{action}: {source}")]
    System { action: &'static str, source: io::Error },
    /// A child process did not do its part.
    #[error("{process} {what}")]
    Child { process: &'static str, what: String },
    /// A file does not hold what was acknowledged as durable.
    #[error("LOST: {0}")]
    Lost(String),
}

impl Failure {
    /// What the person at the terminal may try.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ConfigMissing(_) => Some("see landfast serve --help for examples"),
            Self::Start(server::StartError::ConfigRdmaListen {
                source:
                    EngineError::HostNoLibrary { .. }
                    | EngineError::HostOldLibrary { .. }
                    | EngineError::HostNoDevice
                    | EngineError::ConfigWireHook,
                ..
            }) => None,
            Self::Start(server::StartError::ConfigRdmaListen {
                source: EngineError::ConfigNoDeviceAt(_),
                ..
            }) => Some("give an address of an RDMA device to --rdma-listen"),
            Self::ControlNobody(_) => Some(
                "is one running, as this user, and not with --control off? a socket elsewhere is named with --control",
            ),
            Self::ControlAmbiguous(_) => Some("name one of them with --control"),
            Self::Start(_) => Some(
                "is another server on that address? choose others with --listen and --rdma-listen",
            ),
            Self::Remote(error) if error.status() == Some(NtStatus::LOGON_FAILURE) => Some(
                "an account is named as in smb://USER:PASSWORD@HOST/SHARE, or the password in LANDFAST_PASSWORD; \
                 without a name only guests get in, where a share takes them",
            ),
            Self::Lost(_) => Some("this must never happen: please report it with the output above"),
            _ => None,
        }
    }

    /// Wraps an error of the local file system.
    pub(crate) fn local(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::LocalFile { action, path, source }
    }

    /// Wraps an error of a system call that concerns no file of the user's.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
