//! The one-sided way between members: a source writes records into the ring of a member and makes them durable there, by RDMA,
//! and no code of the member runs for it.
//!
//! ```text
//!   source                                            destination
//!     Channel                                           Hosting
//!       RDMA Write + Flush at the place of the LSN  -->   its engine places, flushes, answers
//! ```
//! A member decides who may write: [`Hosting::invite`] makes a ticket for one connection, [`Hosting::map`] registers the ring
//! on it, and once [`Hosting::revoke`] has returned nothing of that peer comes into the ring any more. What came before is
//! there, whole or not, and is looked for then ([`crate::ring::Ring::find_behind`]).
//!
//! What travels is not encrypted by provider `soft`, and the ticket is seen by whoever sees the wire: the way is for links that
//! nobody else reaches.

mod channel;
mod error;
mod hosting;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use rdma::{PollPolicy, ProviderChoice};

pub use self::channel::{Channel, Target, UNDER_WAY_MAX};
pub use self::error::OneSidedError;
pub use self::hosting::Hosting;
use crate::names::MemberId;

/// How members reach each other's rings.
#[derive(Clone, Debug)]
pub struct OneSidedOptions {
    /// What carries out RDMA on this machine.
    pub provider: ProviderChoice,
    /// Where this member's engine listens; port 0 is any.
    pub listen: SocketAddr,
    /// Where the engine of a member is, if not at the address of the link and the port that the member names.
    pub addresses: Vec<(MemberId, SocketAddr)>,
    /// How engines wait.
    pub polling: PollPolicy,
}
