//! The rights of users on a share. They may be replaced while the share is served: each check uses the
//! present rights, and the caller of [`crate::Share::set_policy`] ends sessions that these no longer allow.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::config::{Admission, ShareConfig};
use super::residency::Residency;
use crate::lock_order as order;
use basics::ordered::{RwLock, RwLockReadGuard};

/// The switches are checked with every request, the lists when a user enters.
#[derive(Debug)]
pub(super) struct Policy {
    read_only: AtomicBool,
    encrypt_required: AtomicBool,
    write_through: AtomicBool,
    people: RwLock<People, order::People>,
}

#[derive(Debug)]
struct People {
    /// Nobody else may enter; `None`: every user.
    named: Option<Named>,
    guests: Admission,
}

#[derive(Debug)]
struct Named {
    users: Vec<String>,
    readers: Vec<String>,
}

impl Policy {
    pub(super) fn new(config: &ShareConfig) -> Self {
        Self {
            read_only: AtomicBool::new(config.read_only),
            encrypt_required: AtomicBool::new(config.encrypt_required),
            write_through: AtomicBool::new(config.write_through),
            people: RwLock::new(People::of(config)),
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    pub(super) fn is_encrypt_required(&self) -> bool {
        self.encrypt_required.load(Ordering::Acquire)
    }

    pub(super) fn writes_through(&self) -> bool {
        self.write_through.load(Ordering::Acquire)
    }

    pub(super) fn guests(&self) -> Admission {
        self.people().guests
    }

    pub(super) fn admits(&self, user: &str) -> Admission {
        let user = user.split_once('@').map_or(user, |(name, _realm)| name).to_lowercase();
        match &self.people().named {
            None => Admission::Full,
            Some(named) if named.users.contains(&user) => Admission::Full,
            Some(named) if named.readers.contains(&user) => Admission::Reading,
            Some(_) => Admission::Refused,
        }
    }

    fn people(&self) -> RwLockReadGuard<'_, People, order::People> {
        self.people.read()
    }

    pub(super) fn replace(&self, config: &ShareConfig) {
        *self.people.write() = People::of(config);
        self.read_only.store(config.read_only, Ordering::Release);
        self.encrypt_required.store(config.encrypt_required, Ordering::Release);
        self.write_through.store(config.write_through, Ordering::Release);
    }
}

impl People {
    fn of(config: &ShareConfig) -> Self {
        let lower = |names: &Option<Vec<String>>| {
            names.iter().flatten().map(|name| name.to_lowercase()).collect()
        };
        let is_for_all = config.users.is_none() && config.readers.is_none();
        let (users, readers) = (lower(&config.users), lower(&config.readers));
        Self { named: (!is_for_all).then_some(Named { users, readers }), guests: config.guests }
    }
}

/// The facts of a share that stay as long as it is open.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Fixed {
    pub(super) path: PathBuf,
    pub(super) persistent_opens: Option<PathBuf>,
    devices: Vec<PathBuf>,
    /// Names and sources of the bodies that are shown.
    pub(super) shown: Vec<(String, PathBuf)>,
    residency: Residency,
    flash_budget: Option<u64>,
    flash_region_budget: Option<u64>,
    flash_tier: Option<(u64, PathBuf)>,
    pub(super) emulate_persistence: bool,
}

impl Fixed {
    pub(super) fn of(config: &ShareConfig) -> Self {
        Self {
            path: config.path.clone(),
            persistent_opens: config.persistent_opens.clone(),
            devices: config.devices.clone(),
            shown: config.shown.iter().map(|it| (it.name.clone(), it.source.clone())).collect(),
            residency: config.residency,
            flash_budget: config.flash_budget,
            flash_region_budget: config.flash_region_budget,
            flash_tier: config.flash_tier.clone(),
            emulate_persistence: config.emulate_persistence,
        }
    }
}
