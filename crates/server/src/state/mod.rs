//! State machines and tables of files, without sessions and connections.
//!
//! All of them are [`files`]. An [`open`] ends by [`closing`]. A [`node`] is a file as all its opens see it,
//! found in [`nodes`], entered and left by rules of its own while its name is [taken](taking) or [made](making); who
//! [leaves](leave) it last takes the names that were [wished](wished) away, which [`wish_notes`] keep. It has [`sharing`],
//! the [streams](stream_hold) that are open, [obstacles](obstacle) of other modules, [`lease`] over [`caching`] (a break is [`routed`] to its [`holder`], waits
//! until that is [`told`], and is waited for in [`breaks`]), [`locks`], the [`changes`] and [`reads`] under way, and the
//! [`turns`] of WRITEs.
//! Opens that outlive their connection: [`durable`], found in [`durable_opens`], with
//! [`orphans`] and, where they outlive the server, [`persistent`]; requests that come twice:
//! [`creates`], [`sequence`], [`lock_sequence`]. What users hold of the server: [`account`]. Ids that peers hold
//! can go stale, but never mean something else ([`basics::Table`]). How long requests take is noted by [`reactor`].

pub(crate) mod account;
pub(crate) mod app_instance;
mod break_waiters;
pub(crate) mod breaks;
pub(crate) mod caching;
pub(crate) mod changes;
pub(crate) mod changing;
pub(crate) mod claim;
pub(crate) mod closing;
mod corrections;
pub(crate) mod creates;
pub(crate) mod durable;
pub(crate) mod durable_opens;
pub(crate) mod ends;
mod exclusive_locks;
pub(crate) mod fair_share;
pub(crate) mod files;
mod flushes;
pub(crate) mod given_up;
pub(crate) mod holder;
pub(crate) mod lease;
pub(crate) mod lease_keys;
mod lease_note;
pub(crate) mod leave;
mod lock_index;
mod lock_queue;
pub(crate) mod lock_sequence;
pub(crate) mod lock_waiters;
pub(crate) mod locks;
pub(crate) mod making;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod obstacle;
pub(crate) mod open;
pub(crate) mod open_push;
pub(crate) mod orphans;
pub(crate) mod persistent;
pub(crate) mod range;
pub(crate) mod reactor;
pub(crate) mod reads;
pub(crate) mod resource;
mod routed;
pub(crate) mod sequence;
pub(crate) mod serial;
pub(crate) mod sharing;
pub(crate) mod stream_hold;
pub(crate) mod taking;
pub(crate) mod told;
pub(crate) mod turns;
pub(crate) mod wish;
pub(crate) mod wish_notes;
pub(crate) mod wished;

pub(crate) use account::{Account, Hold, Room};
pub(crate) use open::Open;
pub(crate) use resource::Resource;
pub(crate) use serial::OpenSerial;
