//! A peer: what NEGOTIATE and SESSION_SETUP have settled with it, and what its transport has to take.
//!
//! ```text
//!  +-------+  SMB1 "SMB 2.???"  +----------------+  NEGOTIATE  +------------+
//!  | Fresh |------------------->| Multi-protocol |------------>| Negotiated |
//!  +-------+                    +----------------+             +------------+
//!      +----------------------- NEGOTIATE ----------------------->
//! ```
//!
//! No socket and no clock in here: the transport calls [`Connection::handle`] with each frame and
//! sends what it appends. An error means that the peer broke the protocol and is dropped.
//!
//! Spec: MS-SMB2 §3.3.5.2.

use std::collections::HashMap;
use std::sync::Arc;

use basics::RandomError;
use smb::Command;
use smb::ParseError;
use smb::crypto::PreauthHash;
use thiserror::Error;

use super::frame::FrameError;
use crate::connections::logon::Logon;
use crate::connections::window::WindowError;
use crate::connections::{Channel, Link, ReservedId, Session};
use crate::limits::AUTHENTICATIONS_MAX;
use crate::service::Core;
use crate::state::Room;
use crate::state::reads::Rest;

/// How far NEGOTIATE has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    Fresh,
    MultiProtocol,
    Negotiated,
}

/// An authentication under way.
#[derive(Debug)]
pub(crate) struct Authentication {
    pub(crate) acceptor: Logon,
    pub(crate) preauth: PreauthHash,
    pub(crate) purpose: Purpose,
}

/// What an authentication is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A new session, with the id that is kept for it.
    New(ReservedId),
    /// A session of this connection proves again who it is.
    Again(Arc<Channel>),
    /// This connection becomes another channel of a session (multichannel).
    Join(Arc<Session>),
}

/// One peer, owned by its transport.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) core: Arc<Core>,
    pub(crate) link: Arc<Link>,
    pub(crate) stage: Stage,
    pub(crate) preauth: PreauthHash,
    pub(crate) authentications: HashMap<u64, Authentication>,
    /// Shared with each whose answer is held back.
    held: Arc<()>,
    /// Whether the transport sends long answers piece by piece: [`Connection::take_rest`].
    pub(super) streams: bool,
    pub(super) rest: Option<Rest>,
    pub(super) room: Option<Room>,
    pub(super) last_command: Command,
}

impl Connection {
    pub(crate) fn new(core: Arc<Core>, link: Arc<Link>) -> Self {
        Self {
            core,
            link,
            stage: Stage::Fresh,
            preauth: PreauthHash::new(),
            authentications: HashMap::new(),
            held: Arc::default(),
            streams: false,
            rest: None,
            room: None,
            last_command: Command::NEGOTIATE,
        }
    }

    /// For a transport that asks for [`Connection::take_rest`] after each frame.
    pub(crate) fn streaming(core: Arc<Core>, link: Arc<Link>) -> Self {
        Self { streams: true, ..Self::new(core, link) }
    }

    /// Whether no further authentication may be under way.
    pub(crate) fn is_busy_authenticating(&self) -> bool {
        let held = Arc::strong_count(&self.held) - 1;
        self.authentications.len() + held >= AUTHENTICATIONS_MAX
    }

    /// Counts as an authentication under way as long as it is kept.
    pub(crate) fn begin_holding(&self) -> Arc<()> {
        Arc::clone(&self.held)
    }

    /// What the last answer lacks: it goes behind what [`Connection::handle`] appended, before
    /// anything else does.
    pub(crate) fn take_rest(&mut self) -> Option<Rest> {
        self.rest.take()
    }

    /// What was asked for last; of a compound its first.
    pub(crate) fn last_command(&self) -> Command {
        self.last_command
    }

    /// The room of the long answer that [`Connection::handle`] appended: to be kept until that has left.
    pub(crate) fn take_room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// Whether anybody logged on over it: without a session there is nothing to close, and its end
    /// does not block.
    pub(crate) fn has_sessions(&self) -> bool {
        self.link.channel_count() > 0
    }
}

/// The peer broke the protocol in a way that ends the connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum Violation {
    /// A frame or header cannot be read.
    #[error("peer sent a malformed message: {0}")]
    PeerMalformed(#[from] ParseError),
    /// A message id outside the window.
    #[error("peer broke the credit rules: {0}")]
    PeerWindow(#[from] WindowError),
    /// Compression was never announced.
    #[error("peer sent a compressed frame, which was not negotiated")]
    PeerCompressed,
    /// A sealed frame for a session this connection does not have.
    #[error("peer sent an encrypted frame of an unknown session")]
    PeerUnknownSession,
    /// A sealed frame that its key does not open.
    #[error("peer sent an encrypted frame that does not open")]
    PeerSeal,
    /// Something else before NEGOTIATE.
    #[error("peer did not negotiate first")]
    PeerNotNegotiated,
    /// NEGOTIATE twice.
    #[error("peer negotiated twice")]
    PeerNegotiatedTwice,
    /// A bug: who opens or verifies a frame has panicked.
    #[error("nobody has opened or verified a frame of the peer to the end")]
    HostPanicked,
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    HostRandom(RandomError),
    /// An answer cannot be sent.
    #[error(transparent)]
    Frame(#[from] FrameError),
}
