//! The seam to `push/`, which decides about push connections.

use std::fmt::Debug;
use std::net::SocketAddr;

use super::handle::PushConnection;

/// Private data for an accepted peer: a `smb::push::PushAccept`.
pub(super) type Admitted = Vec<u8>;
/// Private data for a refused peer: a `smb::push::PushAccept` with the reason.
pub(super) type Refused = Vec<u8>;

/// Decides which peers get a push connection. Called on the engine thread: must not wait, and
/// must not call back into the engine except through [`super::Handle`] from another task.
pub(crate) trait Gate: Debug + Send + Sync {
    /// Decides about a peer that asks for a push connection with complete private data of our
    /// version, by its token. `connection` is the name of the connection if it is admitted.
    fn admit(
        &self,
        private_data: &[u8],
        peer: SocketAddr,
        connection: PushConnection,
    ) -> Result<Admitted, Refused>;

    /// An admitted connection has ended, or was never established. No operation of its peer touches
    /// registered memory any more, and all its regions are gone.
    fn gone(&self, connection: PushConnection);
}
