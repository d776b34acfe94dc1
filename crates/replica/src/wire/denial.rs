//! Why a listener does not take a member in.

/// Why a listener does not take a member in. The numbers are those of the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[repr(u8)]
pub enum Denial {
    /// It belongs to another group.
    #[error("it belongs to another group")]
    OtherGroup = 1,
    /// It is that member itself.
    #[error("it has the same number in the group")]
    IsMe = 2,
    /// Its group has no such member.
    #[error("its group has no member of this number")]
    Unknown = 3,
    /// The key is another member's.
    #[error("the key is that of another member")]
    OtherKey = 4,
    /// It is not the member that was looked for.
    #[error("it is another member than the one that was looked for")]
    NotWanted = 5,
    /// The connection is one of several of a link that has ended there.
    #[error("the link to which the connection belongs has ended there")]
    NoLink = 6,
}

impl Denial {
    pub(super) fn parse(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::OtherGroup,
            2 => Self::IsMe,
            3 => Self::Unknown,
            4 => Self::OtherKey,
            5 => Self::NotWanted,
            6 => Self::NoLink,
            _ => return None,
        })
    }
}
