//! Whoever holds a lease or an oplock, and how it is told that it is to give it back.
//!
//! Of an oplock over the connection it was granted on, of a lease over the first of the client's. What
//! a CREATE has just granted is asked back behind its answer, over the same connection ([`super::told`]).
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::caching::Flavor;
use super::lease::Notice;
use super::link::Link;
use super::session::Session;
use super::told::{Answering, Told};

/// How the holder of a lease or oplock is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    /// Where it was granted.
    pub(crate) link: Weak<Link>,
    /// Where else it can be told, when that connection has gone.
    pub(crate) session: Weak<Session>,
    pub(crate) session_id: u64,
    pub(crate) tree_id: u32,
    /// The open an oplock belongs to, as the client knows it.
    pub(crate) file_id: (u64, u64),
    pub(crate) lease_key: [u8; 16],
    /// It was granted in a sealed answer: nothing of it is said in the clear.
    pub(crate) is_sealed: bool,
    /// Whether its CREATE has been answered.
    pub(crate) told: Arc<Told<Notice<Self>>>,
    /// Where it was asked for what it owes; one for all opens of a lease.
    pub(crate) asked: Arc<Asked>,
}

/// The connection a holder was asked over last.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<Weak<Link>>);

impl Asked {
    fn note(&self, link: &Arc<Link>) {
        *self.lock() = Arc::downgrade(link);
    }

    /// `None` when it has gone, or there has not been one.
    fn link(&self) -> Option<Arc<Link>> {
        self.lock().upgrade().filter(|link| !link.is_gone())
    }

    fn lock(&self) -> MutexGuard<'_, Weak<Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Breaks of what a CREATE was granted wait until it is answered, that is until this is dropped.
pub(crate) type BreaksWait = Answering<Notice<Holder>>;

impl Holder {
    /// For a client that does not know yet what it holds.
    pub(crate) fn untold() -> (Arc<Told<Notice<Self>>>, BreaksWait) {
        Told::waiting(tell_where_granted)
    }

    /// Whether there may be a connection to tell it over.
    pub(super) fn may_be_there(&self) -> bool {
        self.link.strong_count() > 0 || self.session.strong_count() > 0
    }

    /// Whether it was asked over a connection that still leads to it.
    pub(super) fn is_asked(&self, flavor: Flavor) -> bool {
        self.asked.link().is_some_and(|link| match flavor {
            Flavor::Oplock => link.channel(self.session_id).is_some(),
            Flavor::LeaseV1 | Flavor::LeaseV2 => {
                self.session.upgrade().is_some_and(|session| self.is_led_to(&link, &session))
            }
        })
    }

    /// The connection to use: the one it was granted on, else another of the same session.
    fn connection(&self) -> Option<Arc<Link>> {
        let is_there = |link: &Arc<Link>| !link.is_gone();
        let own = || self.link.upgrade().filter(|link| link.channel(self.session_id).is_some());
        let another = || self.session.upgrade()?.connections().into_iter().find(is_there);
        own().filter(is_there).or_else(another)
    }

    /// MS-SMB2 §3.3.4.7: of leases a client is told over its first connection, whatever it has opened
    /// there: it may know its files by their keys alone.
    fn first_connection(&self) -> Option<Arc<Link>> {
        let session = self.session.upgrade()?;
        let near = self.connection()?;
        let links = near.core.clients.of(session.agreed.client_guid);
        links.into_iter().find(|link| !link.is_gone() && self.is_led_to(link, &session))
    }

    // Whether a lease of this session can be asked back over a connection of its client. Another
    // user's is not taken, for anybody can claim to be this client, nor one where what has to be
    // sealed could not be.
    fn is_led_to(&self, link: &Link, session: &Session) -> bool {
        (!self.is_sealed && link.is_of(&session.identity)) || link.channel(session.id).is_some()
    }
}

/// Tells the holder of a break, once it has heard of what it is to give back.
pub(super) fn send(notice: Notice<Holder>) {
    let told = Arc::clone(&notice.notify.told);
    if let Err(notice) = told.keep(notice) {
        tell(notice);
    }
}

/// Tells a silent holder of a lease over the connection it was granted on, if it was asked over
/// another: that one may be dead, and nobody has noticed yet.
pub(super) fn insist(notice: Notice<Holder>) {
    let near = notice.notify.connection();
    let asked = notice.notify.asked.link();
    if near.as_ref().map(Arc::as_ptr) != asked.as_ref().map(Arc::as_ptr) {
        tell_where_granted(notice);
    }
}

fn tell(notice: Notice<Holder>) {
    let is_lease = notice.flavor != Flavor::Oplock;
    while let Some(link) = notice.notify.first_connection().filter(|_| is_lease) {
        if ask(&link, &notice) {
            return;
        }
    }
    tell_where_granted(notice);
}

// Also what had to wait for the answer that granted it: it leaves behind that, and is not sent over
// another connection, where it might come first.
fn tell_where_granted(notice: Notice<Holder>) {
    while let Some(link) = notice.notify.connection() {
        if ask(&link, &notice) {
            return;
        }
    }
}

// False if the connection has ended meanwhile: then it may not have known that it was asked over.
fn ask(link: &Arc<Link>, notice: &Notice<Holder>) -> bool {
    notice.notify.asked.note(link);
    link.note_asked();
    crate::dispatch::oplock_break::notify(link, notice);
    !link.is_gone()
}
