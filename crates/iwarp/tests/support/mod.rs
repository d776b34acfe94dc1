//! Helpers of all tests of the crate: hexadecimal, agreements, a wire that strips markers.

#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod unmark;

use std::convert::Infallible;

use iwarp::mpa::{Profile, ProfileFlags};
use iwarp::rdmap::TerminateRepr;
use iwarp::{Agreement, Indication, Received, Role, Stag, Stream, StreamError};

/// Reads hexadecimal, ignoring blanks.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// The sender of a captured segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum From {
    Initiator,
    Responder,
}

/// Reads a captured conversation: `>` from the initiator, `<` from the responder.
pub(crate) fn captured(text: &str) -> Vec<(From, Vec<u8>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &str| match line.split_at(1) {
        (">", rest) => (From::Initiator, hex(rest)),
        ("<", rest) => (From::Responder, hex(rest)),
        (other, _) => panic!("a captured line begins with {other:?}"),
    };
    lines.map(parse).collect()
}

/// Everything on offer, with frames of up to `fpdu_max`.
pub(crate) fn profile(fpdu_max: u32) -> Profile {
    let mut flags = ProfileFlags::FLUSH | ProfileFlags::VERIFY | ProfileFlags::ATOMIC_WRITE;
    flags.set(ProfileFlags::LARGE_FPDU, fpdu_max > 0);
    Profile::new(flags, fpdu_max, &[]).unwrap()
}

/// Both ends of a stream on which every operation is allowed.
pub(crate) fn extended(role: Role) -> Agreement {
    Agreement { ours: Some(profile(0)), theirs: Some(profile(0)), ..Agreement::plain(role, 16, 16) }
}

/// A responder that may send, because it has validated an empty Write.
pub(crate) fn responder(agreement: &Agreement) -> Stream {
    let mut stream = Stream::new(&Agreement { role: Role::Responder, ..*agreement }, 1460);
    take(&mut stream, &tagged([0xc1, 0x40], 1, 0, &[]));
    stream
}

/// An initiator that has sent its first frame.
pub(crate) fn initiator(agreement: &Agreement) -> Stream {
    let mut stream = Stream::new(&Agreement { role: Role::Initiator, ..*agreement }, 1460);
    stream.frame_kick(&mut [0; 256]).unwrap();
    stream
}

/// Receives bytes that must be one whole valid frame.
pub(crate) fn take<'b>(stream: &mut Stream, bytes: &'b [u8]) -> Indication<'b> {
    match stream.receive(bytes).unwrap() {
        Received::Frame { consumed, indication } => {
            assert_eq!(consumed, bytes.len());
            indication
        }
        Received::Incomplete { missing } => panic!("{missing} bytes are missing"),
    }
}

/// Receives bytes that the stream must refuse.
pub(crate) fn refused(stream: &mut Stream, bytes: &[u8]) -> StreamError {
    stream.receive(bytes).unwrap_err()
}

/// A frame around `ulpdu`, sealed with its CRC.
pub(crate) fn frame(ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = iwarp::mpa::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// An untagged segment: control bytes, queue, MSN, MO, then the payload.
pub(crate) fn untagged(control: [u8; 2], fields: (u32, u32, u32), payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = control.to_vec();
    for word in [0, fields.0, fields.1, fields.2] {
        ulpdu.extend_from_slice(&word.to_be_bytes());
    }
    ulpdu.extend_from_slice(payload);
    frame(&ulpdu)
}

/// A tagged segment: control bytes, STag, TO, then the payload.
pub(crate) fn tagged(control: [u8; 2], stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = control.to_vec();
    ulpdu.extend_from_slice(&stag.to_be_bytes());
    ulpdu.extend_from_slice(&offset.to_be_bytes());
    ulpdu.extend_from_slice(payload);
    frame(&ulpdu)
}

/// A closure that fills a segment's room from `bytes`.
pub(crate) fn copy(bytes: &[u8]) -> impl FnOnce(&mut [u8]) -> Result<(), Infallible> + '_ {
    move |room| {
        room.copy_from_slice(&bytes[..room.len()]);
        Ok(())
    }
}

/// The Terminate of the stream for `cause` in its last frame.
pub(crate) fn terminate(stream: &Stream, error: StreamError) -> Option<TerminateRepr> {
    stream.terminate(error, stream.segment_context())
}

pub(crate) const STAG: Stag = Stag(0x00ab_cd00);
