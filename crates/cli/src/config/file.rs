//! The config file as it is written, and who may read one that holds passwords.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Kerberos, Share, User};
use crate::args::Signing;
use crate::failure::Failure;

/// The config file as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<SocketAddr>,
    pub(super) rdma_listen: Option<SocketAddr>,
    pub(super) rdma_provider: Option<String>,
    pub(super) rdma_threads: Option<u16>,
    #[serde(default)]
    pub(super) announce: Vec<String>,
    #[serde(default)]
    pub(super) emulate_persistence: bool,
    pub(super) signing: Option<Signing>,
    pub(super) recall_grace_ms: Option<u64>,
    pub(super) keepalive_s: Option<u64>,
    pub(super) users_file: Option<PathBuf>,
    pub(super) kerberos: Option<Kerberos>,
    pub(super) control: Option<PathBuf>,
    pub(super) run_as: Option<String>,
    #[serde(default)]
    pub(super) share: Vec<Share>,
    #[serde(default)]
    pub(super) user: Vec<User>,
}

impl File {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read or understood, or it holds passwords and others may read it.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = || Failure::local("cannot read", path);
        let mut opened = std::fs::File::open(path).map_err(failed())?;
        let found = opened.metadata().map_err(failed())?;
        let mut text = String::new();
        opened.read_to_string(&mut text).map_err(failed())?;
        let file: Self = toml::from_str(&text).map_err(|source| Failure::ConfigSyntax {
            path: path.into(),
            source: Box::new(source),
        })?;
        if !file.user.is_empty() && is_open_to_others(&found) {
            return Err(Failure::ConfigOpen(path.into()));
        }
        Ok(file)
    }
}

// As ssh looks at its keys, and stricter with everybody: a group may read what another user owns, as
// root does the file of a service.
fn is_open_to_others(found: &std::fs::Metadata) -> bool {
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    found.mode() & if is_ours { 0o077 } else { 0o007 } != 0
}
