//! State machines and tables, without sockets: links, sessions, trees, opens, files.
//!
//! From the wire inwards: [`window`] (message ids and credits), [`link`] (a connection as others
//! see it) with its [`outbox`], [`session`] with the [`work`] it still does, [`tree`], [`open`], [`node`] (a file as all its opens see it,
//! found in [`nodes`], entered and left by rules of its own while its name is [taken](taking) or [made](making); who
//! [leaves](leave) it last takes the names that were [wished](wished) away, which [`wish_notes`] keep) with [`sharing`],
//! the [streams](stream_hold) that are open, [`lease`] over [`caching`] (a break is [`routed`] to its [`holder`], waits
//! until that is [`told`], and is waited for in [`breaks`]), [`locks`], the [`changes`] and [`reads`] under way, and the
//! [`turns`] of WRITEs.
//! Opens that outlive their connection: [`durable`], found in [`durable_opens`], with
//! [`orphans`] and, where they outlive the server, [`persistent`]; requests that come twice:
//! [`creates`], [`sequence`], [`lock_sequence`]. Who is there: [`logon`],
//! [`throttle`], [`clients`], and what they hold of the server: [`account`]. Ids that peers hold
//! can go stale, but never mean something else ([`basics::Table`]). How long requests take is noted by [`reactor`].

pub(crate) mod account;
pub(crate) mod breaks;
pub(crate) mod caching;
pub(crate) mod changes;
pub(crate) mod clients;
pub(crate) mod creates;
pub(crate) mod durable;
pub(crate) mod durable_opens;
pub(crate) mod fair_share;
mod flushes;
pub(crate) mod holder;
pub(crate) mod kept;
pub(crate) mod lease;
pub(crate) mod lease_keys;
pub(crate) mod leave;
pub(crate) mod link;
mod lock_index;
pub(crate) mod lock_sequence;
pub(crate) mod lock_waiters;
pub(crate) mod locks;
pub(crate) mod logon;
pub(crate) mod making;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod open;
pub(crate) mod orphans;
pub(crate) mod outbox;
pub(crate) mod pending;
pub(crate) mod persistent;
pub(crate) mod pipe;
pub(crate) mod reactor;
pub(crate) mod reads;
pub(crate) mod resource;
mod routed;
pub(crate) mod sequence;
pub(crate) mod session;
pub(crate) mod sharing;
pub(crate) mod stream_hold;
pub(crate) mod taking;
pub(crate) mod throttle;
pub(crate) mod told;
pub(crate) mod tree;
pub(crate) mod turns;
pub(crate) mod window;
pub(crate) mod wish_notes;
pub(crate) mod wished;
pub(crate) mod work;

pub(crate) use account::{Account, Hold, Room};
pub(crate) use durable::Orphans;
pub(crate) use kept::{Frame, Kept};
pub(crate) use link::{Agreed, Link};
pub(crate) use locks::OpenSerial;
pub(crate) use logon::{Decision, Later, Logon};
pub(crate) use nodes::Nodes;
pub(crate) use open::Open;
pub(crate) use outbox::{Outbox, Parcel, RemoteMemory, Transfer};
pub(crate) use pending::Pending;
pub(crate) use pipe::Pipe;
pub(crate) use resource::Resource;
pub(crate) use session::{Channel, Identity, Session};
pub(crate) use tree::Tree;
