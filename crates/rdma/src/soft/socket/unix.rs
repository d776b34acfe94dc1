//! Unix sockets under the name of a network address: the way to another process of this host.
//!
//! ```text
//!   127.0.0.1:5445   <->   abstract name "landfast-rdma/KIND/127.0.0.1:5445"
//! ```
//!
//! Names are those of the host's network namespace, as ports are, and vanish with the listener. Whoever
//! dials a name that was heard on all addresses of the machine finds it too. A process has no address: where one
//! has to be said, it is the address that was dialled, with port 0.
//!
//! Anybody can take an abstract name, so both ends ask the host who the other is (SO_PEERCRED): who
//! dials speaks only to its own user or to root; who listens takes only these, but root takes everybody,
//! as over a network, and leaves the rest to its owner. Who listens takes no descriptors ([`passed`]).
//!
//! Spec: unix(7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recv, send, shutdown, socket_with, sockopt,
};
use rustix::process::{Uid, geteuid};

use super::{Arrival, BACKLOG, ByteStream, Transfer, passed};
use crate::common::poller::{Interest, Poller};
use crate::soft::token::Token;

/// A connected socket.
#[derive(Debug)]
pub(in crate::soft) struct UnixSocket {
    fd: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
}

impl UnixSocket {
    /// Dials; the host connects at once or refuses.
    pub(super) fn dial(kind: &str, addr: SocketAddr) -> Result<Self, Errno> {
        let mut refusal = Errno::CONNREFUSED;
        for heard in
            [addr.ip(), IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
        {
            let fd = new_socket()?;
            match connect(&fd, &name(kind, SocketAddr::new(heard, addr.port()))?) {
                Ok(()) => {}
                Err(Errno::CONNREFUSED) => continue,
                // Anybody may take a name and answer nobody; another listener may be found all the same.
                Err(errno) => {
                    refusal = errno;
                    continue;
                }
            }
            if may_be_dialled(geteuid(), sockopt::socket_peercred(&fd)?.uid) {
                return Ok(Self { fd, local: nobody(addr), peer: addr });
            }
            refusal = Errno::ACCESS;
        }
        Err(refusal)
    }

    /// A socket from elsewhere.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of(fd: OwnedFd, local: SocketAddr, peer: SocketAddr) -> Self {
        Self { fd, local, peer }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ByteStream for UnixSocket {
    fn receive(&mut self, room: &mut [u8]) -> Transfer {
        Transfer::of_receive(recv(&self.fd, room, RecvFlags::DONTWAIT).map(|(len, _)| len))
    }

    fn send(&mut self, bytes: &[u8], _end_segment: bool) -> Transfer {
        Transfer::of_send(send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
    }

    fn finish(&mut self) {
        // Fails only if the connection is gone already.
        let _ = shutdown(&self.fd, Shutdown::Write);
    }

    fn error(&self) -> Result<(), Errno> {
        sockopt::socket_error(&self.fd).and_then(|outcome| outcome)
    }

    fn segment_size(&self) -> Option<usize> {
        None
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.local, self.peer))
    }

    fn watch(&self, poller: &Poller, token: Token, interest: Interest) -> Result<(), Errno> {
        poller.add(&self.fd, token.to_bits(), interest)
    }

    fn rewatch(&self, poller: &Poller, token: Token, interest: Interest) {
        poller.modify(&self.fd, token.to_bits(), interest);
    }

    fn unwatch(&self, poller: &Poller) {
        poller.remove(&self.fd);
    }
}

/// A listening socket.
#[derive(Debug)]
pub(in crate::soft) struct UnixListener {
    fd: OwnedFd,
    addr: SocketAddr,
    /// Whether a user may dial: [`may_dial`].
    admits: fn(Uid, Uid) -> bool,
}

impl UnixListener {
    /// Listens at `addr`; at a port nobody has, if the port is 0.
    pub(super) fn bind(kind: &str, addr: SocketAddr) -> Result<Self, Errno> {
        let fd = new_socket()?;
        if !passed::refuse(&fd)? {
            tracing::warn!(
                "Linux before 6.16: a process of this host can stop this listener's engine"
            );
        }
        let mut chosen = addr;
        for _ in 0..PORT_TRIES_MAX {
            if addr.port() == 0 {
                chosen.set_port(random_port()?);
            }
            match bind(&fd, &name(kind, chosen)?) {
                Ok(()) => {
                    listen(&fd, BACKLOG)?;
                    return Ok(Self { fd, addr: chosen, admits: may_dial });
                }
                Err(Errno::ADDRINUSE) if addr.port() == 0 => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::ADDRINUSE)
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// [`super::Listener::accept`].
    pub(super) fn accept(&self) -> Result<Arrival<UnixSocket>, Errno> {
        let fd = match accept_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(fd) => fd,
            Err(Errno::AGAIN) => return Ok(Arrival::Nobody),
            Err(Errno::INTR | Errno::CONNABORTED) => return Ok(Arrival::Gone),
            Err(errno) => return Err(errno),
        };
        let theirs = sockopt::socket_peercred(&fd)?.uid;
        if !(self.admits)(geteuid(), theirs) {
            tracing::debug!(uid = theirs.as_raw(), "a connection of another user is refused");
            return Ok(Arrival::Gone);
        }
        Ok(Arrival::Socket(UnixSocket { fd, local: self.addr, peer: nobody(self.addr) }))
    }

    /// Takes nobody, whoever dials.
    #[cfg(test)]
    pub(in crate::soft) fn refuse_everybody(&mut self) {
        self.admits = |_, _| false;
    }
}

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether who runs as `ours` speaks to what `theirs` listens with.
fn may_be_dialled(ours: Uid, theirs: Uid) -> bool {
    theirs == ours || theirs.is_root()
}

/// Whether who listens as `ours` takes what `theirs` dials.
fn may_dial(ours: Uid, theirs: Uid) -> bool {
    may_be_dialled(ours, theirs) || ours.is_root()
}

fn nobody(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), 0)
}

fn name(kind: &str, addr: SocketAddr) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("landfast-rdma/{kind}/{addr}").as_bytes())
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// One of the ports that hosts give out by themselves (RFC 6335 §6).
fn random_port() -> Result<u16, Errno> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(|_| Errno::IO)?;
    Ok(DYNAMIC_PORTS_FROM | u16::from_le_bytes(bytes))
}

const DYNAMIC_PORTS_FROM: u16 = 0xc000;
/// Ports tried before all are taken to be in use: with half of them taken, one try in two finds one.
const PORT_TRIES_MAX: usize = 64;

#[cfg(test)]
#[path = "../../../../../tests/skipped.rs"]
mod skipped;

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    use rustix::cmsg_space;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};

    use super::*;

    const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn another_user_is_taken_by_root_alone_and_dialled_by_nobody() {
        let [root, one, other] = [0, 1000, 1001].map(Uid::from_raw);
        for (ours, theirs, dial, dialled) in [
            (one, one, true, true),
            (one, root, true, true),
            (one, other, false, false),
            (root, one, true, false),
            (root, root, true, true),
        ] {
            assert_eq!(may_dial(ours, theirs), dial, "{ours:?} takes {theirs:?}");
            assert_eq!(may_be_dialled(ours, theirs), dialled, "{ours:?} dials {theirs:?}");
        }
    }

    #[test]
    fn an_address_is_heard_by_one_listener_of_a_kind() {
        let first = UnixListener::bind("test", LOOPBACK).unwrap();
        let addr = first.local_addr();
        assert_ne!(addr.port(), 0);
        assert_eq!(UnixListener::bind("test", addr).unwrap_err(), Errno::ADDRINUSE);
        UnixListener::bind("other", addr).unwrap();
        drop(first);
        UnixListener::bind("test", addr).unwrap();
    }

    #[test]
    fn who_dials_can_pass_no_descriptor_to_who_listens_accepted_or_not() {
        if !passed::refuse(new_socket().unwrap()).unwrap() {
            skipped::skip("Linux before 6.16 does not refuse descriptors");
            return;
        }
        let listener = UnixListener::bind("test", LOOPBACK).unwrap();
        let dialled = UnixSocket::dial("test", listener.local_addr()).unwrap();
        assert_eq!(pass_descriptor(&dialled), Err(Errno::PERM));
        let Arrival::Socket(accepted) = listener.accept().unwrap() else { panic!("nobody came") };
        assert_eq!(pass_descriptor(&dialled), Err(Errno::PERM));
        assert_eq!(pass_descriptor(&accepted), Ok(1), "the memory of shm goes this way");
    }

    /// Passes a descriptor with one byte.
    fn pass_descriptor(from: &UnixSocket) -> Result<usize, Errno> {
        let fds = [from.fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(from.fd(), &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)
    }

    #[test]
    fn a_listener_on_all_addresses_is_found_by_each() {
        let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let listener = UnixListener::bind("test", all).unwrap();
        let addr = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.local_addr().port());
        let dialled = UnixSocket::dial("test", addr).unwrap();
        assert_eq!(dialled.addresses(), Some((LOOPBACK, addr)));
        assert!(matches!(listener.accept(), Ok(Arrival::Socket(_))));
        assert!(matches!(listener.accept(), Ok(Arrival::Nobody)));
        assert_eq!(UnixSocket::dial("other", addr).unwrap_err(), Errno::CONNREFUSED);
    }

    #[test]
    fn a_name_whose_holder_answers_nobody_hides_no_listener_on_all_addresses() {
        let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let listener = UnixListener::bind("test", all).unwrap();
        let addr = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.local_addr().port());
        let (squatter, name) = (new_socket().unwrap(), name("test", addr).unwrap());
        bind(&squatter, &name).unwrap();
        listen(&squatter, 0).unwrap();
        let waits = new_socket().unwrap();
        connect(&waits, &name).unwrap();
        let dialled = UnixSocket::dial("test", addr).unwrap();
        assert!(matches!(listener.accept(), Ok(Arrival::Socket(_))));
        drop((dialled, listener));
        assert_eq!(UnixSocket::dial("test", addr).unwrap_err(), Errno::AGAIN);
    }
}
