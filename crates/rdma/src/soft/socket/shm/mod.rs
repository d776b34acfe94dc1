//! A byte stream through memory that two processes share.
//!
//! ```text
//!   dialler                                   acceptor
//!   -------                                   --------
//!   connect(2)                                accept(2)
//!                    <--- greeting, memory    makes it, seals it
//!   maps it
//!   bytes            ===> ring 0 ============>
//!                    <============ ring 1 <=== bytes
//!   a bell, if the other asked for one  <---> a bell
//!   shutdown(2)      ---> end of stream       takes what is left in the ring, then sees the end
//! ```
//!
//! Rings carry all bytes; the unix socket carries the memory, then bells, and with its end the end of the
//! connection, also when a process dies. A bell is one byte, and says nothing but "look". eventfds were rejected:
//! whether they block belongs to the open file, which both ends share, so a peer could clear
//! O_NONBLOCK, fill the counter and stop our engine. What a send on a socket does is for the sender to say.
//! Futexes cannot be waited for together with sockets.
//!
//! Each end has a word that says what it wants to be rung for. It is zero while the engine looks at the rings by
//! itself, so that two engines that are awake make no system call:
//!
//! ```text
//!   who puts in (or takes out)            who is about to sleep
//!   --------------------------            ---------------------
//!   tail (or head) := further             bell := what it waits for
//!   --- total order fence ---             --- total order fence ---
//!   if bell asks for it: ring             if the ring has it: do not sleep
//! ```
//!
//! Each side writes its own word before it reads the other's, so at least one of them sees the other: no
//! bell is lost (`verbs::waker` has the same argument).
//!
//! What a peer can do with the memory: give wrong bytes, which the iWARP machine judges as it does those of a
//! network; give a wrong position, which ends the connection ([`ring`]); ask for bells that it does not need,
//! at one system call for each of our transfers. It cannot cut the memory short ([`segment`]), and no file of ours
//! is in it: what it writes to a region is placed by the responder, after the same checks as over a network.

mod greeting;
mod ring;
mod segment;

use std::net::SocketAddr;
use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;

use super::unix::UnixSocket;
use super::{ByteStream, Transfer};
use crate::common::poller::{Interest, Poller};
use crate::soft::token::Token;
use greeting::Greeting;
use ring::{Consumer, PeerPosition, Producer};
use segment::{RING_LEN, Ring, Segment, Side, Word};

/// See the module.
#[derive(Debug)]
pub(in crate::soft) struct ShmSocket {
    socket: UnixSocket,
    memory: Memory,
    /// What our own word says.
    bell: u64,
    /// The peer has closed its end of the socket, or it is lost.
    gone: bool,
}

#[derive(Debug)]
enum Memory {
    /// The greeting has not come; what is to be sent when it has.
    Awaited { early: Vec<u8> },
    /// There.
    Mapped(Rings),
}

#[derive(Debug)]
struct Rings {
    segment: Segment,
    outgoing: Producer,
    incoming: Consumer,
    our_bell: Word,
    their_bell: Word,
}

impl ShmSocket {
    /// The dialling end of a connected socket.
    pub(super) fn dialled(socket: UnixSocket) -> Self {
        let memory = Memory::Awaited { early: Vec::new() };
        Self { socket, memory, bell: FOR_BYTES, gone: false }
    }

    /// The accepting end: makes the memory.
    ///
    /// # Errors
    /// The host has no more memory or descriptors, or the peer is gone already.
    pub(super) fn accepted(socket: UnixSocket) -> Result<Self, Errno> {
        let (segment, fd) = Segment::create()?;
        // Until an engine has the connection among those it looks at, each end is rung.
        for side in [Side::Dialler, Side::Acceptor] {
            segment.store(Word::Bell(side), FOR_BYTES);
        }
        greeting::send(socket.fd(), &fd)?;
        let memory = Memory::Mapped(Rings::new(segment, Side::Acceptor));
        Ok(Self { socket, memory, bell: FOR_BYTES, gone: false })
    }

    /// Maps the memory if it has come.
    fn await_memory(&mut self) -> Result<(), Transfer> {
        let Memory::Awaited { early } = &self.memory else { return Ok(()) };
        let fd = match greeting::receive(self.socket.fd()) {
            Greeting::Memory(fd) => fd,
            Greeting::Awaited => return Err(Transfer::Blocked),
            Greeting::Closed => return Err(Transfer::Closed),
            Greeting::Garbled => return Err(Transfer::Garbled),
            Greeting::Lost(errno) => return Err(Transfer::Lost(errno)),
        };
        let segment = Segment::adopt(&fd).map_err(Transfer::Lost)?;
        let mut rings = Rings::new(segment, Side::Dialler);
        let early_len = early.len();
        // All of it fits, as nothing is in the ring yet.
        if rings.outgoing.put(&rings.segment, early) != Ok(early_len) {
            return Err(Transfer::Garbled);
        }
        self.memory = Memory::Mapped(rings);
        if early_len > 0 {
            self.ring_for(FOR_BYTES);
        }
        Ok(())
    }

    fn rings(&self) -> Option<&Rings> {
        match &self.memory {
            Memory::Mapped(rings) => Some(rings),
            Memory::Awaited { .. } => None,
        }
    }

    /// Rings the peer if it asked to be rung for this.
    fn ring_for(&mut self, what: u64) {
        let Some(rings) = self.rings() else { return };
        fence(Ordering::SeqCst);
        if rings.segment.load(rings.their_bell) & what == 0 {
            return;
        }
        // Blocked: the peer has bells that it did not hear, and will.
        if matches!(self.socket.send(&[BELL], false), Transfer::Lost(_)) {
            self.gone = true;
        }
    }

    /// Says what we want to be rung for.
    fn want(&mut self, what: u64) {
        if let Memory::Mapped(rings) = &self.memory
            && self.bell != what
        {
            rings.segment.store(rings.our_bell, what);
            self.bell = what;
        }
    }

    /// Tells the peer a position that this end cannot have.
    #[cfg(test)]
    pub(in crate::soft) fn lie(&self, position: u64) {
        let Some(Rings { segment, our_bell, .. }) = self.rings() else { return };
        let ring =
            if *our_bell == Word::Bell(Side::Dialler) { Ring::ToAcceptor } else { Ring::ToDialler };
        segment.store(Word::Tail(ring), position);
    }

    #[cfg(test)]
    pub(in crate::soft) fn is_mapped(&self) -> bool {
        self.rings().is_some()
    }

    #[cfg(test)]
    pub(in crate::soft) fn ring(&mut self) {
        self.ring_for(FOR_BYTES);
    }

    /// Whether there is enough room to go on after there was none.
    fn has_room(&self) -> Result<bool, PeerPosition> {
        self.rings().map_or(Ok(false), |rings| {
            rings.outgoing.free(&rings.segment).map(|free| free >= ROOM_MIN)
        })
    }
}

impl Rings {
    fn new(segment: Segment, side: Side) -> Self {
        let (outgoing, incoming, peer) = match side {
            Side::Dialler => (Ring::ToAcceptor, Ring::ToDialler, Side::Acceptor),
            Side::Acceptor => (Ring::ToDialler, Ring::ToAcceptor, Side::Dialler),
        };
        Self {
            segment,
            outgoing: Producer::new(outgoing),
            incoming: Consumer::new(incoming),
            our_bell: Word::Bell(side),
            their_bell: Word::Bell(peer),
        }
    }
}

impl ByteStream for ShmSocket {
    fn receive(&mut self, room: &mut [u8]) -> Transfer {
        if let Err(transfer) = self.await_memory() {
            return transfer;
        }
        if self.bell != SILENT {
            self.reported();
        }
        let Memory::Mapped(rings) = &mut self.memory else { return Transfer::Blocked };
        match rings.incoming.take(&rings.segment, room) {
            // What the peer put in before it closed was looked for after it had.
            Ok(0) if self.gone => Transfer::Closed,
            Ok(0) => Transfer::Blocked,
            Ok(len) => {
                self.ring_for(FOR_ROOM);
                Transfer::Bytes(len)
            }
            Err(error) => garbled(error),
        }
    }

    fn send(&mut self, bytes: &[u8], _end_segment: bool) -> Transfer {
        let rings = match &mut self.memory {
            Memory::Mapped(rings) => rings,
            Memory::Awaited { early } if early.len() + bytes.len() <= EARLY_MAX => {
                early.extend_from_slice(bytes);
                return Transfer::Bytes(bytes.len());
            }
            Memory::Awaited { .. } => return Transfer::Blocked,
        };
        let mut put = rings.outgoing.put(&rings.segment, bytes);
        if put == Ok(0) && self.bell != SILENT {
            // Nobody asks again before the bell: so say that it is waited for, and look once more.
            self.bell |= FOR_ROOM;
            rings.segment.store(rings.our_bell, self.bell);
            fence(Ordering::SeqCst);
            put = rings.outgoing.put(&rings.segment, bytes);
        }
        match put {
            Ok(0) => Transfer::Blocked,
            Ok(len) => {
                self.ring_for(FOR_BYTES);
                Transfer::Bytes(len)
            }
            Err(error) => garbled(error),
        }
    }

    fn finish(&mut self) {
        self.socket.finish();
    }

    fn error(&self) -> Result<(), Errno> {
        self.socket.error()
    }

    fn segment_size(&self) -> Option<usize> {
        None
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.socket.addresses()
    }

    fn watch(&self, poller: &Poller, token: Token, interest: Interest) -> Result<(), Errno> {
        // Only while it is dialled is it the socket that has to be writable.
        let interest = if interest == Interest::WRITE { interest } else { bells(interest) };
        self.socket.watch(poller, token, interest)
    }

    fn rewatch(&self, poller: &Poller, token: Token, interest: Interest) {
        self.socket.rewatch(poller, token, bells(interest));
    }

    fn unwatch(&self, poller: &Poller) {
        self.socket.unwatch(poller);
    }

    fn reported(&mut self) {
        let mut heard = [0; BELLS_MAX];
        if !self.gone && self.rings().is_some() {
            self.gone =
                matches!(self.socket.receive(&mut heard), Transfer::Closed | Transfer::Lost(_));
        }
    }

    fn takes_again(&self) -> bool {
        // A position that cannot be is found when sending.
        self.has_room().unwrap_or(true)
    }

    fn rest(&mut self, interest: Interest) -> bool {
        let bytes = if interest.read { FOR_BYTES } else { SILENT };
        let room = if interest.write { FOR_ROOM } else { SILENT };
        self.want(bytes | room);
        fence(Ordering::SeqCst);
        let Some(rings) = self.rings() else { return true };
        let is_empty = !self.gone && rings.incoming.there(&rings.segment) == Ok(0);
        (!interest.read || is_empty) && !(interest.write && self.takes_again())
    }

    fn rise(&mut self) {
        self.want(SILENT);
    }
}

fn garbled(error: PeerPosition) -> Transfer {
    tracing::debug!(%error, "a peer on this host is not to be understood");
    Transfer::Garbled
}

/// What to watch the socket for: bells, whatever they are for.
fn bells(interest: Interest) -> Interest {
    Interest { read: interest.read || interest.write, write: false }
}

/// What the word of an end says: nothing, as it looks by itself.
const SILENT: u64 = 0;
/// To be rung for bytes that were put in.
const FOR_BYTES: u64 = 1;
/// To be rung for bytes that were taken out.
const FOR_ROOM: u64 = 2;
const BELL: u8 = 0;
/// Bells heard in one call.
const BELLS_MAX: usize = 256;
/// Bytes that wait for the memory: a request frame, see `soft::incoming`.
const EARLY_MAX: usize = 1024;
const _: () = assert!(EARLY_MAX <= RING_LEN);
/// Room that makes it worth going on after there was none.
const ROOM_MIN: usize = RING_LEN / 4;

#[cfg(test)]
mod tests;
