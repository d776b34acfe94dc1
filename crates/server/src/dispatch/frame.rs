//! Building answer frames in place: header, body, signature, seal, length prefix.
//!
//! ```text
//!  start   +4              (+52 if sealed)
//!  +-------+---------------+--------+------+-----+--------+------+
//!  | prefix| transform hdr | header | body | pad | header | body |  ...
//!  +-------+---------------+--------+------+-----+--------+------+
//! ```
//!
//! Bodies are appended behind a header that is written first and corrected last, so the bytes of a
//! READ go from the file to their final place in one step.
//!
//! Spec: MS-SMB2 §3.3.4.1 (sending any message).

use smb::ErrorResponse;
use smb::NtStatus;
use smb::ParseError;
use smb::TransformHeader;
use smb::crypto::{SignError, Turn};
use smb::framing;
use smb::{Header, HeaderFlags, Route, SessionId};

use crate::connections::{Channel, Link};

/// Outcome of a command: the status of a response whose body was appended, or of one without.
pub(crate) type Outcome = Result<NtStatus, NtStatus>;

/// Starts a frame at the end of `out`.
pub(crate) fn begin(out: &mut Vec<u8>, sealed: bool) -> usize {
    let start = out.len();
    let head = framing::PREFIX_LEN + if sealed { TransformHeader::LEN } else { 0 };
    out.resize(start + head, 0);
    start
}

/// Starts a PDU: its header, to be corrected by [`end_pdu`]. Returns where it lies.
pub(crate) fn begin_pdu(out: &mut Vec<u8>, request: &Header) -> usize {
    let at = out.len();
    request.response(NtStatus::SUCCESS).emit(out);
    at
}

/// Closes a PDU: the error body if there is no other, and the header as it goes out.
pub(crate) fn end_pdu(
    out: &mut Vec<u8>,
    at: usize,
    request: &Header,
    outcome: Outcome,
    terms: Terms,
) {
    let status = match outcome {
        Ok(status) => status,
        Err(status) => {
            out.truncate(at + Header::LEN);
            ErrorResponse::NONE.emit(out);
            status
        }
    };
    let mut header = request.response(status);
    header.credits = terms.credits;
    header.session_id = terms.session_id;
    if let Some(route) = terms.route {
        header.route = route;
    }
    // The header is emitted behind the body and moved: emitting takes a growing buffer.
    let end = out.len();
    make_room(out, Header::LEN);
    header.emit(out);
    out.copy_within(end.., at);
    out.truncate(end);
}

// A long answer does not take twice its memory for a few bytes more.
fn make_room(out: &mut Vec<u8>, bytes: usize) {
    if out.len() > LONG {
        out.reserve_exact(bytes);
    }
}

/// Gives memory back that a PDU took and does not need: a READ of little, or one that failed. A buffer that grew by others
/// grows on in what it has.
pub(crate) fn give_back_much(out: &mut Vec<u8>) {
    if out.capacity() - out.len() > SLACK_MAX.max(out.len()) {
        out.shrink_to_fit();
    }
}

/// Gives memory back that answers do not need.
pub(crate) fn give_back(out: &mut Vec<u8>) {
    if out.capacity() - out.len() > SLACK_MAX {
        out.shrink_to_fit();
    }
}

/// What a response header says beside the status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) credits: u16,
    pub(crate) session_id: SessionId,
    /// Set when the response differs from its request in this: async, or a new tree.
    pub(crate) route: Option<Route>,
}

/// Pads a PDU that another one follows and links it. It can be signed after that, not before.
pub(crate) fn link_pdu(out: &mut Vec<u8>, at: usize) {
    let len = pad_pdu(out, at);
    let next = u32::try_from(len).expect("a frame is shorter than 16 MiB");
    out[at + NEXT_COMMAND..at + NEXT_COMMAND + 4].copy_from_slice(&next.to_le_bytes());
}

/// Pads a PDU to eight bytes. How long it is then.
pub(crate) fn pad_pdu(out: &mut Vec<u8>, at: usize) -> usize {
    let len = (out.len() - at).next_multiple_of(8);
    make_room(out, 8);
    out.resize(at + len, 0);
    len
}

pub(super) fn is_signed(request: &Header, channel: &Channel) -> bool {
    let asked = request.flags.contains(HeaderFlags::SIGNED) || channel.session.signing_required;
    asked && channel.signing.is_some()
}

/// Signs a PDU where its session asks for it.
pub(crate) fn sign(pdu: &mut [u8], turn: Turn, request: &Header, channel: &Channel, sealed: bool) {
    let key = channel.signing.as_ref().filter(|_| !sealed && is_signed(request, channel));
    let Some(key) = key else { return };
    let signed = key.sign(turn, pdu);
    // Interim answers stay unsigned; nothing else can be refused: the channel is the connection's.
    debug_assert!(matches!(signed, Ok(()) | Err(SignError::Exempt)), "{signed:?}");
}

/// Seals the frame if `seal` says so and writes its length. `out` ends with the frame.
///
/// An error means that the session's keys are used up: the connection has to go.
pub(crate) fn end(
    out: &mut Vec<u8>,
    start: usize,
    seal: Option<&Channel>,
) -> Result<(), FrameError> {
    let frame_at = start + framing::PREFIX_LEN;
    if let Some(channel) = seal {
        let key = channel.session.sealing.as_ref().ok_or(FrameError::NoKey)?;
        let payload_at = frame_at + TransformHeader::LEN;
        let original_size =
            u32::try_from(out.len() - payload_at).map_err(|_| FrameError::TooLong)?;
        let header = TransformHeader {
            signature: [0; 16],
            nonce: [0; 16],
            original_size,
            session_id: SessionId(channel.session.id),
        };
        let end = out.len();
        make_room(out, TransformHeader::LEN);
        header.emit(out);
        out.copy_within(end.., frame_at);
        out.truncate(end);
        let (head, payload) = out[frame_at..].split_at_mut(TransformHeader::LEN);
        let head = head.first_chunk_mut().expect("split at its length");
        key.seal(head, payload).map_err(|_| FrameError::KeyExhausted)?;
    }
    end_before(out, start, 0)
}

/// Writes the length of a frame that is not sealed, and of which `rest` bytes follow.
pub(crate) fn end_before(out: &mut [u8], start: usize, rest: usize) -> Result<(), FrameError> {
    let frame_at = start + framing::PREFIX_LEN;
    let prefix = framing::prefix(out.len() - frame_at + rest).ok_or(FrameError::TooLong)?;
    out[start..frame_at].copy_from_slice(&prefix);
    Ok(())
}

/// A whole frame with one PDU without content beside its status.
pub(crate) fn plain_status(
    link: &Link,
    out: &mut Vec<u8>,
    request: &Header,
    status: NtStatus,
    signer: Option<(&Channel, Turn)>,
    sealed: bool,
) -> Result<(), FrameError> {
    let start = begin(out, sealed);
    let at = begin_pdu(out, request);
    let credits = link.window().grant(request.credits);
    let terms = Terms { credits, session_id: request.session_id, route: None };
    end_pdu(out, at, request, Err(status), terms);
    let channel = signer.map(|(channel, turn)| {
        sign(&mut out[at..], turn, request, channel, sealed);
        channel
    });
    end(out, start, channel.filter(|_| sealed))
}

/// Marks the answer to a signed request of a session that nobody knows: with what signature the request
/// had, as other servers do. It proves nothing, and a client that signs takes no answer without.
pub(crate) fn echo_signature(out: &mut [u8], start: usize, request: &[u8]) {
    let at = start + framing::PREFIX_LEN;
    let signature = request.get(SIGNATURE..Header::LEN);
    let (Some(signature), Some(pdu)) = (signature, out.get_mut(at..at + Header::LEN)) else {
        return;
    };
    pdu[FLAGS] |= SIGNED;
    pdu[SIGNATURE..].copy_from_slice(signature);
}

/// Why a frame cannot be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FrameError {
    /// A bug: who signs or seals has panicked.
    #[error("nobody has signed or sealed it to the end")]
    Panicked,
    /// A sealed answer in a session without keys.
    #[error("the session has no encryption keys")]
    NoKey,
    /// The session has sealed as many frames as its keys allow.
    #[error("the session's keys are used up")]
    KeyExhausted,
    /// Longer than a length prefix can say.
    #[error("the answer is longer than a frame can be")]
    TooLong,
}

const NEXT_COMMAND: usize = 20;
// SMB2_FLAGS_SIGNED in the first byte of Flags; the signature ends the header. MS-SMB2 §2.2.1.
const FLAGS: usize = 16;
const SIGNED: u8 = 0x08;
const SIGNATURE: usize = 48;

/// The status for a request whose body cannot be read.
pub(crate) fn malformed(error: ParseError) -> NtStatus {
    error.status()
}

/// Bytes of memory that the answers of a job leave unused.
const SLACK_MAX: usize = 16 << 10;
/// An answer whose memory grows by what it needs, not to twice its length.
const LONG: usize = 256 << 10;
