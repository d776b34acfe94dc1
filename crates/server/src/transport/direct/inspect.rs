//! Looks at a request before it is parsed, to decide which thread handles it.
//!
//! ```text
//!  READ, WRITE up to 64 KiB, FLUSH, ECHO, CANCEL   here, on the engine thread
//!   .. WRITE whose bytes are in the peer's memory   here, after they were fetched
//!  everything else, compounds, sealed, long frames   away, on a task
//! ```
//!
//! This module decides only the thread: the same code handles the request on both. A request that
//! cannot be parsed goes where it is refused.

use smb::framing;
use smb::{Channel, Command, Header, Protocol, ReadRequest, WriteRequest};

use super::cursor::Cursor;

/// The thread that handles a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// The engine thread: the request takes microseconds and waits for nothing.
    Here {
        /// Bytes of the frame that answers it, about: those that a READ asks for, and few more.
        answer: usize,
    },
    /// A task: the request may take long.
    Away,
}

/// The result of a first look.
#[derive(Debug)]
pub(super) struct Look {
    /// The thread that handles the request.
    pub(super) place: Place,
    /// The bytes to fetch from the peer's memory first.
    pub(super) fetch: Option<Fetch>,
}

/// Bytes of a WRITE that lie in the peer's memory.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) cursor: Cursor,
    pub(super) len: u32,
}

const AWAY: Look = Look { place: Place::Away, fetch: None };
const HERE: Look = Look { place: SHORT, fetch: None };
/// Of a request that asks for no bytes in its answer.
pub(super) const SHORT: Place = Place::Here { answer: 0 };

/// Looks at a whole frame.
pub(super) fn look(frame: &[u8]) -> Look {
    let Ok(Protocol::Smb2) = Protocol::of(frame) else { return AWAY };
    let Ok(header) = Header::parse(frame) else { return AWAY };
    // The signature of a long frame takes longer than going to a task and back, whatever the
    // request asks for.
    if header.next_command != 0 || frame.len() > LONGEST {
        return AWAY;
    }
    match header.command {
        Command::READ => look_at_read(frame),
        Command::WRITE => look_at_write(frame),
        Command::FLUSH | Command::ECHO | Command::CANCEL => HERE,
        _ => AWAY,
    }
}

/// Looks at a frame, walks the bytes to fetch in chunks of at most `len_max` bytes, and panics if a
/// promise to the rest of this module is broken. For the fuzz targets.
#[cfg(any(test, feature = "fuzzing"))]
pub fn first_look(frame: &[u8], len_max: u32) {
    let look = look(frame);
    let Some(Fetch { mut cursor, len }) = look.fetch else { return };
    assert!(look.place == SHORT && (1..=HERE_MAX).contains(&len));
    let mut done = 0;
    while let Some(chunk) = cursor.next_chunk(len_max) {
        assert!(chunk.position == done && (1..=len_max).contains(&chunk.len));
        assert!(chunk.remote_addr.checked_add(u64::from(chunk.len)).is_some());
        done += usize::try_from(chunk.len).expect("at most HERE_MAX");
        cursor.advance(chunk.len);
    }
    assert!(cursor.is_done() && u32::try_from(done) == Ok(len));
}

fn look_at_read(pdu: &[u8]) -> Look {
    match ReadRequest::parse(pdu) {
        Ok(request) if request.length > HERE_MAX => AWAY,
        Ok(request) if !is_remote(request.channel) => {
            let len = usize::try_from(request.length).expect("at most HERE_MAX");
            Look { place: Place::Here { answer: len + ANSWER_OVERHEAD }, ..HERE }
        }
        Ok(_) | Err(_) => HERE,
    }
}

fn look_at_write(pdu: &[u8]) -> Look {
    let Ok(request) = WriteRequest::parse(pdu) else { return HERE };
    if !is_remote(request.channel) {
        let is_small = u32::try_from(request.data.len()).is_ok_and(|len| len <= HERE_MAX);
        return if is_small { HERE } else { AWAY };
    }
    let len = request.remaining_bytes;
    if len > HERE_MAX {
        return AWAY;
    }
    // Invalid descriptors are refused where the request is handled.
    let fetch = Cursor::new(request.channel_info, u64::from(len)).ok();
    let fetch = fetch.filter(|cursor| !cursor.is_done()).map(|cursor| Fetch { cursor, len });
    Look { fetch, ..HERE }
}

/// The descriptors of a WRITE, as bytes.
pub(super) fn descriptors(pdu: &[u8]) -> Option<&[u8]> {
    WriteRequest::parse(pdu).ok().map(|request| request.channel_info)
}

fn is_remote(channel: Channel) -> bool {
    matches!(channel, Channel::RDMA_V1 | Channel::RDMA_V1_INVALIDATE)
}

/// Longest READ and WRITE handled on the engine thread: copying it takes about 10 µs, less than
/// going to a task and back.
const HERE_MAX: u32 = 64 * 1024;
/// The prefix, the header and the fixed part of an answer to READ, and some more.
const ANSWER_OVERHEAD: usize = 256;
/// Longest frame handled there: the frame of such a WRITE.
const LONGEST: usize = HERE_MAX as usize + framing::FRAME_OVERHEAD_MAX;

#[cfg(test)]
mod tests {
    use smb::{Empty, MessageId};

    use super::*;

    #[test]
    fn a_long_frame_is_handled_on_a_task() {
        let mut frame = Vec::new();
        Header::request(Command::ECHO, MessageId(1)).emit(&mut frame);
        Empty.emit(&mut frame);
        assert_eq!(look(&frame).place, SHORT);
        frame.resize(LONGEST + 1, 0);
        assert_eq!(look(&frame).place, Place::Away);
    }
}
