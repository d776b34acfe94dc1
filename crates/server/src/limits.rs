//! What one peer, and all of them together, may make the server spend.
//!
//! Every queue and table is bounded by a constant here or by a field of [`Limits`]. Memory an
//! unauthenticated connection can hold: one read buffer of [`UNAUTHENTICATED_FRAME_MAX`], one
//! response, one half-done authentication; at the default of 1,024 such connections about 80 MiB.
//! Over SMB Direct a queue pair with its buffers comes to that: 1,024 of them were 190 MiB.

use std::time::Duration;

/// Bounds an operator may want to change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once, authenticated or not. One more is closed at once.
    pub connections_max: usize,
    /// Connections that have not authenticated yet. For one more the oldest is closed.
    pub unauthenticated_max: usize,
    /// Connections over which guests alone have logged on. For one more the oldest is closed.
    pub guest_connections_max: usize,
    /// Files that guests have open, all together; one more is refused.
    pub guest_opens_max: usize,
    /// From accepting a connection to its first authenticated session.
    pub authentication_timeout: Duration,
    /// Largest READ and WRITE, in bytes.
    pub io_size_max: u32,
    /// Credits one authenticated connection may hold: requests it can have under way.
    pub credits_max: u16,
    /// How long a client may take to acknowledge a lease or oplock break.
    pub break_timeout: Duration,
    /// How long a stopping server waits for requests under way.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            unauthenticated_max: 1_024,
            guest_connections_max: 1_024,
            // A quarter of the descriptors that dist/landfast.service asks for.
            guest_opens_max: 16_384,
            authentication_timeout: Duration::from_secs(30),
            io_size_max: 8 << 20,
            // What Windows and Samba grant.
            credits_max: 8_192,
            // MS-SMB2 §3.3.2.5: 35 seconds, what Windows and Samba use.
            break_timeout: Duration::from_secs(35),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// Largest frame before authentication: NEGOTIATE with contexts and SPNEGO tokens stay under it.
pub(crate) const UNAUTHENTICATED_FRAME_MAX: usize = 64 * 1024;
/// Credits before authentication, which takes a handful, and of guests.
pub(crate) const UNAUTHENTICATED_CREDITS_MAX: u16 = 512;
/// Largest answer of QUERY_INFO, QUERY_DIRECTORY and IOCTL, and input of SET_INFO and IOCTL.
pub(crate) const TRANSACT_SIZE_MAX: u32 = 8 << 20;
/// The same over SMB Direct, where an answer travels in fragments that the peer has room for.
pub(crate) const DIRECT_TRANSACT_SIZE_MAX: u32 = 1 << 20;
/// Opens of one session.
pub(crate) const OPENS_PER_SESSION_MAX: u32 = 65_536;
/// Pipes of one session; a client that browses has one or two.
pub(crate) const PIPES_PER_SESSION_MAX: u32 = 64;
/// Tree connects of one session.
pub(crate) const TREES_PER_SESSION_MAX: usize = 1_024;
/// The same of a guest's.
pub(crate) const TREES_PER_GUEST_MAX: usize = 64;
/// Durable opens that wait for their client: of one user, and of all.
pub(crate) const ORPHANS_PER_USER_MAX: usize = 4_096;
pub(crate) const ORPHANS_MAX: usize = 65_536;
/// How long a durable open waits for its client when the client names no time: what Samba does.
pub(crate) const DURABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest a client can ask for: MS-SMB2 §3.3.5.9.10.
pub(crate) const DURABLE_TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// A client may be back before the end of its old connection is noticed: how long it is waited for.
pub(crate) const RECONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// Sessions of one connection; Windows uses one per user.
pub(crate) const SESSIONS_PER_CONNECTION_MAX: usize = 64;
/// Those of them that are guests': clients try another name, or none.
pub(crate) const GUESTS_PER_CONNECTION_MAX: usize = 4;
/// Connections of one session, as many as Windows and Samba allow.
pub(crate) const CHANNELS_PER_SESSION_MAX: usize = 32;
/// Sessions of the whole server.
pub(crate) const SESSIONS_MAX: usize = 65_536;
/// Authentications under way on one connection.
pub(crate) const AUTHENTICATIONS_MAX: usize = 4;
