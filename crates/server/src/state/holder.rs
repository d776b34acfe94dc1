//! Whoever holds a lease or an oplock, and the break notices that leave the state of files for the holder.
//!
//! How a notice reaches its client is not known here: [`Courier`] is the way out.
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use super::caching::Flavor;
use super::lease::Notice;
use super::told::{Answering, Told};
use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};

/// Carries break notices to one client. Implemented where connections are known.
pub(crate) trait Courier: Debug + Send + Sync {
    /// Whether there may be a connection to the client.
    fn may_arrive(&self) -> bool;

    /// Whether the connection over which the client was asked still leads to it.
    fn is_asked(&self, holder: &Holder, flavor: Flavor) -> bool;

    /// Sends a notice: of an oplock over the connection where it was granted, of a lease over the client's first one.
    fn send(&self, notice: &Notice<Holder>);

    /// Sends a notice over the connection where the caching was granted, whatever is broken.
    fn send_where_granted(&self, notice: &Notice<Holder>);

    /// Sends a notice again to a silent client, if it was asked over another connection than the one where the
    /// caching was granted: that connection may be dead, and nobody has noticed yet.
    fn insist(&self, notice: &Notice<Holder>);
}

/// How the holder of a lease or oplock is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    /// `None`: the client cannot be told.
    pub(crate) courier: Option<Arc<dyn Courier>>,
    /// The caching was granted in a sealed answer: nothing of it is said in the clear.
    pub(crate) is_sealed: bool,
    /// Whether the CREATE of the holder has been answered.
    pub(crate) told: Arc<Told<Notice<Self>>>,
    /// Where the holder was asked for what it owes; one for all opens of a lease.
    pub(crate) asked: Arc<Asked>,
}

/// The connection over which a holder was asked last: only its [`Courier`] knows what a connection is.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<Option<Weak<dyn Any + Send + Sync>>, order::Asked>);

impl Asked {
    /// Notes the connection over which the holder is asked.
    pub(crate) fn note<C: Any + Send + Sync>(&self, connection: &Arc<C>) {
        let connection: Weak<dyn Any + Send + Sync> = Arc::downgrade(connection) as _;
        *self.lock() = Some(connection);
    }

    /// The connection that was noted last; `None` where it is gone, or there has not been one.
    pub(crate) fn last<C: Any + Send + Sync>(&self) -> Option<Arc<C>> {
        self.lock().as_ref()?.upgrade()?.downcast().ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Weak<dyn Any + Send + Sync>>, order::Asked> {
        self.0.lock()
    }
}

/// Breaks of what a CREATE was granted wait until it is answered, that is until this is dropped.
pub(crate) type BreaksWait = Answering<Notice<Holder>>;

impl Holder {
    /// For a client that does not know yet what it holds.
    pub(crate) fn untold() -> (Arc<Told<Notice<Self>>>, BreaksWait) {
        // What had to wait for the answer that granted it leaves behind that answer, and is not sent over
        // another connection, where it might come first.
        Told::waiting(|notice: Notice<Self>| {
            if let Some(courier) = &notice.notify.courier {
                courier.send_where_granted(&notice);
            }
        })
    }

    /// Whether there may be a connection to tell the client over.
    pub(super) fn may_be_there(&self) -> bool {
        self.courier.as_ref().is_some_and(|courier| courier.may_arrive())
    }

    /// Whether the client was asked over a connection that still leads to it.
    pub(super) fn is_asked(&self, flavor: Flavor) -> bool {
        self.courier.as_ref().is_some_and(|courier| courier.is_asked(self, flavor))
    }
}

/// Tells the holder of a break, once it has heard of what it is to give back.
pub(super) fn send(notice: Notice<Holder>) {
    let told = Arc::clone(&notice.notify.told);
    if let Err(notice) = told.keep(notice)
        && let Some(courier) = &notice.notify.courier
    {
        courier.send(&notice);
    }
}

/// Tells a silent holder of a lease another way: see [`Courier::insist`].
pub(super) fn insist(notice: Notice<Holder>) {
    if let Some(courier) = &notice.notify.courier {
        courier.insist(&notice);
    }
}
