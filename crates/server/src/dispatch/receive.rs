//! From frames to requests, in the order the specification checks them.
//!
//! ```text
//!  frame -> open the seal -> walk the compound -> message ids -> signature -> session -> command
//!           (drop if wrong)  (drop if wrong)      (drop)         (ACCESS_DENIED)        |
//!                                     answered at once, in `out` <----------------------+
//!                                     or later, through the link <----------------------+
//! ```
//!
//! Spec: MS-SMB2 §3.3.5.2.

use std::sync::Arc;

use smb::Command;
use smb::NtStatus;
use smb::Protocol;
use smb::TransformHeader;
use smb::compound;
use smb::crypto::Turn;
use smb::negotiate::Dialect;
use smb::{Header, HeaderFlags, Route};

use super::asker::Asker;
use super::connection::{Connection, Stage, Violation};
use super::frame;
use super::job::{Element, Job};
use super::proof::{Proof, Proven, Unproven, relate};
use super::router::{Now, answer_now};
use super::{asked, negotiate, session_setup};
use crate::connections::kept::counts_as;
use crate::connections::{Channel, Frame};

impl Connection {
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
        mut proof: Proof,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let start = if proof.sealed.is_some() { TransformHeader::LEN } else { 0 };
        let header = Header::parse(&frame.bytes()[start..])?;
        self.last_command = header.command;
        if header.next_command == 0 {
            return self.handle_one(frame, start, header, proof, out);
        }
        let mut before = None;
        let mut known = None;
        let mut is_of_no_session = false;
        let walk = match proof.walk.take() {
            Some(walk) => walk,
            None => compound::walk(&frame.bytes()[start..]).collect::<Result<_, _>>()?,
        };
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
                _ => self.admit(&header, pdu, (range.start, &proof), &mut known),
            };
            is_of_no_session = matches!(admitted, Err(NtStatus::USER_SESSION_DELETED))
                || (is_of_no_session && header.flags.contains(HeaderFlags::RELATED));
            elements.push(Element { header, range, admitted, turn, prepared: None });
        }
        if self.stage != Stage::Negotiated {
            return Err(Violation::PeerNotNegotiated);
        }
        if let Some(command) = counts_as(elements.iter().map(|one| one.header.command)) {
            let (core, link) = (Arc::clone(&self.core), Arc::clone(&self.link));
            let whose = elements.iter().find_map(Element::channel);
            let whose = whose.map(|channel| &channel.session.account);
            let fetched = |one: &Element| {
                asked::fetched(&link, &one.header, &frame.bytes()[one.range.clone()])
            };
            let fetches = elements.iter().map(fetched).fold(0, usize::saturating_add);
            let frame = frame.keep(&link, whose, command, (elements.len(), fetches));
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
            if self.stage != Stage::Negotiated {
                return Err(Violation::PeerNotNegotiated);
            }
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
        let admitted = self.admit(&header, pdu, (start, &proof), &mut None);
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
        let fetches = asked::fetched(&self.link, &header, &frame.bytes()[start..]);
        // What stands behind the longest body of its command is no part of it.
        let whole = frame.bytes().len();
        let longest = header.command.request_len_max().map_or(whole, |max| start + max);
        let range = start..whole.min(longest);
        frame.cut(range.end);
        let element = Element { header, range, admitted, turn, prepared };
        let (core, link) = (Arc::clone(&self.core), Arc::clone(&self.link));
        let whose = element.channel().map(|channel| &channel.session.account);
        let frame = frame.keep(&link, whose, header.command, (1, fetches));
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

    /// Checks who sends a request and whether it is protected as it must be. `known`: the channel of the request before it
    /// in the frame.
    ///
    /// Spec: MS-SMB2 §3.3.5.2.4 (signature), §3.3.5.2.9 (session), §3.3.5.2.11 (encryption).
    fn admit(
        &self,
        header: &Header,
        pdu: &mut [u8],
        (at, proof): (usize, &Proof),
        known: &mut Option<Arc<Channel>>,
    ) -> Result<Option<Arc<Channel>>, NtStatus> {
        let session_id = header.session_id.0;
        if session_id == 0 && header.command == Command::ECHO {
            return Ok(None);
        }
        let again = known.take().filter(|channel| channel.session.id == session_id);
        let channel = again.or_else(|| self.link.channel(session_id));
        let channel = channel.ok_or(NtStatus::USER_SESSION_DELETED)?;
        *known = Some(Arc::clone(&channel));
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
}
