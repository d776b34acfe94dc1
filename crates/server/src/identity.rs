//! Who the server is: its names, its GUID, its users and how it protects what it says.

use std::net::SocketAddr;

use basics::ordered::RwLock;
use smb::Guid;

use crate::config::{Announced, SigningPolicy, Users};
use crate::lock_order as order;

/// Who the server is to its clients.
#[derive(Debug)]
pub(crate) struct ServerIdentity {
    pub(crate) guid: Guid,
    /// The machine's name in lists of servers.
    pub(crate) name: String,
    /// The address for TCP clients, if there is such a listener.
    pub(crate) tcp_address: Option<SocketAddr>,
    /// The announced addresses, if not those that the machine finds itself.
    pub(crate) announced: Vec<Announced>,
    pub(crate) signing: SigningPolicy,
    pub(crate) encrypt_required: bool,
    users: RwLock<Users, order::Users>,
}

/// What the operator has configured of it.
#[derive(Debug)]
pub(crate) struct IdentityParts {
    pub(crate) guid: Guid,
    pub(crate) tcp_address: Option<SocketAddr>,
    pub(crate) announced: Vec<Announced>,
    pub(crate) signing: SigningPolicy,
    pub(crate) encrypt_required: bool,
    pub(crate) users: Users,
}

impl ServerIdentity {
    pub(crate) fn new(parts: IdentityParts) -> Self {
        let IdentityParts { guid, tcp_address, announced, signing, encrypt_required, users } =
            parts;
        let (name, users) = (machine_name(), RwLock::new(users));
        Self { guid, name, tcp_address, announced, signing, encrypt_required, users }
    }

    /// The users who may log on.
    pub(crate) fn users(&self) -> Users {
        self.users.read().clone()
    }

    pub(crate) fn set_users(&self, users: Users) {
        let mut now = self.users.write();
        *now = users.succeeding(&now);
    }
}

/// The host name up to its first dot, as machine names are written.
fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let short = name.trim().split('.').next().unwrap_or_default().to_uppercase();
    if short.is_empty() { "LANDFAST".to_owned() } else { short.chars().take(NAME_MAX).collect() }
}

// Longest host name of Linux.
const NAME_MAX: usize = 64;
