//! RDMA through shared memory: a peer that writes anything into the memory and the socket.

use rdma::fuzzing::AttackedShm;

use crate::Input;

enum Operation<'a> {
    PeerGreets,
    PeerSends(&'a [u8]),
    PeerHears,
    PeerTells(u8, u64),
    PeerPuts(bool, u32, &'a [u8]),
    Admit,
    Receive(u32),
    Send(u32),
    Rest(u8),
}

impl<'a> Operation<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        match input.byte() % 10 {
            0 => Self::PeerGreets,
            1 => Self::PeerSends(input.chunk()),
            2 => Self::PeerHears,
            3 => Self::PeerTells(input.byte(), input.u64()),
            // Near the positions that there are.
            4 => Self::PeerTells(input.byte(), u64::from(input.u32() % (1 << 20))),
            5 => Self::PeerPuts(input.byte() & 1 != 0, input.u32() % (1 << 19), input.chunk()),
            6 => Self::Admit,
            7 => Self::Receive(input.u32() % LEN_MAX),
            8 => Self::Send(input.u32() % LEN_MAX),
            _ => Self::Rest(input.byte()),
        }
    }
}

/// One byte for the end that is ours, then operations.
pub(crate) fn shm(data: &[u8]) {
    let mut input = Input::new(data);
    let accepts = input.byte() & 1 != 0;
    // A host without descriptors is not the peer's doing.
    let Ok(mut attacked) = AttackedShm::new(accepts) else { return };
    let mut room = vec![0; usize::try_from(LEN_MAX).expect("usize has at least 32 bits")];
    while !input.is_empty() {
        match Operation::read(&mut input) {
            Operation::PeerGreets => attacked.peer_greets(accepts),
            Operation::PeerSends(bytes) => attacked.peer_sends(bytes),
            Operation::PeerHears => attacked.peer_hears(),
            Operation::PeerTells(word, value) => attacked.peer_tells(word, value),
            Operation::PeerPuts(to_acceptor, at, bytes) => {
                attacked.peer_puts(to_acceptor, at, bytes)
            }
            Operation::Admit => attacked.admit(),
            Operation::Receive(len) => {
                let room = &mut room[..to_usize(len)];
                let came = attacked.receive(room);
                assert!(came.is_none_or(|came| came <= to_usize(len)));
            }
            Operation::Send(len) => {
                let went = attacked.send(&room[..to_usize(len)]);
                assert!(went.is_none_or(|went| went <= to_usize(len)));
            }
            Operation::Rest(interest) => attacked.rest(interest & 1 != 0, interest & 2 != 0),
        }
    }
}

fn to_usize(len: u32) -> usize {
    usize::try_from(len).expect("usize has at least 32 bits")
}

/// More than a ring.
const LEN_MAX: u32 = 300_000;
