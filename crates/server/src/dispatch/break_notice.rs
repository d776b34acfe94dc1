//! Break notices on their way to clients: over which connection, and their bytes.
//!
//! Of an oplock over the connection it was granted on, of a lease over the first of the client's. What
//! a CREATE has just granted is asked back behind its answer, over the same connection (`state/told.rs`).
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7.

use std::sync::{Arc, Weak};

use smb::Command;
use smb::create::LeaseKey;
use smb::{FileId, Header, HeaderFlags, MessageId, Route, SessionId, TreeId};
use smb::{LeaseBreakNotification, OplockBreak};
use tracing::debug;

use super::frame;
use super::levels::{to_level, to_state};
use crate::connections::{Link, Session};
use crate::state::caching::Flavor;
use crate::state::holder::{Courier, Holder};
use crate::state::lease::Notice;

/// A client that holds a lease or an oplock, as its connections lead to it.
#[derive(Debug)]
pub(crate) struct Client {
    /// Where the caching was granted.
    pub(crate) link: Weak<Link>,
    /// Where else the client can be told, when that connection has gone.
    pub(crate) session: Weak<Session>,
    pub(crate) session_id: u64,
    pub(crate) tree_id: u32,
    /// The open an oplock belongs to, as the client knows it.
    pub(crate) file_id: FileId,
    pub(crate) lease_key: LeaseKey,
}

impl Courier for Client {
    fn may_arrive(&self) -> bool {
        self.link.strong_count() > 0 || self.session.strong_count() > 0
    }

    fn is_asked(&self, holder: &Holder, flavor: Flavor) -> bool {
        asked(holder).is_some_and(|link| match flavor {
            Flavor::Oplock => link.channel(self.session_id).is_some(),
            Flavor::LeaseV1 | Flavor::LeaseV2 => self
                .session
                .upgrade()
                .is_some_and(|session| is_led_to(&link, &session, holder.is_sealed)),
        })
    }

    fn send(&self, notice: &Notice<Holder>) {
        let is_lease = notice.flavor != Flavor::Oplock;
        while let Some(link) = self.first_connection(&notice.notify).filter(|_| is_lease) {
            if self.ask(&link, notice) {
                return;
            }
        }
        self.send_where_granted(notice);
    }

    fn send_where_granted(&self, notice: &Notice<Holder>) {
        while let Some(link) = self.connection() {
            if self.ask(&link, notice) {
                return;
            }
        }
    }

    fn insist(&self, notice: &Notice<Holder>) {
        let near = self.connection();
        let asked = asked(&notice.notify);
        if near.as_ref().map(Arc::as_ptr) != asked.as_ref().map(Arc::as_ptr) {
            self.send_where_granted(notice);
        }
    }
}

impl Client {
    // The connection to use: the one it was granted on, else another of the same session.
    fn connection(&self) -> Option<Arc<Link>> {
        let is_there = |link: &Arc<Link>| !link.is_gone();
        let own = || self.link.upgrade().filter(|link| link.channel(self.session_id).is_some());
        let another = || self.session.upgrade()?.connections().into_iter().find(is_there);
        own().filter(is_there).or_else(another)
    }

    // MS-SMB2 §3.3.4.7: of leases a client is told over its first connection, whatever it has opened
    // there: it may know its files by their keys alone.
    fn first_connection(&self, holder: &Holder) -> Option<Arc<Link>> {
        let session = self.session.upgrade()?;
        let links = self.connection()?.of_client(session.agreed.client_guid);
        let leads = |link: &Arc<Link>| is_led_to(link, &session, holder.is_sealed);
        links.into_iter().find(|link| !link.is_gone() && leads(link))
    }

    // False if the connection has ended meanwhile: then it may not have known that it was asked over.
    fn ask(&self, link: &Arc<Link>, notice: &Notice<Holder>) -> bool {
        notice.notify.asked.note(link);
        link.note_asked();
        self.notify(link, notice);
        !link.is_gone()
    }

    // Tells the client what it may still cache.
    fn notify(&self, link: &Link, notice: &Notice<Holder>) {
        let holder = &notice.notify;
        // MS-SMB2 §3.3.4.6, §3.3.4.7: sealed where the session or the share insists on it; here also
        // where the client has sealed of its own accord. It says which file, so never in the clear instead.
        let seal = link.channel(self.session_id).filter(|_| holder.is_sealed);
        if holder.is_sealed && seal.is_none() {
            debug!(peer = %link.peer, "no break: the session that would seal it is not here any more");
            return;
        }
        let mut out = Vec::new();
        let start = frame::begin(&mut out, seal.is_some());
        // Nobody asked: message id all ones, and for leases no session and no tree either.
        let mut header = Header::request(Command::OPLOCK_BREAK, MessageId(u64::MAX));
        header.flags = HeaderFlags::RESPONSE;
        if notice.flavor == Flavor::Oplock {
            header.session_id = SessionId(self.session_id);
            header.route = Route::Sync { process_id: 0, tree_id: TreeId(self.tree_id) };
        }
        header.emit(&mut out);
        match notice.flavor {
            Flavor::Oplock => {
                let level = to_level(notice.to);
                OplockBreak { level, file_id: self.file_id }.emit(&mut out);
            }
            Flavor::LeaseV1 | Flavor::LeaseV2 => {
                let epoch = if notice.flavor == Flavor::LeaseV2 { notice.epoch } else { 0 };
                let notification = LeaseBreakNotification {
                    epoch,
                    ack_required: notice.needs_answer,
                    lease_key: self.lease_key,
                    current: to_state(notice.from),
                    new: to_state(notice.to),
                };
                notification.emit(&mut out);
            }
        }
        debug!(peer = %link.peer, from = notice.from.0, to = notice.to.0, "caching broken");
        match frame::end(&mut out, start, seal.as_deref()) {
            Ok(()) => link.tell(out),
            Err(_) => link.close(),
        }
    }
}

// The connection over which a holder was asked last, as long as it lives.
fn asked(holder: &Holder) -> Option<Arc<Link>> {
    holder.asked.last().filter(|link: &Arc<Link>| !link.is_gone())
}

// Whether a lease of this session can be asked back over a connection of its client. Another
// user's is not taken, for anybody can claim to be this client, nor one where what has to be
// sealed could not be.
fn is_led_to(link: &Link, session: &Session, is_sealed: bool) -> bool {
    (!is_sealed && link.is_of(&session.identity)) || link.channel(session.id).is_some()
}
