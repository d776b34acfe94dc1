//! The receiving half: takes frames, and hands answers to the callers that wait.
//!
//! ```text
//!  frame --> encrypted? --open--> PDUs of the compound, each:
//!            signature --> asked so? --> credits --> PENDING? note the async id
//!                                               --> final?   wake the request
//!                      \\-> id -1? break of a lease
//! ```
//!
//! Spec: MS-SMB2 §3.2.5.1.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;

use smb::framing::FRAME_OVERHEAD_MAX;
use smb::{
    BreakNotification, Command, Header, LeaseBreakAck, MessageId, NtStatus, ParseError, Protocol,
    SessionId, TransformHeader, TreeId, compound, expect_direction,
};

use super::detached::Detached;
use super::open_requests::Finished;
use super::{LeaseBreak, Negotiated, Response, Shared};
use crate::error::ConnectionError;
use crate::transport::{FrameReceiver, InFrame};

/// The receiving task. Ends when the connection does.
pub(super) async fn run(shared: Arc<Shared>, mut receiver: Box<dyn FrameReceiver>) {
    let error = loop {
        let len_max = shared.frame_len_max();
        let frame = poll_fn(|cx| receiver.poll_receive(cx, len_max)).await;
        if let Err(error) = frame.and_then(|frame| shared.take_frame(frame)) {
            break error;
        }
    };
    tracing::debug!(%error, "connection ended");
    shared.fail(error);
}

impl Shared {
    fn frame_len_max(&self) -> usize {
        let data = self.negotiated.get().map_or(0, Negotiated::read_size_max);
        usize::try_from(data).unwrap_or(usize::MAX).saturating_add(FRAME_OVERHEAD_MAX)
    }

    fn take_frame(&self, mut frame: InFrame) -> Result<(), ConnectionError> {
        match Protocol::of(&frame)? {
            Protocol::Smb2 => self.take_message(frame, 0, None),
            Protocol::Encrypted => {
                let (header, _) = TransformHeader::parse(&frame)?;
                let id = header.session_id;
                let session = self.session(id).ok_or(ConnectionError::PeerSession(id))?;
                let (header, payload) =
                    frame.split_first_chunk_mut().expect("parse() found a whole header");
                session.open(header, payload)?;
                self.take_message(frame, TransformHeader::LEN, Some(id))
            }
            Protocol::Compressed | Protocol::Smb1 => {
                let id = frame.first_chunk().map_or(0, |id| u32::from_be_bytes(*id));
                Err(ParseError::PeerProtocolId(id).into())
            }
        }
    }

    /// `sealed_by`: the session whose key opened the frame.
    fn take_message(
        &self,
        mut frame: InFrame,
        start: usize,
        sealed_by: Option<SessionId>,
    ) -> Result<(), ConnectionError> {
        let pdus: Vec<(Range<usize>, Header)> =
            compound::walk(&frame[start..]).collect::<Result<_, _>>()?;
        for (range, header) in &pdus {
            expect_direction(header, true)?;
            let pdu = &mut frame[start + range.start..start + range.end];
            match (sealed_by, self.session(header.session_id)) {
                // MS-SMB2 §3.2.5.1.1.1: the transform header and the message name the same session.
                (Some(id), _) if header.session_id != id && header.message_id != UNSOLICITED => {
                    return Err(ConnectionError::PeerSession(header.session_id));
                }
                (Some(_), _) | (None, None) => {}
                (None, Some(session)) => session.verify(header, pdu)?,
            }
        }
        let frame = Arc::new(frame);
        for (range, header) in pdus {
            let range = start + range.start..start + range.end;
            let response = Response::new(Arc::clone(&frame), range, header);
            self.take_pdu(response, sealed_by)?;
        }
        Ok(())
    }

    fn take_pdu(
        &self,
        response: Response,
        sealed_by: Option<SessionId>,
    ) -> Result<(), ConnectionError> {
        let header = *response.header();
        if header.message_id == UNSOLICITED {
            return self.take_unsolicited(&response, sealed_by);
        }
        let unknown = ConnectionError::PeerMessage(header.message_id);
        let now = self.now();
        let mut open = self.lock_open();
        open.heard(now);
        open.check(&header, sealed_by.is_some())?;
        if header.status == NtStatus::PENDING {
            let async_id = header.async_id();
            let async_id = async_id.ok_or(ConnectionError::PeerInterim(header.message_id))?;
            let charge = open.pend(header.message_id, async_id).ok_or(unknown)?;
            self.credits.grant(header.credits, charge);
            drop(open);
            self.send_waiting();
            return Ok(());
        }
        let Finished { charge, leftover } = open.finish(response).ok_or(unknown)?;
        self.credits.grant(header.credits, charge);
        let is_drained = open.is_empty();
        drop(open);
        if is_drained {
            self.credits.drained();
        }
        // MS-SMB2 §3.3.1.2: a server never leaves a client without a credit.
        if is_drained && self.credits.owned() == 0 {
            return Err(ConnectionError::PeerCredits);
        }
        if let Some((leftover, response)) = leftover {
            self.settle(leftover, &response);
        }
        self.send_waiting();
        Ok(())
    }

    fn take_unsolicited(
        &self,
        response: &Response,
        sealed_by: Option<SessionId>,
    ) -> Result<(), ConnectionError> {
        // MS-SMB2 §3.2.5.19: other unsolicited messages are ignored.
        if response.header().command != Command::OPLOCK_BREAK {
            return Ok(());
        }
        // This client asks for no oplock, so none can break.
        let BreakNotification::Lease(notification) = BreakNotification::parse(response.pdu())?
        else {
            return Ok(());
        };
        let found = LeaseBreak::from(notification);
        if !self.breaks.deliver(found) && found.ack_required {
            self.acknowledge(found, sealed_by);
        }
        Ok(())
    }

    /// Acknowledges the break of a lease without holder, sealed if the break was sealed.
    fn acknowledge(&self, found: LeaseBreak, sealed_by: Option<SessionId>) {
        let mut body = Vec::new();
        LeaseBreakAck { lease_key: found.key, state: found.new }.emit(&mut body);
        let (command, encrypt) = (Command::OPLOCK_BREAK, sealed_by.is_some());
        let tree = TreeId(0);
        self.send_or_later(Detached { command, session: sealed_by, tree, encrypt, body });
    }
}

const UNSOLICITED: MessageId = MessageId::UNSOLICITED;
