//! An open: one handle of one client on one file.
//!
//! ```text
//!              connection lost, durable            client comes back
//!  +------+ -------------------------> +--------+ ----------------> +-------------+
//!  | Held |                            | Orphan |                   | Handed over | to a new object,
//!  +------+                            +--------+                   +-------------+ which is Held
//!      | closed                            | given up
//!      v                                   v
//!  +--------------------------------------------+
//!  | Closed                                     |
//!  +--------------------------------------------+
//! ```
//!
//! A client that comes back gets a new object under the old serial: whoever still works for the
//! lost connection holds the old one, and finds it closed. The file's node knows opens by serial
//! and does not notice.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use basics::ordered::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use smb::create::{AccessMask, CreateAction};
use tokio::sync::Notify;
use tree::{Entry, Enumeration, ShareError, SharePath};

use super::account::Hold;
use super::changes::{Change, Read};
use super::creates::{CreateKey, Creates, Reservation};
use super::durable_opens::{DurableOpens, Listed};
use super::lease::Owner;
use super::lock_sequence::{LockCopies, LockSequences};
use super::node::Node;
use super::open_push::OpenPush;
use super::range::LockRange;
use super::sequence::{Claim, Sequence, Stale, Ticket};
use super::serial::OpenSerial;
use crate::access::{Granted, Identity, Tree};
use crate::lock_order as order;

/// One handle of one client on one file. It ends with [`Open::close`], once.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) serial: OpenSerial,
    pub(crate) tree: Arc<Tree>,
    pub(crate) node: Arc<Node>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) access: AccessMask,
    pub(crate) owner: Owner,
    /// CREATE options as far as later operations report and change them (FileModeInformation).
    mode: AtomicU32,
    /// Where an enumeration stands. Taken out while a worker uses it.
    pub(crate) enumeration: Arc<tokio::sync::Mutex<Option<Listing>>>,
    /// There once push was granted.
    pub(crate) push: OnceLock<Arc<OpenPush>>,
    /// Where the client stands in what it reads bit by bit.
    pub(crate) marks: Marks,
    /// Who opened it and how.
    pub(crate) origin: Origin,
    /// There once it was granted.
    durable: OnceLock<(Durable, Listed<Self>)>,
    /// The half of its id that the session gave it.
    pub(crate) volatile: u64,
    session: Option<Weak<dyn HoldsOpens>>,
    sequence: Mutex<Sequence, order::Sequence>,
    lock_sequences: Mutex<LockSequences, order::LockSequences>,
    pub(crate) lock_copies: LockCopies,
    /// Notified when it has been closed.
    pub(crate) closed: Notify,
    /// Its CREATE may come again: nobody has used it yet.
    may_repeat: AtomicBool,
    /// The log of opens had it, and has been told that it ends.
    pub(super) is_forgotten: AtomicBool,
    /// Its note is on its way to the log of opens, and waits for the disk of that, if for any.
    pub(crate) is_being_noted: AtomicBool,
    pub(super) life: AtomicU8,
    /// Its descriptors among those of its user.
    place: Mutex<Option<Hold>, order::Place>,
    /// Held by who changes the file for this open, whole by who ends it or hands it over.
    pub(super) changes: RwLock<(), order::Changes>,
}

/// A directory that is listed bit by bit.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) cursor: Enumeration,
    /// It has a descriptor of its own.
    pub(crate) _place: Hold,
}

/// Who opened a file and how: what a client has to know to get it back.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) user: Identity,
    /// GUID of the client machine.
    pub(crate) client: [u8; 16],
    /// GUID of the CREATE, zeros if it had none.
    pub(crate) create_guid: [u8; 16],
    pub(crate) action: CreateAction,
}

impl Origin {
    /// How the CREATE would be named if it came again.
    pub(crate) fn key(&self) -> Option<CreateKey> {
        let named = self.create_guid != [0; 16];
        named.then_some(CreateKey { client: self.client, create: self.create_guid })
    }
}

/// How an open survives its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Durable {
    /// How long its client has to come back.
    pub(crate) timeout: Duration,
    /// Kept whatever others want, and through a restart of the server.
    pub(crate) persistent: bool,
}

/// Where a client stands in what it reads bit by bit.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Behind the last byte read, or where the client has set it (FilePositionInformation).
    pub(crate) position: AtomicU64,
    /// Extended attributes listed so far.
    pub(crate) extended: AtomicUsize,
}

impl Marks {
    fn moved(&self) -> Self {
        let position = AtomicU64::new(self.position.load(Ordering::Acquire));
        Self { position, extended: AtomicUsize::new(self.extended.load(Ordering::Acquire)) }
    }
}

/// What a CREATE settled; the parts of an [`Open`].
#[derive(Debug)]
pub(crate) struct OpenParts {
    pub(crate) serial: OpenSerial,
    pub(crate) tree: Arc<Tree>,
    pub(crate) node: Arc<Node>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) access: AccessMask,
    pub(crate) owner: Owner,
    pub(crate) mode: u32,
    pub(crate) origin: Origin,
    /// `None`: its client has not come for it yet.
    pub(crate) session: Option<Weak<dyn HoldsOpens>>,
    pub(crate) volatile: u64,
    pub(crate) sequence: u16,
    pub(crate) place: Option<Hold>,
}

impl Open {
    pub(crate) fn new(parts: OpenParts) -> Self {
        let OpenParts { serial, tree, node, entry, access, owner, mode, .. } = parts;
        let may_repeat = AtomicBool::new(parts.origin.key().is_some());
        Self {
            serial,
            tree,
            node,
            entry,
            access,
            owner,
            mode: AtomicU32::new(mode),
            enumeration: Arc::default(),
            push: OnceLock::new(),
            marks: Marks::default(),
            origin: parts.origin,
            durable: OnceLock::new(),
            volatile: parts.volatile,
            session: parts.session,
            sequence: Mutex::new(Sequence::starting_at(parts.sequence)),
            lock_sequences: Mutex::default(),
            lock_copies: LockCopies::default(),
            closed: Notify::new(),
            may_repeat,
            is_forgotten: AtomicBool::new(false),
            is_being_noted: AtomicBool::new(false),
            life: AtomicU8::new(HELD),
            place: Mutex::new(parts.place),
            changes: RwLock::default(),
        }
    }

    /// The same open in the hands of a client that came back; `old` must be an orphan nobody else
    /// can find. Push starts anew.
    pub(crate) fn handed_over(
        opens: &Arc<DurableOpens<Self>>,
        old: &Self,
        place: NewPlace,
    ) -> Arc<Self> {
        old.life.store(HANDED_OVER, Ordering::Release);
        let held_place = old.place.lock().take();
        let open = Arc::new(Self {
            serial: old.serial,
            tree: place.tree,
            node: Arc::clone(&old.node),
            entry: Arc::clone(&old.entry),
            access: old.access,
            owner: old.owner,
            mode: AtomicU32::new(old.mode()),
            enumeration: Arc::clone(&old.enumeration),
            push: OnceLock::new(),
            marks: old.marks.moved(),
            origin: Origin { client: place.client, ..old.origin.clone() },
            durable: OnceLock::new(),
            volatile: place.volatile,
            session: Some(place.session),
            sequence: Mutex::new(Sequence::starting_at(place.sequence)),
            lock_sequences: Mutex::new(old.lock_sequences().handed_over()),
            lock_copies: LockCopies::default(),
            closed: Notify::new(),
            may_repeat: AtomicBool::new(old.may_repeat()),
            is_forgotten: AtomicBool::new(false),
            is_being_noted: AtomicBool::new(false),
            life: AtomicU8::new(HELD),
            place: Mutex::new(held_place),
            changes: RwLock::default(),
        });
        if let Some(durable) = old.durable() {
            open.set_durable(opens, durable);
        }
        open
    }

    /// A place for one more descriptor among those of its user, for what the open makes that may outlive it.
    ///
    /// # Errors
    /// The user has as many as it may have.
    pub(crate) fn another_place(&self) -> Result<Option<Hold>, ShareError> {
        match &*self.place.lock() {
            Some(held) => held.another(1).map(Some).ok_or(ShareError::HandlesExhausted),
            None => Ok(None),
        }
    }

    /// Keeps such a place for a descriptor of its own.
    pub(crate) fn keep_place(&self, more: Option<Hold>) {
        let mut place = self.place.lock();
        if let (Some(place), Some(more)) = (place.as_mut(), more) {
            let anothers = place.absorb(more);
            debug_assert!(anothers.is_none(), "a place and another of it are one user's");
        }
    }

    /// Whether its CREATE may come again.
    pub(crate) fn may_repeat(&self) -> bool {
        self.may_repeat.load(Ordering::Acquire)
    }

    /// Whether it was opened, or taken back, in this session.
    pub(crate) fn is_of<S: HoldsOpens>(&self, session: &Arc<S>) -> bool {
        let own = self.session.as_ref().map(Weak::as_ptr);
        own.is_some_and(|own| std::ptr::addr_eq(own, Arc::as_ptr(session)))
    }

    /// How it survives its connection, if that was granted.
    pub(crate) fn durable(&self) -> Option<Durable> {
        self.durable.get().map(|(durable, _)| *durable)
    }

    /// It survives its connection from now on, and a reconnect finds it. The first call counts.
    pub(crate) fn set_durable(self: &Arc<Self>, opens: &Arc<DurableOpens<Self>>, durable: Durable) {
        self.durable.get_or_init(|| (durable, opens.list(self.serial, self)));
    }

    /// Whether another session of the same user holds it.
    pub(crate) fn is_held_beside(&self, session: &dyn HoldsOpens) -> bool {
        self.session().is_some_and(|holder| {
            holder.id() != session.id()
                && holder.identity() == session.identity()
                && holder.holds(self)
        })
    }

    fn session(&self) -> Option<Arc<dyn HoldsOpens>> {
        self.session.as_ref()?.upgrade()
    }

    /// Whether a session holds it, from which it can be [taken](Self::wrest).
    pub(crate) fn is_in_session(&self) -> bool {
        self.session().is_some_and(|session| session.holds(self))
    }

    /// Whether it survives its connection and the server.
    pub(crate) fn is_persistent(&self) -> bool {
        self.durable().is_some_and(|durable| durable.persistent)
    }

    /// CREATE options as FileModeInformation reports them (MS-FSCC §2.4).
    pub(crate) fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    /// Changes what a handle may change about itself.
    pub(crate) fn set_mode(&self, settable: u32, mode: u32) {
        let change = |old| Some(old & !settable | mode & settable);
        let _ = self.mode.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Whether every change of bytes or length is durable before it is answered: the client has asked
    /// for that, or the open outlives a crash of the machine, after which its client must not
    /// find less than it was told, or the operator wants it of the whole share.
    pub(crate) fn is_write_through(&self) -> bool {
        self.mode() & WRITE_THROUGH != 0
            || self.is_persistent()
            || self.tree.share().is_some_and(|share| share.writes_through())
    }

    /// The client has used the handle, so it has the answer to its CREATE.
    pub(crate) fn set_used(&self, creates: &Creates<Self>) {
        if self.may_repeat() && self.may_repeat.swap(false, Ordering::AcqRel) {
            self.forget_create(creates);
        }
    }

    /// A copy of its CREATE finds it from now on, unless it has been used, closed or handed over by now.
    pub(crate) fn settle_create(self: &Arc<Self>, create: Reservation<Self>) {
        let is_over = || !self.may_repeat() || self.life.load(Ordering::Acquire) == HANDED_OVER;
        create.settle(self, is_over);
    }

    /// A copy of its CREATE finds it instead of the object that stood for it before.
    pub(crate) fn take_create_from(self: &Arc<Self>, old: &Self, creates: &Creates<Self>) {
        if let Some(key) = self.origin.key().filter(|_| old.may_repeat()) {
            creates.replace(key, old, self, || !self.may_repeat());
        }
    }

    fn forget_create(&self, creates: &Creates<Self>) {
        if let Some(key) = self.origin.key() {
            creates.forget(key, self);
        }
    }

    /// Whether a request may go ahead as far as lost channels are concerned.
    pub(crate) fn admit(&self, claim: Claim) -> Result<(), Stale> {
        self.sequence().admit(claim)
    }

    /// Admits a request of the client's and counts it until the answer is dropped. Without a claim, of dialects
    /// that know of none, it is counted alone.
    pub(crate) fn begin_request(self: &Arc<Self>, claim: Option<Claim>) -> Result<UnderWay, Stale> {
        let ticket = match claim {
            Some(claim) => self.sequence().enter(claim)?,
            None => self.sequence().begin(),
        };
        Ok(UnderWay { open: Arc::clone(self), ticket })
    }

    /// A change of these bytes through this open.
    pub(crate) fn change(&self, range: LockRange) -> Change {
        Change { owner: self.owner, serial: self.serial, range }
    }

    /// A read of these bytes through this open.
    pub(crate) fn read(&self, range: LockRange) -> Read {
        Read { serial: self.serial, range }
    }

    /// To be held over a change of the file that was asked for through this open: once the open has
    /// ended, or is in other hands, no request from before changes anything. May block.
    pub(crate) fn begin_change(&self) -> Result<RwLockReadGuard<'_, (), order::Changes>, Ended> {
        let held = self.changes.read();
        if self.is_closed() { Err(Ended) } else { Ok(held) }
    }

    /// The same without blocking; `None` if it would.
    pub(crate) fn try_begin_change(
        &self,
    ) -> Option<Result<RwLockReadGuard<'_, (), order::Changes>, Ended>> {
        let held = self.changes.try_read()?;
        Some(if self.is_closed() { Err(Ended) } else { Ok(held) })
    }

    /// Does work over a change, which learns whether the open has ended. `Err`: it would block, and nothing is done.
    pub(crate) fn change_now<T, W>(&self, work: W) -> Result<T, W>
    where
        W: FnOnce(Result<(), Ended>) -> T,
    {
        match self.try_begin_change() {
            Some(held) => Ok(work(held.as_ref().map(|_| ()).map_err(|ended| *ended))),
            None => Err(work),
        }
    }

    /// The same, blocking.
    pub(crate) fn change_blocking<T>(&self, work: impl FnOnce(Result<(), Ended>) -> T) -> T {
        let held = self.begin_change();
        work(held.as_ref().map(|_| ()).map_err(|ended| *ended))
    }

    /// Returns once no change is under way of an open that has ended. May block.
    pub(crate) fn settle_changes(&self) {
        drop(self.changes.write());
    }

    /// Carries out what may take the file away from under this open, while no change is under way through it.
    /// May block.
    pub(crate) fn supersede<T>(&self, act: impl FnOnce() -> T) -> Result<T, Ended> {
        let _alone = self.changes.write();
        if self.is_closed() { Err(Ended) } else { Ok(act()) }
    }

    /// Which LOCK requests were carried out.
    pub(crate) fn lock_sequences(&self) -> MutexGuard<'_, LockSequences, order::LockSequences> {
        self.lock_sequences.lock()
    }

    fn sequence(&self) -> MutexGuard<'_, Sequence, order::Sequence> {
        self.sequence.lock()
    }

    /// The connection is gone, and the client may come back. From now on requests find it closed.
    pub(crate) fn set_orphan(&self) {
        self.life.store(ORPHAN, Ordering::Release);
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.life.load(Ordering::Acquire) == ORPHAN
    }

    /// Takes it away from the session that holds it. True for one caller only, who closes it.
    pub(crate) fn wrest(&self) -> bool {
        self.session().is_some_and(|session| session.take(self))
    }

    /// Whether every right of `mask` was granted.
    pub(crate) fn may(&self, mask: AccessMask) -> bool {
        self.access.contains(mask)
    }

    /// Whether any right of `mask` was granted.
    pub(crate) fn may_any(&self, mask: AccessMask) -> bool {
        self.access.intersects(mask)
    }

    /// Whether it can do no more than look at attributes, or set them.
    pub(crate) fn only_looks(&self) -> bool {
        let looks = AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES;
        (looks | AccessMask::SYNCHRONIZE).contains(self.access)
    }

    /// Where the file's name is now.
    pub(crate) fn path(&self) -> SharePath {
        self.node.lock().path_of(self.serial).unwrap_or_default()
    }

    /// Whether asking the kernel about the file waits for nothing. Times of mapped files are
    /// settled first, which may.
    pub(crate) fn is_at_hand(&self) -> bool {
        self.entry.inline_io().has_open_files_at_hand() && !self.node.lock().is_obstructed()
    }

    /// Whether the open has ended for those who hold this object, or its file from under it.
    pub(crate) fn is_closed(&self) -> bool {
        self.life.load(Ordering::Acquire) != HELD || self.entry.is_superseded()
    }
}

impl Granted for Open {
    fn access(&self) -> AccessMask {
        self.access
    }

    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn is_superseded(&self) -> bool {
        self.entry.is_superseded()
    }
}

/// A session, as the opens in it see it.
pub(crate) trait HoldsOpens: Debug + Send + Sync {
    /// The id of the session.
    fn id(&self) -> u64;

    /// Who the session belongs to.
    fn identity(&self) -> &Identity;

    /// Whether the session has the open.
    fn holds(&self, open: &Open) -> bool;

    /// Takes the open out of the session. True for one caller only, who closes it.
    fn take(&self, open: &Open) -> bool;
}

/// Told of each open that closes, before it leaves its node.
pub(crate) trait CloseObserver: Debug + Send + Sync {
    /// The open closes, or waits for its client from now on. Must not wait.
    fn closing(&self, open: &Open);
}

/// The open has ended for whoever asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ended;

impl From<Ended> for smb::NtStatus {
    fn from(_: Ended) -> Self {
        Self::FILE_CLOSED
    }
}

/// Where a client that came back takes an open.
#[derive(Debug)]
pub(crate) struct NewPlace {
    pub(crate) tree: Arc<Tree>,
    pub(crate) session: Weak<dyn HoldsOpens>,
    pub(crate) client: [u8; 16],
    pub(crate) volatile: u64,
    pub(crate) sequence: u16,
}

/// A request on an open, counted until dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    open: Arc<Open>,
    ticket: Ticket,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.open.sequence().end(self.ticket);
    }
}

const HELD: u8 = 0;
const ORPHAN: u8 = 1;
pub(super) const HANDED_OVER: u8 = 2;
pub(super) const CLOSED: u8 = 3;

/// FILE_WRITE_THROUGH.
const WRITE_THROUGH: u32 = 0x0000_0002;
