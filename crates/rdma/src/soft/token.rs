//! Encodes the object of an epoll report as a number.

/// See the module. Tokens have no generation: a socket leaves epoll before its place is reused, and
/// a report of the same round that meets the next socket in the place costs that socket an empty
/// look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Token {
    Waker,
    Listener(u32),
    Request(u32),
    Qp(u32),
    Linger(u32),
    Fetches,
}

impl Token {
    pub(super) fn to_bits(self) -> u64 {
        let (kind, index) = match self {
            Self::Waker => (0_u64, 0),
            Self::Listener(index) => (1, index),
            Self::Request(index) => (2, index),
            Self::Qp(index) => (3, index),
            Self::Linger(index) => (4, index),
            Self::Fetches => (5, 0),
        };
        (kind << 32) | u64::from(index)
    }

    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        let index = u32::try_from(bits & u64::from(u32::MAX)).ok()?;
        match bits >> 32 {
            0 => Some(Self::Waker),
            1 => Some(Self::Listener(index)),
            2 => Some(Self::Request(index)),
            3 => Some(Self::Qp(index)),
            4 => Some(Self::Linger(index)),
            5 => Some(Self::Fetches),
            _ => None,
        }
    }
}
