//! The terms that both ends agreed on at start-up; full operation needs no others.

use core::fmt;

use super::Profile;

/// The outcome of a successful start-up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Agreement {
    /// The end of the connection that this machine is.
    pub role: Role,
    /// The start-up revision both ends used.
    pub revision: Revision,
    /// Frames carry a CRC, both ways.
    pub crc: bool,
    /// The peer wants markers in the frames that this end sends.
    pub markers: bool,
    /// Requests of the peer that may be outstanding at this end.
    pub ird: u16,
    /// Requests of this end that may be outstanding at the peer.
    pub ord: u16,
    /// The ready-to-receive message the initiator sends before anything else, if any.
    pub ready: Option<ReadyKind>,
    /// The profile that this end announced, if any.
    pub ours: Option<Profile>,
    /// The profile that the peer announced, if any.
    pub theirs: Option<Profile>,
}

impl Agreement {
    /// A plain RFC 5044 stream with CRC and without markers.
    pub fn plain(role: Role, ird: u16, ord: u16) -> Self {
        Self {
            role,
            revision: Revision::RFC_5044,
            crc: true,
            markers: false,
            ird,
            ord,
            ready: None,
            ours: None,
            theirs: None,
        }
    }

    /// Whether both ends announced a profile, so that opcodes have five bits.
    pub fn is_extended(&self) -> bool {
        self.ours.is_some() && self.theirs.is_some()
    }
}

/// An end of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The end that dialled: it sends the MPA Request and the first frame.
    Initiator,
    /// The end that listened: it sends the MPA Reply, and no frame before it has validated a frame.
    Responder,
}

/// The revision field of a start-up frame. Unknown values survive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Revision(pub u8);

impl Revision {
    /// RFC 5044.
    pub const RFC_5044: Self = Self(1);
    /// RFC 6581: private data may begin with IRD and ORD.
    pub const RFC_6581: Self = Self(2);
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MPA revision {}", self.0)
    }
}

/// The ready-to-receive message, which tells the responder that it may send (RFC 6581 §9.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadyKind {
    /// Control flag C: a zero-length RDMA Write.
    Write,
    /// Control flag D: a zero-length RDMA Read, which is answered.
    Read,
    /// Control flag B: a zero-length Send, which takes a message number of queue 0.
    Send,
}
