//! What is wrong with a volume, and where.

use std::fmt;

/// A fault of an arena's structure, with its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Damage {
    /// The number of the arena, from 0.
    pub arena: usize,
    /// Where the faulty bytes begin, counted from the start of the medium.
    pub offset: u64,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with some bytes of the structure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The info block at the arena's start is not valid. Its copy is.
    InfoBlock,
    /// The copy of the info block is not valid, or says something else.
    InfoCopy,
    /// Neither the info block nor its copy is valid.
    InfoBoth,
    /// The info block says that an earlier user of the arena found it damaged.
    ErrorFlag,
    /// An entry of the flog lies where padding has to be, or padding where an entry has to be.
    FlogPadding {
        /// The lane of the entry.
        lane: u32,
    },
    /// The two halves of a flog entry have sequence numbers of which neither is newer.
    FlogSequence {
        /// The lane of the entry.
        lane: u32,
    },
    /// A flog entry names a sector or block that the arena does not have.
    FlogBeyondEnd {
        /// The lane of the entry.
        lane: u32,
    },
    /// Two lanes, or a lane and a sector, have the same block.
    BlockTwice {
        /// The block.
        block: u32,
    },
    /// Neither a lane nor a sector has this block.
    BlockLost {
        /// The block.
        block: u32,
    },
    /// An entry of the map names a block that the arena does not have.
    MapBeyondEnd {
        /// The sector of the entry, from the arena's first.
        sector: u32,
        /// The block it names.
        block: u32,
    },
    /// The medium failed while the structure was read or changed, so the structure may be half changed.
    Medium,
    /// Every free block of the arena lies on bytes that the medium has lost.
    LanesLost,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arena {}, byte {:#x}: {}", self.arena, self.offset, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfoBlock => f.write_str("the info block is not valid, its copy is"),
            Self::InfoCopy => {
                f.write_str("the copy of the info block is not that of the info block")
            }
            Self::InfoBoth => f.write_str("neither the info block nor its copy is valid"),
            Self::ErrorFlag => f.write_str("the info block has its error flag set"),
            Self::FlogPadding { lane } => {
                write!(f, "the flog entry of lane {lane} has bytes where it must have none")
            }
            Self::FlogSequence { lane } => {
                write!(f, "no half of the flog entry of lane {lane} is newer than the other")
            }
            Self::FlogBeyondEnd { lane } => {
                write!(f, "the flog entry of lane {lane} names a block or sector beyond the end")
            }
            Self::BlockTwice { block } => write!(f, "block {block} has two owners"),
            Self::BlockLost { block } => write!(f, "block {block} has no owner"),
            Self::MapBeyondEnd { sector, block } => {
                write!(f, "the map names block {block} for sector {sector}, beyond the end")
            }
            Self::Medium => f.write_str("the medium failed while the structure was in use"),
            Self::LanesLost => f.write_str("no free block is left that the medium can hold"),
        }
    }
}
