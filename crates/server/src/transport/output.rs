//! The output of a TCP connection: answers are gathered, and leave as the socket takes them.

use std::collections::VecDeque;
use std::io;

use smb::Command;
use tokio::net::TcpStream;
use tokio::task::yield_now;

use super::end::End;
use super::out_queue;
use super::spare_room::SpareRoom;
use super::turn::{OF_REQUEST_MAX, Turn};
use super::write_buffer::WriteBuffer;
use crate::limits::IO_INLINE_MAX;
use crate::state::Room;
use crate::state::reactor::Reactor;
use crate::state::reads::Rest;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: WriteBuffer,
    /// The rooms that bytes take until they have left: each with how many bytes have then been written since the start.
    rooms: VecDeque<(u64, Room)>,
    spare_room: SpareRoom,
    /// Bytes that the kernel has taken since the start.
    written: u64,
    /// The used part of the connection's turn.
    pub(super) turn: Turn,
}

impl Output {
    pub(super) fn new(spare_room: SpareRoom) -> Self {
        Self { spare_room, ..Self::default() }
    }

    /// The bytes to send, for appending.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        self.buffer.bytes()
    }

    /// The number of bytes to send.
    pub(super) fn len(&self) -> usize {
        self.buffer.as_slice().len()
    }

    /// To be called behind each answer that was made in place: see [`WriteBuffer::settle`].
    pub(super) fn settle(&mut self) {
        let spare_room = &mut self.spare_room;
        self.buffer.settle(|bytes| spare_room.allows(bytes));
    }

    /// Keeps this room until the present bytes have left, and so many that follow.
    pub(super) fn keep(&mut self, room: Option<Room>, following: usize) {
        let Some(room) = room else { return };
        self.rooms.push_back((self.written + length(self.len() + following), room));
    }

    /// See [`WriteBuffer::replace`].
    pub(super) fn replace(&mut self, frame: Vec<u8>) {
        self.buffer.replace(frame);
    }

    /// See [`WriteBuffer::is_large`].
    pub(super) fn is_large(&self) -> bool {
        self.buffer.is_large()
    }

    /// See [`WriteBuffer::look`].
    pub(super) fn look(&mut self, was_busy: bool) {
        self.buffer.look(was_busy);
        self.settle_spare_room();
    }

    fn settle_spare_room(&mut self) {
        if !self.buffer.has_spare() {
            self.spare_room.clear();
        }
    }

    /// Gathers the rest of an answer, and sends all but its end piece by piece as long as the
    /// socket takes that without waiting. Then the rest is only gathered: an answer shows the file
    /// as it was when the request came, however slow the peer is.
    pub(super) async fn finish(
        &mut self,
        stream: &TcpStream,
        mut rest: Rest,
        reactor: &Reactor,
    ) -> Result<(), End> {
        let mut is_taken = true;
        let mut begun = reactor.begin();
        while rest.left() > 0 {
            if self.turn.charge_bytes(rest.left().min(PIECE)) {
                // Answers to earlier requests do not wait for the turns of other connections.
                self.send_while_taken(stream, &mut is_taken, rest.left())?;
                yield_now().await;
                begun = reactor.begin();
            }
            rest.try_read(self.bytes(), PIECE).map_err(End::File)?;
            if rest.left() > 0 {
                self.send_while_taken(stream, &mut is_taken, rest.left())?;
            }
            reactor.note(begun, Command::READ);
        }
        Ok(())
    }

    // Sends as much as the socket takes, unless it was full before; then `left` bytes more are only
    // gathered.
    fn send_while_taken(
        &mut self,
        stream: &TcpStream,
        is_taken: &mut bool,
        left: usize,
    ) -> Result<(), End> {
        if *is_taken {
            *is_taken = self.send_now(stream, usize::MAX)?;
            if !*is_taken {
                self.bytes().reserve_exact(left);
            }
        }
        Ok(())
    }

    /// Bytes that the peer has acknowledged since the start.
    pub(super) fn taken(&self, stream: &TcpStream) -> io::Result<u64> {
        Ok(self.written.saturating_sub(out_queue::len(stream)?))
    }

    /// Sends as much as the socket takes without waiting, and lets other connections have their turn after many bytes.
    /// Returns whether that was everything.
    ///
    /// As many bytes as one request may have of a turn leave without a pause: the caller that made the answer here has
    /// charged them, or will.
    pub(super) async fn send(&mut self, stream: &TcpStream) -> Result<bool, End> {
        while self.len() > OF_REQUEST_MAX {
            let left = self.len() - IO_INLINE_MAX;
            self.send_now(stream, IO_INLINE_MAX)?;
            if self.len() > left {
                return Ok(false);
            }
            if self.turn.charge_bytes(IO_INLINE_MAX) {
                yield_now().await;
            }
        }
        self.send_now(stream, usize::MAX)
    }

    // Sends at most so many bytes. Returns whether nothing is left.
    fn send_now(&mut self, stream: &TcpStream, most: usize) -> Result<bool, End> {
        let out = self.buffer.as_slice();
        if out.is_empty() {
            return Ok(true);
        }
        let sent = match stream.try_write(&out[..out.len().min(most)]) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        let is_all = sent == out.len();
        self.written += length(sent);
        if !is_all {
            self.buffer.advance(sent);
            return Ok(false);
        }
        // The buffer is freed in one piece. More of a streamed answer may follow.
        while self.rooms.front().is_some_and(|(until, _)| *until <= self.written) {
            self.rooms.pop_front();
        }
        let spare_room = &mut self.spare_room;
        self.buffer.sent(|bytes| spare_room.allows(bytes));
        self.settle_spare_room();
        Ok(true)
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("lengths fit 64 bits")
}

/// The piece of an answer that is read while it is sent: small enough to stay in the cache of a
/// core.
const PIECE: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream as Peer};
    use std::sync::Arc;

    use basics::Clock;
    use tree::{DosAttributes, Remainder, Share, ShareConfig, SharePath};

    use super::super::turn::tests::{run, turns_of_others};
    use super::*;
    use crate::access::{Identity, MayAdd};
    use crate::limits::Limits;
    use crate::state::account::Accounts;
    use crate::state::{Account, Resource};

    const LEN: usize = 8 << 20;

    fn connected() -> (std::net::TcpStream, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        (stream, peer)
    }

    fn rest() -> (tempfile::TempDir, Rest) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
        let path = SharePath::parse("f").unwrap();
        let entry = share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
        entry.write_at(&vec![7; LEN], 0).unwrap();
        let remainder = Remainder::in_memory(&Arc::new(entry), 0, LEN).unwrap();
        (dir, Rest::of(remainder))
    }

    #[test]
    fn a_long_answer_yields_the_reactor_after_each_mib() {
        for is_taken in [true, false] {
            let (stream, peer) = connected();
            let (_dir, rest) = rest();
            let mut read_from = peer.try_clone().unwrap();
            let reader = is_taken.then(|| {
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    read_from.read_to_end(&mut bytes).unwrap();
                    bytes.len()
                })
            });
            let (turns, written) = run(async {
                let stream = TcpStream::from_std(stream).unwrap();
                stream.writable().await.unwrap();
                let (mut output, reactor) = (Output::default(), Reactor::new(Clock::host()));
                let finished = turns_of_others(output.finish(&stream, rest, &reactor)).await;
                finished.1.unwrap();
                assert_eq!(usize::try_from(output.written).unwrap() + output.len(), LEN);
                (finished.0, output.written)
            });
            assert_eq!(turns, LEN / IO_INLINE_MAX - 1, "taken: {is_taken}");
            if let Some(reader) = reader {
                assert_eq!(reader.join().unwrap() as u64, written);
            }
            drop(peer);
        }
    }

    #[test]
    fn an_answer_that_is_streamed_is_counted_until_its_last_byte_has_left() {
        let accounts = Accounts::new(&Limits::default());
        let (account, connection) =
            (accounts.of(&Identity::Guest { client: [1; 16] }), Account::of_connection());
        let room = |bytes| Room::try_take((&connection, &account), Resource::Answers, bytes);
        let (stream, mut peer) = connected();
        let (_dir, rest) = rest();
        run(async {
            let stream = TcpStream::from_std(stream).unwrap();
            stream.writable().await.unwrap();
            let (mut output, reactor) = (Output::default(), Reactor::new(Clock::host()));
            output.keep(room(LEN), rest.left());
            output.finish(&stream, rest, &reactor).await.unwrap();
            assert!(output.len() > 0, "nobody reads");
            assert_eq!(account.held(Resource::Answers), LEN);
            // One behind it has its own room, and keeps none of another.
            output.bytes().extend_from_slice(&[8; 100]);
            output.keep(room(100), 0);
            let reader = std::thread::spawn(move || {
                let mut bytes = vec![0; LEN + 100];
                peer.read_exact(&mut bytes).unwrap();
            });
            while !output.send(&stream).await.unwrap() {
                stream.writable().await.unwrap();
            }
            assert_eq!(account.held(Resource::Answers), 0);
            reader.join().unwrap();
        });
    }

    #[test]
    fn an_answer_made_by_a_thread_leaves_a_mib_per_turn() {
        let (stream, peer) = connected();
        let (turns, taken) = run(async {
            let stream = TcpStream::from_std(stream).unwrap();
            stream.writable().await.unwrap();
            let mut output = Output::default();
            output.replace(vec![7; LEN]);
            let (turns, all) = turns_of_others(output.send(&stream)).await;
            assert!(!all.unwrap(), "nobody reads");
            (turns, usize::try_from(output.written).unwrap())
        });
        drop(peer);
        // The kernel decides how many bytes the socket takes.
        assert_eq!(turns, (taken / IO_INLINE_MAX).saturating_sub(1), "of {taken} bytes");
    }
}
