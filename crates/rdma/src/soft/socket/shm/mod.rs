//! A byte stream through memory that two processes share.
//!
//! ```text
//!   dialler                                   acceptor
//!   -------                                   --------
//!   connect(2)                                accept(2)
//!   request frame    ---- socket ----------->
//!                    <--- greeting, memory    when its owner has taken the request: makes it
//!   maps, seals it   ---- is mapped --------> looks for the seals
//!   bytes            ===> ring 0 ============>
//!                    <============ ring 1 <=== bytes
//!   a bell, if the other asked for one  <---> a bell
//!   shutdown(2)      ---> end of stream       takes what is left in the ring, then sees the end
//! ```
//!
//! An acceptor spends nothing on a request before its owner has taken it ([`ByteStream::admit`]). Where an end gets no
//! memory from the host, and for the answer to a request that the owner refuses, all bytes go through the socket.
//!
//! Otherwise rings carry the bytes after the request; the unix socket carries bells, and with its end the end of the
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
//! at one system call for each of our transfers; ring more often than it has moved bytes, which ends the connection. It can neither cut the memory short nor punch a hole ([`segment`]),
//! and no file of ours is in it: what it writes to a region is placed by the responder, after the same checks as over
//! a network.

#[cfg(feature = "fuzzing")]
mod fuzzing;
mod greeting;
mod ring;
mod segment;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;

use super::unix::UnixSocket;
use super::{ByteStream, Transfer};
use crate::common::poller::{Interest, Poller};
use crate::soft::token::Token;
#[cfg(feature = "fuzzing")]
pub use fuzzing::AttackedShm;
use greeting::{Answer, Greeting};
use ring::{Consumer, PeerPosition, Producer};
use segment::{RING_LEN, Ring, Segment, Side, Word};

/// See the module.
#[derive(Debug)]
pub(in crate::soft) struct ShmSocket {
    socket: UnixSocket,
    way: Way,
    /// What we want to be rung for; our own word says it once there is one.
    bell: u64,
    /// The peer has closed its end of the socket, or it is lost.
    gone: bool,
}

/// Through what bytes go.
#[derive(Debug)]
enum Way {
    /// Of a dialler: the greeting has not come, and the request goes through the socket.
    Greeting { asked: bool },
    /// Of an acceptor: the owner has not answered the request, which comes through the socket.
    Request,
    /// Of an acceptor: the dialler has not answered. Nothing goes.
    Offered { segment: Segment, fd: OwnedFd },
    /// The rings.
    Memory(Rings),
    /// The socket, to the end.
    Socket,
}

#[derive(Debug)]
struct Rings {
    segment: Segment,
    outgoing: Producer,
    incoming: Consumer,
    our_bell: Word,
    their_bell: Word,
    /// How often the peer has rung.
    bells: u64,
}

impl ShmSocket {
    /// The dialling end of a connected socket.
    pub(super) fn dialled(socket: UnixSocket) -> Self {
        Self { socket, way: Way::Greeting { asked: false }, bell: FOR_BYTES, gone: false }
    }

    /// The accepting end.
    pub(super) fn accepted(socket: UnixSocket) -> Self {
        Self { socket, way: Way::Request, bell: FOR_BYTES, gone: false }
    }

    /// Sends what is made here, or says that nothing is.
    fn offer(&mut self, made: Result<(Segment, OwnedFd), Errno>) {
        let offered = made.and_then(|(segment, fd)| {
            greeting::offer(self.socket.fd(), &fd)?;
            Ok(Way::Offered { segment, fd })
        });
        self.way = offered.unwrap_or_else(|errno| {
            tracing::warn!(%errno, "no memory to share: a connection goes through its socket");
            // Whether the peer is gone is found when receiving.
            let _ = greeting::decline(self.socket.fd());
            Way::Socket
        });
    }

    /// Goes on to the memory or the socket if the peer has said which.
    fn settle(&mut self) -> Result<(), Transfer> {
        match &self.way {
            Way::Greeting { .. } => self.take_greeting(),
            Way::Offered { .. } => self.take_answer(),
            Way::Request | Way::Memory(_) | Way::Socket => Ok(()),
        }
    }

    fn take_greeting(&mut self) -> Result<(), Transfer> {
        let fd = match greeting::receive(self.socket.fd()) {
            Greeting::Memory(fd) => fd,
            Greeting::Socket => {
                self.way = Way::Socket;
                return Ok(());
            }
            Greeting::Awaited => return Err(Transfer::Blocked),
            Greeting::Closed => return Err(Transfer::Closed),
            Greeting::Garbled => return Err(Transfer::Garbled),
            Greeting::Lost(errno) => return Err(Transfer::Lost(errno)),
        };
        let adopted = Segment::adopt(&fd);
        greeting::answer(self.socket.fd(), adopted.is_ok()).map_err(Transfer::Lost)?;
        match adopted {
            Ok(segment) => self.use_memory(segment, Side::Dialler),
            Err(errno) => {
                tracing::warn!(%errno, "memory not mapped: a connection goes through its socket");
                self.way = Way::Socket;
            }
        }
        Ok(())
    }

    fn take_answer(&mut self) -> Result<(), Transfer> {
        let mapped = match greeting::receive_answer(self.socket.fd()) {
            Answer::Mapped => true,
            Answer::Socket => false,
            Answer::Awaited => return Err(Transfer::Blocked),
            Answer::Closed => return Err(Transfer::Closed),
            Answer::Garbled => return Err(Transfer::Garbled),
            Answer::Lost(errno) => return Err(Transfer::Lost(errno)),
        };
        let way = std::mem::replace(&mut self.way, Way::Socket);
        if let (true, Way::Offered { segment, fd }) = (mapped, way) {
            segment.settle_accepted(&fd).map_err(Transfer::Lost)?;
            self.use_memory(segment, Side::Acceptor);
        }
        Ok(())
    }

    /// From now on the memory is used. Bytes that came before our word said what it says are looked for by
    /// the receive that has called this.
    fn use_memory(&mut self, segment: Segment, side: Side) {
        segment.store(Word::Bell(side), self.bell);
        fence(Ordering::SeqCst);
        self.way = Way::Memory(Rings::new(segment, side));
    }

    fn rings(&self) -> Option<&Rings> {
        match &self.way {
            Way::Memory(rings) => Some(rings),
            Way::Greeting { .. } | Way::Request | Way::Offered { .. } | Way::Socket => None,
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
        if self.bell == what {
            return;
        }
        self.bell = what;
        if let Some(rings) = self.rings() {
            rings.segment.store(rings.our_bell, what);
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

    /// What to watch the socket for.
    fn watched_for(&self, interest: Interest) -> Interest {
        match self.way {
            Way::Greeting { .. } | Way::Socket => interest,
            // It rings no more, and a poller that is asked goes on saying so.
            Way::Memory(_) if self.gone => Interest::NONE,
            // Bells, whatever they are for, and what comes before them.
            Way::Request | Way::Offered { .. } | Way::Memory(_) => {
                Interest { read: interest.read || interest.write, write: false }
            }
        }
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
            bells: 0,
        }
    }

    /// How often the peer can have had cause to ring: once for each byte that it has put in or taken out. `None`: it tells
    /// a position that it cannot have.
    fn bells_caused(&self) -> Option<u64> {
        let put_in = self.incoming.put_in(&self.segment).ok()?;
        let taken_out = self.outgoing.taken_out(&self.segment).ok()?;
        put_in.checked_add(taken_out)
    }
}

impl ByteStream for ShmSocket {
    fn receive(&mut self, room: &mut [u8]) -> Transfer {
        if let Err(transfer) = self.settle() {
            return transfer;
        }
        if self.bell != SILENT {
            self.reported();
        }
        let Way::Memory(rings) = &mut self.way else { return self.socket.receive(room) };
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

    fn send(&mut self, bytes: &[u8], end_segment: bool) -> Transfer {
        if matches!(self.way, Way::Request) {
            // The owner answers without having admitted it: a refusal.
            if let Err(errno) = greeting::decline(self.socket.fd()) {
                return Transfer::Lost(errno);
            }
            self.way = Way::Socket;
        }
        let rings = match &mut self.way {
            Way::Memory(rings) => rings,
            // The acceptor takes what follows the request for an answer to its greeting.
            Way::Greeting { asked: true } | Way::Offered { .. } => return Transfer::Blocked,
            Way::Greeting { asked } => {
                *asked = true;
                return self.socket.send(bytes, end_segment);
            }
            Way::Request | Way::Socket => return self.socket.send(bytes, end_segment),
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
        self.socket.watch(poller, token, self.watched_for(interest))
    }

    fn rewatch(&self, poller: &Poller, token: Token, interest: Interest) {
        self.socket.rewatch(poller, token, self.watched_for(interest));
    }

    fn unwatch(&self, poller: &Poller) {
        self.socket.unwatch(poller);
    }

    fn reported(&mut self) -> bool {
        let mut heard = [0; BELLS_HEARD_MAX];
        let Way::Memory(rings) = &mut self.way else { return false };
        if self.gone {
            return false;
        }
        match self.socket.receive(&mut heard) {
            Transfer::Bytes(len) => {
                rings.bells += u64::try_from(len).unwrap_or(u64::MAX);
                // Who rings for nothing would keep this engine awake at little cost of its own.
                self.gone = rings.bells_caused().is_none_or(|caused| rings.bells > caused);
            }
            Transfer::Closed | Transfer::Lost(_) | Transfer::Garbled => self.gone = true,
            Transfer::Blocked => {}
        }
        self.gone
    }

    fn is_looked_at(&self) -> bool {
        matches!(self.way, Way::Memory(_))
    }

    fn takes_again(&self) -> bool {
        match &self.way {
            // A position that cannot be is found when sending.
            Way::Memory(Rings { outgoing, segment, .. }) => {
                outgoing.free(segment).map_or(true, |free| free >= ROOM_MIN)
            }
            // The poller tells.
            Way::Greeting { .. } | Way::Request | Way::Offered { .. } | Way::Socket => false,
        }
    }

    fn admit(&mut self) {
        if matches!(self.way, Way::Request) {
            self.offer(Segment::create());
        }
    }

    fn rest(&mut self, interest: Interest) -> bool {
        let bytes = if interest.read { FOR_BYTES } else { SILENT };
        let room = if interest.write { FOR_ROOM } else { SILENT };
        self.want(bytes | room);
        fence(Ordering::SeqCst);
        let is_empty = self
            .rings()
            .is_none_or(|rings| !self.gone && rings.incoming.there(&rings.segment) == Ok(0));
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

/// What the word of an end says: nothing, as it looks by itself.
const SILENT: u64 = 0;
/// To be rung for bytes that were put in.
const FOR_BYTES: u64 = 1;
/// To be rung for bytes that were taken out.
const FOR_ROOM: u64 = 2;
const BELL: u8 = 0;
/// Bells heard in one call.
const BELLS_HEARD_MAX: usize = 256;
/// Room that makes it worth going on after there was none.
const ROOM_MIN: usize = RING_LEN / 4;

#[cfg(test)]
mod tests;
