//! Whoever holds a lease or an oplock, and how it is told that it is to give it back.
//!
//! Of an oplock over the connection it was granted on, of a lease over the first of the client's. What
//! a CREATE has just granted is asked back behind its answer, over the same connection ([`super::told`]).
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7.

use std::sync::{Arc, Weak};

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
    /// Whether its CREATE has been answered.
    pub(crate) told: Arc<Told<Notice<Self>>>,
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

    /// The connection it was granted on, while that is one of its session.
    pub(super) fn own_connection(&self) -> Option<Arc<Link>> {
        self.link.upgrade().filter(|link| link.channel(self.session_id).is_some())
    }

    /// The connection to use: the one it was granted on, else another of the same session.
    fn connection(&self) -> Option<Arc<Link>> {
        let another = || self.session.upgrade()?.connections().into_iter().next();
        self.own_connection().or_else(another)
    }

    /// MS-SMB2 §3.3.4.7: of leases a client is told over its first connection, whatever it has opened
    /// there: it may know its files by their keys alone. Another user's is not taken, for anybody can claim
    /// to be this client, nor one where what has to be sealed could not be.
    fn first_connection(&self) -> Option<Arc<Link>> {
        let session = self.session.upgrade()?;
        let near = self.connection()?;
        let is_fit = |link: &Arc<Link>| {
            let is_users = !session.encrypt_required && link.is_of(&session.identity);
            is_users || link.channel(session.id).is_some()
        };
        near.core.clients.of(session.agreed.client_guid).into_iter().find(is_fit)
    }
}

/// Tells the holder of a break, once it has heard of what it is to give back.
pub(super) fn send(notice: Notice<Holder>) {
    let told = Arc::clone(&notice.notify.told);
    if let Err(notice) = told.keep(notice) {
        tell(notice);
    }
}

/// Tells a silent holder of a lease over the connection it was granted on, if it was told over another:
/// the client's first one may be dead, and nobody has noticed yet.
pub(super) fn insist(notice: Notice<Holder>) {
    let (first, near) = (notice.notify.first_connection(), notice.notify.connection());
    let is_same = match (&first, &near) {
        (Some(first), Some(near)) => Arc::ptr_eq(first, near),
        _ => first.is_none(),
    };
    if !is_same {
        tell_where_granted(notice);
    }
}

fn tell(notice: Notice<Holder>) {
    let first = || notice.notify.first_connection();
    match first().filter(|_| notice.flavor != Flavor::Oplock) {
        Some(link) => crate::dispatch::oplock_break::notify(&link, &notice),
        None => tell_where_granted(notice),
    }
}

// Also what had to wait for the answer that granted it: it leaves behind that, and is not sent over
// another connection, where it might come first.
fn tell_where_granted(notice: Notice<Holder>) {
    if let Some(link) = notice.notify.connection() {
        crate::dispatch::oplock_break::notify(&link, &notice);
    }
}
