//! Connections and the sessions over them, without sockets.
//!
//! A [`link`] is a connection as others see it, with its [`outbox`], its [`window`] of message ids and credits, the
//! requests that are [`kept`] and those that are [`pending`]. A [`session`] is reached over links; it has the [`work`] it
//! still does and the [`pipe`]s it has open. [`logon`] proves who a client is as often as [`throttle`] lets it, and
//! [`clients`] finds the connections of a client; [`waiting`] has those that may be evicted. [`sessions`] finds a session by
//! its id. What all of them share is [`shared`], with the [`counters`].

pub(crate) mod clients;
pub(crate) mod counters;
pub(crate) mod kept;
pub(crate) mod link;
pub(crate) mod logon;
pub(crate) mod outbox;
pub(crate) mod pending;
pub(crate) mod pipe;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod shared;
pub(crate) mod throttle;
pub(crate) mod waiting;
pub(crate) mod window;
pub(crate) mod work;

pub(crate) use kept::{Frame, Kept};
pub(crate) use link::{Agreed, Link, async_id_of};
pub(crate) use logon::{Decision, Later, Logon};
pub(crate) use outbox::{Outbox, Parcel, RemoteMemory, Transfer};
pub(crate) use pending::Pending;
pub(crate) use pipe::Pipe;
pub(crate) use session::{Channel, Session};
pub(crate) use sessions::{ReservedId, Sessions};

/// What all connections share.
pub(crate) type Connections = shared::Shared<Link>;
