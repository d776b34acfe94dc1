//! The record of a group at its witness, its text, and which record may follow which.
//!
//! ```text
//!   landfast-seat 1 <group> epoch <number>.<restart>.<nonce> source <member> in-sync <member>,<member> version <n>
//! ```
//!
//! The group and the nonce are hexadecimal, the rest decimal. A seat has one text only: any other is refused.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::names::{Epoch, GroupId, MEMBERS_MAX, MemberId, MemberSet};

/// What the witness of a group has recorded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seat {
    /// The group's epoch.
    pub epoch: Epoch,
    /// Its source.
    pub source: MemberId,
    /// Who has everything that was acknowledged, the source included.
    pub in_sync: MemberSet,
    /// Grows with each change of the set in the epoch, from 1.
    pub set_version: u64,
}

/// Which seats may follow which.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// See [`may_follow`].
    InSync,
    /// See [`may_follow_by_force`]: an operator accepts that acknowledged writes may be lost.
    ByForce,
}

impl Rule {
    /// Whether `wanted` may be recorded where `recorded` is.
    pub fn allows(self, recorded: Option<&Seat>, wanted: &Seat) -> bool {
        match self {
            Self::InSync => may_follow(recorded, wanted),
            Self::ByForce => may_follow_by_force(recorded, wanted),
        }
    }
}

/// Whether a member that asks for `wanted` may have it where `recorded` is.
///
/// The same seat may be asked for again. Otherwise a source changes the set in its epoch by one step, or an epoch of a higher
/// rank begins: of the same source, or with a higher number of a member that is in sync. Nobody is in sync in a new epoch who
/// was not before. Where nothing is recorded, the first epoch of a group may begin, and no other: a witness that has lost its
/// record must not take a member for the source that may lack writes.
pub fn may_follow(recorded: Option<&Seat>, wanted: &Seat) -> bool {
    if !wanted.is_sound() {
        return false;
    }
    let Some(recorded) = recorded else {
        return wanted.epoch.rank() == (1, 0) && wanted.begins_alone();
    };
    let is_same = wanted.epoch == recorded.epoch && wanted.source == recorded.source;
    let changes = is_same && recorded.set_version.checked_add(1) == Some(wanted.set_version);
    let joins = wanted.in_sync.0 & !recorded.in_sync.0 != 0;
    let begins = wanted.epoch.rank() > recorded.epoch.rank()
        && (wanted.epoch.number > recorded.epoch.number || wanted.source == recorded.source)
        && recorded.in_sync.contains(wanted.source)
        && !joins
        && wanted.set_version == 1;
    wanted == recorded || changes || begins
}

/// Whether an operator may have `wanted` recorded for a member that may lack acknowledged writes: a promotion with a higher number, of
/// that member alone. With it a group whose members in sync are all lost goes on, and so does one whose witness has lost its record.
pub fn may_follow_by_force(recorded: Option<&Seat>, wanted: &Seat) -> bool {
    let outranks = recorded
        .is_none_or(|recorded| wanted == recorded || wanted.epoch.number > recorded.epoch.number);
    wanted.is_sound() && wanted.epoch.restart == 0 && wanted.begins_alone() && outranks
}

impl Seat {
    /// The seat with which a source begins an epoch, alone.
    pub fn alone(epoch: Epoch, source: MemberId) -> Self {
        Self { epoch, source, in_sync: MemberSet::of(source), set_version: 1 }
    }

    /// Whether a witness may hold it: the source is a member, and in sync.
    pub fn is_sound(&self) -> bool {
        self.source.0 < MEMBERS_MAX
            && self.in_sync.contains(self.source)
            && self.epoch.number > 0
            && self.set_version > 0
    }

    fn begins_alone(&self) -> bool {
        self.set_version == 1 && self.in_sync == MemberSet::of(self.source)
    }

    /// Its text at the witness of `group`.
    pub fn emit(&self, group: &GroupId) -> String {
        let Self { epoch: Epoch { number, restart, nonce }, source, in_sync, set_version } = self;
        let members: Vec<_> = in_sync.iter().map(|member| member.0.to_string()).collect();
        format!(
            "{MARK} {VERSION} {group} epoch {number}.{restart}.{nonce:016x} source {} in-sync {} version {set_version}",
            source.0,
            members.join(",")
        )
    }

    /// The seat of `group` that `text` is.
    ///
    /// # Errors
    ///
    /// See [`SeatError`].
    pub fn parse(group: &GroupId, text: &[u8]) -> Result<Self, SeatError> {
        if text.len() > SEAT_LEN_MAX {
            return Err(SeatError::Foreign);
        }
        let text = str::from_utf8(text).map_err(|_| SeatError::Foreign)?;
        let words: Vec<&str> = text.split(' ').collect();
        let [mark, version, rest @ ..] = &words[..] else { return Err(SeatError::Foreign) };
        if *mark != MARK {
            return Err(SeatError::Foreign);
        }
        let version: u32 = number(version)?;
        if version != VERSION {
            return Err(SeatError::Version { found: version });
        }
        let [owner, "epoch", epoch, "source", source, "in-sync", members, "version", set_version] =
            rest
        else {
            return Err(SeatError::Damaged);
        };
        let seat = Self {
            epoch: parse_epoch(epoch)?,
            source: parse_member(source)?,
            in_sync: parse_members(members)?,
            set_version: number(set_version)?,
        };
        if *owner != group.to_string() {
            return Err(SeatError::OtherGroup { wanted: *group });
        }
        if !seat.is_sound() || seat.emit(group) != text {
            return Err(SeatError::Damaged);
        }
        Ok(seat)
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, source, in_sync, set_version } = self;
        write!(f, "{epoch} of {source}, in sync {in_sync}, version {set_version}")
    }
}

/// `number.restart.nonce`.
pub(super) fn parse_epoch(text: &str) -> Result<Epoch, SeatError> {
    let parts: Vec<&str> = text.split('.').collect();
    let [first, restart, nonce] = parts[..] else { return Err(SeatError::Damaged) };
    let nonce = u64::from_str_radix(nonce, 16).map_err(|_| SeatError::Damaged)?;
    Ok(Epoch { number: number(first)?, restart: number(restart)?, nonce })
}

fn parse_member(text: &str) -> Result<MemberId, SeatError> {
    let member = number(text)?;
    if member < MEMBERS_MAX { Ok(MemberId(member)) } else { Err(SeatError::Damaged) }
}

fn parse_members(text: &str) -> Result<MemberSet, SeatError> {
    text.split(',')
        .try_fold(MemberSet::NONE, |members, member| Ok(members.with(parse_member(member)?)))
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, SeatError> {
    text.parse().map_err(|_| SeatError::Damaged)
}

/// Why bytes are no seat of a group.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SeatError {
    /// Something else than a seat.
    #[error("it was not written by Landfast")]
    Foreign,
    /// A later Landfast wrote it.
    #[error("its version is {found}; this Landfast knows version {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It begins like a seat and is none.
    #[error("it is cut or damaged")]
    Damaged,
    /// It belongs to another group.
    #[error("it is of another group than {wanted}")]
    OtherGroup {
        /// Whose it should be.
        wanted: GroupId,
    },
}

/// Bytes of a seat's text at most.
pub const SEAT_LEN_MAX: usize = 256;
const MARK: &str = "landfast-seat";
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId([0xa5; 16]);

    fn seat(number: u32, restart: u32, source: u8, in_sync: u8, set_version: u64) -> Seat {
        let epoch = Epoch { number, restart, nonce: u64::from(number) * 100 + u64::from(restart) };
        Seat { epoch, source: MemberId(source), in_sync: MemberSet(in_sync), set_version }
    }

    #[test]
    fn a_seat_has_the_text_of_the_documentation() {
        let epoch = Epoch { number: 7, restart: 2, nonce: 0xdead_beef };
        let seat = Seat { epoch, source: MemberId(1), in_sync: MemberSet(0b1011), set_version: 12 };
        let text = "landfast-seat 1 a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 epoch 7.2.00000000deadbeef \
                    source 1 in-sync 0,1,3 version 12";
        assert_eq!(seat.emit(&GROUP), text);
        assert_eq!(Seat::parse(&GROUP, text.as_bytes()), Ok(seat));
    }

    #[test]
    fn the_longest_seat_is_within_its_bound() {
        let epoch = Epoch { number: u32::MAX, restart: u32::MAX, nonce: u64::MAX };
        let in_sync = MemberSet(u8::MAX);
        let seat = Seat { epoch, source: MemberId(7), in_sync, set_version: u64::MAX };
        let text = seat.emit(&GROUP);
        assert!(text.len() <= SEAT_LEN_MAX, "{}", text.len());
        assert_eq!(Seat::parse(&GROUP, text.as_bytes()), Ok(seat));
        let longer = format!("{text}{}", " ".repeat(SEAT_LEN_MAX));
        assert_eq!(Seat::parse(&GROUP, longer.as_bytes()), Err(SeatError::Foreign));
    }

    #[test]
    fn any_other_text_is_refused_with_its_reason() {
        let sound = seat(7, 2, 1, 0b1011, 12).emit(&GROUP);
        let refused = |from: &str, to: &str| {
            let text = sound.replace(from, to);
            assert_ne!(text, sound, "{from} is not there");
            Seat::parse(&GROUP, text.as_bytes()).unwrap_err()
        };
        assert_eq!(refused("landfast-seat", "another"), SeatError::Foreign);
        assert_eq!(refused(" 1 a5", " 2 a5"), SeatError::Version { found: 2 });
        assert_eq!(refused("a5a5 ", "a5a6 "), SeatError::OtherGroup { wanted: GROUP });
        let damaged = [
            ("7.2.", "07.2."),
            ("7.2.", "+7.2."),
            ("7.2.", "0.2."),
            ("source 1", "source 2"),
            ("source 1", "source 9"),
            ("0,1,3", "1,0,3"),
            ("0,1,3", "0,1,3,3"),
            ("0,1,3", "0,1,8"),
            ("0,1,3", ""),
            ("version 12", "version 0"),
            ("version 12", "version 12 "),
            ("version 12", "version 12\n"),
            ("version 12", "version 18446744073709551616"),
            (" version 12", ""),
        ];
        for (from, to) in damaged {
            assert_eq!(refused(from, to), SeatError::Damaged, "{from} -> {to}");
        }
        for cut in 0..sound.len() - 1 {
            Seat::parse(&GROUP, &sound.as_bytes()[..cut]).unwrap_err();
        }
        assert_eq!(Seat::parse(&GROUP, b"\xff\xfe"), Err(SeatError::Foreign));
    }

    #[test]
    fn where_nothing_is_recorded_only_the_first_epoch_begins() {
        assert!(may_follow(None, &seat(1, 0, 2, 0b100, 1)));
        assert!(!may_follow(None, &seat(2, 0, 2, 0b100, 1)), "the witness has lost its record");
        assert!(!may_follow(None, &seat(1, 1, 2, 0b100, 1)), "the witness has lost its record");
        assert!(!may_follow(None, &seat(1, 0, 2, 0b101, 1)), "nobody else can be in sync yet");
        assert!(!may_follow(None, &seat(1, 0, 2, 0b100, 2)));
    }

    #[test]
    fn a_source_changes_its_set_one_step_at_a_time() {
        let recorded = seat(3, 1, 0, 0b011, 5);
        assert!(may_follow(Some(&recorded), &seat(3, 1, 0, 0b001, 6)));
        assert!(may_follow(Some(&recorded), &seat(3, 1, 0, 0b111, 6)));
        assert!(!may_follow(Some(&recorded), &seat(3, 1, 0, 0b111, 7)), "a step was left out");
        assert!(!may_follow(Some(&recorded), &seat(3, 1, 0, 0b001, 4)), "it came late");
        assert!(!may_follow(Some(&recorded), &seat(3, 1, 0, 0b001, 5)), "another of this version");
        assert!(!may_follow(Some(&recorded), &seat(3, 1, 0, 0b110, 6)), "without the source");
        assert!(!may_follow(Some(&recorded), &seat(3, 1, 1, 0b011, 6)), "of another source");
        let mut other = seat(3, 1, 0, 0b001, 6);
        other.epoch.nonce += 1;
        assert!(!may_follow(Some(&recorded), &other), "of another start");
        let last = seat(3, 1, 0, 0b011, u64::MAX);
        assert!(!may_follow(Some(&last), &seat(3, 1, 0, 0b001, 0)));
    }

    #[test]
    fn the_same_seat_is_taken_again_and_is_not_once_another_followed() {
        let (first, next) = (seat(3, 1, 0, 0b011, 5), seat(4, 0, 1, 0b010, 1));
        assert!(may_follow(Some(&first), &first));
        assert!(may_follow(Some(&first), &next));
        assert!(!may_follow(Some(&next), &first));
    }

    #[test]
    fn an_epoch_begins_at_a_member_in_sync_with_a_higher_rank() {
        let recorded = seat(3, 1, 0, 0b011, 5);
        let (yes, no) = (true, false);
        let cases = [
            (seat(4, 0, 1, 0b010, 1), yes, "the other member in sync is promoted"),
            (seat(9, 0, 1, 0b010, 1), yes, "numbers may be left out"),
            (seat(4, 0, 1, 0b011, 1), yes, "those in sync stay so"),
            (seat(4, 0, 2, 0b100, 1), no, "it is not in sync"),
            (seat(4, 0, 1, 0b110, 1), no, "another is not in sync"),
            (seat(4, 0, 1, 0b010, 2), no, "versions begin with 1"),
            (seat(3, 2, 0, 0b001, 1), yes, "the source starts again"),
            (seat(3, 2, 1, 0b010, 1), no, "another has no restarts of this number"),
            (seat(3, 1, 0, 0b001, 1), no, "the rank is the same"),
            (seat(3, 0, 0, 0b001, 1), no, "the rank is lower"),
            (seat(2, 9, 0, 0b001, 1), no, "the rank is lower"),
            (seat(4, 0, 0, 0b001, 1), yes, "the source is promoted"),
        ];
        for (wanted, expected, why) in cases {
            assert_eq!(may_follow(Some(&recorded), &wanted), expected, "{wanted}: {why}");
        }
    }

    #[test]
    fn force_lets_a_member_begin_that_is_not_in_sync_and_nothing_else() {
        let recorded = seat(3, 1, 0, 0b011, 5);
        let forced = seat(4, 0, 2, 0b100, 1);
        assert!(may_follow_by_force(Some(&recorded), &forced));
        assert!(may_follow_by_force(Some(&forced), &forced), "asked again");
        assert!(may_follow_by_force(None, &forced), "the witness has lost its record");
        assert!(!may_follow_by_force(Some(&recorded), &seat(3, 2, 2, 0b100, 1)), "not higher");
        assert!(!may_follow_by_force(Some(&recorded), &seat(4, 1, 2, 0b100, 1)), "a restart");
        assert!(!may_follow_by_force(Some(&recorded), &seat(4, 0, 2, 0b110, 1)), "not alone");
    }

    /// All short runs of any two members that ask in any order, each of its own wish: what was recorded never goes back.
    #[test]
    fn ranks_and_versions_never_go_back_whatever_is_asked() {
        let mut wishes = Vec::new();
        for number in 1..4 {
            for restart in 0..2 {
                for source in 0..3 {
                    for in_sync in 1..8 {
                        for version in 1..3 {
                            let wish = seat(number, restart, source, in_sync, version);
                            wishes.extend(wish.is_sound().then_some(wish));
                        }
                    }
                }
            }
        }
        let mut followed = 0;
        for recorded in &wishes {
            for wanted in &wishes {
                if !may_follow(Some(recorded), wanted) {
                    continue;
                }
                followed += 1;
                let (before, after) = (recorded.epoch.rank(), wanted.epoch.rank());
                assert!(after > before || wanted.source == recorded.source);
                assert!((after, wanted.set_version) >= (before, recorded.set_version));
                assert!(recorded.in_sync.contains(wanted.source));
            }
        }
        assert!(followed > 1000, "{followed}");
    }
}
