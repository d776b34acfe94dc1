//! What the calls tell of the server.

use std::sync::Arc;
use std::time::Duration;

use crate::FileTime;
use crate::auth::UserStore;

/// A server, as those who browse it see it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its NetBIOS-like name, without backslashes.
    pub name: String,
    /// A line about it.
    pub comment: String,
    /// The user that asks; empty for an anonymous user.
    pub caller: String,
    /// What it shares, in the order it is listed.
    pub shares: Vec<SharedResource>,
    /// Its accounts, for who may ask for them.
    pub accounts: Option<Arc<dyn UserStore>>,
    /// What its clock shows.
    pub now: FileTime,
    /// For how long it has run.
    pub uptime: Duration,
}

/// One line of a list of shares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedResource {
    /// Its name.
    pub name: String,
    /// Directory or pipes, see the constants.
    pub kind: u32,
    /// A line about it.
    pub comment: String,
}

impl SharedResource {
    /// STYPE_DISKTREE.
    pub const DIRECTORY: u32 = 0;
    /// STYPE_IPC with STYPE_SPECIAL, which clients do not show among the others.
    pub const PIPES: u32 = 0x8000_0003;
}
