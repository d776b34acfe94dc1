//! The socket of a link, which any thread may shut down.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

/// A peer that acknowledges nothing, or whose window stays shut, for this long is gone.
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(20);
/// After so long without a byte the kernel asks whether the peer is there, and then each [`KEEPALIVE_EVERY`].
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);

/// A connected socket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    peer: SocketAddr,
    is_closed: AtomicBool,
    born: Instant,
    /// When bytes came last, in milliseconds since then.
    heard_ms: AtomicU64,
    /// For those who wait for something else than the socket.
    sleep: Mutex<()>,
    woken: Condvar,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        // Frames are sent whole, and the other end waits for them.
        stream.set_nodelay(true)?;
        sockopt::set_tcp_user_timeout(&stream, millis(USER_TIMEOUT))?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_AFTER)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_EVERY)?;
        let peer = stream.peer_addr()?;
        Ok(Self {
            stream,
            peer,
            is_closed: AtomicBool::new(false),
            born: Instant::now(),
            heard_ms: AtomicU64::new(0),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    /// Connects to `address`, from `local` if that is given, within `limit`.
    pub(super) fn connect(
        address: SocketAddr,
        local: Option<IpAddr>,
        limit: Duration,
    ) -> io::Result<Self> {
        let Some(local) = local else {
            return Self::new(TcpStream::connect_timeout(&address, limit)?);
        };
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(local, 0))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::INPROGRESS) => {
                let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
                let mut waiting = [PollFd::new(&socket, PollFlags::OUT)];
                if rustix::event::poll(&mut waiting, Some(&limit))? == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                sockopt::socket_error(&socket)??;
            }
            Err(error) => return Err(error.into()),
        }
        Self::new(TcpStream::from(socket))
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Ends both directions, for the threads that wait for it too.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
        drop(self.sleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.woken.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Sleeps, but not beyond [`Self::close`].
    pub(super) fn sleep(&self, time: Duration) {
        let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.woken.wait_timeout_while(guard, time, |()| !self.is_closed());
    }

    /// Whatever is waited for on the socket is over at `until`: [`io::ErrorKind::WouldBlock`]. `None`: never.
    pub(super) fn limit(&self, until: Option<Instant>) -> io::Result<()> {
        let left = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(left) if left.is_zero() => return Err(io::ErrorKind::WouldBlock.into()),
            Some(left) => Some(left.max(Duration::from_millis(1))),
            None => None,
        };
        self.stream.set_read_timeout(left)?;
        self.stream.set_write_timeout(left)
    }

    pub(super) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.stream).read(out) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    let passed = u64::try_from(self.born.elapsed().as_millis());
                    self.heard_ms.store(passed.unwrap_or(u64::MAX), Ordering::Relaxed);
                    return done;
                }
            }
        }
    }

    /// When bytes came last.
    pub(super) fn heard(&self) -> Instant {
        self.born + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed))
    }

    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }

    /// Sends what can be sent without waiting.
    pub(super) fn write_now(&self, bytes: &[u8]) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.stream, bytes, flags);
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
