//! What a member says of itself while it lives, and what is seen of a group.
//!
//! ```text
//!   landfast-alive 1 epoch <number>.<restart>.<nonce> end <lsn> role <source|destination> in-sync <yes|no> fit <yes|no>
//! ```

use log::Lsn;

use super::seat::{Seat, SeatError, number, parse_epoch};
use crate::names::{Epoch, MemberId};

/// What a member says of itself while it lives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Alive {
    /// The newest epoch that it knows.
    pub epoch: Epoch,
    /// Where its next record goes.
    pub end: Lsn,
    /// Whether it is the source, or begins to be.
    pub is_source: bool,
    /// Whether it is in sync, as far as it knows.
    pub is_in_sync: bool,
    /// Whether it may be the source: its storage works, its volumes are or become a copy at one moment, and what runs on
    /// them could be started.
    pub is_fit: bool,
}

impl Alive {
    /// Its text.
    pub fn emit(&self) -> String {
        let Self { epoch: Epoch { number, restart, nonce }, end, .. } = self;
        let role = if self.is_source { SOURCE } else { DESTINATION };
        let (in_sync, fit) = (yes_or_no(self.is_in_sync), yes_or_no(self.is_fit));
        let end = end.0;
        format!(
            "{MARK} {VERSION} epoch {number}.{restart}.{nonce:016x} end {end} role {role} in-sync {in_sync} fit {fit}"
        )
    }

    /// What a member says by `text`.
    ///
    /// # Errors
    ///
    /// See [`SeatError`].
    pub fn parse(text: &[u8]) -> Result<Self, SeatError> {
        if text.len() > ALIVE_LEN_MAX {
            return Err(SeatError::Foreign);
        }
        let text = str::from_utf8(text).map_err(|_| SeatError::Foreign)?;
        let words: Vec<&str> = text.split(' ').collect();
        let [MARK, version, rest @ ..] = &words[..] else { return Err(SeatError::Foreign) };
        let version: u32 = number(version)?;
        if version != VERSION {
            return Err(SeatError::Version { found: version });
        }
        let ["epoch", epoch, "end", end, "role", role, "in-sync", in_sync, "fit", fit] = rest
        else {
            return Err(SeatError::Damaged);
        };
        let alive = Self {
            epoch: parse_epoch(epoch)?,
            end: Lsn(number(end)?),
            is_source: *role == SOURCE,
            is_in_sync: *in_sync == YES,
            is_fit: *fit == YES,
        };
        if alive.emit() == text { Ok(alive) } else { Err(SeatError::Damaged) }
    }
}

fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { YES } else { NO }
}

/// What is seen of a group at its witness, all at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sight {
    /// What is recorded.
    pub seat: Option<Seat>,
    /// Who is alive, by number.
    pub alive: Vec<(MemberId, Alive)>,
    /// Whether an operator has stopped all promotion that nobody asked for.
    pub is_maintenance: bool,
}

impl Sight {
    /// What a member says of itself, if it is alive.
    pub fn of(&self, member: MemberId) -> Option<&Alive> {
        self.alive.iter().find(|(of, _)| *of == member).map(|(_, alive)| alive)
    }
}

/// Bytes of a member's text at most.
pub const ALIVE_LEN_MAX: usize = 192;
const MARK: &str = "landfast-alive";
const VERSION: u32 = 1;
const SOURCE: &str = "source";
const DESTINATION: &str = "destination";
const YES: &str = "yes";
const NO: &str = "no";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_says_has_the_text_of_the_documentation() {
        let epoch = Epoch { number: 7, restart: 2, nonce: 0xdead_beef };
        let (end, is_source) = (Lsn(6400), false);
        let alive = Alive { epoch, end, is_source, is_in_sync: true, is_fit: true };
        let text = "landfast-alive 1 epoch 7.2.00000000deadbeef end 6400 role destination in-sync yes fit yes";
        assert_eq!(alive.emit(), text);
        assert_eq!(Alive::parse(text.as_bytes()), Ok(alive));
        let refused =
            |from: &str, to: &str| Alive::parse(text.replace(from, to).as_bytes()).unwrap_err();
        assert_eq!(refused("alive 1", "alive 2"), SeatError::Version { found: 2 });
        assert_eq!(refused("landfast", "else"), SeatError::Foreign);
        let damaged = [
            ("fit yes", "fit maybe"),
            ("destination", "neither"),
            ("6400", "-1"),
            ("6400", "06400"),
            (" fit yes", ""),
            ("7.2.", "7.2.1."),
        ];
        for (from, to) in damaged {
            assert_eq!(refused(from, to), SeatError::Damaged, "{from} -> {to}");
        }
    }

    #[test]
    fn the_longest_text_of_a_member_is_within_its_bound() {
        let epoch = Epoch { number: u32::MAX, restart: u32::MAX, nonce: u64::MAX };
        let alive = Alive { epoch, end: Lsn(u64::MAX), ..Alive::default() };
        assert!(alive.emit().len() <= ALIVE_LEN_MAX);
        assert_eq!(Alive::parse(alive.emit().as_bytes()), Ok(alive));
        let longer = format!("{}{}", alive.emit(), " ".repeat(ALIVE_LEN_MAX));
        assert_eq!(Alive::parse(longer.as_bytes()), Err(SeatError::Foreign));
    }
}
