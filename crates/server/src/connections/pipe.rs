//! An open pipe: one handle of one client on one of the server's own services.

use std::sync::Arc;

use basics::ordered::{Mutex, MutexGuard};
use smb::rpc::{Association, Interface};

use crate::access::Tree;
use crate::lock_order as order;
use crate::state::serial::OpenSerial;

/// One handle of one client on a service.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) serial: OpenSerial,
    pub(crate) tree: Arc<Tree>,
    association: Mutex<Association, order::Pipe>,
}

impl Pipe {
    pub(crate) fn new(serial: OpenSerial, tree: Arc<Tree>, interface: Interface) -> Self {
        Self { serial, tree, association: Mutex::new(Association::new(interface)) }
    }

    /// The conversation; held for one request, never over an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Association, order::Pipe> {
        self.association.lock()
    }
}
