//! Names of the objects an engine owns, with a generation: a stale name is refused, and never names
//! another object.

use std::fmt;

/// A queue pair of one engine. An id whose queue pair is gone is refused everywhere.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct QpId {
    /// Place in the engine's table.
    pub index: u32,
    /// How often that place was given out before.
    pub generation: u32,
}

/// A connection that has asked to be accepted and has not been answered.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnectionId {
    /// Place in the engine's table.
    pub index: u32,
    /// How often that place was given out before.
    pub generation: u32,
}

/// Names a region to the peer; `stag` on the wire, `token` in SMB Direct.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rkey(pub u32);

/// Names a region to the local side, as source or target of work requests.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lkey(pub u32);

impl fmt::Display for QpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qp {}.{}", self.index, self.generation)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}.{}", self.index, self.generation)
    }
}

impl fmt::Display for Rkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rkey {:#010x}", self.0)
    }
}

impl fmt::Display for Lkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lkey {:#010x}", self.0)
    }
}
