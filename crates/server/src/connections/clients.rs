//! The connections of each client, the oldest first: over the first one it is told of its leases.
//!
//! A client is who says a ClientGuid, and anybody can say anybody's. So only connections count over
//! which somebody has logged on, and for a lease only those of the user who holds it.
//!
//! Spec: MS-SMB2 §3.3.4.7 (ConnectionList by ClientGuid).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};
/// The connections of all clients that have logged on, by GUID. `L` is a connection.
#[derive(Debug)]
pub(crate) struct Clients<L> {
    links: Mutex<HashMap<[u8; 16], Vec<Weak<L>>>, order::Connections>,
}

impl<L> Default for Clients<L> {
    fn default() -> Self {
        Self { links: Mutex::default() }
    }
}

impl<L> Clients<L> {
    /// Somebody has logged on over a connection; a second one changes nothing.
    pub(crate) fn add(&self, client: [u8; 16], link: &Arc<L>) {
        let mut table = self.lock();
        let links = table.entry(client).or_default();
        if !links.iter().any(|known| known.as_ptr() == Arc::as_ptr(link)) {
            links.push(Arc::downgrade(link));
        }
    }

    /// A connection has ended.
    pub(crate) fn remove(&self, client: [u8; 16], link: &L) {
        let mut table = self.lock();
        let Some(links) = table.get_mut(&client) else { return };
        links.retain(|known| !std::ptr::eq(known.as_ptr(), link));
        if links.is_empty() {
            table.remove(&client);
        }
    }

    /// The connections of a client, the oldest first.
    pub(crate) fn of(&self, client: [u8; 16]) -> Vec<Arc<L>> {
        let table = self.lock();
        table.get(&client).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// The connections of all clients.
    pub(crate) fn all(&self) -> Vec<Arc<L>> {
        let table = self.lock();
        table.values().flatten().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 16], Vec<Weak<L>>>, order::Connections> {
        self.links.lock()
    }
}
