//! What the server knows about a file while anybody has it open: one node per inode.
//!
//! A node collects what opens of different clients (and different shares) have to agree on: share
//! modes, leases and oplocks, byte-range locks, whether the file is to be deleted, and which
//! regions of it are mapped for push. Nodes appear with the first open and go with the last; one
//! [table](super::nodes) points at them all.
//!
//! No lock is held over an await or a system call that may wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use basics::Clock;
use basics::ordered::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tree::{Entry, FileKey, Flushes, Naming, Share, SharePath};

use super::app_instance::AppInstance;
use super::break_waiters::BreakWaiters;
use super::changes::{Changes, Kept};
use super::exclusive_locks::ExclusiveLocks;
use super::flushes::SharedFlushes;
use super::given_up::GivenUp;
use super::holder::Holder;
use super::lease::{LeaseTable, Notice, Owner};
use super::lease_keys::KeyClaim;
use super::locks::{GrantedLock, LockTable};
use super::making::Makings;
use super::obstacle::Obstacle;
use super::open::Open;
use super::range::LockRange;
use super::routed::{Routed, SideOpen};
use super::serial::OpenSerial;
use super::sharing::Sharing;
use super::taking::{Seen, Takings};
use super::turns::Turns;
use super::wish::Wished;
use crate::access::Identity;
use crate::access::MayRemove;
use crate::access::Tree;
use crate::lock_order as order;

/// One open as its node sees it.
#[derive(Debug)]
pub(crate) struct OpenRecord {
    pub(crate) serial: OpenSerial,
    pub(crate) sharing: Sharing,
    pub(crate) owner: Owner,
    /// It counts among the opens of its owner's lease or oplock.
    pub(crate) has_lease: bool,
    pub(crate) share: Arc<Share>,
    pub(crate) path: SharePath,
    /// The file goes with this open, which was admitted to that.
    pub(crate) delete_on_close: Option<MayRemove>,
    /// How the client is told of breaks; there once the open exists for it.
    pub(crate) holder: Option<Holder>,
    /// Its client has lost its connection; true if it is kept whatever others want.
    pub(crate) orphan: Option<bool>,
    /// The file's name among its client's leases.
    pub(crate) _key_claim: KeyClaim,
    /// Which instance of a clustered application opened it.
    pub(crate) instance: Option<AppInstance>,
    /// The open itself; there once it exists.
    pub(crate) open: Weak<Open>,
    /// The file, if this is an open of a stream of it.
    pub(crate) base: Option<Arc<Node>>,
}

impl OpenRecord {
    // MS-FSA §2.1.5.18.1 grants exclusive caching beside those that only look at attributes. Who may look
    // at the security descriptor too is none of them.
    fn only_looks(&self) -> bool {
        self.sharing.uses.is_empty() && self.open.upgrade().is_none_or(|open| open.only_looks())
    }

    // What a break of its owner's caching has to know of it.
    fn side(&self) -> SideOpen<'_> {
        let Self { serial, owner, orphan, .. } = *self;
        SideOpen { serial, owner, orphan, holder: self.holder.as_ref() }
    }

    /// Whether nobody holds the open: its CREATE goes on, or it is given from one hand to another. Somebody will, or it leaves.
    pub(crate) fn is_coming(&self) -> bool {
        self.open.strong_count() == 0
    }

    /// What `share` calls it: several shares may show one directory. `None` where it lies outside of that.
    pub(crate) fn path_in(&self, share: &Share) -> Option<SharePath> {
        self.share.path_in(share, &self.path)
    }

    /// Whether it is of something below a directory.
    pub(super) fn is_below(&self, share: &Share, directory: &SharePath) -> bool {
        self.path_in(share).is_some_and(|path| path.is_below(directory))
    }
}

/// An open stream, as the node of its file knows it.
#[derive(Clone, Debug)]
pub(crate) struct StreamHold {
    pub(crate) serial: OpenSerial,
    /// Whether others may open the file to delete it.
    pub(crate) shares_delete: bool,
    /// Of the stream; leads nowhere while the stream is made.
    pub(super) stream: Weak<Node>,
}

/// Everything about one inode that opens share.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub(crate) opens: Vec<OpenRecord>,
    pub(crate) leases: LeaseTable<Holder>,
    /// Who waits for breaks of them.
    pub(super) break_waiters: BreakWaiters,
    pub(crate) locks: LockTable,
    /// Names that go with the last open by them.
    pub(crate) delete_pending: Vec<Wished>,
    /// Names that are just being removed, by whose leaving.
    pub(super) going: Vec<(OpenSerial, Wished)>,
    /// The file has been seen with several names.
    pub(crate) is_linked: bool,
    /// The last open has gone and its file is being removed, or one request has the file to itself: who comes now
    /// waits for that.
    pub(crate) removing: bool,
    /// How many removals are under way.
    pub(super) removals: usize,
    /// Streams of the file that are open, by nodes of their own.
    pub(crate) streams: Vec<StreamHold>,
    /// Changes of the file's size under way: nothing is mapped meanwhile.
    pub(crate) resizing: usize,
    /// Changes of the file's bytes under way.
    pub(crate) changes: Changes,
    /// Claims of other modules on the file's bytes; whoever changes the file's shape ends them first.
    obstacles: Vec<Arc<dyn Obstacle>>,
}

impl NodeState {
    /// Whether an open with this sharing can join those that are there. One that `empties` the file removes its
    /// streams: what others write to one of them would be lost. Opens that `is_beside` picks do not exclude it.
    pub(crate) fn admits(
        &self,
        sharing: Sharing,
        empties: bool,
        is_beside: impl Fn(&OpenRecord) -> bool,
    ) -> bool {
        let shares_delete = |hold: &StreamHold| !empties && hold.shares_delete;
        let removes_streams = empties || sharing.uses.delete;
        let streams_agree = !removes_streams || self.streams.iter().all(shares_delete);
        let agrees = |open: &OpenRecord| open.sharing.agrees_with(sharing) || is_beside(open);
        streams_agree && self.opens.iter().all(agrees)
    }

    /// Whether nobody but `owner` has the file open, lookers aside.
    pub(crate) fn is_alone(&self, owner: Owner) -> bool {
        self.opens.iter().all(|open| open.owner == owner || open.only_looks())
    }

    /// [`Node::begin_resize`] for who has this state of `node` locked.
    pub(crate) fn begin_resize(&mut self, node: &Arc<Node>) -> Resizing {
        self.resizing += 1;
        Resizing(Arc::clone(node))
    }

    /// Whether bytes change, or may, that `owner` would cache.
    pub(crate) fn is_changed_by_others(&self, owner: Owner) -> bool {
        self.changes.are_of_another(owner) || self.obstacles.iter().any(|one| one.owner() != owner)
    }

    /// What stands in the way of operations beside the opens.
    pub(crate) fn obstacles(&self) -> impl Iterator<Item = &Arc<dyn Obstacle>> {
        self.obstacles.iter()
    }

    /// Whether anything does.
    pub(crate) fn is_obstructed(&self) -> bool {
        !self.obstacles.is_empty()
    }

    pub(crate) fn add_obstacle(&mut self, obstacle: Arc<dyn Obstacle>) {
        self.obstacles.push(obstacle);
    }

    pub(crate) fn remove_obstacle(&mut self, obstacle: &dyn Obstacle) {
        self.obstacles.retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), obstacle));
    }

    /// The trees of the opens of this user that hold the lease.
    pub(crate) fn trees_of(&self, owner: Owner, user: &Identity) -> Vec<Arc<Tree>> {
        let holders = self.opens.iter().filter(|open| open.owner == owner);
        let opens = holders.filter_map(|record| record.open.upgrade());
        opens.filter(|open| open.origin.user == *user).map(|open| Arc::clone(&open.tree)).collect()
    }

    /// Who is to be told of breaks.
    pub(crate) fn route(&self, notices: Vec<Notice<Holder>>) -> Routed {
        Routed::new(self.opens.iter().map(OpenRecord::side), notices)
    }

    /// Takes away a name that is to go now, though the file stays open: the rules of POSIX, where all
    /// opens are by them. Of those that are left none removes the name again.
    pub(crate) fn unlink(&mut self, last: &OpenRecord) -> bool {
        let is_posix = |open: &OpenRecord| open.path.naming() == Naming::Posix;
        if !self.streams.is_empty() || !is_posix(last) || !self.opens.iter().all(is_posix) {
            return false;
        }
        let same = |open: &&mut OpenRecord| {
            Arc::ptr_eq(&open.share, &last.share) && open.path == last.path
        };
        self.opens.iter_mut().filter(same).for_each(|open| open.delete_on_close = None);
        true
    }

    /// Where an open's name is now.
    pub(crate) fn path_of(&self, serial: OpenSerial) -> Option<SharePath> {
        self.record(serial).map(|open| open.path.clone())
    }

    pub(crate) fn record(&self, serial: OpenSerial) -> Option<&OpenRecord> {
        self.opens.iter().find(|open| open.serial == serial)
    }

    pub(crate) fn record_mut(&mut self, serial: OpenSerial) -> Option<&mut OpenRecord> {
        self.opens.iter_mut().find(|open| open.serial == serial)
    }
}

/// One inode somebody has open.
#[derive(Debug)]
pub(crate) struct Node {
    key: FileKey,
    pub(super) clock: Clock,
    state: Mutex<NodeState, order::Node>,
    /// Notified when a removal of the file has ended, or the last change of its size. Whoever waits for a lock, a break or
    /// a change is woken by [`LockTable`], [`BreakWaiters`] or [`Changes`].
    removed: Notify,
    resized: Notify,
    /// Notified when an open has left the file.
    left: Notify,
    /// Those of the state.
    pub(super) exclusive_locks: ExclusiveLocks,
    given_up: Arc<GivenUp>,
    flushes: SharedFlushes,
    gone: Arc<AtomicUsize>,
    pub(super) takings: Arc<Takings>,
    pub(crate) makings: Arc<Makings>,
    /// WRITEs that wait for the disk.
    pub(crate) writes: Arc<Turns>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

impl Node {
    /// Of an inode that nobody has open yet; counted in `gone` when nobody has any more.
    pub(super) fn new(
        key: FileKey,
        clock: Clock,
        break_timeout: Duration,
        given_up: Arc<GivenUp>,
        gone: Arc<AtomicUsize>,
        (takings, makings): (Arc<Takings>, Arc<Makings>),
    ) -> Self {
        let state = NodeState {
            opens: Vec::new(),
            leases: LeaseTable::new(break_timeout),
            break_waiters: BreakWaiters::default(),
            locks: LockTable::default(),
            delete_pending: Vec::new(),
            going: Vec::new(),
            is_linked: false,
            removing: false,
            removals: 0,
            streams: Vec::new(),
            resizing: 0,
            changes: Changes::default(),
            obstacles: Vec::new(),
        };
        Self {
            key,
            clock,
            exclusive_locks: state.locks.exclusive_locks(),
            state: Mutex::new(state),
            removed: Notify::new(),
            resized: Notify::new(),
            left: Notify::new(),
            given_up,
            flushes: SharedFlushes::default(),
            gone,
            takings,
            makings,
            writes: Arc::default(),
        }
    }

    /// The state. Never hold it over an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, NodeState, order::Node> {
        self.state.lock()
    }

    pub(crate) fn key(&self) -> FileKey {
        self.key
    }

    /// The flushes of the file, the first of which takes a place of the user who has it open.
    pub(crate) fn flushes_for(&self, open: &Open) -> impl Flushes {
        self.flushes.paid_by(|| open.another_place())
    }

    /// Bytes of the file may be lost: no flush of it succeeds any more. Blocks.
    pub(crate) fn poison(&self, entry: &Entry) {
        // A loss is remembered whoever has how many descriptors.
        entry.poison(&self.flushes.paid_by(|| Ok(None)));
    }

    /// Keeps regions from being mapped until dropped. To be held from before those there are are
    /// taken back until the file has its new size.
    pub(crate) fn begin_resize(self: &Arc<Self>) -> Resizing {
        self.lock().begin_resize(self)
    }

    /// Returns once nobody changes the size of the file.
    pub(crate) async fn resized(&self) {
        self.until(&self.resized, |state| state.resizing == 0).await;
    }

    /// Whether whoever found the file by a name, after `seen`, still finds it by that.
    pub(crate) fn has_kept_names_since(&self, seen: &Seen) -> bool {
        self.takings.is_current(seen, self.key)
    }

    /// Returns once the file has been removed, or could not be.
    pub(crate) async fn removed(&self) {
        self.until(&self.removed, |state| !state.removing).await;
    }

    /// Returns once this is so, which an open that leaves the file makes so.
    pub(crate) async fn changes_until(&self, reached: impl FnMut() -> bool) {
        basics::until(&self.left, reached).await;
    }

    /// An open of which others knew that it is coming has come.
    pub(crate) fn note_come(&self) {
        self.left.notify_waiters();
    }

    /// An open has left the file.
    pub(super) fn note_left(&self) {
        self.left.notify_waiters();
    }

    /// Returns once nothing is under way that a lock would have forbidden, had it been there before.
    pub(crate) async fn settled(&self, kept: Kept) {
        loop {
            let Some(ended) = self.lock().changes.met_by(kept) else { return };
            ended.await;
        }
    }

    // `event` is notified when `reached` has become true.
    async fn until(&self, event: &Notify, reached: impl Fn(&NodeState) -> bool) {
        basics::until(event, || reached(&self.lock())).await;
    }

    /// The name has been removed, or could not be: then the file stays and may be opened again.
    pub(super) fn end_removal(&self) {
        let mut state = self.lock();
        self.takings.count(self.key);
        state.removals = state.removals.saturating_sub(1);
        state.removing = state.removals > 0;
        drop(state);
        self.removed.notify_waiters();
    }

    /// Gives back locks of an open; who waited for one of them tries again. Whether all were held.
    pub(crate) fn release_locks(&self, serial: OpenSerial, ranges: &[LockRange]) -> bool {
        self.lock().locks.unlock(serial, ranges) == ranges.len()
    }

    /// Takes away locks that a request took which fails; other locks of the same ranges stay.
    pub(crate) fn revert_locks(&self, serial: OpenSerial, granted: &[GrantedLock]) {
        self.lock().locks.revert(serial, granted);
    }

    /// Tells holders, and has the opens closed of those that cannot be told.
    pub(crate) fn send(&self, routed: Routed) {
        self.given_up.add(routed.given_up());
        routed.send();
    }

    /// Asks `owner` again for what it owes, if the connection it was asked over leads to it no more.
    pub(crate) fn repeat_break(&self, owner: Owner) {
        let routed = {
            let state = self.lock();
            let mut routed = state.route(state.leases.owed(owner).into_iter().collect());
            routed.retain(|notice| !notice.notify.is_asked(notice.flavor));
            routed
        };
        self.send(routed);
    }
}

/// A change of a file's size under way.
#[derive(Debug)]
pub(crate) struct Resizing(Arc<Node>);

impl Drop for Resizing {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.0.lock();
            state.resizing -= 1;
            state.resizing == 0
        };
        if is_last {
            self.0.resized.notify_waiters();
        }
    }
}
