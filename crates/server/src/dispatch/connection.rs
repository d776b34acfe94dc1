//! One connection: from frames to requests, in the order the specification checks them.
//!
//! ```text
//!  frame -> open the seal -> walk the compound -> message ids -> signature -> session -> command
//!           (drop if wrong)  (drop if wrong)      (drop)         (ACCESS_DENIED)        |
//!                                     answered at once, in `out` <----------------------+
//!                                     or later, through the link <----------------------+
//!
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

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use basics::RandomError;
use smb::Command;
use smb::NtStatus;
use smb::ParseError;
use smb::Protocol;
use smb::TransformHeader;
use smb::compound;
use smb::crypto::{PreauthHash, Turn};
use smb::negotiate::Dialect;
use smb::{Header, HeaderFlags, Route};
use thiserror::Error;

use super::call::Asker;
use super::frame::{self, FrameError};
use super::job::{Element, Job};
use super::proof::{Proof, Proven, Unproven, relate};
use super::{Now, answer_now, negotiate, session_setup};
use crate::connections::logon::Logon;
use crate::connections::window::WindowError;
use crate::connections::{Channel, Frame, Link, ReservedId, Session};
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
    streams: bool,
    rest: Option<Rest>,
    room: Option<Room>,
    last_command: Command,
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

    /// Takes a frame and appends to `out` what can be answered now. A long frame whose seal or signatures take a thread
    /// comes back: [`Connection::handle_proven`] takes it before any other.
    pub(crate) fn handle(
        &mut self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Unproven>, Violation> {
        debug_assert!(self.rest.is_none(), "taken after the frame before");
        let mut frame = match Unproven::take(&self.link, frame) {
            Ok(unproven) => return Ok(Some(unproven)),
            Err(frame) => frame,
        };
        match Protocol::of(frame.bytes())? {
            Protocol::Smb2 => self.handle_messages(frame, Proof::default(), out)?,
            Protocol::Encrypted => {
                let proof = Proof::open_seal(&self.link, frame.bytes())?;
                self.handle_messages(frame, proof, out)?;
            }
            Protocol::Smb1 => negotiate::multi_protocol(self, frame.bytes(), out)?,
            Protocol::Compressed => return Err(Violation::PeerCompressed),
        }
        Ok(None)
    }

    /// Takes a long frame that is proven, as [`Connection::handle`] does the others.
    pub(crate) fn handle_proven(
        &mut self,
        proven: Proven,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let Proven { frame, room, proof } = proven;
        self.handle_messages(Frame::Owned(frame, room), proof, out)
    }

    fn handle_messages(
        &mut self,
        mut frame: Frame<'_>,
        proof: Proof,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let start = if proof.sealed.is_some() { TransformHeader::LEN } else { 0 };
        let header = Header::parse(&frame.bytes()[start..])?;
        self.last_command = header.command;
        if header.next_command == 0 {
            return self.handle_one(frame, start, header, proof, out);
        }
        let mut before = None;
        let mut is_of_no_session = false;
        let walk: Vec<_> = compound::walk(&frame.bytes()[start..]).collect::<Result<_, _>>()?;
        let mut elements = Vec::with_capacity(walk.len());
        for (range, mut header) in walk {
            relate(&mut header, &mut before);
            let range = start + range.start..start + range.end;
            if header.command == Command::CANCEL {
                self.cancel(&header);
                continue;
            }
            let turn = self.claim(&header)?;
            let pdu = &mut frame.bytes()[range.clone()];
            let admitted = match header.command {
                // Both decide about all later messages: they come alone.
                Command::NEGOTIATE | Command::SESSION_SETUP => Err(NtStatus::INVALID_PARAMETER),
                // MS-SMB2 §3.3.5.2.7.2: the first one is related to nothing.
                _ if elements.is_empty() && header.flags.contains(HeaderFlags::RELATED) => {
                    Err(NtStatus::INVALID_PARAMETER)
                }
                // Nor is what follows a request of no session related to one.
                _ if header.flags.contains(HeaderFlags::RELATED) && is_of_no_session => {
                    Err(NtStatus::INVALID_PARAMETER)
                }
                _ => self.admit(&header, pdu, range.start, &proof),
            };
            is_of_no_session = matches!(admitted, Err(NtStatus::USER_SESSION_DELETED))
                || (is_of_no_session && header.flags.contains(HeaderFlags::RELATED));
            elements.push(Element { header, range, admitted, turn, prepared: None });
        }
        if self.stage != Stage::Negotiated {
            return Err(Violation::PeerNotNegotiated);
        }
        if let Some(first) = elements.first() {
            let (core, link) = (Arc::clone(&self.core), Arc::clone(&self.link));
            let command = first.header.command;
            let whose = elements.iter().find_map(Element::channel);
            let whose = whose.map(|channel| &channel.session.account);
            let frame = frame.keep(&link, whose, command, elements.len());
            self.room = Job { core, link, frame, elements, sealed: proof.sealed }.start(out);
        }
        Ok(())
    }

    fn handle_one(
        &mut self,
        mut frame: Frame<'_>,
        start: usize,
        header: Header,
        proof: Proof,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        smb::expect_direction(&header, false)?;
        if header.command == Command::CANCEL {
            self.cancel(&header);
            return Ok(());
        }
        let mut turn = self.claim(&header)?;
        let pdu = &mut frame.bytes()[start..];
        match header.command {
            Command::NEGOTIATE => return negotiate::handle(self, &header, pdu, out),
            _ if self.stage != Stage::Negotiated => return Err(Violation::PeerNotNegotiated),
            Command::SESSION_SETUP => {
                let sealed = proof.sealed.as_ref();
                return session_setup::handle(self, (&header, turn), pdu, sealed, out);
            }
            _ => {}
        }
        let admitted = self.admit(&header, pdu, start, &proof);
        let mut prepared = None;
        let is_sealed = proof.sealed.is_some();
        if let Ok(Some(channel)) = &admitted {
            let asker = Asker {
                core: &self.core,
                link: &self.link,
                header: &header,
                channel,
                sealed: is_sealed,
                streams: self.streams,
            };
            match answer_now(asker, turn, pdu, out)? {
                Now::Answered(room) => {
                    self.room = room;
                    return Ok(());
                }
                Now::Begun(rest, room) => {
                    (self.rest, self.room) = (Some(rest), room);
                    return Ok(());
                }
                Now::Later(unused, found) => (turn, prepared) = (unused, found),
            }
        }
        if let Err(status) = admitted {
            let is_absent = status == NtStatus::USER_SESSION_DELETED;
            let absent = || is_absent.then(|| self.ended(&header, pdu, start, &proof)).flatten();
            let channel = proof.sealed.clone().or_else(absent);
            let (link, channel) = (&self.link, channel.as_deref());
            let at = out.len();
            let signer = channel.map(|channel| (channel, turn));
            frame::plain_status(link, out, &header, status, signer, is_sealed)?;
            if is_absent && channel.is_none() && header.flags.contains(HeaderFlags::SIGNED) {
                frame::echo_signature(out, at, pdu);
            }
            return Ok(());
        }
        // What stands behind the longest body of its command is no part of it.
        let whole = frame.bytes().len();
        let longest = header.command.request_len_max().map_or(whole, |max| start + max);
        let range = start..whole.min(longest);
        frame.cut(range.end);
        let element = Element { header, range, admitted, turn, prepared };
        let (core, link) = (Arc::clone(&self.core), Arc::clone(&self.link));
        let whose = element.channel().map(|channel| &channel.session.account);
        let frame = frame.keep(&link, whose, header.command, 1);
        let elements = vec![element];
        self.room = Job { core, link, frame, elements, sealed: proof.sealed }.start(out);
        Ok(())
    }

    // MS-SMB2 §3.3.5.2.3 and §3.3.5.2.5.
    fn claim(&self, header: &Header) -> Result<Turn, Violation> {
        let multi = self.link.agreed.get().is_some_and(|agreed| agreed.is_multi_credit());
        let charge = if multi { header.credit_charge } else { 1 };
        Ok(self.link.window().claim(header.message_id.0, charge)?)
    }

    // MS-SMB2 §3.3.5.16: a CANCEL uses no message id and gets no answer. An unsigned one can
    // only cancel what the same connection asked for.
    fn cancel(&self, header: &Header) {
        match header.route {
            Route::Async(id) => self.link.cancel_async(id.0),
            Route::Sync { .. } => self.link.cancel_message(header.message_id.0),
        }
    }

    /// Checks who sends a request and whether it is protected as it must be.
    ///
    /// Spec: MS-SMB2 §3.3.5.2.4 (signature), §3.3.5.2.9 (session), §3.3.5.2.11 (encryption).
    fn admit(
        &self,
        header: &Header,
        pdu: &mut [u8],
        at: usize,
        proof: &Proof,
    ) -> Result<Option<Arc<Channel>>, NtStatus> {
        let session_id = header.session_id.0;
        if session_id == 0 && header.command == Command::ECHO {
            return Ok(None);
        }
        let channel = self.link.channel(session_id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if channel.session.is_closed() {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        if let Some(outer) = &proof.sealed {
            // A frame sealed for one session must not carry another's requests.
            if outer.session.id != session_id {
                return Err(NtStatus::ACCESS_DENIED);
            }
            return Ok(Some(channel));
        }
        if channel.session.encrypt_required {
            return Err(NtStatus::ACCESS_DENIED);
        }
        match &channel.signing {
            Some(_) if header.flags.contains(HeaderFlags::SIGNED) => {
                if !proof.is_signed(&channel, pdu, at) {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                channel.session.note_signed(header.command);
            }
            Some(_) if channel.session.signing_required => return Err(NtStatus::ACCESS_DENIED),
            Some(_) if header.command == Command::LOGOFF && channel.session.signs() => {
                return Err(NtStatus::ACCESS_DENIED);
            }
            // MS-SMB2 §3.3.5.7: in 3.1.1 the first thing done with a session proves its keys.
            Some(_)
                if header.command == Command::TREE_CONNECT
                    && self.link.dialect() == Dialect::SMB_3_1_1 =>
            {
                return Err(NtStatus::ACCESS_DENIED);
            }
            _ => {}
        }
        Ok(Some(channel))
    }

    // Who signed a request of a session that has just ended here is told so in a signed answer. A
    // session of another connection has no key that may sign on this one.
    fn ended(
        &self,
        header: &Header,
        pdu: &mut [u8],
        at: usize,
        proof: &Proof,
    ) -> Option<Arc<Channel>> {
        let channel = self.link.ended_channel(header.session_id.0)?;
        proof.is_signed(&channel, pdu, at).then_some(channel)
    }

    /// Whether anybody logged on over it: without a session there is nothing to close, and its end
    /// does not block.
    pub(crate) fn has_sessions(&self) -> bool {
        self.link.channel_count() > 0
    }
}

/// The peer of a connection is gone: everything it had ends. Blocks while the files of its sessions are
/// closed.
pub(crate) fn end_of_connection(core: &Core, link: &Arc<Link>) {
    link.cancel_all();
    link.delist();
    for channel in link.take_channels() {
        // A bug met at the end of one session must not keep the others alive.
        let ended = catch_unwind(AssertUnwindSafe(|| end_channel(core, link, &channel.session)));
        if ended.is_err() {
            core.note_panic("the end of a session");
        }
    }
    if link.was_asked() {
        repeat_lease_breaks(link);
    }
}

// MS-SMB2 §3.3.7.1: a session lives as long as one of its channels, and what it was asked to give
// back over this one it is asked again over another.
fn end_channel(core: &Core, link: &Arc<Link>, session: &Session) {
    if session.leave(link) {
        core.end_session(session.id);
        return;
    }
    let mut asked = HashSet::new();
    for open in session.all_opens() {
        if asked.insert((Arc::as_ptr(&open.node), open.owner)) {
            open.node.repeat_break(open.owner);
        }
    }
}

// MS-SMB2 §3.3.4.7: what a client was told of its leases over this connection it is told again over
// the next, whichever session holds them.
fn repeat_lease_breaks(gone: &Link) {
    let Some(agreed) = gone.agreed.get() else { return };
    let mut asked = HashSet::new();
    for session in gone.of_client(agreed.client_guid).iter().flat_map(|link| link.sessions()) {
        for open in session.all_opens() {
            if asked.insert((Arc::as_ptr(&open.node), open.owner)) {
                open.node.repeat_break(open.owner);
            }
        }
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
