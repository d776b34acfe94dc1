//! The operations of a script, and the indications that each must cause at the other end.

use proptest::prelude::*;

/// An operation of one end on the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    Write {
        stag: u32,
        offset: u64,
        len: u32,
    },
    Send {
        len: u32,
        solicited: bool,
        invalidate: Option<u32>,
    },
    Immediate {
        data: u64,
        solicited: bool,
    },
    /// A Write and a Send, segment by segment in turn.
    WriteAndSend {
        len: u32,
    },
    Read {
        offset: u64,
        size: u32,
    },
    Atomic {
        id: u32,
        add: u64,
    },
    Flush {
        offset: u64,
        length: u32,
    },
    Verify {
        offset: u64,
        hash: Vec<u8>,
    },
    AtomicWrite {
        offset: u64,
        data: u64,
    },
}

/// The effect of an operation, as the receiving end saw it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Write(u32, u64, Vec<u8>),
    Send(Vec<u8>, bool, Option<u32>),
    Immediate(u64, bool),
    Read(u64, u32),
    Atomic(u32, u64),
    Flush(u64, u32),
    Verify(u64, Vec<u8>),
    AtomicWrite(u64, u64),
    Answer(Vec<u8>),
}

/// Bytes whose values tell their offset in the message.
pub(crate) fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

/// The effect that the other end must see of an operation, and the answer.
pub(crate) fn expected(operation: &Operation) -> (Vec<Seen>, Option<Vec<u8>>) {
    let (seen, answer) = match operation.clone() {
        Operation::Write { stag, offset, len } => (Seen::Write(stag, offset, pattern(len)), None),
        Operation::Send { len, solicited, invalidate } => {
            (Seen::Send(pattern(len), solicited, invalidate), None)
        }
        Operation::WriteAndSend { len } => {
            // A Send has four bytes more of header: it never ends in an earlier turn.
            let write = Seen::Write(7, 0, pattern(len));
            return (vec![write, Seen::Send(pattern(len), false, None)], None);
        }
        Operation::Immediate { data, solicited } => (Seen::Immediate(data, solicited), None),
        Operation::Read { offset, size } => (Seen::Read(offset, size), Some(pattern(size))),
        Operation::Atomic { id, add } => {
            (Seen::Atomic(id, add), Some((u64::from(id) + 1).to_be_bytes().to_vec()))
        }
        Operation::Flush { offset, length } => (Seen::Flush(offset, length), Some(Vec::new())),
        Operation::Verify { offset, hash } => (Seen::Verify(offset, hash), Some(b"hash".to_vec())),
        Operation::AtomicWrite { offset, data } => {
            (Seen::AtomicWrite(offset, data), Some(Vec::new()))
        }
    };
    (vec![seen], answer)
}

pub(crate) fn length() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 1_u32..200, 1_u32..5000, 60_000_u32..140_000]
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let offset = || 0_u64..1 << 40;
    prop_oneof![
        (any::<u32>(), offset(), length()).prop_map(|(stag, offset, len)| Operation::Write {
            stag,
            offset,
            len
        }),
        (length(), any::<bool>(), any::<Option<u32>>()).prop_map(|(len, solicited, invalidate)| {
            Operation::Send { len, solicited, invalidate }
        }),
        (any::<u64>(), any::<bool>())
            .prop_map(|(data, solicited)| Operation::Immediate { data, solicited }),
        (1_u32..5000).prop_map(|len| Operation::WriteAndSend { len }),
        (offset(), length()).prop_map(|(offset, size)| Operation::Read { offset, size }),
        (0_u32..1000, any::<u64>()).prop_map(|(id, add)| Operation::Atomic { id, add }),
        (offset(), any::<u32>()).prop_map(|(offset, length)| Operation::Flush { offset, length }),
        (offset(), proptest::collection::vec(any::<u8>(), 0..=64))
            .prop_map(|(offset, hash)| Operation::Verify { offset, hash }),
        (offset(), any::<u64>()).prop_map(|(offset, data)| Operation::AtomicWrite { offset, data }),
    ]
}
