//! Why there is no link, or no longer.

use std::io;

use super::codec::WireError;
use super::denial::Denial;
use super::keys::Fingerprint;
use super::record::RecordError;
use crate::names::{GroupId, MemberId, MemberSet};

/// Why there is no link, or no longer. Whatever it is, the link is at its end.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    ConfigAddress {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A name has no address.
    #[error("{address} is no address: {source}")]
    ConfigName {
        /// The name.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// No address is given.
    #[error("{0} has no address")]
    ConfigNoAddress(MemberId),
    /// The number is that of no other member of the group.
    #[error("{0} is not one of the others of the group's members {1}")]
    ConfigMember(MemberId, MemberSet),
    /// Nobody answers at an address.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// No address leads to the member; the last one tried, and why.
    #[error("{member} at {address}: {source}")]
    Dial {
        /// Whom this end looked for.
        member: MemberId,
        /// Where.
        address: String,
        /// Why not there.
        source: Box<Self>,
    },
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[source] io::Error),
    /// This end has closed the link.
    #[error("this end has closed the link")]
    Closed,
    /// The other end has closed the link, between two frames.
    #[error("the other end has closed the link")]
    PeerClosed,
    /// The connection ended without a word, or within a frame.
    #[error("the connection ended without a word of the other end")]
    PeerCut,
    /// The other end has not proved who it is in time.
    #[error("the other end has not proved who it is in time")]
    PeerSlow,
    /// TLS was not agreed on.
    #[error("TLS: {0}")]
    PeerTls(#[source] rustls::Error),
    /// What came is no TLS.
    #[error("{0}")]
    PeerRecord(#[from] RecordError),
    /// The other end shows a key that is none of the group's.
    #[error("the other end shows the key {0}, which is none of the group's")]
    PeerKey(Fingerprint),
    /// The other end takes the key of this member for none of the group's.
    #[error("the other end takes the key of this member for none of the group's")]
    PeerRefusesKey,
    /// The other end belongs to another group.
    #[error("the other end belongs to group {0}")]
    PeerGroup(GroupId),
    /// The other end claims to be this member.
    #[error("the other end claims to be {0}, which this member is")]
    PeerIsMe(MemberId),
    /// The other end claims a number that the group does not have.
    #[error("the other end claims to be {0}, which the group does not have")]
    PeerUnknown(MemberId),
    /// The other end is not the member that it should be.
    #[error("the other end is {found}, not {wanted}")]
    PeerOther {
        /// Who it should be.
        wanted: MemberId,
        /// Who it is.
        found: MemberId,
    },
    /// The other end claims another number than its key has.
    #[error("the other end claims to be {claims}, and shows the key of {has}")]
    PeerClaims {
        /// What it says.
        claims: MemberId,
        /// Whose key it has.
        has: MemberId,
    },
    /// The other end does not take this member in.
    #[error("the other end refuses: {0}")]
    PeerDenies(#[source] Denial),
    /// What came is no frame, or what was to be sent is none.
    #[error("{0}")]
    Frame(#[from] WireError),
    /// Bytes of a payload were not read before the next message.
    #[error("{0} bytes of a payload were not read")]
    PayloadUnread(u32),
    /// More bytes of a payload were wanted than there are.
    #[error("{wanted} bytes of a payload are wanted, {left} are left")]
    PayloadBeyond {
        /// How many were wanted.
        wanted: usize,
        /// How many are left.
        left: u32,
    },
    /// The other end sends more on several connections than it may before it is told that it came.
    #[error("frame {number} came, and {expected} is the next: more than may be on the way")]
    PeerAhead {
        /// What came.
        number: u64,
        /// What is the next.
        expected: u64,
    },
    /// The other end says that it got what was not sent.
    #[error("the other end says that it got {got} frames, and {sent} were sent")]
    PeerGot {
        /// What it says.
        got: u64,
        /// How many were sent.
        sent: u64,
    },
    /// There is no descriptor, thread or memory.
    #[error("the host has no room for a link: {0}")]
    HostResources(#[source] io::Error),
}
