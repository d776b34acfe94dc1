//! Entry points for the fuzz targets (`fuzz/bodies`) to code that has no other: no part of the API.
//!
//! [`Machine`] is a server without sockets: one share, one connection, and an engine that accepts
//! every registration and never moves a byte.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use basics::ordered::{Mutex, MutexGuard};
use basics::{Clock, Environment};
use pmem::Medium;
use rdma::{Access, Lkey, MemoryRegion, Rkey};
use remote::host::{HostError, Later, PushConnection, Registrar};
use smb::Guid;
use smb::crypto::{SigningAlgorithm, SigningKey};
use smb::negotiate::{Capabilities, Dialect, SecurityMode};
use tree::{CommonNames, Share, ShareConfig};

use crate::access::Identity;
use crate::access::Rights;
use crate::access::Target;
use crate::config::{PushPolicy, SigningPolicy, Users};
use crate::connections::link::Agreed;
use crate::connections::session::SessionParts;
use crate::connections::{Channel, Frame, Link, Outbox, Parcel, Session};
use crate::dispatch::connection::Stage;
use crate::dispatch::{Connection, end_of_connection};
use crate::limits::Limits;
use crate::lock_order as order;
use crate::push::Push;
use crate::service::{Core, CoreParts, Kept};

pub use crate::transport::direct::first_look;
#[cfg(feature = "fuzzing")]
pub use tree::fuzzing::{log_of_opens, xattrs};

/// See the module.
#[derive(Debug)]
pub struct Machine {
    core: Arc<Core>,
    connection: Connection,
    outbox: Arc<Letters>,
}

/// A session and its trees.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The session.
    pub session: u64,
    /// Its tree on the share.
    pub disk: u32,
    /// Its tree on the pipes.
    pub pipes: u32,
}

impl Machine {
    /// A server of `directory`, and a connection that has sent nothing. Its late answers come while
    /// `runtime` runs.
    pub fn new(directory: &Path, runtime: tokio::runtime::Handle) -> Self {
        let mut exported = ShareConfig::new("data", directory);
        exported.emulate_persistence = true;
        let share = Share::open(&exported).expect("the directory is there");
        let limits = Limits {
            io_size_max: 64 * 1024,
            credits_max: 64,
            break_timeout: Duration::from_secs(60),
            ..Limits::default()
        };
        let grace = Duration::from_secs(60);
        let core = Arc::new(Core::new(CoreParts {
            environment: Environment::host(),
            limits,
            shares: vec![Arc::new(share)],
            names: CommonNames::default(),
            users: Users::with_passwords([("user", "a password no fuzzer finds")]),
            signing: SigningPolicy::Required,
            encrypt_required: false,
            guid: Guid([1; 16]),
            tcp_address: None,
            announced: Vec::new(),
            push: Push::new(
                PushPolicy { grace, ..PushPolicy::default() },
                Clock::host(),
                runtime.clone(),
            ),
            runtime,
            first_serial: 1,
        }));
        let address = "127.0.0.1:5445".parse().expect("an address");
        core.push.attach(Arc::new(Yes::default()), address, None);
        let outbox = Arc::new(Letters::default());
        let queue = Box::new(Arc::clone(&outbox));
        let link = Link::new(Arc::clone(&core.connections), address, address, queue, None);
        let connection = Connection::new(Arc::clone(&core), Arc::new(link));
        Self { core, connection, outbox }
    }

    /// A session of dialect 3.1.1 that signs with `key`, and has push connection 1.
    pub fn log_on(&mut self, key: &[u8; 16]) -> Place {
        let link = &self.connection.link;
        let agreed = Agreed {
            dialect: Dialect::SMB_3_1_1,
            client_guid: [2; 16],
            client_capabilities: Capabilities::LEASING | Capabilities::LARGE_MTU,
            client_security_mode: SecurityMode::SIGNING_ENABLED,
            server_capabilities: Capabilities::LEASING | Capabilities::LARGE_MTU,
            server_security_mode: SecurityMode::SIGNING_ENABLED,
            signing: SigningAlgorithm::AesCmac,
            cipher: None,
            posix: false,
        };
        assert!(link.agreed.set(agreed.clone()).is_ok(), "nothing was negotiated before");
        self.connection.stage = Stage::Negotiated;
        let lane = link.window().lane();
        let (of_channel, signing) = SigningKey::new(SigningAlgorithm::AesCmac, key).divide(lane, 0);
        let session = Arc::new(Session::new(SessionParts {
            id: 7,
            identity: Identity::user("user"),
            account: self.core.connections.accounts.of(&Identity::user("user")),
            place: None,
            agreed,
            signing: Some(signing),
            sealing: None,
            opening: None,
            signing_required: true,
            encrypt_required: false,
            since: self.core.now(),
        }));
        let enter = |target| session.connect_tree(target, Rights::ALL).expect("room").id;
        let disk = enter(Target::Disk(Arc::clone(&self.core.files.shares()[0])));
        let place = Place { session: session.id, disk, pipes: enter(Target::Pipes) };
        assert!(self.core.sessions.add(Arc::clone(&session)), "it is the only one");
        self.core.push.add_connection(session.id, PushConnection(1));
        let channel = Arc::new(Channel { session, signing: Some(of_channel) });
        channel.session.join(link, Arc::clone(&channel)).expect("it is the first");
        place
    }

    /// Handles a frame and appends the immediate answers. False: the connection has to end.
    pub fn handle(&mut self, frame: &mut [u8], out: &mut Vec<u8>) -> bool {
        let handled = self.connection.handle(Frame::Borrowed(frame), out);
        matches!(handled, Ok(None)) && !self.outbox.is_closed()
    }

    #[cfg(test)]
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The late answers, each with the length of its frame in front.
    pub fn late_answers(&self) -> Vec<u8> {
        std::mem::take(&mut self.outbox.lock().frames)
    }

    /// Ends the connection of the peer.
    ///
    /// # Panics
    /// Some state of the peer is left after a while: `turn` is called to let the server's tasks
    /// run.
    pub fn end(self, mut turn: impl FnMut()) {
        let (kept, ends) = mpsc::channel::<()>();
        let kept: Kept = Arc::new(kept);
        end_of_connection(&self.core, &self.connection.link, &kept);
        drop(kept);
        // Nothing is sent: it is over when nobody could.
        while ends.try_recv() == Err(mpsc::TryRecvError::Empty) {
            turn();
        }
        crate::state::closing::close_all(
            &self.core.files,
            self.core.files.orphans.drain(),
            tree::MayWait::here(),
        );
        let deadline = Instant::now() + PATIENCE;
        loop {
            turn();
            let left = (
                self.core.sessions.all().len(),
                self.core.files.nodes.len(),
                self.core.files.nodes.leases(),
                self.core.push.counts().0,
            );
            if left == (0, 0, 0, 0) {
                return;
            }
            assert!(Instant::now() < deadline, "sessions, files, leases, regions left: {left:?}");
        }
    }
}

/// The frames for the peer.
#[derive(Debug, Default)]
struct Letters(Mutex<Letter, order::Connection>);

#[derive(Debug, Default)]
struct Letter {
    frames: Vec<u8>,
    closed: bool,
}

impl Letters {
    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Letter, order::Connection> {
        self.0.lock()
    }
}

impl Outbox for Arc<Letters> {
    fn deliver(&self, parcel: Parcel) {
        self.lock().frames.extend_from_slice(&parcel.frame);
    }

    fn close(&self) {
        self.lock().closed = true;
    }
}

/// Accepts every registration.
#[derive(Debug, Default)]
struct Yes(AtomicU32);

impl Registrar for Yes {
    fn reaches_files(&self) -> bool {
        true
    }

    fn register(
        &self,
        _: PushConnection,
        _: Arc<dyn Medium>,
        range: Range<u64>,
        _: Access,
    ) -> Later<Result<MemoryRegion, HostError>> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let (rkey, lkey) = (Rkey(number), Lkey(number));
        let len = range.end - range.start;
        Box::pin(async move {
            Ok(MemoryRegion {
                rkey,
                lkey,
                remote_addr_base: 0,
                len,
                offers: rdma::PeerOperations::all(),
                unseen: false,
            })
        })
    }

    fn deregister(&self, _: PushConnection, _: Rkey) -> Later<()> {
        Box::pin(async {})
    }

    fn disconnect(&self, _: PushConnection) {}
}

/// The time for tasks of the blocking pool, which closes files.
const PATIENCE: Duration = Duration::from_secs(5);
