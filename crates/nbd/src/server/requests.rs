//! Requests off the wire, one after the other, and why there are no more.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::input::Input;
use super::memory::{Grant, Memory, SHORT_MAX};
use super::patience::Patience;
use super::wire::Wire;
use crate::protocol::{Command, PAYLOAD_MAX, PeerError, Request, Session, Step};

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

/// A request that has arrived whole.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) request: Request,
    pub(super) data: Vec<u8>,
    /// What it holds of the memory of all connections, if it is long.
    pub(super) grant: Option<Grant>,
}

/// The next request, waiting for it; `None` at the end of the connection.
pub(super) fn next_request(
    session: &Session,
    (wire, memory): (&Arc<Wire>, &Arc<Memory>),
    input: &mut Input,
    patience: &mut Patience,
) -> Result<Option<Whole>, Ending> {
    let mut grant = None;
    loop {
        match session.next(input.unread())? {
            Step::Request(request, data) => {
                let end = data.end;
                let data = input.unread()[data].to_vec();
                input.consume(end);
                if grant.is_none() {
                    grant = memory.take(wire, held(&request));
                }
                return Ok(Some(Whole { request, data, grant }));
            }
            Step::Disconnected => return Ok(None),
            Step::NeedsMore(wanted) => {
                // The bytes of a write are here twice while they are taken off the wire.
                if grant.is_none() && input.unread().len() >= SHORT_MAX {
                    grant = memory.take(wire, wanted.saturating_mul(2));
                }
                if wire.receive(input, wanted, patience, None)? == 0 {
                    return Ok(None);
                }
            }
        }
    }
}

/// Bytes that a request holds until its reply is sent.
pub(super) fn held(request: &Request) -> usize {
    let reply = if request.command == Command::READ { request.len.min(PAYLOAD_MAX) } else { 0 };
    request.data_len().saturating_add(usize::try_from(reply).unwrap_or(usize::MAX))
}

/// Time that a client has to choose an export.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
