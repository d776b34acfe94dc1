//! Remote procedure calls over named pipes, as far as browsing a server takes them.
//!
//! ```text
//!  bytes written to the pipe --> Association --> fragments to be read from the pipe
//!                                     |
//!                       bind: which interface; request: which call
//!                                     v
//!                            srvsvc, wkssvc, lsarpc (answered from a Host)
//! ```
//!
//! * [`Association`] is one pipe's conversation: it joins fragments, keeps what was bound, and cuts
//!   answers to the size the client takes.
//! * [`Interface`] names what can be bound; each has a file with its calls.
//! * `pdu` and `ndr` are the two layers of encoding below them.
//!
//! Spec: C706 (DCE 1.1 RPC) chapters 12 and 14, MS-RPCE, MS-SRVS, MS-WKST, MS-LSAD, MS-LSAT.

mod association;
mod host;
mod lsarpc;
mod names;
mod ndr;
mod pdu;
mod srvsvc;
mod wkssvc;

pub use association::{Association, AssociationError, REQUEST_MAX};
pub use host::{Host, SharedResource};
pub use pdu::Interface;
