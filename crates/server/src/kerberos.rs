//! Logons by ticket: the file of the keytab, and the state that all logons share.
//!
//! A keytab is as good as the passwords of all users, so a keytab that others may read is refused. The
//! server checks the file whenever a user logs on; if the file cannot be read then, the keys stay
//! unchanged.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use basics::ordered::Mutex;
use basics::{Environment, RandomError};
use smb::auth::kerberos::{
    KerberosFreshness, KerberosService, Keytab, KeytabError, Principal, PrincipalError,
};
use thiserror::Error;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::lock_order as order;
use crate::time::file_time;
use crate::users::Stamp;

/// How tickets are checked.
#[derive(Clone, Debug)]
pub struct KerberosConfig {
    /// The file with the service's keys.
    pub keytab: PathBuf,
    /// The only service whose tickets are accepted, `cifs/HOST@REALM`; none: all services of the
    /// keytab.
    pub principal: Option<String>,
    /// The users admitted by ticket beside those with passwords here; `*`: all of the realm.
    pub users: Vec<String>,
    /// The greatest difference between the clocks of client and server.
    pub clock_skew: Duration,
}

impl KerberosConfig {
    /// Tickets for the services of a keytab, from the users that have passwords here.
    pub fn new(keytab: impl Into<PathBuf>) -> Self {
        let clock_skew = KerberosService::SKEW;
        Self { keytab: keytab.into(), principal: None, users: Vec::new(), clock_skew }
    }
}

/// The current keytab, and the tickets seen.
#[derive(Debug)]
pub(crate) struct Tickets {
    path: PathBuf,
    service: Arc<KerberosService>,
    read: Mutex<(Stamp, Arc<Keytab>), order::Users>,
}

/// The parts that one logon needs.
pub(crate) type OneTicket = (Arc<KerberosService>, Arc<Keytab>, KerberosFreshness);

impl Tickets {
    pub(crate) fn open(config: &KerberosConfig) -> Result<Self, KeytabFileError> {
        let principal = |text: &String| {
            Principal::parse(text)
                .map_err(|source| KeytabFileError::ConfigPrincipal { text: text.clone(), source })
        };
        let only = config.principal.as_ref().map(principal).transpose()?;
        let (stamp, keytab) = load(&config.keytab)?;
        let entries = keytab.entries.iter().map(|entry| &entry.principal);
        let mut services: Vec<_> = entries
            .filter(|service| only.as_ref().is_none_or(|only| only.is_same_service(service)))
            .map(ToString::to_string)
            .collect();
        services.sort_unstable();
        services.dedup();
        if let Some(only) = only.as_ref().filter(|_| services.is_empty()) {
            let (path, principal) = (config.keytab.clone(), only.to_string());
            return Err(KeytabFileError::ConfigNoService { path, principal });
        }
        info!(keytab = %config.keytab.display(), ?services, "taking Kerberos tickets");
        let service = KerberosService {
            principal: only,
            users: config.users.iter().map(|user| user.to_lowercase()).collect(),
            skew: config.clock_skew,
            ..KerberosService::new()
        };
        let read = Mutex::new((stamp, Arc::new(keytab)));
        Ok(Self { path: config.keytab.clone(), service: Arc::new(service), read })
    }

    /// Whether the owner of a ticket is admitted without a password here.
    pub(crate) fn admits(&self, user: &str) -> bool {
        self.service.admits(user)
    }

    /// The same tickets; a ticket that `other` has seen is not accepted again.
    pub(crate) fn sharing_replays(&self, other: &Self) -> Self {
        let service = KerberosService {
            principal: self.service.principal.clone(),
            users: self.service.users.clone(),
            skew: self.service.skew,
            replays: Arc::clone(&other.service.replays),
        };
        let read = self.read.lock().clone();
        Self { path: self.path.clone(), service: Arc::new(service), read: Mutex::new(read) }
    }

    /// The parts that the next logon needs.
    pub(crate) fn one(&self, environment: &Environment) -> Result<OneTicket, RandomError> {
        let random = &environment.random;
        let mut fresh = KerberosFreshness {
            now: file_time(&environment.clock),
            confounder: [0; 16],
            subkey: Zeroizing::new([0; 32]),
            sequence: random.u32()?,
        };
        random.fill(&mut fresh.confounder)?;
        random.fill(&mut fresh.subkey[..])?;
        Ok((Arc::clone(&self.service), self.keytab(), fresh))
    }

    fn keytab(&self) -> Arc<Keytab> {
        let mut read = self.read.lock();
        let now = std::fs::metadata(&self.path).ok().map(|found| Stamp::of(&found));
        if now != Some(read.0) {
            match load(&self.path) {
                Ok((stamp, keytab)) => {
                    info!(keytab = %self.path.display(), "read again");
                    *read = (stamp, Arc::new(keytab));
                }
                Err(error) => warn!(%error, "the keytab stays as it was read before"),
            }
        }
        Arc::clone(&read.1)
    }
}

fn load(path: &Path) -> Result<(Stamp, Keytab), KeytabFileError> {
    let failed = |source| KeytabFileError::ConfigRead { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.mode() & 0o077 != 0 {
        return Err(KeytabFileError::ConfigOpen(path.to_owned()));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let keytab = Keytab::parse(&bytes)
        .map_err(|source| KeytabFileError::ConfigKeytab { path: path.to_owned(), source })?;
    if !keytab.is_usable() {
        return Err(KeytabFileError::ConfigNoKey(path.to_owned()));
    }
    Ok((Stamp::of(&found), keytab))
}

/// Why a keytab cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeytabFileError {
    /// The file cannot be read.
    #[error("cannot read the keytab {path}: {source}", path = .path.display())]
    ConfigRead {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The file is not a keytab.
    #[error("{path}: {source}", path = .path.display())]
    ConfigKeytab {
        /// The path of the file.
        path: PathBuf,
        /// The fault in the file.
        source: KeytabError,
    },
    /// Others may read the file, and its content is as good as passwords.
    #[error("others may read {path}: chmod 600 it", path = .0.display())]
    ConfigOpen(PathBuf),
    /// The file holds no usable key.
    #[error(
        "{path} holds no key for aes256-cts or aes128-cts: write it anew with `ktadd -e aes256-cts`",
        path = .0.display()
    )]
    ConfigNoKey(PathBuf),
    /// The file holds no key of the service.
    #[error(
        "{path} holds no key of {principal}; `klist -k {path}` lists those it holds",
        path = .path.display()
    )]
    ConfigNoService {
        /// The path of the file.
        path: PathBuf,
        /// The service that was looked for.
        principal: String,
    },
    /// The service's name cannot be parsed.
    #[error("{text:?} is no Kerberos principal: {source}")]
    ConfigPrincipal {
        /// The text of the name.
        text: String,
        /// The error, which says what to write.
        source: PrincipalError,
    },
}

/// Room for more than a thousand keys.
const FILE_MAX: u64 = 1 << 20;
