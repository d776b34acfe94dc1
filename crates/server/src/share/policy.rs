//! Who may do what on a share. It may be replaced while the share is served: whoever asks is told what
//! holds now, and the caller of [`Share::set_policy`] ends what it does not allow any more.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use super::{Share, ShareConfig};

/// What a user may do in a share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// What the share allows.
    Full,
    /// Only read.
    Reading,
    /// Not enter.
    Refused,
}

/// The switches are asked with every request, the lists when somebody enters.
#[derive(Debug)]
pub(super) struct Policy {
    read_only: AtomicBool,
    encrypt_required: AtomicBool,
    people: RwLock<People>,
}

#[derive(Debug)]
struct People {
    users: Vec<String>,
    readers: Vec<String>,
    guests: Admission,
}

impl Policy {
    pub(super) fn new(config: &ShareConfig) -> Self {
        Self {
            read_only: AtomicBool::new(config.read_only),
            encrypt_required: AtomicBool::new(config.encrypt_required),
            people: RwLock::new(People::of(config)),
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn replace(&self, config: &ShareConfig) {
        *self.people.write().unwrap_or_else(PoisonError::into_inner) = People::of(config);
        self.read_only.store(config.read_only, Ordering::Release);
        self.encrypt_required.store(config.encrypt_required, Ordering::Release);
    }
}

impl People {
    fn of(config: &ShareConfig) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_lowercase()).collect();
        Self { users: lower(&config.users), readers: lower(&config.readers), guests: config.guests }
    }
}

/// What a share is for as long as it is open.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Fixed {
    pub(super) path: PathBuf,
    pub(super) persistent_opens: Option<PathBuf>,
    devices: Vec<PathBuf>,
    pub(super) emulate_persistence: bool,
}

impl Fixed {
    pub(super) fn of(config: &ShareConfig) -> Self {
        Self {
            path: config.path.clone(),
            persistent_opens: config.persistent_opens.clone(),
            devices: config.devices.clone(),
            emulate_persistence: config.emulate_persistence,
        }
    }
}

impl Share {
    /// Whether the share can go on as `config` wants it, but for its [policy](Self::set_policy): the
    /// directory, the devices and the persistent opens are those it was opened with.
    pub fn is_of(&self, config: &ShareConfig) -> bool {
        // Devices are opened for reading alone where the share is read-only.
        let modes_fit = config.devices.is_empty() || config.read_only == self.policy.is_read_only();
        self.fixed == Fixed::of(config) && modes_fit
    }

    /// Refuses every change.
    pub fn is_read_only(&self) -> bool {
        self.policy.is_read_only()
    }

    /// What a user may do here, in any case of the name.
    pub fn admits(&self, user: &str) -> Admission {
        let user = user.split_once('@').map_or(user, |(name, _realm)| name).to_lowercase();
        let people = self.policy.people.read().unwrap_or_else(PoisonError::into_inner);
        if people.users.contains(&user) || (people.users.is_empty() && people.readers.is_empty()) {
            Admission::Full
        } else if people.readers.contains(&user) {
            Admission::Reading
        } else {
            Admission::Refused
        }
    }

    /// What a guest may do here.
    pub fn guests(&self) -> Admission {
        self.policy.people.read().unwrap_or_else(PoisonError::into_inner).guests
    }

    /// Refuses sessions that do not encrypt.
    pub fn is_encrypt_required(&self) -> bool {
        self.policy.encrypt_required.load(Ordering::Acquire)
    }

    /// Takes over who may do what here from `config`. What is open stays open: ending what is not
    /// allowed any more is the caller's.
    pub fn set_policy(&self, config: &ShareConfig) {
        self.policy.replace(config);
    }
}
