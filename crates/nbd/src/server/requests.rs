//! Requests off the wire, one after the other, and why there are no more.

use std::io;
use std::time::Duration;

use super::input::Input;
use super::patience::Patience;
use super::wire::Wire;
use crate::protocol::{PeerError, Request, Session, Step};

/// Why a connection was given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    /// The client broke the protocol.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The client did not choose an export in time.
    #[error("no export was chosen in {} s", HANDSHAKE_LIMIT.as_secs())]
    PeerSlow,
    /// The socket failed, or TLS did.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// The next request that has arrived whole, waiting for it; `None` at the end of the connection.
pub(super) fn next_request(
    session: &Session,
    wire: &Wire,
    input: &mut Input,
    patience: &mut Patience,
) -> Result<Option<(Request, Vec<u8>)>, Ending> {
    loop {
        match session.next(input.unread())? {
            Step::Request(request, data) => {
                let end = data.end;
                let data = input.unread()[data].to_vec();
                input.consume(end);
                return Ok(Some((request, data)));
            }
            Step::Disconnected => return Ok(None),
            Step::NeedsMore(wanted) => {
                if wire.receive(input, wanted, patience, None)? == 0 {
                    return Ok(None);
                }
            }
        }
    }
}

/// Time that a client has to choose an export.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
