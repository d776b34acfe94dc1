//! What clients may cache of a file, and what of it has to go for what another wants to do.
//!
//! | | R | W | H |
//! |---|---|---|---|
//! | may be kept locally | what was read | what was written | handles that were closed |
//! | as an oplock | level II: R | exclusive: R, W | batch: R, W, H |
//!
//! Who holds what, and who is told, is [`super::lease`]'s.
//!
//! Spec: MS-SMB2 §2.2.13.2.8; MS-FSA §2.1.5.18.

/// What a holder may cache, as the three bits of SMB2_LEASE_*_CACHING.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Caching(pub(crate) u32);

impl Caching {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const READ: Self = Self(1);
    pub(crate) const HANDLE: Self = Self(2);
    pub(crate) const WRITE: Self = Self(4);
    /// All that one client can have.
    pub(crate) const COMPLETE: Self = Self(Self::ALL);
    const ALL: u32 = 7;

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What a request for these bits can mean: W and H are nothing without R.
    pub(crate) fn sanitized(self) -> Self {
        if self.contains(Self::READ) { Self(self.0 & Self::ALL) } else { Self::NONE }
    }
}

/// Which structures a holder understands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flavor {
    Oplock,
    LeaseV1,
    LeaseV2,
}

/// Something another open is about to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Intent {
    /// Look at its security: an oplock does not know that as a look, a lease does.
    LookAtSecurity,
    /// Open it, sharing modes agreeing.
    Open,
    /// Open it to delete it on close: cached handles would keep it.
    OpenToDelete,
    /// Open it although sharing modes collide: cached handles may stand in the way.
    OpenAgainstSharing,
    /// Replace its content while opening.
    Overwrite,
    /// Write, truncate or lock.
    Modify,
    /// Rename, remove or link over.
    Unlink,
}

impl Intent {
    /// What others may keep.
    pub(super) fn leaves(self, flavor: Flavor, held: Caching) -> Caching {
        if flavor == Flavor::Oplock {
            // An oplock has no state between level II and the rest.
            let is_more = held.contains(Caching::WRITE) || held.contains(Caching::HANDLE);
            return match self {
                Self::Overwrite | Self::Modify => Caching::NONE,
                Self::OpenAgainstSharing | Self::Unlink if !held.contains(Caching::HANDLE) => held,
                _ if is_more => Caching::READ,
                _ => held,
            };
        }
        match self {
            Self::LookAtSecurity => held,
            Self::Open => held.without(Caching::WRITE),
            Self::OpenToDelete => held.without(Caching::WRITE.union(Caching::HANDLE)),
            Self::OpenAgainstSharing | Self::Unlink => held.without(Caching::HANDLE),
            Self::Overwrite | Self::Modify => Caching::NONE,
        }
        .sanitized()
    }

    /// Whether it has to be known that `held` has gone: changes are written back, or handles that
    /// are in the way are closed.
    pub(super) fn waits_for(self, held: Caching) -> bool {
        let is_about_handles =
            matches!(self, Self::OpenToDelete | Self::OpenAgainstSharing | Self::Unlink);
        held.contains(Caching::WRITE) || (is_about_handles && held.contains(Caching::HANDLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caching_without_reading_is_nothing() {
        assert_eq!(Caching(6).sanitized(), Caching::NONE);
        assert_eq!(Caching(0xff).sanitized(), Caching(7));
    }
}
