//! Share modes: which opens of one file exclude each other.
//!
//! Spec: MS-FSA §2.1.5.1.2 (open of an existing file), §2.1.5.1.2.2 (sharing check).

/// Which of the three kinds of access something is about.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Kinds {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) delete: bool,
}

impl Kinds {
    /// Whether the other is about all that this is about.
    pub(crate) fn within(self, allowed: Self) -> bool {
        (allowed.read || !self.read)
            && (allowed.write || !self.write)
            && (allowed.delete || !self.delete)
    }

    /// Whether it is about nothing: an open that only looks at attributes.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// What an open does, and what it lets others do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sharing {
    /// What this open uses.
    pub(crate) uses: Kinds,
    /// What it lets others use.
    pub(crate) shares: Kinds,
}

impl Sharing {
    /// Whether both opens can exist at the same time. Opens that only look exclude nobody.
    pub(crate) fn agrees_with(self, other: Self) -> bool {
        if self.uses.is_empty() || other.uses.is_empty() {
            return true;
        }
        self.uses.within(other.shares) && other.uses.within(self.shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Kinds = Kinds { read: true, write: false, delete: false };
    const WRITE: Kinds = Kinds { read: false, write: true, delete: false };
    const NONE: Kinds = Kinds { read: false, write: false, delete: false };
    const ALL: Kinds = Kinds { read: true, write: true, delete: true };

    // MS-FSA §2.1.5.1.2.2: each use of one open against each share of the other, on both sides.
    #[test]
    fn every_use_that_the_other_open_does_not_share_excludes() {
        let kinds =
            |bits: u8| Kinds { read: bits & 1 != 0, write: bits & 2 != 0, delete: bits & 4 != 0 };
        for (used, shared) in (0..8).flat_map(|used| (0..8).map(move |shared| (used, shared))) {
            let one = Sharing { uses: kinds(used), shares: ALL };
            let other = Sharing { uses: READ, shares: kinds(shared) };
            let agrees = used & !shared == 0;
            assert_eq!(one.agrees_with(other), agrees, "{used} beside {shared}");
            assert_eq!(other.agrees_with(one), agrees, "{shared} beside {used}");
        }
    }

    #[test]
    fn both_sides_must_allow_what_the_other_uses() {
        let reader = Sharing { uses: READ, shares: READ };
        let writer = Sharing { uses: WRITE, shares: ALL };
        assert!(reader.agrees_with(reader));
        assert!(!reader.agrees_with(writer) && !writer.agrees_with(reader));
        assert!(Sharing { uses: READ, shares: ALL }.agrees_with(writer));
    }

    #[test]
    fn an_open_for_attributes_excludes_nobody() {
        let looker = Sharing { uses: NONE, shares: NONE };
        assert!(looker.agrees_with(Sharing { uses: ALL, shares: NONE }));
    }
}
