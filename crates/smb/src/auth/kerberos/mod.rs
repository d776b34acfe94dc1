//! Kerberos as a server speaks it: a ticket for our service, and proof that its owner sends it.
//!
//! ```text
//!  client                                            server, with the keytab of its service
//!  AP-REQ { ticket, authenticator }   -------->      opens the ticket with the service's key,
//!                                                    the authenticator with the ticket's;
//!                                                    fresh, and not seen before?  whose?
//!                                     <--------      AP-REP { the authenticator's time, a new key }
//! ```
//!
//! Both travel inside of GSS frames, those inside of SPNEGO or alone. The key of the session is the one in
//! the AP-REP, else the one in the authenticator, else the ticket's.
//!
//! * [`KerberosAcceptor`] is one such exchange; [`KerberosService`] what all of them share.
//! * [`Keytab`] holds the service's keys; [`ReplayCache`] the authenticators seen of late.
//! * [`ApReq`] and its parts are the messages; `encryption` the four encryption types with AES,
//!   `gss` the frames and signatures around them.
//!
//! RC4, DES and their kin are refused: their keys are guessed too easily.
//!
//! Why not the acceptor of `sspi` (0.23.1): it takes one bare key for each name of a service, so that a
//! keytab's versions and encryption types cannot be told apart; it remembers authenticators within one
//! exchange only, so that in the next one a copy passes; and it has no clock but the system's.
//!
//! Spec: RFC 4120 (the protocol), RFC 3961, RFC 3962 and RFC 8009 (encryption), RFC 4121 (GSS), MS-KILE.

mod acceptor;
mod encryption;
mod gss;
mod keytab;
mod message;
mod names;
mod replay;
mod reply;
#[cfg(test)]
mod tests;
mod ticket;

pub use acceptor::{KerberosAcceptor, KerberosFreshness, KerberosService};
pub use encryption::EncryptionType;
pub(super) use gss::{KERBEROS_OID, MICROSOFT_OID, is_kerberos};
pub use keytab::{Keytab, KeytabEntry, KeytabError};
pub use message::{ApReq, EncryptedData, Ticket};
pub use names::{Principal, PrincipalError};
pub use replay::ReplayCache;

use thiserror::Error;

/// Why a ticket was not taken.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum TicketFault {
    /// It cannot be read.
    #[error("the Kerberos message is malformed")]
    PeerMalformed,
    /// The client asks for something that file servers do not do (DCE style, user to user).
    #[error("the client asks for a form of Kerberos that file servers do not speak")]
    PeerForm,
    /// It is for a service whose key is not in the keytab.
    #[error("the ticket is for another service than those of the keytab")]
    PeerService,
    /// Encrypted with an algorithm that is not spoken here.
    #[error(
        "the ticket is encrypted with {0}: give the service keys of aes256-cts or aes128-cts, and no others"
    )]
    PeerEncryption(EncryptionType),
    /// The keytab has the service, not this key of it.
    #[error(
        "the ticket is encrypted with the service's key number {version} for {encryption}, which is not in \
         the keytab: write the keytab anew"
    )]
    ConfigKey {
        /// The key's number.
        version: u32,
        /// What it encrypts with.
        encryption: EncryptionType,
    },
    /// The key does not open it: another service's, or forged.
    #[error(
        "the keytab's key does not open the ticket: it is not the key that the KDC has, or the ticket is forged"
    )]
    PeerSeal,
    /// The proof that comes with the ticket is not its owner's.
    #[error("the ticket's key does not open the authenticator, or it names somebody else")]
    PeerAuthenticator,
    /// Not valid any more.
    #[error("the ticket ended {0} s ago")]
    PeerExpired(u64),
    /// Not valid yet, or marked as invalid.
    #[error("the ticket is not valid yet")]
    PeerNotYet,
    /// The client's clock and ours are too far apart.
    #[error("the client's clock is {0} s away from ours: set both by the same source")]
    PeerClock(u64),
    /// This authenticator has been here before.
    #[error("the same authenticator came before")]
    PeerReplay,
    /// The ticket restricts its use in a way that is not known here.
    #[error("the ticket has a restriction of unknown type {0}")]
    PeerRestriction(i32),
    /// The owner is of another realm than the service.
    #[error("the ticket's owner is of another realm than this service")]
    PeerRealm,
    /// The owner is no user of this server.
    #[error("the ticket's owner is no user of this server")]
    PeerUser,
    /// More authenticators came within the time they are remembered than there is room for.
    #[error("more authenticators than can be remembered")]
    PeerTooMany,
}

/// Reads bytes as each of the parts that are sealed, which no fuzzer could seal.
#[doc(hidden)]
pub fn look_inside(bytes: &[u8]) {
    let _ = (ticket::TicketPart::parse(bytes), ticket::Authenticator::parse(bytes));
}
