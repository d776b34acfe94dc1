//! The config file in its written form, and the check of who may read a file with passwords.

use std::fs::Metadata;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::process::geteuid;
use serde::Deserialize;

use super::{Kerberos, Share, User};
use crate::args::{Serve, Signing};
use crate::failure::Failure;
use crate::run_as::Account;

/// The config file in its written form.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<SocketAddr>,
    pub(super) rdma_listen: Option<SocketAddr>,
    pub(super) rdma_provider: Option<String>,
    #[serde(default)]
    pub(super) rdma_same_host: bool,
    pub(super) rdma_threads: Option<u16>,
    #[serde(default)]
    pub(super) announce: Vec<String>,
    #[serde(default)]
    pub(super) emulate_persistence: bool,
    pub(super) signing: Option<Signing>,
    pub(super) server_guid: Option<String>,
    pub(super) recall_grace_ms: Option<u64>,
    pub(super) keepalive_s: Option<u64>,
    pub(super) users_file: Option<PathBuf>,
    pub(super) kerberos: Option<Kerberos>,
    pub(super) control: Option<PathBuf>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) run_as: Option<String>,
    #[serde(default, deserialize_with = "super::arguments::some_size")]
    pub(super) flash_budget: Option<u64>,
    #[serde(default)]
    pub(super) share: Vec<Share>,
    #[serde(default)]
    pub(super) user: Vec<User>,
}

impl File {
    /// Reads the file that the command line names; without a name the config is empty.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or it holds passwords and others may read it.
    pub(super) fn of(options: &Serve) -> Result<Self, Failure> {
        let Some(path) = options.config.as_deref() else { return Ok(Self::default()) };
        let failed = || Failure::local("cannot read", path);
        let mut opened = std::fs::File::open(path).map_err(failed())?;
        let found = opened.metadata().map_err(failed())?;
        let mut text = String::new();
        opened.read_to_string(&mut text).map_err(failed())?;
        let file: Self = toml::from_str(&text).map_err(|source| Failure::ConfigSyntax {
            path: path.into(),
            source: Box::new(source),
        })?;
        if !file.user.is_empty() && found.mode() & file.forbidden(&found, options)? != 0 {
            return Err(Failure::ConfigOpen(path.into()));
        }
        Ok(file)
    }

    // The bits of the mode that let others in. As with ssh keys, only the owner of a file may read it, but a group may
    // read what another user owns. Root reads the file of a service, whose group may read it too.
    fn forbidden(&self, found: &Metadata, options: &Serve) -> Result<u32, Failure> {
        let reader = geteuid();
        if found.uid() != reader.as_raw() {
            return Ok(OTHERS);
        }
        let is_of_service = reader.is_root()
            && match options.run_as.as_deref().or(self.run_as.as_deref()) {
                Some(name) => Account::find(name)?.is_in(found.gid()),
                // A check of the config of a service whose manager sets the user, whom the check does not know.
                None => options.check,
            };
        Ok(if is_of_service { OTHERS | GROUP_WRITES } else { OTHERS | GROUP })
    }
}

const GROUP: u32 = 0o070;
const GROUP_WRITES: u32 = 0o020;
const OTHERS: u32 = 0o007;
