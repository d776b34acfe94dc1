//! A session: one authenticated user, the keys both sides share, and everything opened with them.
//!
//! ```text
//!              authenticated                 logoff, connection lost, server stops
//!  SESSION_SETUP ----------> +-------+ ---------------------------------------> +--------+
//!                            | Valid |                                          | Closed |
//!                            +-------+ <--- authenticated again, same keys      +--------+
//!                                |                                  |
//!                                +-- its ticket ends --> Expired ---+
//! ```
//!
//! Over each of its connections a session is reached through a channel with a signing key of its
//! own; the keys that seal are the session's. It ends with its last channel, not with the first.
//!
//! Spec: MS-SMB2 §3.3.1.8 (session), §3.3.1.15 (channel).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use basics::ordered::{Mutex, MutexGuard};
use basics::{Clock, Full, Key, Table};
use smb::crypto::{ChannelSigner, OpeningKey, SealingKey, SessionSigner};
use smb::{Command, FileTime};
use tokio::sync::Notify;
use tree::{MayWait, Share};

use super::link::{Agreed, Link};
use super::pipe::Pipe;
use super::work::{Work, Working};
use crate::access::{Identity, Rights};
use crate::access::{Target, Tree};
use crate::identity::ServerIdentity;
use crate::limits::{
    CHANNELS_PER_SESSION_MAX, OPENS_PER_SESSION_MAX, PIPES_PER_SESSION_MAX, TREES_PER_GUEST_MAX,
    TREES_PER_SESSION_MAX,
};
use crate::lock_order as order;
use crate::state::Resource;
use crate::state::account::{Account, Hold};
use crate::state::closing::forget_all;
use crate::state::ends::Over;
use crate::state::files::Files;
use crate::state::open::HoldsOpens;
use crate::state::open::Open;
use crate::time::file_time;

/// One authenticated user on one server.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    /// What its first connection agreed on; those that join it must have agreed on the same.
    pub(crate) agreed: Agreed,
    /// Proves to the server that another connection may join, and signs there what it may.
    pub(crate) signing: Option<SessionSigner>,
    pub(crate) sealing: Option<SealingKey>,
    pub(crate) opening: Option<OpeningKey>,
    /// Requests must be signed or sealed.
    pub(crate) signing_required: bool,
    /// Requests must be sealed.
    pub(crate) encrypt_required: bool,
    /// Its client has signed a request that it need not have signed.
    signs: AtomicBool,
    links: Mutex<Links, order::Links>,
    trees: Mutex<HashMap<u32, Entered>, order::Trees>,
    next_tree: AtomicU32,
    opens: Mutex<Table<Arc<Open>>, order::Opens>,
    pipes: Mutex<Table<Arc<Pipe>>, order::Pipes>,
    work: Arc<Work>,
    /// Notified when it has ended.
    end: Notify,
    /// It has authenticated again without a name.
    unnamed: AtomicBool,
    /// When its ticket ends, in ticks; all ones: never.
    expires: AtomicU64,
    /// When it was set up.
    pub(crate) since: Instant,
    /// What its user, or all guests, hold of the server.
    pub(crate) account: Arc<Account>,
    _place: Option<Hold>,
}

/// A share that a session has entered.
#[derive(Debug)]
struct Entered {
    tree: Arc<Tree>,
    /// Its place among the tree connects of its user.
    _place: Hold,
}

/// One connection's part in a session: the key that signs there.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) session: Arc<Session>,
    /// None for guests, who have no key.
    pub(crate) signing: Option<ChannelSigner>,
}

/// The connections of a session.
#[derive(Debug, Default)]
struct Links {
    alive: Vec<Weak<Link>>,
    /// The last one has gone, or the session was closed: nobody joins any more.
    ended: bool,
}

/// What a session starts from.
#[derive(Debug)]
pub(crate) struct SessionParts {
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    pub(crate) account: Arc<Account>,
    /// Its place among the sessions of its user.
    pub(crate) place: Option<Hold>,
    pub(crate) agreed: Agreed,
    pub(crate) signing: Option<SessionSigner>,
    pub(crate) sealing: Option<SealingKey>,
    pub(crate) opening: Option<OpeningKey>,
    pub(crate) signing_required: bool,
    pub(crate) encrypt_required: bool,
    /// When it began.
    pub(crate) since: Instant,
}

impl Session {
    pub(crate) fn new(parts: SessionParts) -> Self {
        let SessionParts {
            id,
            identity,
            account,
            place,
            agreed,
            signing,
            sealing,
            opening,
            signing_required,
            encrypt_required,
            since,
        } = parts;
        Self {
            id,
            identity,
            agreed,
            signing,
            sealing,
            opening,
            signing_required,
            encrypt_required,
            signs: AtomicBool::new(false),
            links: Mutex::default(),
            trees: Mutex::default(),
            next_tree: AtomicU32::new(1),
            opens: Mutex::new(Table::new(OPENS_PER_SESSION_MAX)),
            pipes: Mutex::new(Table::new(PIPES_PER_SESSION_MAX)),
            work: Arc::default(),
            end: Notify::new(),
            unnamed: AtomicBool::new(false),
            expires: AtomicU64::new(u64::MAX),
            since,
            account,
            _place: place,
        }
    }

    /// Reaches the session through `link` too, from now on with `channel`.
    pub(crate) fn join(&self, link: &Arc<Link>, channel: Arc<Channel>) -> Result<(), NoChannel> {
        {
            let mut links = self.links();
            if links.ended {
                return Err(NoChannel::Ended);
            }
            if links.alive.len() >= CHANNELS_PER_SESSION_MAX {
                return Err(NoChannel::TooMany);
            }
            links.alive.push(Arc::downgrade(link));
        }
        link.add_channel(channel);
        // Whoever closed it meanwhile may have looked for the channel before it was there.
        if self.is_closed() {
            link.remove_channel(self.id);
            return Err(NoChannel::Ended);
        }
        Ok(())
    }

    /// A connection has gone. True if it was the last one: then the session has to end.
    pub(crate) fn leave(&self, link: &Link) -> bool {
        let mut links = self.links();
        links.alive.retain(|one| !std::ptr::eq(one.as_ptr(), link));
        links.ended |= links.alive.is_empty();
        links.ended
    }

    /// Its connections, the oldest first.
    pub(crate) fn connections(&self) -> Vec<Arc<Link>> {
        self.links().alive.iter().filter_map(Weak::upgrade).collect()
    }

    /// A signature of its client was right. Those that every client has to give say nothing of the others:
    /// of TREE_CONNECT in 3.1.1 (MS-SMB2 §3.2.4.1.1) and of VALIDATE_NEGOTIATE_INFO before it.
    pub(crate) fn note_signed(&self, command: Command) {
        let by_choice = !matches!(command, Command::TREE_CONNECT | Command::IOCTL);
        if by_choice && !self.signs.load(Ordering::Relaxed) {
            self.signs.store(true, Ordering::Relaxed);
        }
    }

    /// Whether its client signs though nobody asks for it: then a LOGOFF without a signature is not its own,
    /// which MS-SMB2 §3.3.5.2.4 lets pass. A LOGOFF ends all channels; who is in between of one can end no others.
    pub(crate) fn signs(&self) -> bool {
        self.signs.load(Ordering::Relaxed)
    }

    /// The rights of its user in a share. `None`: the user may not enter.
    pub(crate) fn rights_in(&self, share: &Share) -> Option<Rights> {
        // A session whose client took its name back enters no further share.
        let is_nobody = self.is_unnamed() && !self.identity.is_guest();
        if is_nobody { None } else { Rights::of(share, &self.identity) }
    }

    /// Enters a share.
    pub(crate) fn connect_tree(&self, target: Target, rights: Rights) -> Option<Arc<Tree>> {
        let mut trees = self.trees();
        let max =
            if self.identity.is_guest() { TREES_PER_GUEST_MAX } else { TREES_PER_SESSION_MAX };
        if trees.len() >= max || self.is_closed() {
            return None;
        }
        let id = loop {
            let id = self.next_tree.fetch_add(1, Ordering::Relaxed);
            // 0 and all ones mean "no tree" and "the tree of the request before".
            if id != 0 && id != u32::MAX && !trees.contains_key(&id) {
                break id;
            }
        };
        let place = self.account.try_take(Resource::Trees, 1)?;
        let tree = Arc::new(Tree::new(id, target, rights));
        trees.insert(id, Entered { tree: Arc::clone(&tree), _place: place });
        Some(tree)
    }

    pub(crate) fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        self.trees().get(&id).map(|entered| Arc::clone(&entered.tree))
    }

    /// Every share it is in, the first entered first.
    pub(crate) fn all_trees(&self) -> Vec<Arc<Tree>> {
        let mut trees: Vec<_> =
            self.trees().values().map(|entered| Arc::clone(&entered.tree)).collect();
        trees.sort_by_key(|tree| tree.id);
        trees
    }

    /// Leaves a share, and takes out what is open through it, which the caller closes.
    pub(crate) fn leave_tree(&self, id: u32) -> Option<Vec<Arc<Open>>> {
        let Entered { tree, .. } = self.trees().remove(&id)?;
        self.pipes().take_if(|pipe| pipe.tree.id == tree.id);
        Some(self.opens().take_if(|open| open.tree.id == tree.id))
    }

    /// Adds an open made from its own volatile id, which is not 0, unless there are too many: then `make` comes back.
    pub(crate) fn add_open<F: FnOnce(u64) -> Arc<Open>>(&self, make: F) -> Result<Arc<Open>, F> {
        let mut opens = self.opens();
        if opens.is_full() {
            return Err(make);
        }
        let mut made = None;
        opens.insert_if(|key| Some(Arc::clone(made.insert(make(key.to_bits())))));
        Ok(made.expect("there is room"))
    }

    /// The open a client means by its two ids, which must both fit.
    pub(crate) fn open(&self, persistent: u64, volatile: u64) -> Option<Arc<Open>> {
        let open = self.opens().get(Key::from_bits(volatile)).cloned()?;
        (open.serial.0 == persistent).then_some(open)
    }

    /// Adds an open pipe.
    pub(crate) fn add_pipe(&self, pipe: Arc<Pipe>) -> Result<Key, Full> {
        self.pipes().insert(pipe)
    }

    /// The pipe a client means by its two ids, which must both fit.
    pub(crate) fn pipe(&self, persistent: u64, volatile: u64) -> Option<Arc<Pipe>> {
        let pipe = self.pipes().get(Key::from_bits(volatile)).cloned()?;
        (pipe.serial.0 == persistent).then_some(pipe)
    }

    /// Closes a pipe.
    pub(crate) fn remove_pipe(&self, persistent: u64, volatile: u64) -> Option<Arc<Pipe>> {
        let mut pipes = self.pipes();
        let matches = pipes.get(Key::from_bits(volatile))?.serial.0 == persistent;
        if matches { pipes.remove(Key::from_bits(volatile)) } else { None }
    }

    /// Every open, for those that must be told something.
    pub(crate) fn all_opens(&self) -> Vec<Arc<Open>> {
        self.opens().values().cloned().collect()
    }

    /// Takes an open out of the table; the caller closes it.
    pub(crate) fn remove_open(&self, persistent: u64, volatile: u64) -> Option<Arc<Open>> {
        let mut opens = self.opens();
        let matches = opens.get(Key::from_bits(volatile))?.serial.0 == persistent;
        if matches { opens.remove(Key::from_bits(volatile)) } else { None }
    }

    /// Ends the session. What it had open is left to the caller, for [`Left::close`]. Does not block. Only the
    /// first call finds anything.
    #[must_use]
    pub(crate) fn dissolve(&self) -> Option<Left> {
        let closing = self.work.end()?;
        self.end.notify_waiters();
        let links = {
            let mut links = self.links();
            links.ended = true;
            std::mem::take(&mut links.alive)
        };
        for link in links.iter().filter_map(Weak::upgrade) {
            link.remove_channel(self.id);
            link.cancel_session(self.id);
        }
        self.trees().clear();
        self.pipes().drain();
        Some(Left { opens: self.opens().drain(), closing: Arc::new(closing) })
    }

    /// Counts a request that changes something; `None` once the session has ended.
    pub(crate) fn begin_work(&self) -> Option<Working> {
        self.work.begin()
    }

    /// What it still does.
    pub(crate) fn work(&self) -> &Arc<Work> {
        &self.work
    }

    /// Whether its user has taken the name back: what is open stays, and nothing is added.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.unnamed.load(Ordering::Acquire)
    }

    /// Its user has authenticated again, with the name or without.
    pub(crate) fn set_unnamed(&self, unnamed: bool) {
        self.unnamed.store(unnamed, Ordering::Release);
    }

    /// It has proved who it is until then, or for good.
    pub(crate) fn set_expiry(&self, at: Option<FileTime>) {
        self.expires.store(at.map_or(u64::MAX, |at| at.0), Ordering::Release);
    }

    /// Whether its ticket has ended: then it does nothing more until it has shown another.
    pub(crate) fn is_expired(&self, clock: &Clock) -> bool {
        let at = self.expires.load(Ordering::Acquire);
        at != u64::MAX && at <= file_time(clock).0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.work.is_ended()
    }

    /// Returns once it has ended.
    pub(crate) async fn ended(&self) {
        basics::until(&self.end, || self.is_closed()).await;
    }

    pub(crate) fn open_count(&self) -> usize {
        self.opens().len()
    }

    fn links(&self) -> MutexGuard<'_, Links, order::Links> {
        self.links.lock()
    }

    fn trees(&self) -> MutexGuard<'_, HashMap<u32, Entered>, order::Trees> {
        self.trees.lock()
    }

    fn pipes(&self) -> MutexGuard<'_, Table<Arc<Pipe>>, order::Pipes> {
        self.pipes.lock()
    }

    fn opens(&self) -> MutexGuard<'_, Table<Arc<Open>>, order::Opens> {
        self.opens.lock()
    }
}

impl HoldsOpens for Session {
    fn id(&self) -> u64 {
        self.id
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn holds(&self, open: &Open) -> bool {
        self.open(open.serial.0, open.volatile).is_some()
    }

    fn take(&self, open: &Open) -> bool {
        self.remove_open(open.serial.0, open.volatile).is_some()
    }
}

/// What a session that has ended had open, for who closes it.
#[derive(Debug)]
pub(crate) struct Left {
    opens: Vec<Arc<Open>>,
    closing: Arc<Working>,
}

impl Left {
    /// Has durable opens wait for their client from now on. What is left is sorted by what its end may wait for: a part that
    /// hangs keeps no other open.
    pub(crate) fn sorted(self, files: &Files, identity: &ServerIdentity) -> Vec<(Over, Self)> {
        let users = identity.users();
        let left = self.opens.into_iter().filter(|open| !files.adopt(&users, open));
        let part = |(over, opens)| (over, Self { opens, closing: Arc::clone(&self.closing) });
        Over::sorted(left).into_iter().map(part).collect()
    }

    /// What the log of opens has to learn of their end. May block.
    pub(crate) fn forget(&self, may_wait: MayWait) {
        forget_all(&self.opens, may_wait);
    }

    /// Closes them. May block.
    pub(crate) fn close(&self, files: &Files, may_wait: MayWait) {
        self.forget(may_wait);
        self.opens.iter().for_each(|open| log_close(open, open.close(files, may_wait)));
    }
}

/// Why a connection cannot join a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoChannel {
    /// The session ends.
    Ended,
    /// It has as many channels as it may.
    TooMany,
}

/// Says what no answer can.
pub(crate) fn log_close(open: &Open, closed: Result<(), tree::ShareError>) {
    if let Err(error) = closed {
        tracing::warn!(serial = open.serial.0, %error, "a file to be deleted on close stays");
    }
}
