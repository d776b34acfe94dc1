//! All files of the server: the shares, what is open of them, and what is noted of opens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use basics::Clock;
use basics::ordered::RwLock;
use tokio::runtime::Handle;
use tracing::warn;
use tree::{Admission, CommonNames, FileKey, Share, SharePath};

use super::caching::Caching;
use super::creates::Creates;
use super::durable::Orphans;
use super::durable_opens::DurableOpens;
use super::ends::PutOff;
use super::lease_keys::LeaseKeys;
use super::nodes::Nodes;
use super::open::{CloseObserver, Open};
use super::serial::OpenSerial;
use crate::access::{Identity, Rights, Tree};
use crate::config::Users;
use crate::lock_order as order;

/// The files of the server.
#[derive(Debug)]
pub(crate) struct Files {
    /// Replaced, never changed: a reader sees one configuration.
    shares: RwLock<Arc<[Arc<Share>]>, order::Shares>,
    /// The state of names that all shares keep, also those that are not exported any more.
    pub(crate) names: CommonNames,
    pub(crate) nodes: Nodes,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) durable_opens: Arc<DurableOpens<Open>>,
    pub(crate) lease_keys: Arc<LeaseKeys>,
    /// CREATEs that a client may send again.
    pub(crate) creates: Arc<Creates<Open>>,
    next_serial: AtomicU64,
    clock: Clock,
    /// Runs what a CREATE that fails puts off.
    pub(crate) put_off: PutOff,
    pub(super) observer: Box<dyn CloseObserver>,
}

/// What the files of a server start from.
#[derive(Debug)]
pub(crate) struct FilesParts {
    pub(crate) shares: Vec<Arc<Share>>,
    /// The state of names that the shares keep.
    pub(crate) names: CommonNames,
    /// The number of the first open. A server that restarts must not reuse a number: a client would
    /// get another file back.
    pub(crate) first_serial: u64,
    pub(crate) break_timeout: Duration,
    pub(crate) clock: Clock,
    pub(crate) runtime: Handle,
    /// Told of each open that closes.
    pub(crate) observer: Box<dyn CloseObserver>,
}

impl Files {
    pub(crate) fn new(parts: FilesParts) -> Self {
        let FilesParts { shares, names, first_serial, break_timeout, clock, runtime, observer } =
            parts;
        let orphans = Arc::new(Orphans::new(clock.clone()));
        Self {
            shares: RwLock::new(shares.into()),
            names,
            nodes: Nodes::new(clock.clone(), break_timeout, orphans.given_up()),
            orphans,
            durable_opens: Arc::new(DurableOpens::new()),
            lease_keys: Arc::default(),
            creates: Arc::new(Creates::new()),
            next_serial: AtomicU64::new(first_serial),
            clock,
            put_off: PutOff::new(runtime),
            observer,
        }
    }

    /// The monotonic clock of the server.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Whether a share admits users without proof.
    pub(crate) fn takes_guests(&self) -> bool {
        self.shares().iter().any(|share| share.guests() != Admission::Refused)
    }

    /// The exported shares.
    pub(crate) fn shares(&self) -> Arc<[Arc<Share>]> {
        Arc::clone(&self.shares.read())
    }

    /// The share of that name, ignoring case.
    pub(crate) fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.shares().iter().find(|share| share.name().eq_ignore_ascii_case(name)).cloned()
    }

    /// The shares that may contain files of `share`, itself among them.
    pub(crate) fn overlapping(&self, share: &Share) -> Vec<Arc<Share>> {
        self.shares().iter().filter(|other| other.overlaps(share)).cloned().collect()
    }

    /// Whether a persistent open of this file of `share` waits to be restored.
    pub(crate) fn is_left_over(&self, share: &Share, file: FileKey) -> bool {
        let shares = self.shares();
        let mut shares = shares.iter().filter(|other| !other.left_over().is_empty());
        shares.any(|other| other.overlaps(share) && other.left_over().is_of(file.inode))
    }

    /// Whether a persistent open of a file below this directory of `share` waits to be restored.
    pub(crate) fn is_left_over_below(&self, share: &Share, directory: &SharePath) -> bool {
        let shares = self.shares();
        let mut waiting = shares.iter().filter(|other| !other.left_over().is_empty());
        waiting.any(|other| {
            let below = share.path_in(other, directory);
            below.is_some_and(|directory| other.left_over().is_below(&directory))
        })
    }

    pub(crate) fn set_shares(&self, shares: Vec<Arc<Share>>) {
        *self.shares.write() = shares.into();
    }

    /// Whether a user may still have the rights granted with a tree.
    pub(crate) fn is_welcome_in(&self, who: &Identity, tree: &Tree) -> bool {
        let Some(share) = tree.share() else { return true };
        let is_exported = self.share(share.name()).is_some_and(|now| Arc::ptr_eq(&now, share));
        // A tree entered unsealed may have regions mapped, which no encryption covers; a tree entered sealed
        // has none, even if encryption was switched off meanwhile.
        let is_as_secret = tree.entered_encrypted || !share.is_encrypt_required();
        is_exported
            && is_as_secret
            && Rights::of(share, who).is_some_and(|now| now.may(tree.rights.mask()))
    }

    /// Names the next open.
    pub(crate) fn next_serial(&self) -> OpenSerial {
        OpenSerial(self.next_serial.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps a durable open whose session has ended, if it may be kept; otherwise the caller closes it.
    pub(crate) fn adopt(&self, users: &Users, open: &Arc<Open>) -> bool {
        let Some(durable) = open.durable() else { return false };
        // docs/push-mode.md, "Recall": registrations end with the connection.
        self.observer.closing(open);
        // Nobody comes back who may not log on, nor to more than is granted now.
        let user = &open.origin.user;
        if !user.is_welcome_to(users) || !self.is_welcome_in(user, &open.tree) {
            return false;
        }
        let mut node = open.node.lock();
        // MS-SMB2 §3.3.7.1: only with cached handles that nobody asks back.
        let kept = node.leases.is_held_with(open.owner, Caching::HANDLE);
        if !kept && !durable.persistent {
            return false;
        }
        open.set_orphan();
        if !self.orphans.insert(open, durable) {
            warn!(serial = open.serial.0, "a durable open is closed: there are too many");
            return false;
        }
        if let Some(record) = node.record_mut(open.serial) {
            record.holder = None;
            record.orphan = Some(open.is_persistent());
        }
        drop(node);
        self.orphans.note_arrival(open.serial);
        true
    }
}
