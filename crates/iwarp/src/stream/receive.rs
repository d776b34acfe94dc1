//! The receiving half: one frame off the front of the bytes, checked from the outside in.

use super::indication::{Indication, ReadResponseSegment, Received, SendSegment, WriteSegment};
use super::outstanding::OutboundRequest;
use super::{InboundRequest, Stream, StreamError};
use crate::ddp::{DdpError, Stag, TaggedRepr, UntaggedRepr, is_tagged};
use crate::mpa::{Fpdu, FpduError, ProfileFlags, ReadyKind, Role, fpdu_size};
use crate::rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, AtomicWriteRequestRepr, FlushRequestRepr, ImmediateRepr,
    Opcode, RdmapError, ReadRequestRepr, TerminateOrder, TerminateRepr, TerminatedSegment,
    VERIFY_HASH_SIZE_MAX, VerifyRequestRepr,
};

impl Stream {
    /// Takes one frame off the front of `bytes` and returns its meaning.
    ///
    /// The machine checks the CRC first, and hands out nothing of a bad frame.
    ///
    /// # Errors
    ///
    /// The first error is final: every later call fails. [`Stream::terminate`] turns the error into
    /// the Terminate for the peer.
    #[inline]
    pub fn receive<'b>(&mut self, bytes: &'b [u8]) -> Result<Received<'b>, StreamError> {
        if bytes.is_empty() {
            return Ok(Received::Incomplete { missing: fpdu_size(0) });
        }
        self.inbound.check_open()?;
        match self.receive_frame(bytes) {
            Ok(received) => Ok(received),
            Err(error) => {
                self.inbound.failed();
                Err(error)
            }
        }
    }

    fn receive_frame<'b>(&mut self, bytes: &'b [u8]) -> Result<Received<'b>, StreamError> {
        self.inbound.segment = None;
        self.inbound.read_request = None;
        let fpdu = match Fpdu::parse(bytes, self.crc) {
            Ok(fpdu) => fpdu,
            Err(FpduError::Incomplete { missing }) => return Ok(Received::Incomplete { missing }),
            Err(FpduError::PeerCrc { computed, received }) => {
                return Err(StreamError::PeerCrc { computed, received });
            }
        };
        // RFC 5044 §7.1.2: the responder waits for our first frame.
        if self.role == Role::Initiator && !self.outbound.is_started() {
            return Err(StreamError::PeerSpokeFirst);
        }
        self.inbound.segment = TerminatedSegment::of(fpdu.ulpdu);
        let indication = if fpdu.ulpdu.first().copied().is_some_and(is_tagged) {
            self.receive_tagged(fpdu.ulpdu)?
        } else {
            self.receive_untagged(fpdu.ulpdu)?
        };
        self.inbound.frame_was_good();
        if matches!(indication, Indication::Terminate(_)) {
            self.inbound.terminated();
        }
        Ok(Received::Frame { consumed: fpdu.size, indication })
    }

    fn receive_tagged<'b>(&mut self, ulpdu: &'b [u8]) -> Result<Indication<'b>, StreamError> {
        let (repr, payload) = TaggedRepr::parse(ulpdu).map_err(|error| of_ddp(error, true))?;
        let opcode = self.opcode(repr.ulp_control)?;
        if !opcode.is_tagged() {
            return Err(match opcode.queue() {
                Some(_) => StreamError::PeerModel { opcode, tagged: true },
                None => StreamError::PeerOpcode(opcode),
            });
        }
        self.inbound.tagged(opcode, &repr, payload.len())?;
        let TaggedRepr { stag, tagged_offset, last, .. } = repr;
        if opcode == Opcode::WRITE {
            if payload.is_empty() && self.is_awaited(ReadyKind::Write) {
                return Ok(Indication::Ready);
            }
            return Ok(Indication::Write(WriteSegment { stag, tagged_offset, payload, last }));
        }
        let progress = self.outstanding.read_response(&repr, payload.len())?;
        if progress.ready {
            return Ok(Indication::Ready);
        }
        let offset = progress.offset;
        let segment = ReadResponseSegment { stag, tagged_offset, offset, payload, last };
        Ok(Indication::ReadResponse(segment))
    }

    fn receive_untagged<'b>(&mut self, ulpdu: &'b [u8]) -> Result<Indication<'b>, StreamError> {
        let (repr, payload) = UntaggedRepr::parse(ulpdu).map_err(|error| of_ddp(error, false))?;
        let opcode = self.opcode(repr.ulp_control)?;
        let Some(queue) = opcode.queue().filter(|_| self.is_agreed(opcode)) else {
            return Err(if opcode.is_tagged() {
                StreamError::PeerModel { opcode, tagged: false }
            } else {
                StreamError::PeerOpcode(opcode)
            });
        };
        if repr.queue != queue {
            return Err(StreamError::PeerQueue { opcode, queue: repr.queue });
        }
        // A Terminate may cut any message short, and siw numbers it as it likes.
        if opcode == Opcode::TERMINATE {
            return self.receive_terminate(payload);
        }
        self.inbound.untagged(opcode, &repr, payload.len())?;
        match opcode {
            Opcode::SEND
            | Opcode::SEND_INVALIDATE
            | Opcode::SEND_SOLICITED
            | Opcode::SEND_SOLICITED_INVALIDATE => Ok(self.receive_send(opcode, &repr, payload)),
            Opcode::IMMEDIATE | Opcode::IMMEDIATE_SOLICITED => {
                let ImmediateRepr { data } =
                    ImmediateRepr::parse(payload).map_err(|error| of_rdmap(error, opcode))?;
                let solicited = opcode.is_solicited();
                Ok(Indication::Immediate { msn: repr.msn, data, solicited })
            }
            _ if queue == crate::ddp::QueueNumber::REQUEST => {
                self.receive_request(opcode, repr.ulp_word, payload)
            }
            _ => self.receive_response(opcode, payload),
        }
    }

    fn receive_send<'b>(
        &self,
        opcode: Opcode,
        repr: &UntaggedRepr,
        payload: &'b [u8],
    ) -> Indication<'b> {
        if payload.is_empty() && opcode == Opcode::SEND && self.is_awaited(ReadyKind::Send) {
            return Indication::Ready;
        }
        Indication::Send(SendSegment {
            msn: repr.msn,
            offset: repr.message_offset,
            payload,
            last: repr.last,
            solicited: opcode.is_solicited(),
            invalidate: opcode.is_invalidating().then_some(Stag(repr.ulp_word)),
        })
    }

    fn receive_request<'b>(
        &mut self,
        opcode: Opcode,
        ulp_word: u32,
        payload: &'b [u8],
    ) -> Result<Indication<'b>, StreamError> {
        let garbled = |error| of_rdmap(error, opcode);
        let (request, indication) = match opcode {
            Opcode::READ_REQUEST => {
                let request = ReadRequestRepr::parse(payload).map_err(garbled)?;
                self.inbound.read_request = Some(request);
                check_range(request.source_offset, request.size)?;
                check_range(request.sink_offset, request.size)?;
                (InboundRequest::Read { request, sent: 0 }, Indication::ReadRequest(request))
            }
            Opcode::ATOMIC_REQUEST => {
                let request = AtomicRequestRepr::parse(payload).map_err(garbled)?;
                check_range(request.tagged_offset, ATOMIC_SIZE)?;
                let request_id = request.request_id;
                (InboundRequest::Atomic { request_id }, Indication::AtomicRequest(request))
            }
            Opcode::FLUSH_REQUEST => {
                let request = FlushRequestRepr::parse(payload).map_err(garbled)?;
                check_range(request.tagged_offset, request.length)?;
                (InboundRequest::Flush, Indication::FlushRequest(request))
            }
            Opcode::VERIFY_REQUEST => {
                let request = VerifyRequestRepr::parse(payload).map_err(garbled)?;
                check_range(request.tagged_offset, request.length)?;
                (InboundRequest::Verify, Indication::VerifyRequest(request))
            }
            _ => {
                let request = AtomicWriteRequestRepr::parse(payload).map_err(garbled)?;
                check_range(request.tagged_offset, ATOMIC_SIZE)?;
                (InboundRequest::AtomicWrite, Indication::AtomicWriteRequest(request))
            }
        };
        // The draft lets the word name a region to invalidate afterwards; this end does not offer that.
        if ulp_word != 0 && is_extended(opcode) {
            return Err(StreamError::PeerInvalidate { opcode, stag: Stag(ulp_word) });
        }
        self.requests.push(request)?;
        Ok(indication)
    }

    fn receive_response<'b>(
        &mut self,
        opcode: Opcode,
        payload: &'b [u8],
    ) -> Result<Indication<'b>, StreamError> {
        let garbled = |error| of_rdmap(error, opcode);
        let outstanding = &mut self.outstanding;
        match opcode {
            Opcode::ATOMIC_RESPONSE => {
                let response = AtomicResponseRepr::parse(payload).map_err(garbled)?;
                outstanding.complete_atomic(response.request_id)?;
                Ok(Indication::AtomicResponse(response))
            }
            Opcode::FLUSH_RESPONSE => {
                check_empty(opcode, payload)?;
                outstanding.complete(opcode, |next| matches!(next, OutboundRequest::Flush))?;
                Ok(Indication::FlushResponse)
            }
            Opcode::VERIFY_RESPONSE => {
                if payload.len() > VERIFY_HASH_SIZE_MAX {
                    let got = payload.len();
                    return Err(StreamError::PeerLength {
                        opcode,
                        need: VERIFY_HASH_SIZE_MAX,
                        got,
                    });
                }
                outstanding.complete(opcode, |next| matches!(next, OutboundRequest::Verify))?;
                Ok(Indication::VerifyResponse(payload))
            }
            _ => {
                check_empty(opcode, payload)?;
                let matches = |next: &OutboundRequest| matches!(next, OutboundRequest::AtomicWrite);
                outstanding.complete(opcode, matches)?;
                Ok(Indication::AtomicWriteResponse)
            }
        }
    }

    fn receive_terminate<'b>(&self, payload: &[u8]) -> Result<Indication<'b>, StreamError> {
        let order = if self.inbound.is_validated() {
            TerminateOrder::InFullOperation
        } else {
            TerminateOrder::BeforeFirstFrame
        };
        TerminateRepr::parse(payload, order)
            .map(Indication::Terminate)
            .ok_or(StreamError::PeerTerminateGarbled { got: payload.len() })
    }

    fn opcode(&self, control: u8) -> Result<Opcode, StreamError> {
        Opcode::parse(control, self.width).map_err(|error| of_rdmap(error, Opcode(control)))
    }

    /// Whether the peer may send messages of this kind: those of the RFCs always, others if announced.
    fn is_agreed(&self, opcode: Opcode) -> bool {
        let (flag, profile) = match opcode {
            Opcode::FLUSH_REQUEST => (ProfileFlags::FLUSH, self.ours),
            Opcode::VERIFY_REQUEST => (ProfileFlags::VERIFY, self.ours),
            Opcode::ATOMIC_WRITE_REQUEST => (ProfileFlags::ATOMIC_WRITE, self.ours),
            Opcode::FLUSH_RESPONSE => (ProfileFlags::FLUSH, self.theirs),
            Opcode::VERIFY_RESPONSE => (ProfileFlags::VERIFY, self.theirs),
            Opcode::ATOMIC_WRITE_RESPONSE => (ProfileFlags::ATOMIC_WRITE, self.theirs),
            _ => return true,
        };
        profile.contains(flag)
    }

    /// Whether the ready-to-receive message is due and is of this kind by agreement.
    fn is_awaited(&self, kind: ReadyKind) -> bool {
        self.role == Role::Responder && !self.inbound.is_validated() && self.ready == Some(kind)
    }
}

/// Whether the kind comes from the draft and not from an RFC.
fn is_extended(opcode: Opcode) -> bool {
    opcode.0 >= Opcode::FLUSH_REQUEST.0
}

fn check_range(offset: u64, len: u32) -> Result<(), StreamError> {
    let end = offset.checked_add(u64::from(len));
    end.map(|_| ()).ok_or(StreamError::PeerOffsetWrap { tagged: false })
}

fn check_empty(opcode: Opcode, payload: &[u8]) -> Result<(), StreamError> {
    if payload.is_empty() {
        return Ok(());
    }
    Err(StreamError::PeerLength { opcode, need: 0, got: payload.len() })
}

fn of_ddp(error: DdpError, tagged: bool) -> StreamError {
    match error {
        DdpError::PeerTruncated { need, got } => StreamError::PeerTruncated { need, got },
        DdpError::PeerVersion(version) => StreamError::PeerDdpVersion { version, tagged },
        DdpError::PeerModel => StreamError::PeerModel { opcode: Opcode(0), tagged },
    }
}

fn of_rdmap(error: RdmapError, opcode: Opcode) -> StreamError {
    match error {
        RdmapError::PeerVersion(version) => StreamError::PeerRdmapVersion(version),
        RdmapError::PeerLength { need, got } => StreamError::PeerLength { opcode, need, got },
        RdmapError::PeerHashLength { limit, got } => {
            StreamError::PeerLength { opcode, need: limit, got }
        }
        RdmapError::PeerAtomicOperation(code) => StreamError::PeerAtomicOperation(code),
        RdmapError::PeerAtomicWriteLength(len) => StreamError::PeerAtomicWriteLength(len),
    }
}

/// Bytes an atomic operation works on.
const ATOMIC_SIZE: u32 = 8;
