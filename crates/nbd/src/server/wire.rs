//! A connection's socket, with TLS over it once that is started. One thread receives, any thread sends.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use rustls::{ServerConfig, ServerConnection};

use super::input::Input;
use super::patience::Patience;

/// A socket of either kind.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    tls: OnceLock<Mutex<ServerConnection>>,
    /// Held while bytes are sent, so that replies do not mix.
    sending: Mutex<()>,
    /// The client has said goodbye: what comes behind that is nothing.
    has_said_goodbye: AtomicBool,
    /// The client has chosen an export.
    has_chosen: AtomicBool,
    /// Bytes received and sent since the start, and requests carried out.
    moved: AtomicU64,
    /// Requests that the device carries out.
    at_work: AtomicUsize,
}

/// The device carries out a request of the connection, until dropped.
#[derive(Debug)]
pub(super) struct Working<'w>(&'w Wire);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
        self.0.note_moved(1);
    }
}

impl Wire {
    /// A client that reads none of a reply for [`SEND_LIMIT`] is cut off.
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        match &socket {
            Socket::Tcp(socket) => socket.set_write_timeout(Some(SEND_LIMIT))?,
            Socket::Unix(socket) => socket.set_write_timeout(Some(SEND_LIMIT))?,
        }
        Ok(Self {
            socket,
            tls: OnceLock::new(),
            sending: Mutex::new(()),
            has_said_goodbye: AtomicBool::new(false),
            has_chosen: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            at_work: AtomicUsize::new(0),
        })
    }

    /// From here on the connection gives way to no other, and may be silent.
    pub(super) fn choose(&self) -> io::Result<()> {
        self.has_chosen.store(true, Ordering::Relaxed);
        self.limit_waiting(None)
    }

    /// Whether its client has not chosen an export yet.
    pub(super) fn is_of_stranger(&self) -> bool {
        !self.has_chosen.load(Ordering::Relaxed)
    }

    /// The device begins to carry out a request.
    pub(super) fn work(&self) -> Working<'_> {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        Working(self)
    }

    /// Whether the device carries out a request: its client is not waited for.
    pub(super) fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) > 0
    }

    /// Grows with bytes received and sent, in parts of at most [`PART`], and with each request carried out.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn note_moved(&self, count: usize) {
        self.moved.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Starts TLS; the client's first message of it is to come.
    pub(super) fn start_tls(&self, config: &Arc<ServerConfig>) -> io::Result<()> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        self.tls.set(Mutex::new(connection)).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// Waits for bytes and appends them to `input`, which has room for `wanted`; no bytes are the end. However they
    /// come, the wait is over at `until`: [`io::ErrorKind::WouldBlock`].
    pub(super) fn receive(
        &self,
        input: &mut Input,
        wanted: usize,
        patience: &mut Patience,
        until: Option<Instant>,
    ) -> io::Result<usize> {
        self.wait_until(until)?;
        let Some(tls) = self.tls.get() else {
            // A client that announces a long write and sends nothing gets little memory.
            let there = input.unread().len();
            let wanted = wanted.min(there + there.max(AHEAD));
            let missing = wanted.saturating_sub(there);
            let count = match missing < WHOLE_MIN {
                true => self.wait_and_read(input.room(wanted), patience)?,
                false => self.read_whole(input.room_behind(missing.min(PART)))?,
            };
            self.note_moved(count);
            input.arrived(count);
            return Ok(count);
        };
        let mut records = [0; RECORD];
        while !self.has_said_goodbye.load(Ordering::Relaxed) {
            self.wait_until(until)?;
            let count = self.wait_and_read(&mut records, patience)?;
            if count == 0 {
                return Ok(0);
            }
            self.note_moved(count);
            let arrived = self.open(tls, &records[..count], input)?;
            if arrived > 0 {
                return Ok(arrived);
            }
        }
        Ok(0)
    }

    fn wait_until(&self, until: Option<Instant>) -> io::Result<()> {
        let Some(until) = until else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.limit_waiting(Some(left.max(Duration::from_millis(1))))
    }

    /// Takes records apart; says how many bytes of the client's they held.
    fn open(
        &self,
        tls: &Mutex<ServerConnection>,
        mut records: &[u8],
        input: &mut Input,
    ) -> io::Result<usize> {
        let mut connection = lock(tls);
        let mut arrived = 0;
        // rustls takes nothing behind a goodbye.
        while !records.is_empty() && connection.read_tls(&mut records)? > 0 {
            let processed = connection.process_new_packets().map_err(io::Error::other);
            let count = processed.as_ref().map_or(0, rustls::IoState::plaintext_bytes_to_read);
            if count > 0 {
                connection.reader().read_exact(input.room_behind(count))?;
                input.arrived(count);
                arrived += count;
            }
            if processed.as_ref().is_ok_and(rustls::IoState::peer_has_closed) {
                self.has_said_goodbye.store(true, Ordering::Relaxed);
            }
            // Handshake messages, and the alert that says why there will be none.
            self.send_records(&mut connection)?;
            processed?;
        }
        Ok(arrived)
    }

    /// Sends all of `bytes`.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let _alone = lock(&self.sending);
        let Some(tls) = self.tls.get() else {
            return bytes.chunks(PART).try_for_each(|part| {
                self.write(part)?;
                self.note_moved(part.len());
                Ok(())
            });
        };
        // In parts, so that the records of a long reply do not pile up.
        for part in bytes.chunks(RECORD) {
            let mut connection = lock(tls);
            connection.writer().write_all(part)?;
            self.send_records(&mut connection)?;
            self.note_moved(part.len());
        }
        Ok(())
    }

    fn send_records(&self, connection: &mut ServerConnection) -> io::Result<()> {
        let until = Instant::now() + SEND_LIMIT;
        while connection.wants_write() {
            connection.write_tls(&mut Raw(&self.socket))?;
            if connection.wants_write() && Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    fn wait_and_read(&self, room: &mut [u8], patience: &mut Patience) -> io::Result<usize> {
        let fd = self.socket.as_fd();
        let spun = patience.spin(|| match rustix::net::recv(fd, &mut *room, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Some(Ok(count)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
            Err(errno) => Some(Err(errno)),
        });
        if let Some(done) = spun {
            return Ok(done?);
        }
        patience.sleep(|| Raw(&self.socket).read(room))
    }

    /// Sleeps until the room is full: the rest of a long write, which then ends where the next message begins.
    fn read_whole(&self, room: &mut [u8]) -> io::Result<usize> {
        let fd = self.socket.as_fd();
        loop {
            match rustix::net::recv(fd, &mut *room, RecvFlags::WAITALL) {
                Ok((count, _)) => return Ok(count),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// A client that takes a byte at times is as slow as one that takes none.
    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let until = Instant::now() + SEND_LIMIT;
        while !bytes.is_empty() {
            match Raw(&self.socket).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if !bytes.is_empty() && Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    // Ends a wait for bytes after this long; `None` for never.
    fn limit_waiting(&self, limit: Option<Duration>) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(socket) => socket.set_read_timeout(limit),
            Socket::Unix(socket) => socket.set_read_timeout(limit),
        }
    }

    /// Makes the receiving thread find the end of the connection; replies can be sent still.
    pub(super) fn stop_receiving(&self) {
        self.shutdown(Shutdown::Read);
    }

    /// Ends the connection at once, for the threads that wait for it too.
    pub(super) fn cut(&self) {
        self.shutdown(Shutdown::Both);
    }

    /// Says goodbye where TLS has a word for that, and ends the connection.
    pub(super) fn close(&self) {
        if let Some(tls) = self.tls.get() {
            let mut connection = lock(tls);
            connection.send_close_notify();
            let _ = self.send_records(&mut connection);
        }
        self.shutdown(Shutdown::Both);
    }

    fn shutdown(&self, how: Shutdown) {
        let _ = match &self.socket {
            Socket::Tcp(socket) => socket.shutdown(how),
            Socket::Unix(socket) => socket.shutdown(how),
        };
    }
}

impl Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// The socket's own bytes.
struct Raw<'s>(&'s Socket);

impl Read for Raw<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0 {
            Socket::Tcp(socket) => (&*socket).read(out),
            Socket::Unix(socket) => (&*socket).read(out),
        }
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0 {
            Socket::Tcp(socket) => (&*socket).write(bytes),
            Socket::Unix(socket) => (&*socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time in which a client has to take a part of what is sent to it: [`PART`] bytes, or a record of TLS.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// Bytes for which a thread waits without looking: a look costs a system call, and finds a part of them.
const WHOLE_MIN: usize = 16 << 10;
/// Bytes received or sent in one piece at most, so that a slow client is seen to move.
const PART: usize = 128 << 10;
/// Memory of a long write that there is before its bytes come; from then on as much again as has arrived.
const AHEAD: usize = 1 << 20;
/// Bytes that a record of TLS holds at most.
const RECORD: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_announces_a_long_write_gets_memory_for_what_it_sends() {
        const WANTED: usize = 32 << 20;
        let (mut client, server) = UnixStream::pair().unwrap();
        let wire = Wire::new(Socket::Unix(server)).unwrap();
        let (mut input, mut patience) = (Input::default(), Patience::new());
        let sending = std::thread::spawn(move || {
            client.write_all(&[7; 28]).unwrap();
            // Both ends wait for the other: the writer for room in the socket, the reader for bytes.
            client.write_all(&vec![7; WANTED - 28]).unwrap();
        });
        let mut held_most = 0;
        while input.unread().len() < WANTED {
            let there = input.unread().len();
            assert!(wire.receive(&mut input, WANTED, &mut patience, None).unwrap() > 0);
            held_most = held_most.max(input.held());
            assert!(
                input.held() <= there + there.max(AHEAD) + (4 << 10),
                "{} for {there}",
                input.held()
            );
        }
        sending.join().unwrap();
        assert!(held_most >= WANTED && input.unread().iter().all(|byte| *byte == 7));
    }
}
