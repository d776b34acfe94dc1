//! Links that other members make.
//!
//! Each connection has a thread. Until its other end has proved who it is, nothing that it sends leaves this module; there
//! are [`STRANGERS_MAX`] such connections at most, of which the oldest gives way, and none lives longer than
//! [`HANDSHAKE_LIMIT`].

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use super::bundle::Bundles;
use super::ends::Link;
use super::error::LinkError;
use super::greeting::{Answer, Claim, denial_of};
use super::handshake;
use super::identity::Identity;
use super::link::halves;
use super::options::{HANDSHAKE_LIMIT, LinkOptions};
use super::socket::Socket;
use crate::names::MemberId;

/// Connections whose other ends have not proved yet who they are, at most.
pub const STRANGERS_MAX: usize = 64;
/// Links of one member at most; one more ends the oldest.
pub const LINKS_MAX: usize = 16;

/// An address on which other members are waited for.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address` (`host:port`; port 0 is any).
    ///
    /// # Errors
    ///
    /// [`LinkError::ConfigAddress`].
    pub fn bind(address: &str) -> Result<Self, LinkError> {
        let bound = || {
            let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
            let listener = TcpListener::bind(&addresses[..])?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bound().map_err(|source| LinkError::ConfigAddress { address: address.to_owned(), source })
    }

    /// The address, with the port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Takes in members until what this returns is dropped. `on_link` gets each link, on a thread of its own, which it
    /// may keep.
    ///
    /// # Errors
    ///
    /// [`LinkError::HostResources`].
    pub fn run(
        self,
        identity: Identity,
        options: LinkOptions,
        on_link: impl Fn(MemberId, Link) + Send + Sync + 'static,
    ) -> Result<Listening, LinkError> {
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| LinkError::HostResources(errno.into()))?;
        let shared = Arc::new(Shared {
            identity,
            options,
            on_link: Box::new(on_link),
            stop,
            state: Mutex::default(),
            ended: Condvar::new(),
        });
        let (address, accepts) = (self.address, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("replica-listen".to_owned())
            .spawn(move || accept(&self.listener, &accepts))
            .map_err(LinkError::HostResources)?;
        Ok(Listening { address, shared, thread: Some(thread) })
    }
}

/// Members are taken in until this is dropped. Links live on.
pub struct Listening {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// The address, with the port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    /// When this is through, no link comes any more.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_stopping = true;
        state.strangers.iter().for_each(|(_, socket)| socket.close());
        drop(state);
        let _ = rustix::io::write(&self.shared.stop, &[1; 8]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let state = self.shared.lock();
        let _all_gone = self.shared.ended.wait_while(state, |state| state.greeting > 0);
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listening({})", self.address)
    }
}

struct Shared {
    identity: Identity,
    options: LinkOptions,
    on_link: Box<dyn Fn(MemberId, Link) + Send + Sync>,
    /// Readable once the listener ends.
    stop: OwnedFd,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections whose other ends have not proved who they are, oldest first.
    strangers: VecDeque<(u64, Arc<Socket>)>,
    links: HashMap<MemberId, VecDeque<Weak<Socket>>>,
    /// Links of several connections.
    bundles: Bundles,
    next: u64,
    /// Threads that have not given their link away, or ended.
    greeting: usize,
    is_stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, socket: &Arc<Socket>) -> Option<u64> {
        let mut state = self.lock();
        if state.is_stopping {
            return None;
        }
        if state.strangers.len() >= STRANGERS_MAX
            && let Some((_, oldest)) = state.strangers.pop_front()
        {
            tracing::warn!(peer = %oldest.peer(), "too many connections of strangers: the oldest goes");
            oldest.close();
        }
        let number = state.next;
        state.next += 1;
        state.greeting += 1;
        state.strangers.push_back((number, Arc::clone(socket)));
        Some(number)
    }

    /// The other end is `member`. `false` if the connection had to give way meanwhile.
    fn is_known(&self, number: u64, member: MemberId, socket: &Arc<Socket>) -> bool {
        let mut state = self.lock();
        let before = state.strangers.len();
        state.strangers.retain(|(other, _)| *other != number);
        if state.is_stopping || state.strangers.len() == before {
            return false;
        }
        let links = state.links.entry(member).or_default();
        links.retain(|link| link.strong_count() > 0);
        if links.len() >= LINKS_MAX
            && let Some(oldest) = links.pop_front().and_then(|oldest| oldest.upgrade())
        {
            tracing::warn!(%member, "too many links of a member: the oldest goes");
            oldest.close();
        }
        links.push_back(Arc::downgrade(socket));
        true
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let mut waiting = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(shared.stop.as_fd(), PollFlags::IN),
        ];
        let polled = rustix::event::poll(&mut waiting, None);
        if !waiting[1].revents().is_empty() || shared.lock().is_stopping {
            return;
        }
        match polled.map_err(io::Error::from).and_then(|_| listener.accept()) {
            Ok((stream, _)) => greet(shared, stream),
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                // Out of descriptors or memory: a pause gives connections time to end.
                tracing::warn!(%error, "no connection accepted");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn greet(shared: &Arc<Shared>, stream: TcpStream) {
    let socket = match Socket::new(stream) {
        Ok(socket) => Arc::new(socket),
        Err(error) => return tracing::debug!(%error, "a connection has ended before it began"),
    };
    let Some(number) = shared.enter(&socket) else { return };
    let greeting = Greeting { shared: Arc::clone(shared), number, socket };
    let name = format!("replica-link-{number}");
    // If there is no thread, `greeting` is dropped.
    let spawned = thread::Builder::new().name(name).spawn(move || {
        let peer = greeting.socket.peer();
        let taken = take_in(&greeting);
        let shared = Arc::clone(&greeting.shared);
        match taken {
            // Still counted, so that no link comes once the listener is gone.
            Ok(Some(link)) => {
                let on_link = &shared.on_link;
                let member = link.member();
                drop(greeting);
                on_link(member, link);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%peer, %error, "a connection is refused"),
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a connection");
    }
}

/// A connection whose other end is not known yet.
struct Greeting {
    shared: Arc<Shared>,
    number: u64,
    socket: Arc<Socket>,
}

impl Drop for Greeting {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.strangers.retain(|(number, _)| *number != self.number);
        state.greeting -= 1;
        drop(state);
        self.shared.ended.notify_all();
    }
}

/// The link, once the other end has proved who it is.
fn take_in(greeting: &Greeting) -> Result<Option<Link>, LinkError> {
    let Greeting { shared, number, socket } = greeting;
    let (identity, until) = (&shared.identity, Instant::now() + HANDSHAKE_LIMIT);
    let secured = handshake::as_listener(socket, identity, until)?;
    let key = secured.key;
    let (mut sender, mut receiver) = halves(socket, secured, &shared.options);
    receiver.limit(Some(until));
    let head = receiver.receive_frame()?;
    let claim = Claim::decode(head, receiver.body())?;
    let checked = claim.check(identity, key);
    let checked = checked.and_then(|()| match claim.of {
        None => Ok(None),
        Some(of) => {
            let bundles = &mut shared.lock().bundles;
            bundles.of(claim.me, of, &sender, &shared.options).map(|it| Some((it, of.begins)))
        }
    });
    let denial = checked.as_ref().err().and_then(denial_of);
    let answer = Answer { denial, group: identity.group, me: identity.me };
    let answer = answer.encode()?;
    // Counts before the other end knows, which may use the link at once.
    let is_taken = checked.is_ok() && shared.is_known(*number, claim.me, socket);
    if checked.is_err() || is_taken {
        sender.send_bytes(answer)?;
    }
    let of = checked?;
    receiver.limit(None);
    socket.limit(None).map_err(LinkError::Io)?;
    if !is_taken {
        return Ok(None);
    }
    let Some((bundle, begins)) = of else {
        return Ok(Some(Link::one(claim.me, sender, receiver)));
    };
    bundle.attach_next(sender, receiver)?;
    if !begins {
        return Ok(None);
    }
    // Dropped, a link ends.
    let link = Link::several(&bundle);
    bundle.beat()?;
    Ok(Some(link))
}

/// Whether the other end has gone already, or nothing was there to accept.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}
