//! What the two ends agreed on at start-up: all that full operation needs to know.

use core::fmt;

use super::Profile;

/// The outcome of a successful start-up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Agreement {
    /// Which end we are.
    pub role: Role,
    /// The start-up revision both ends used.
    pub revision: Revision,
    /// Frames carry a CRC, both ways.
    pub crc: bool,
    /// The peer wants markers in what we send.
    pub markers: bool,
    /// Requests the peer may have outstanding with us.
    pub ird: u16,
    /// Requests we may have outstanding with the peer.
    pub ord: u16,
    /// The ready-to-receive message the initiator sends before anything else, if any.
    pub ready: Option<ReadyKind>,
    /// What we announced, if we did.
    pub ours: Option<Profile>,
    /// What the peer announced, if it did.
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

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Dialled, sent the MPA Request, sends the first frame.
    Initiator,
    /// Listened, sent the MPA Reply, sends nothing before it has validated a frame.
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

/// The message that tells the responder it may send (RFC 6581 §9.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadyKind {
    /// Control flag C: a zero-length RDMA Write.
    Write,
    /// Control flag D: a zero-length RDMA Read, which is answered.
    Read,
    /// Control flag B: a zero-length Send. It takes a message number of queue 0.
    Send,
}
