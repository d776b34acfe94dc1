//! Why an operation on a log failed.

use thiserror::Error;

use crate::format::LabelError;
use crate::lsn::Lsn;
use crate::members::MemberSet;
use crate::store::StoreError;

/// An operation on a log failed. What was acknowledged before stays durable.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The caller's: no member was given, or more than a log has.
    #[error("{given} members given, a log has 1 to {max}")]
    ConfigMembers {
        /// How many.
        given: usize,
        /// The most.
        max: usize,
    },
    /// The caller's: the ring is too small, or larger than a member's memory.
    #[error("a ring of {asked} bytes, a multiple of 4096 from 4096 to {max}, is possible here")]
    ConfigCapacity {
        /// Bytes asked for.
        asked: u64,
        /// The most that every member has room for.
        max: u64,
    },
    /// The caller's: fewer members in sync than one, or more than there are.
    #[error("at least {asked} members in sync cannot be kept of {members}")]
    ConfigLeastInSync {
        /// Members asked for.
        asked: u8,
        /// Members of the log.
        members: u8,
    },
    /// The caller's: the memory holds a log already.
    #[error("member {member} holds a log already")]
    ConfigExists {
        /// Which of the members given.
        member: usize,
    },
    /// The caller's: the memory holds something that is no log.
    #[error(
        "member {member} holds something that is no log, and is left as it is: remove it, or have a log made in its place"
    )]
    ConfigNotEmpty {
        /// Which of the members given.
        member: usize,
    },
    /// The caller's: the log is sealed and no key was given, or the other way round, or the key is another one.
    #[error("the key is not the one of the log")]
    ConfigKey,
    /// The caller's: a record is longer than the log takes.
    #[error("a record of {len} bytes, at most {max} fit this log")]
    TooLong {
        /// Bytes of the record.
        len: usize,
        /// The most.
        max: usize,
    },
    /// No room: records have to be destaged or trimmed first.
    #[error("the log is full: {kept} of {capacity} bytes are kept")]
    Full {
        /// Bytes of records that are kept.
        kept: u64,
        /// Bytes of the ring.
        capacity: u64,
    },
    /// The caller's: no record begins there.
    #[error("no record begins at {lsn}")]
    NoRecord {
        /// Where.
        lsn: Lsn,
    },
    /// No member that was given holds a log.
    #[error("no member holds a log: {cause}")]
    NoLog {
        /// What the last one holds.
        cause: LabelError,
    },
    /// The members that were given are of different logs.
    #[error("member {member} belongs to another log")]
    Foreign {
        /// Which of the members given.
        member: usize,
    },
    /// Members that are not here may have acknowledged records that those here do not have.
    #[error("members {missing} are not here, and may have records that those here lack")]
    Missing {
        /// Their numbers.
        missing: MemberSet,
    },
    /// Fewer members are here than the log goes on with: what they acknowledged, the others could not know of.
    #[error(
        "{here} of the {least} members with which the log goes on are here: bring more of them, or name those that are \
         gone for good"
    )]
    TooFew {
        /// Members that are here.
        here: usize,
        /// The fewest in sync.
        least: u8,
    },
    /// A record that was durable is not there any more, at no member.
    #[error("the record at {lsn} is damaged: the log was durable up to {durable}")]
    Damaged {
        /// Where the first record is missing.
        lsn: Lsn,
        /// What is known to have been durable.
        durable: Lsn,
    },
    /// The labels are older than a record: what the log was when it was made is not known, and nothing was changed.
    #[error(
        "the record at {lsn} was made under a later label than any that is left: the labels of the log were damaged or \
         put back; open the log with a member whose labels are whole"
    )]
    LabelLost {
        /// Which.
        lsn: Lsn,
    },
    /// A sealed record does not open: somebody changed it.
    #[error("the record at {lsn} was changed: its seal is broken")]
    SealBroken {
        /// Which.
        lsn: Lsn,
    },
    /// Fewer members than the log needs are left.
    #[error("member {member} failed and too few are left: {cause}")]
    Store {
        /// The member that failed last.
        member: usize,
        /// Why.
        cause: StoreError,
    },
    /// An earlier failure: it is unknown what is durable after the last acknowledged record. Open the log again.
    #[error("an earlier failure broke the log")]
    Broken,
    /// The caller's: one destager works on a log at a time.
    #[error("the log has a destager already")]
    ConfigDestaged,
    /// The archive failed, so that nothing is destaged any more and the log stays full. The tail has all that was not
    /// destaged; a new destager continues.
    #[error("the archive of the log failed: {cause}")]
    Destaging {
        /// Why.
        cause: StoreError,
    },
    /// The log is full, and the destager that made room has ended: start one, or trim.
    #[error("the log is full, and its destager has ended")]
    DestagerEnded,
    /// The archive has no room for what is to be destaged: forget what it need not keep.
    #[error("the archive of the log is full")]
    ArchiveFull,
    /// The archive lacks records that the log has trimmed already.
    #[error(
        "the archive ends at {archive}, the log begins at {log}: what lies between was trimmed without it"
    )]
    ArchiveGap {
        /// Where the archive ends.
        archive: Lsn,
        /// Where the log begins.
        log: Lsn,
    },
    /// The archive has records that the log has lost.
    #[error(
        "the archive ends at {archive}, the log ends at {log}: the log has lost records that were durable"
    )]
    ArchiveAhead {
        /// Where the archive ends.
        archive: Lsn,
        /// Where the log ends.
        log: Lsn,
    },
    /// The operating system gave no random numbers, or the cipher did not work.
    #[error("this machine gave no random numbers or no cipher")]
    Host,
}
