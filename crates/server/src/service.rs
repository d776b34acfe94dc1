//! The server behind all its transports: its parts, and what takes several of them.
//!
//! The order of their locks: `lock_order.rs`.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use basics::Environment;
use smb::Guid;
use smb::rpc::{Host, SharedResource};
use tree::{Admission, CommonNames, MayWait, Share};

use crate::access::Identity;
use crate::config::{Announced, SigningPolicy, Users};
use crate::connections::session::log_close;
use crate::connections::work::Work;
use crate::connections::{Connections, Sessions};
use crate::identity::{IdentityParts, ServerIdentity};
use crate::limits::Limits;
use crate::push::Push;
use crate::state::closing::Ending;
use crate::state::durable::Moving;
use crate::state::ends::{Over, spawn_end, spawn_end_of_opens};
use crate::state::files::{Files, FilesParts};
use crate::state::persistent::Restorer;
use crate::state::{Account, Open};
use crate::time::file_time;

/// What goes with the last part of something that ends.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

/// The parts of the server. A function takes the part that it needs, and all of them where it needs several.
#[derive(Debug)]
pub(crate) struct Core {
    /// Its clocks and random numbers.
    pub(crate) environment: Environment,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) identity: ServerIdentity,
    pub(crate) files: Arc<Files>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) push: Arc<Push>,
    pub(crate) started: Instant,
}

/// What a server starts from.
#[derive(Debug)]
pub(crate) struct CoreParts {
    pub(crate) environment: Environment,
    pub(crate) limits: Limits,
    pub(crate) shares: Vec<Arc<Share>>,
    /// The state of names that the shares keep.
    pub(crate) names: CommonNames,
    pub(crate) users: Users,
    pub(crate) signing: SigningPolicy,
    pub(crate) encrypt_required: bool,
    pub(crate) guid: Guid,
    pub(crate) tcp_address: Option<SocketAddr>,
    pub(crate) announced: Vec<Announced>,
    pub(crate) push: Push,
    pub(crate) runtime: tokio::runtime::Handle,
    /// The number of the first open. A server that restarts must not reuse a number: a client would
    /// get another file back.
    pub(crate) first_serial: u64,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Self {
        let CoreParts { environment, limits, push, runtime, .. } = parts;
        let clock = environment.clock.clone();
        let push = Arc::new(push);
        let files = Files::new(FilesParts {
            shares: parts.shares,
            names: parts.names,
            first_serial: parts.first_serial,
            break_timeout: limits.break_timeout,
            clock: clock.clone(),
            runtime: runtime.clone(),
            observer: Box::new(Arc::clone(&push)),
        });
        let identity = ServerIdentity::new(IdentityParts {
            guid: parts.guid,
            tcp_address: parts.tcp_address,
            announced: parts.announced,
            signing: parts.signing,
            encrypt_required: parts.encrypt_required,
            users: parts.users,
        });
        Self {
            started: clock.now(),
            connections: Arc::new(Connections::new(limits, clock, runtime.clone())),
            environment,
            runtime,
            identity,
            files: Arc::new(files),
            sessions: Arc::default(),
            push,
        }
    }

    /// The monotonic clock of the server.
    pub(crate) fn now(&self) -> Instant {
        self.environment.clock.now()
    }

    /// Counts a panic that was caught.
    pub(crate) fn note_panic(&self, place: &'static str) {
        self.connections.counters.note_panic(place);
    }

    /// Brings persistent opens back.
    pub(crate) fn restorer(&self, may_wait: MayWait) -> Restorer<'_> {
        let (files, accounts) = (&*self.files, &self.connections.accounts);
        Restorer { files, accounts, users: self.identity.users(), now: self.now(), may_wait }
    }

    /// The server as browsing clients see it. `caller` is the user who asks; guests see the shares that
    /// they may enter.
    pub(crate) fn host(&self, caller: Option<&str>) -> Host {
        let is_seen =
            |share: &&Arc<Share>| caller.is_some() || share.guests() != Admission::Refused;
        let directory = |share: &Arc<Share>| SharedResource {
            name: share.name().to_owned(),
            kind: SharedResource::DIRECTORY,
            comment: String::new(),
        };
        let pipes = SharedResource {
            name: "IPC$".to_owned(),
            kind: SharedResource::PIPES,
            comment: "services of the server".to_owned(),
        };
        Host {
            name: self.identity.name.clone(),
            comment: COMMENT.to_owned(),
            caller: caller.unwrap_or_default().to_owned(),
            shares: self
                .files
                .shares()
                .iter()
                .filter(is_seen)
                .map(directory)
                .chain([pipes])
                .collect(),
            accounts: caller.is_some().then(|| self.identity.users().store()),
            now: file_time(&self.environment.clock),
            uptime: self.now().saturating_duration_since(self.started),
        }
    }

    /// [`Core::dissolve`] on a thread: a session may have thousands of opens to go through.
    pub(crate) fn dissolve_on_a_thread(
        self: &Arc<Self>,
        account: &Arc<Account>,
        id: u64,
        kept: Kept,
    ) {
        self.spawn_end((account, Over::nothing()), move |core| core.dissolve(id, kept));
    }

    /// [`Core::dissolve`] for callers that wait for nothing.
    pub(crate) fn dissolve_session(self: &Arc<Self>, id: u64) {
        self.dissolve(id, Arc::new(()));
    }

    /// Ends a session. Threads close what it had open, each what lies on one file system: where a disk hangs the rest is
    /// closed. `kept` goes with the last of it.
    pub(crate) fn dissolve(self: &Arc<Self>, id: u64, kept: Kept) {
        let moving = self.begin_end(id);
        let Some(session) = self.sessions.end(id) else { return };
        self.push.end_of_session(id);
        let Some(left) = session.dissolve() else { return };
        let account = Arc::clone(&session.account);
        self.spawn_end((&session.account, Over::nothing()), move |core| {
            let parts = left.sorted(&core.files, &core.identity);
            // What the client may come back for is there.
            drop(moving);
            for (over, part) in parts {
                let (kept, part) = (Arc::clone(&kept), Arc::new(part));
                let noted = Arc::clone(&part);
                let forget = move |_: &Arc<Self>| noted.forget(MayWait::here());
                core.spawn_end_of_opens((&account, over), forget, move |core| {
                    let _kept = kept;
                    part.close(&core.files, MayWait::here());
                });
            }
        });
    }

    /// Closes what is left of a tree on threads, each what lies on one file system. `kept` goes with the last of it.
    pub(crate) fn close_in_background(
        self: &Arc<Self>,
        account: &Arc<Account>,
        opens: Vec<Arc<Open>>,
        kept: &Kept,
    ) {
        for (over, part) in Over::sorted(opens) {
            let (kept, noted) = (Arc::clone(kept), part.clone());
            let forget = move |_: &Arc<Self>| {
                for open in noted {
                    open.settle_note();
                    open.forget_note(Ending::ByItsClient, MayWait::here());
                }
            };
            self.spawn_end_of_opens((account, over), forget, move |core| {
                let _kept = kept;
                for open in part {
                    log_close(&open, open.close_for_client(&core.files, MayWait::here()));
                }
            });
        }
    }

    fn spawn_end(
        self: &Arc<Self>,
        whose: (&Arc<Account>, Over),
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        drop(spawn_end(&self.runtime, whose, self.counted(work)));
    }

    fn spawn_end_of_opens(
        self: &Arc<Self>,
        whose: (&Arc<Account>, Over),
        forget: impl FnOnce(&Arc<Self>) + Send + 'static,
        close: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let (forget, close) = (self.counted(forget), self.counted(close));
        drop(spawn_end_of_opens(&self.runtime, whose, forget, close));
    }

    // A panic is counted.
    fn counted<F: FnOnce(&Arc<Self>) + Send + 'static>(
        self: &Arc<Self>,
        work: F,
    ) -> impl FnOnce() + Send + use<F> {
        let core = Arc::clone(self);
        move || {
            if catch_unwind(AssertUnwindSafe(|| work(&core))).is_err() {
                core.note_panic("the end of a session");
            }
        }
    }

    /// Ends the session that a client names as lost, if it is of the same user. Returns what the
    /// caller has to wait for, also if the session has ended by itself.
    pub(crate) fn replace_session(
        self: &Arc<Self>,
        id: u64,
        identity: &Identity,
    ) -> Option<Arc<Work>> {
        if self.sessions.get(id).is_some_and(|session| session.identity == *identity) {
            self.dissolve_session(id);
        }
        self.sessions.unsettled(id, identity)
    }

    // A client may be back before its opens have become orphans: meanwhile no table holds them.
    fn begin_end(&self, id: u64) -> Option<Moving> {
        let opens = self.sessions.get(id)?.all_opens();
        let durable = opens.iter().filter(|open| open.durable().is_some());
        Some(self.files.orphans.begin_move(durable.map(|open| open.serial).collect()))
    }
}

const COMMENT: &str = "Landfast";
