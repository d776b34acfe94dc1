//! The keys that members are known by.

use std::fmt;

use aws_lc_rs::digest;

use crate::names::MemberId;

/// SHA-256 of a certificate (DER), or of the public key that a secret gives.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub(super) fn of(der: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, der);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The keys that count.
#[derive(Debug)]
pub(super) enum Keys {
    /// One, which all members have.
    Shared(Fingerprint),
    /// One of each member.
    Pinned(Vec<(MemberId, Fingerprint)>),
}

impl Keys {
    pub(super) fn knows(&self, key: Fingerprint) -> bool {
        match self {
            Self::Shared(shared) => *shared == key,
            Self::Pinned(pinned) => pinned.iter().any(|(_, pinned)| *pinned == key),
        }
    }

    /// Whose key it is, where each member has its own.
    pub(super) fn owner(&self, key: Fingerprint) -> Option<MemberId> {
        match self {
            Self::Shared(_) => None,
            Self::Pinned(pinned) => {
                pinned.iter().find(|(_, pinned)| *pinned == key).map(|(member, _)| *member)
            }
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }
}
