//! An open: one handle of one client on one file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use smb::create::AccessMask;

use super::lease::Owner;
use super::locks::OpenSerial;
use super::node::Node;
use super::tree::Tree;
use crate::push::{self, OpenPush};
use crate::service::Core;
use crate::share::{Entry, Enumeration, ShareError, SharePath};

/// One handle of one client on one file. It ends with [`Open::close`], once.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) serial: OpenSerial,
    pub(crate) tree: Arc<Tree>,
    pub(crate) node: Arc<Node>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) access: AccessMask,
    pub(crate) owner: Owner,
    /// CREATE options as far as later operations report them (FileModeInformation).
    pub(crate) mode: u32,
    /// The client asked for durable writes (FILE_WRITE_THROUGH).
    pub(crate) write_through: bool,
    /// Where an enumeration stands. Taken out while a worker uses it.
    pub(crate) enumeration: Mutex<Option<Enumeration>>,
    /// There once push was granted.
    pub(crate) push: OnceLock<Arc<OpenPush>>,
    closed: AtomicBool,
}

/// What a CREATE settled; the parts of an [`Open`].
#[derive(Debug)]
pub(crate) struct OpenParts {
    pub(crate) serial: OpenSerial,
    pub(crate) tree: Arc<Tree>,
    pub(crate) node: Arc<Node>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) access: AccessMask,
    pub(crate) owner: Owner,
    pub(crate) mode: u32,
    pub(crate) write_through: bool,
}

impl Open {
    pub(crate) fn new(parts: OpenParts) -> Self {
        let OpenParts { serial, tree, node, entry, access, owner, mode, write_through } = parts;
        Self {
            serial,
            tree,
            node,
            entry,
            access,
            owner,
            mode,
            write_through,
            enumeration: Mutex::new(None),
            push: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether every right of `mask` was granted.
    pub(crate) fn may(&self, mask: AccessMask) -> bool {
        self.access.contains(mask)
    }

    /// Whether any right of `mask` was granted.
    pub(crate) fn may_any(&self, mask: AccessMask) -> bool {
        self.access.intersects(mask)
    }

    /// Where the file's name is now.
    pub(crate) fn path(&self) -> SharePath {
        self.node.lock().path_of(self.serial).unwrap_or_default()
    }

    /// Ends the open: its regions, locks, lease and share modes go, and the file itself if it was
    /// to be deleted and this was its last open. May block. The second call does nothing.
    pub(crate) fn close(&self, core: &Arc<Core>) -> Result<(), ShareError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        push::closing(core, self);
        let doomed = {
            let mut state = self.node.lock();
            let Some(at) = state.opens.iter().position(|open| open.serial == self.serial) else {
                return Ok(());
            };
            let record = state.opens.swap_remove(at);
            state.locks.release(self.serial);
            state.leases.close(self.owner);
            // MS-FSA §2.1.5.4: the wish to delete passes from the handle to the file.
            state.delete_pending |= record.delete_on_close;
            let doomed = (state.delete_pending && state.opens.is_empty()).then_some(record);
            // If removing fails the file stays and may be opened again.
            state.delete_pending &= doomed.is_none();
            doomed
        };
        self.node.changed.notify_waiters();
        match doomed {
            Some(record) => {
                record.share.remove(&record.path, self.node.key(), self.entry.is_directory())
            }
            None => Ok(()),
        }
    }

    /// Whether the open has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
