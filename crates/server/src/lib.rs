//! The Landfast file server: SMB 2 and 3 over TCP, SMB Direct and push mode over RDMA.
//!
//! [`Server::start`] takes a [`ServerConfig`] and returns a [`Running`] server. Below it, crate [`tree`] is the
//! directory tree that cannot be left, with Windows names and metadata. Inside, from the disk to the wire:
//!
//! | module | what it is |
//! |---|---|
//! | `access` | who may do what: one decision per object and operation |
//! | `identity` | who the server is: names, GUID, users |
//! | `state` | files, opens, leases, locks: no sessions, no connections |
//! | `status` | the failures of a share, as clients are told them |
//! | `connections` | links and sessions, without sockets |
//! | `service` | the parts of the server as one value |
//! | `dispatch` | one file per command: answered now, or later |
//! | `push` | regions mapped for one-sided access: tokens, registrations, recall; the gate of the engine threads (`remote::host`) |
//! | `exports` | opening shares: what can fail first, then what changes the disk |
//! | `host` | what the machine says of its network |
//! | `kerberos` | the keytab's file |
//! | `upkeep` | periodic checks |
//! | `reload` | other users and shares while it serves |
//! | [`users`] | users of a file, by NT hash |
//! | [`report`] | what goes on, for whoever operates the server |
//! | `transport` | TCP on tokio; SMB Direct on an engine thread |

mod access;
mod address_space;
mod config;
mod connections;
mod descriptors;
mod dispatch;
mod exports;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod host;
mod identity;
mod kerberos;
mod limits;
mod lock_order;
mod memory;
mod panics;
mod push;
mod reload;
pub mod report;
mod server;
mod service;
mod shared;
mod state;
mod status;
mod time;
mod transport;
mod upkeep;
pub mod users;

pub use config::{Announced, AnnouncedError, PushPolicy, ServerConfig, SigningPolicy, Users};
pub use kerberos::{KerberosConfig, KeytabFileError};
pub use limits::Limits;
pub use reload::{ReloadError, Reloaded};
pub use report::{Observer, Report};
pub use server::{Running, Server, StartError, Status};
pub use tree::ShareConfig;
