//! The frames that only a link of several connections has.
//!
//! ```text
//!   Numbered  number 8, got 8     before each frame: which one it is, and everything below `got` was taken here
//!   Got       got 8
//! ```

use super::super::codec::{self, GREETINGS, Head, WireError};
use super::super::error::LinkError;
use super::super::greeting::{close, open};
use super::super::link::OneSender;
use super::flow::Frame;

const NUMBERED: u8 = GREETINGS + 3;
const GOT: u8 = GREETINGS + 4;

/// What stands before a frame, or alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::wire) struct Mark {
    /// The number of the frame behind it.
    pub(in crate::wire) number: Option<u64>,
    /// The sender has taken everything below.
    pub(in crate::wire) got: u64,
}

impl Mark {
    pub(in crate::wire) fn encode(self) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::new();
        match self.number {
            Some(number) => codec::append(NUMBERED, 0, &mut out, |put| {
                put.field("Numbered.number", &number)?;
                put.field("Numbered.got", &self.got)
            })?,
            None => codec::append(GOT, 0, &mut out, |put| put.field("Got.got", &self.got))?,
        }
        Ok(out)
    }

    pub(in crate::wire) fn decode(head: Head, body: &[u8]) -> Result<Self, WireError> {
        let is_numbered = head.kind() == NUMBERED;
        let mut take = open(if is_numbered { NUMBERED } else { GOT }, head, body)?;
        let number = if is_numbered { Some(take.field("Numbered.number")?) } else { None };
        let mark = Self { number, got: take.field("got")? };
        close(head, &take)?;
        Ok(mark)
    }
}

/// Sends a frame with its number.
pub(super) fn send(sender: &mut OneSender, frame: &Frame, got: u64) -> Result<(), LinkError> {
    let mark = Mark { number: Some(frame.number), got }.encode()?;
    sender.send_frames(&[&mark, &frame.head], &frame.payload)
}

/// Says that everything below was taken.
pub(super) fn say_got(sender: &mut OneSender, got: u64) -> Result<(), LinkError> {
    let mark = Mark { number: None, got }.encode()?;
    sender.send_frames(&[&mark], &[])
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::super::codec::HEAD_LEN;
    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_are_the_only_mark(
            kind in 0x80..0x86_u8,
            body in vec(any::<u8>(), 6..18),
        ) {
            let mut frame = vec![b'L', b'R', 1, kind];
            frame.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
            frame.extend_from_slice(&[0; 4]);
            frame.extend_from_slice(&body);
            let (head, body) = frame.split_first_chunk::<HEAD_LEN>().unwrap();
            if let Ok(mark) = Head::decode(head).and_then(|head| Mark::decode(head, body)) {
                prop_assert_eq!(mark.encode().unwrap(), frame);
            }
        }
    }
}
