//! Sets of members of a log, by their numbers.

use std::fmt;

/// Most members of one log: their set is a word of the label.
pub const MEMBERS_MAX: usize = 16;

/// A set of members.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemberSet(u32);

impl MemberSet {
    /// The members with these numbers; a number that no log has is left out.
    pub fn of(numbers: &[usize]) -> Self {
        numbers.iter().fold(Self(0), |set, number| set.with(*number))
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The set and this member.
    #[must_use]
    pub fn with(self, number: usize) -> Self {
        Self(self.0 | bit(number))
    }

    /// The set without this member.
    #[must_use]
    pub fn without(self, number: usize) -> Self {
        Self(self.0 & !bit(number))
    }

    /// Whether the member is in the set.
    pub fn contains(self, number: usize) -> bool {
        self.0 & bit(number) != 0
    }

    /// Whether the set has no member.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many members the set has.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The members that `other` has not.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The numbers, smallest first.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS_MAX).filter(move |number| self.contains(*number))
    }

    /// Whether every number is one of a log of so many members.
    pub(crate) fn is_within(self, members: u8) -> bool {
        members >= 32 || self.0 >> members == 0
    }
}

fn bit(number: usize) -> u32 {
    if number < MEMBERS_MAX { 1 << number } else { 0 }
}

impl fmt::Display for MemberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, number) in self.numbers().enumerate() {
            write!(f, "{}{number}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_members_that_were_put_in() {
        let set = MemberSet::of(&[0, 2, 99]);
        assert_eq!(set.numbers().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(set.without(2).minus(MemberSet::of(&[0])), MemberSet::default());
        assert_eq!(set.to_string(), "{0, 2}");
        assert!(set.is_within(3) && !set.is_within(2));
    }
}
