//! An established connection: its socket, its stream machine, its two byte queues.

use std::time::{Duration, Instant};

use basics::Key;
use iwarp::mpa::{HashId, ProfileFlags};
use iwarp::rdmap::TerminateRepr;
use iwarp::{Agreement, Profile, Role, Stream};

use super::byte_queue::ByteQueue;
use super::context::Context;
use super::socket::{ByteStream as _, Socket, Transfer};
use super::steps::Steps;
use super::token::Token;
use crate::common::poller::Interest;
use crate::common::timers::{Due, Timers};
use crate::interface::{DisconnectReason, QpCapabilities, TerminateCode};

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Socket,
    /// Names the stream to hooks.
    pub(super) number: u64,
    pub(super) agreement: Agreement,
    pub(super) stream: Stream,
    pub(super) transmit: ByteQueue,
    steps: Steps,
    /// Bytes received and not parsed yet: the beginning of a frame, or input that came while the
    /// queue pair was parked.
    pub(super) residue: ByteQueue,
    /// The owner knows that the connection is up.
    pub(super) announced: bool,
    /// TCP takes no bytes for now; epoll reports when it does.
    pub(super) blocked: bool,
    /// The engine takes no more input of this queue pair until a worker has caught up.
    pub(super) parked: bool,
    kick: Kick,
    stall: Option<Stall>,
}

/// The connection was blocked, with everything before `position` sent, and is looked at again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stall {
    position: u64,
}

/// Wakes siw: as responder siw can miss the first frame after its reply, and needs another to go
/// on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kick {
    /// This end is not the initiator or needs no kick, or the peer was heard.
    Never,
    /// This end has sent nothing yet.
    Armed,
    /// Sent; kick again if the peer was not heard by then.
    Due { at: Instant, interval: Duration },
}

impl Link {
    pub(super) fn new(mut socket: Socket, number: u64, agreement: Agreement) -> Self {
        socket.rise();
        let initiator = agreement.role == Role::Initiator;
        // A peer with our profile misses no frame.
        let needs_kick = initiator && !agreement.is_extended();
        let kick = if needs_kick { Kick::Armed } else { Kick::Never };
        let emss = socket.segment_size().unwrap_or(SEGMENT_DEFAULT);
        let stream = Stream::new(&agreement, emss);
        Self {
            socket,
            number,
            agreement,
            steps: Steps::of(&agreement),
            stream,
            transmit: ByteQueue::with_reserve(TRANSMIT_LEN, TERMINATE_ROOM),
            // A frame may first arrive in two pieces at any time, long after the start.
            residue: ByteQueue::new(RECEIVE_LEN),
            announced: initiator,
            blocked: false,
            parked: false,
            kick,
            stall: None,
        }
    }

    /// Queues the start-up reply, which precedes every frame.
    pub(super) fn queue_reply(&mut self, reply: &[u8], copied: &mut u64) {
        self.transmit.push(reply, copied);
        self.steps.begin_with(reply.len());
    }

    /// Hands bytes to TCP. `Ok(true)`: TCP took all of them.
    pub(super) fn send(&mut self, context: &mut Context) -> Result<bool, DisconnectReason> {
        while !self.transmit.is_empty() && !self.blocked {
            let queued = self.transmit.queued();
            let piece = queued.get(..self.steps.next(queued)).unwrap_or(queued);
            context.stats.send_calls += 1;
            match self.socket.send(piece, self.steps.ends_segment()) {
                Transfer::Bytes(len) => {
                    if let Some(hook) = &context.hook {
                        hook.sent(self.number, piece.get(..len).unwrap_or_default());
                    }
                    let all = len == piece.len();
                    self.steps.took(len, piece.len());
                    self.transmit.consume(len);
                    context.stats.bytes_sent += as_u64(len);
                    // A short send means that TCP is full: another call would only report the same.
                    self.blocked = !all;
                }
                Transfer::Blocked => self.blocked = true,
                Transfer::Closed => return Err(DisconnectReason::PeerClosed),
                Transfer::Lost(errno) => return Err(lost(errno)),
                Transfer::Garbled => return Err(GARBLED),
            }
        }
        Ok(self.transmit.is_empty())
    }

    /// Receives into `room`. `Ok(None)`: no input.
    pub(super) fn receive(
        &mut self,
        context: &mut Context,
        room: &mut [u8],
    ) -> Result<Option<usize>, DisconnectReason> {
        context.stats.recv_calls += 1;
        match self.socket.receive_shown(room, context.hook.as_deref(), self.number) {
            Transfer::Bytes(len) => {
                context.stats.bytes_received += as_u64(len);
                Ok(Some(len))
            }
            Transfer::Blocked => {
                context.stats.recv_empty += 1;
                Ok(None)
            }
            Transfer::Closed => Err(DisconnectReason::PeerClosed),
            Transfer::Lost(errno) => Err(lost(errno)),
            Transfer::Garbled => Err(GARBLED),
        }
    }

    /// The reason for the loss of the connection, which epoll has reported.
    pub(super) fn lost(&self) -> DisconnectReason {
        self.socket.error().map_or_else(lost, |()| DisconnectReason::PeerClosed)
    }

    fn interest(&self) -> Interest {
        Interest { read: !self.parked, write: self.blocked }
    }

    /// [`ByteStream::rest`].
    pub(super) fn rest(&mut self) -> bool {
        self.socket.rest(self.interest())
    }

    /// Tells epoll which readiness to report.
    pub(super) fn watch(&self, context: &Context, key: Key) {
        let interest = self.interest();
        self.socket.rewatch(&context.poller, Token::Qp(key.index), interest);
    }

    /// Notes that the peer was heard: it needs no kick any more.
    pub(super) fn heard(&mut self) {
        self.kick = Kick::Never;
    }

    /// Notes that a frame was sent: the peer should answer soon.
    pub(super) fn arm_kick(&mut self, key: Key, timers: &mut Timers) {
        if self.kick == Kick::Armed {
            self.schedule_kick(key, timers, KICK_FIRST);
        }
    }

    fn schedule_kick(&mut self, key: Key, timers: &mut Timers, interval: Duration) {
        let at = timers.after(interval, Due::kick(key));
        self.kick = Kick::Due { at, interval };
    }

    /// Remembers how far a blocked connection has come, to be looked at again in a while.
    /// `false`: that was done already.
    pub(super) fn begin_stall(&mut self) -> bool {
        let begins = self.blocked && self.stall.is_none();
        if begins {
            self.stall = Some(Stall { position: self.transmit.head_position() });
        }
        begins
    }

    /// That while is over. `true`: the peer has taken nothing since.
    pub(super) fn has_stalled(&mut self) -> bool {
        let position = self.transmit.head_position();
        self.stall.take().is_some_and(|stall| self.blocked && stall.position == position)
    }

    /// Frames an empty write if the peer has been silent for too long.
    pub(super) fn kick(&mut self, key: Key, timers: &mut Timers, context: &mut Context) -> bool {
        let Kick::Due { at, interval } = self.kick else { return false };
        if at > timers.now() {
            return false;
        }
        if interval >= KICK_LAST {
            self.kick = Kick::Never;
            return false;
        }
        self.schedule_kick(key, timers, interval * 2);
        self.frame_kick(context)
    }

    /// Frames the ready-to-receive message if one was agreed on and not sent, else an empty write:
    /// an empty write names no memory, and shows the peer that this end is alive.
    pub(super) fn frame_kick(&mut self, context: &mut Context) -> bool {
        let moved = &mut context.stats.bytes_copied;
        let Some(room) = self.transmit.room_of(KICK_ROOM, moved) else { return false };
        let framed = if self.stream.is_ready() {
            self.stream.frame_kick(room)
        } else {
            self.stream.frame_ready(room)
        };
        match framed {
            Ok(size) => {
                self.transmit.commit(size);
                context.stats.frames_sent += 1;
                true
            }
            // Another message is half framed: its rest will wake the peer.
            Err(_) => false,
        }
    }
}

impl Link {
    /// Frames the last message of the connection.
    pub(super) fn frame_terminate(&mut self, terminate: &TerminateRepr, context: &mut Context) {
        self.transmit.open_reserve();
        let moved = &mut context.stats.bytes_copied;
        let Some(room) = self.transmit.room_of(TERMINATE_ROOM, moved) else { return };
        // Refused only before the first frame of the peer: then closing has to do.
        if let Ok(size) = self.stream.frame_terminate(room, terminate) {
            self.transmit.commit(size);
            context.stats.frames_sent += 1;
        }
    }

    /// The operations that both sides support.
    pub(super) fn capabilities(&self) -> QpCapabilities {
        let Agreement { crc, ird, ord, .. } = self.agreement;
        let offers = self.stream.peer_offers();
        let extended = self.agreement.is_extended();
        let crc32c = |profile: Profile| profile.hash_ids().contains(&HashId::CRC32C);
        QpCapabilities {
            flush: offers.contains(ProfileFlags::FLUSH),
            atomic_write: offers.contains(ProfileFlags::ATOMIC_WRITE),
            verify: offers.contains(ProfileFlags::VERIFY)
                && self.agreement.theirs.is_some_and(crc32c),
            rfc7306: extended,
            fpdu_max: self.stream.mulpdu(),
            crc,
            ird: u8::try_from(ird).unwrap_or(u8::MAX),
            ord: u8::try_from(ord).unwrap_or(u8::MAX),
        }
    }
}

fn lost(errno: rustix::io::Errno) -> DisconnectReason {
    DisconnectReason::HostIo { errno: errno.raw_os_error() }
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).expect("a buffer's length fits 64 bits")
}

// RFC 5044 §8: the stream beneath is lost; no code of the RFC is nearer.
const GARBLED: DisconnectReason =
    DisconnectReason::PeerViolation(TerminateCode { layer: 2, etype: 0, code: 1 });
/// Bytes that a queue pair hands over in a round before others have a turn: four of the longest
/// frames. Four messages of 64 KiB, each a long frame and a short one, leave in a call so; with
/// room for two, TCP cut a third packet of some 200 bytes from each pair. Pages are touched only as
/// far as they are used.
pub(super) const TRANSMIT_LEN: usize = 4 * 65_544 + 4096;
/// The longest frame and a little more: every frame that a peer may send fits and can be parsed.
pub(super) const RECEIVE_LEN: usize = 65_544 + 4088;
/// Ethernet's 1500 less IPv4, TCP and timestamps, for a host that does not report the segment size.
const SEGMENT_DEFAULT: usize = 1448;
const KICK_ROOM: usize = 128;
/// A Terminate with everything it may quote, and markers.
const TERMINATE_ROOM: usize = 128;
// One frame revived every stalled connection of a series with siw, after 5 to 20 ms.
const KICK_FIRST: Duration = Duration::from_millis(10);
const KICK_LAST: Duration = Duration::from_millis(320);
