//! An open pipe: one handle of one client on one of the server's own services.

use std::sync::Arc;

use smb::rpc::{Association, Interface};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::access::Tree;
use crate::limits::PIPE_INLINE_MAX;
use crate::state::Hold;
use crate::state::serial::OpenSerial;

/// One handle of one client on a service.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) serial: OpenSerial,
    pub(crate) tree: Arc<Tree>,
    interface: Interface,
    association: Arc<Mutex<Association>>,
    /// Its place among the pipes of its user.
    _place: Hold,
}

impl Pipe {
    pub(crate) fn new(
        serial: OpenSerial,
        tree: Arc<Tree>,
        interface: Interface,
        place: Hold,
    ) -> Self {
        let association = Arc::new(Mutex::new(Association::new(interface)));
        Self { serial, tree, interface, association, _place: place }
    }

    /// Whether a call of so many bytes, or several, are much work: many names in one, or all accounts to go through.
    pub(crate) fn is_much(&self, len: usize) -> bool {
        len > PIPE_INLINE_MAX || self.interface == Interface::Lsarpc
    }

    /// The conversation: requests take turns, and who waits for one occupies no thread.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<Association> {
        Arc::clone(&self.association).lock_owned().await
    }
}
