//! Who belongs to a group, and which source made which part of its order.

use std::fmt;

use log::Lsn;

/// Members of a group at most.
pub const MEMBERS_MAX: u8 = 8;
/// Epochs that a member remembers; older ones are forgotten, and a member that shares none of them is copied whole.
pub const EPOCHS_MAX: usize = 64;
/// What a member says of an epoch is no larger: it is counted on from there, by promotions and by restarts.
pub(crate) const EPOCH_NUMBER_MAX: u32 = 1 << 31;

/// A group's identity: random, made with the group.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupId(pub [u8; 16]);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A member of a group, by its number in it: below [`MEMBERS_MAX`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MemberId(pub u8);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// Some members of a group: a bit for each.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MemberSet(pub u8);

impl MemberSet {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// One member.
    pub const fn of(member: MemberId) -> Self {
        Self(1 << member.0)
    }

    /// Whether `member` is one of them.
    pub const fn contains(self, member: MemberId) -> bool {
        self.0 & Self::of(member).0 != 0
    }

    /// These and `member`.
    #[must_use]
    pub const fn with(self, member: MemberId) -> Self {
        Self(self.0 | Self::of(member).0)
    }

    /// These but `member`.
    #[must_use]
    pub const fn without(self, member: MemberId) -> Self {
        Self(self.0 & !Self::of(member).0)
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = MemberId> {
        (0..MEMBERS_MAX).map(MemberId).filter(move |member| self.contains(*member))
    }

    /// How many they are.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for MemberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.iter().map(|member| member.0.to_string()).collect();
        write!(f, "{{{}}}", numbers.join(", "))
    }
}

/// One start of a source. Promotions come before restarts: a source that starts again outranks itself, but not another
/// member that was promoted meanwhile. The nonce, random, tells two sources of one rank apart.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Epoch {
    /// Grows with each promotion.
    pub number: u32,
    /// How often the source has started again since it was promoted.
    pub restart: u32,
    /// Random.
    pub nonce: u64,
}

impl Epoch {
    /// How the epochs of one history follow each other.
    pub const fn rank(self) -> (u32, u32) {
        (self.number, self.restart)
    }

    /// Which of two sources leads. Two members that were promoted at once without a witness begin epochs of one rank: chance
    /// decides, everywhere in the same way.
    pub const fn leads(self) -> (u32, u32, u64) {
        (self.number, self.restart, self.nonce)
    }

    /// What records of the epoch carry: the low half of the nonce.
    #[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub const fn tag(self) -> u32 {
        self.nonce as u32
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}.{}", self.number, self.restart)
    }
}

/// An epoch, and where its records begin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: Epoch,
    /// LSN of its first record.
    pub start: Lsn,
    /// Whether its source was promoted though it may have lacked what the source before had acknowledged.
    pub is_forced: bool,
    /// Whether its records are sealed.
    pub is_sealed: bool,
}

/// The epochs that made the order of a group, oldest first. Starts never fall, ranks always grow.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct History(Vec<EpochStart>);

impl History {
    /// A history of `epochs`, oldest first, if they are one.
    pub fn new(epochs: Vec<EpochStart>) -> Option<Self> {
        let is_one = epochs.len() <= EPOCHS_MAX
            && epochs.windows(2).all(|pair| {
                pair[0].start <= pair[1].start && pair[0].epoch.rank() < pair[1].epoch.rank()
            });
        is_one.then_some(Self(epochs))
    }

    /// Its epochs, oldest first.
    pub fn epochs(&self) -> &[EpochStart] {
        &self.0
    }

    /// The newest epoch.
    pub fn current(&self) -> Epoch {
        self.0.last().map_or_else(Epoch::default, |last| last.epoch)
    }

    /// The epoch to which the byte at `lsn` belongs.
    pub fn epoch_at(&self, lsn: Lsn) -> Option<Epoch> {
        self.begun_at(lsn).map(|it| it.epoch)
    }

    /// The epoch to which the byte at `lsn` belongs, and how it began.
    pub fn begun_at(&self, lsn: Lsn) -> Option<&EpochStart> {
        self.0.iter().rev().find(|it| it.start <= lsn)
    }

    /// Whether records of an epoch are sealed.
    pub fn is_sealed(&self) -> bool {
        self.0.iter().any(|epoch| epoch.is_sealed)
    }

    /// Whether bytes at `start` or behind it are, or may come to be, of a sealed epoch.
    pub fn is_sealed_from(&self, start: Lsn) -> bool {
        self.0.iter().enumerate().any(|(at, epoch)| {
            epoch.is_sealed && self.0.get(at + 1).is_none_or(|next| next.start > start)
        })
    }

    /// Of how many of its epochs there may be bytes at `start` or behind it.
    pub fn count_from(&self, start: Lsn) -> usize {
        let over = self.0.windows(2).take_while(|pair| pair[1].start <= start).count();
        self.0.len() - over
    }

    /// Begins an epoch. Epochs of which no byte is left go, and the oldest one where there are [`EPOCHS_MAX`]: its records
    /// are read by nobody any more. So no log may hold any by then.
    pub fn begin(&mut self, begins: EpochStart) {
        // What was lost by force before the epochs that go stays lost.
        let start = begins.start;
        let is_forced =
            begins.is_forced || self.0.iter().any(|it| it.start >= start && it.is_forced);
        self.0.retain(|it| it.start < start);
        if self.0.len() == EPOCHS_MAX {
            self.0.remove(0);
        }
        self.0.push(EpochStart { is_forced, ..begins });
    }

    /// Where the bytes of the `at`th epoch end, in an order that ends at `end`.
    fn end_of(&self, at: usize, end: Lsn) -> Lsn {
        self.0.get(at + 1).map_or(end, |next| next.start.min(end))
    }

    /// How far two orders, one that ends at `end` and one that ends at `other_end`, have the same bytes; `None` if
    /// they share no epoch.
    pub fn common(&self, end: Lsn, other: &Self, other_end: Lsn) -> Option<Lsn> {
        let (mine, theirs) = self.0.iter().enumerate().rev().find_map(|(mine, it)| {
            let theirs = other.0.iter().position(|its| its.epoch == it.epoch)?;
            Some((mine, theirs))
        })?;
        Some(self.end_of(mine, end).min(other.end_of(theirs, other_end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u32, nonce: u64) -> Epoch {
        Epoch { number, restart: 0, nonce }
    }

    fn history(epochs: &[(u32, u64, u64)]) -> History {
        let epochs = epochs.iter().map(|(number, nonce, start)| EpochStart {
            epoch: epoch(*number, *nonce),
            start: Lsn(*start),
            is_forced: false,
            is_sealed: false,
        });
        History::new(epochs.collect()).unwrap()
    }

    #[test]
    fn orders_of_one_source_are_the_same_up_to_the_shorter_end() {
        let one = history(&[(1, 7, 0), (2, 8, 640)]);
        assert_eq!(one.common(Lsn(1280), &one, Lsn(960)), Some(Lsn(960)));
    }

    #[test]
    fn a_new_source_cuts_what_the_old_one_wrote_alone() {
        let (new, old) = (history(&[(1, 7, 0), (2, 8, 640)]), history(&[(1, 7, 0)]));
        assert_eq!(new.common(Lsn(6400), &old, Lsn(1280)), Some(Lsn(640)));
    }

    #[test]
    fn two_sources_of_one_number_share_only_what_was_before_both() {
        let (one, other) = (history(&[(1, 7, 0), (2, 8, 640)]), history(&[(1, 7, 0), (2, 9, 960)]));
        assert_eq!(one.common(Lsn(6400), &other, Lsn(6400)), Some(Lsn(640)));
        assert_eq!(other.common(Lsn(6400), &one, Lsn(6400)), Some(Lsn(640)));
    }

    #[test]
    fn groups_without_a_common_epoch_share_nothing() {
        assert_eq!(history(&[(1, 7, 0)]).common(Lsn(9), &history(&[(1, 8, 0)]), Lsn(9)), None);
    }

    #[test]
    fn a_history_is_sealed_from_where_bytes_of_a_sealed_epoch_may_be() {
        let mut history = history(&[(1, 7, 0), (2, 8, 640), (3, 9, 960)]);
        assert!(!history.is_sealed_from(Lsn(0)));
        history.0[1].is_sealed = true;
        assert!(history.is_sealed_from(Lsn(0)) && history.is_sealed_from(Lsn(896)));
        assert!(history.is_sealed() && !history.is_sealed_from(Lsn(960)));
        history.0[2].is_sealed = true;
        assert!(history.is_sealed_from(Lsn(6400)));
    }

    #[test]
    fn epochs_count_from_where_a_log_begins() {
        let history = history(&[(1, 7, 0), (2, 8, 640), (3, 9, 960)]);
        let counts = [0, 639, 640, 959, 960, 6400].map(|start| history.count_from(Lsn(start)));
        assert_eq!(counts, [3, 3, 2, 2, 1, 1]);
        assert_eq!(History::default().count_from(Lsn(0)), 0);
    }

    #[test]
    fn an_epoch_without_a_byte_goes_when_the_next_one_begins() {
        let mut history = history(&[(1, 7, 0), (2, 8, 640)]);
        history.begin(EpochStart {
            epoch: epoch(3, 9),
            start: Lsn(640),
            is_forced: false,
            is_sealed: false,
        });
        assert_eq!(history.epochs().len(), 2);
        assert_eq!(history.epoch_at(Lsn(640)), Some(epoch(3, 9)));
        assert_eq!(history.epoch_at(Lsn(639)), Some(epoch(1, 7)));
    }
}
