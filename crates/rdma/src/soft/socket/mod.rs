//! What an engine needs of a byte stream, and the streams there are.
//!
//! ```text
//!   network   listen, dial          -> Listener, Socket
//!   tcp       TCP of the host
//!   unix      unix sockets, for processes of one host
//!   shm       memory that two processes of one host share
//!   passed    descriptors that nobody asked for
//! ```
//!
//! [`ByteStream`] is what each kind does; [`Socket`] is one of the kinds. An engine holds the
//! enumeration and not a type parameter: its tables, and whatever is handed from engine to engine, then
//! have one type, and a call costs a branch that always goes the same way in one engine, beside a system
//! call. A `dyn` would cost the same and an allocation. A stream that wraps another (TLS) or
//! belongs to a simulator is one kind more.
//!
//! Reading and writing take one piece: what is transmitted lies in one queue, and what is received goes
//! into one buffer.

mod network;
mod passed;
mod shm;
mod tcp;
mod unix;

use std::fmt::Debug;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::token::Token;
use crate::common::poller::{Interest, Poller};
use crate::interface::{WireHook, WireVerdict};

pub(super) use network::{Arrival, Listener, Network};
#[cfg(feature = "fuzzing")]
pub use shm::AttackedShm;
use shm::ShmSocket;
use tcp::TcpSocket;
use unix::UnixSocket;

/// Bytes to and from one peer, in order. No call blocks.
pub(super) trait ByteStream: Debug + Send {
    /// Receives into `room`, which is not empty.
    fn receive(&mut self, room: &mut [u8]) -> Transfer;

    /// Sends what the stream takes of `bytes`. `end_segment`: they are one frame, and the next should
    /// not begin in the same segment, where there are segments.
    fn send(&mut self, bytes: &[u8], end_segment: bool) -> Transfer;

    /// Tells the peer that nothing more comes.
    fn finish(&mut self);

    /// What went wrong with the connection, dialling included, and was not told yet. Asked once, it is
    /// forgotten.
    fn error(&self) -> Result<(), Errno>;

    /// Payload that fits one segment, where there are segments.
    fn segment_size(&self) -> Option<usize>;

    /// Our address and the peer's.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)>;

    /// Has what happens to the stream reported from now on. A stream that is dialled is reported writable
    /// when that has ended.
    fn watch(&self, poller: &Poller, token: Token, interest: Interest) -> Result<(), Errno>;

    /// Changes what is reported.
    fn rewatch(&self, poller: &Poller, token: Token, interest: Interest);

    /// Ends that.
    fn unwatch(&self, poller: &Poller);

    /// The poller has reported the stream, and the engine looks at it by itself all the same. `true`: other things are
    /// to be reported of it from now on.
    fn reported(&mut self) -> bool {
        false
    }

    /// Whether a look at the stream in each round costs no system call, in an engine that looks at its streams.
    fn is_looked_at(&self) -> bool {
        false
    }

    /// Whether a stream that was full takes bytes again, where the poller does not tell.
    fn takes_again(&self) -> bool {
        false
    }

    /// The owner has taken the connection: from now on it may cost what it has to cost.
    fn admit(&mut self) {}

    /// From now on the engine relies on what the poller reports. `false`: what it waits for, by
    /// `interest`, is there already and will never be reported.
    fn rest(&mut self, _interest: Interest) -> bool {
        true
    }

    /// From now on the engine looks at the stream in every round.
    fn rise(&mut self) {}
}

/// What a receive or send came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Transfer {
    /// So many bytes went.
    Bytes(usize),
    /// Nothing goes right now.
    Blocked,
    /// The peer has closed its direction (receiving only).
    Closed,
    /// The connection is lost.
    Lost(Errno),
    /// The peer does not keep to the rules of the stream.
    Garbled,
}

impl Transfer {
    fn of_receive(outcome: Result<usize, Errno>) -> Self {
        match outcome {
            Ok(0) => Self::Closed,
            other => Self::of_send(other),
        }
    }

    fn of_send(outcome: Result<usize, Errno>) -> Self {
        match outcome {
            Ok(len) => Self::Bytes(len),
            Err(Errno::AGAIN | Errno::INTR) => Self::Blocked,
            Err(errno) => Self::Lost(errno),
        }
    }
}

/// A connected or connecting stream of one of the kinds.
#[derive(Debug)]
pub(super) enum Socket {
    /// See [`tcp`].
    Tcp(TcpSocket),
    /// See [`unix`].
    Unix(UnixSocket),
    /// See [`shm`].
    Shm(ShmSocket),
}

macro_rules! whichever {
    ($self:expr, $socket:ident => $call:expr) => {
        match $self {
            Self::Tcp($socket) => $call,
            Self::Unix($socket) => $call,
            Self::Shm($socket) => $call,
        }
    };
}

impl ByteStream for Socket {
    fn receive(&mut self, room: &mut [u8]) -> Transfer {
        whichever!(self, socket => socket.receive(room))
    }

    fn send(&mut self, bytes: &[u8], end_segment: bool) -> Transfer {
        whichever!(self, socket => socket.send(bytes, end_segment))
    }

    fn finish(&mut self) {
        whichever!(self, socket => socket.finish());
    }

    fn error(&self) -> Result<(), Errno> {
        whichever!(self, socket => socket.error())
    }

    fn segment_size(&self) -> Option<usize> {
        whichever!(self, socket => socket.segment_size())
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        whichever!(self, socket => socket.addresses())
    }

    fn watch(&self, poller: &Poller, token: Token, interest: Interest) -> Result<(), Errno> {
        whichever!(self, socket => socket.watch(poller, token, interest))
    }

    fn rewatch(&self, poller: &Poller, token: Token, interest: Interest) {
        whichever!(self, socket => socket.rewatch(poller, token, interest));
    }

    fn unwatch(&self, poller: &Poller) {
        whichever!(self, socket => socket.unwatch(poller));
    }

    fn reported(&mut self) -> bool {
        whichever!(self, socket => socket.reported())
    }

    fn is_looked_at(&self) -> bool {
        whichever!(self, socket => socket.is_looked_at())
    }

    fn takes_again(&self) -> bool {
        whichever!(self, socket => socket.takes_again())
    }

    fn admit(&mut self) {
        whichever!(self, socket => socket.admit());
    }

    fn rest(&mut self, interest: Interest) -> bool {
        whichever!(self, socket => socket.rest(interest))
    }

    fn rise(&mut self) {
        whichever!(self, socket => socket.rise());
    }
}

impl Socket {
    /// [`ByteStream::receive`], with a hook that sees the bytes first.
    pub(super) fn receive_shown(
        &mut self,
        room: &mut [u8],
        hook: Option<&dyn WireHook>,
        number: u64,
    ) -> Transfer {
        let transfer = self.receive(room);
        if let (Transfer::Bytes(len), Some(hook)) = (transfer, hook)
            && let Some(bytes) = room.get_mut(..len)
            && hook.received(number, bytes) == WireVerdict::Cut
        {
            return Transfer::Lost(Errno::CONNRESET);
        }
        transfer
    }
}

/// Connections the host keeps for us to accept; the kernel's own limit may be lower.
const BACKLOG: i32 = 1024;
