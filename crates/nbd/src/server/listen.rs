//! Listeners on TCP addresses and unix sockets.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::address::Address;
use super::connection;
use super::shared::Shared;
use super::wire::{Socket, Wire};

/// A socket that clients connect to.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener, Address),
    Unix(UnixListener, UnixPath),
}

/// The name of a unix socket, removed when the listener ends, unless another server's socket has it by then.
#[derive(Debug)]
pub(super) struct UnixPath {
    path: PathBuf,
    /// Device and inode.
    own: Option<(u64, u64)>,
}

impl UnixPath {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), own: identity(path) }
    }
}

impl Drop for UnixPath {
    fn drop(&mut self) {
        if identity(&self.path) == self.own {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = Address::Tcp(listener.local_addr()?);
                Ok(Self::Tcp(listener, address))
            }
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(listener, UnixPath::new(path)))
            }
        }
    }

    pub(super) fn address(&self) -> Address {
        match self {
            Self::Tcp(_, address) => address.clone(),
            Self::Unix(_, path) => Address::Unix(path.path.clone()),
        }
    }

    /// Accepts connections until the server ends.
    pub(super) fn run(&self, shared: &Arc<Shared>) {
        loop {
            let mut waiting = [
                PollFd::from_borrowed_fd(self.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(shared.stop.as_fd(), PollFlags::IN),
            ];
            let polled = rustix::event::poll(&mut waiting, None);
            if !waiting[1].revents().is_empty() || shared.lock().is_stopping {
                return;
            }
            match polled.map_err(io::Error::from).and_then(|_| self.accept()) {
                Ok(socket) => serve(shared, socket),
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    // Out of descriptors or memory: waiting gives connections time to end.
                    tracing::warn!(address = %self.address(), %error, "no connection accepted");
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener, _) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                // A reply is sent whole, and the client waits for it.
                stream.set_nodelay(true)?;
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                Socket::Tcp(stream)
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Socket::Unix(stream)
            }
        })
    }
}

fn serve(shared: &Arc<Shared>, socket: Socket) {
    let wire = match Wire::new(socket) {
        Ok(wire) => Arc::new(wire),
        Err(error) => return tracing::info!(%error, "a connection has ended before it began"),
    };
    let Some(number) = shared.enter(&wire) else {
        tracing::warn!("too many connections: one more is refused");
        return;
    };
    let run = {
        let shared = Arc::clone(shared);
        move || {
            let leaving = Leaving { shared, wire, number };
            match connection::serve(&leaving.shared, &leaving.wire) {
                Ok(()) => tracing::debug!(number, "connection ended"),
                Err(error) => tracing::info!(number, %error, "connection given up"),
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name(format!("nbd-{number}")).spawn(run) {
        tracing::warn!(%error, "no thread for a connection");
        shared.leave(number);
    }
}

/// Ends a connection, also where its thread panics: its client must not wait for it.
struct Leaving {
    shared: Arc<Shared>,
    wire: Arc<Wire>,
    number: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.wire.close();
        self.shared.leave(self.number);
    }
}

/// Binds a socket that only the own user may connect to, from its first moment on.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    // A socket without a listener is what a server that was killed leaves. One that may not be reached, or has no room
    // for another client, is somebody's.
    let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(refuses) {
        fs::remove_file(path)?;
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before listen, so nobody connects before the mode is set.
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Whether the client has gone already, or there was nothing to accept.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_another_server_has_bound_meanwhile_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sock");
        let first = Listener::bind(&Address::Unix(path.clone())).unwrap();
        Listener::bind(&Address::Unix(path.clone())).unwrap_err();
        // Somebody removes the name, and starts another server.
        fs::remove_file(&path).unwrap();
        let second = Listener::bind(&Address::Unix(path.clone())).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }
}
