//! What a server can do wrong with a request.

use std::fmt;

use smb::{Command, NtStatus};

/// Decides about each request. CANCEL is never answered, so no plan is asked about it.
pub trait Plan: fmt::Debug + Send {
    /// What the server does with the next request.
    fn next(&mut self, command: Command) -> Misdeed;
}

/// See the module.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Misdeed {
    /// The server answers as it should.
    None,
    /// No answer.
    Silence,
    /// The server says that it may take long, and answers no more; it answers ECHO.
    PendForEver,
    /// As before, and a break of a lease comes each second.
    Trickle,
    /// The answer comes after so many seconds.
    Late(u64),
    /// Only so many bytes of the answer come.
    Cut(usize),
    /// A body of these bytes.
    Body(Vec<u8>),
    /// The answer of another command.
    OtherCommand,
    /// The answer to a request that was never sent.
    OtherMessage,
    /// An answer of another session.
    OtherSession,
    /// The answer is not signed, though the request is.
    Unsigned,
    /// A bit of the answer was changed after it was signed.
    BadSignature,
    /// The answer comes twice.
    Twice,
    /// The answer grants no credit.
    NoCredit,
    /// The answer grants as many credits as it can say.
    ManyCredits,
    /// A final answer of status PENDING.
    PendingForGood,
    /// The interim answer and the final one have different ids.
    OtherRoute,
    /// The connection ends.
    Close,
    /// The request fails.
    Status(NtStatus),
    /// A frame of no protocol.
    Garbage,
    /// A frame that no key opens.
    Sealed,
    /// A compound whose next message lies outside.
    Outside,
    /// Breaks of leases, many more than there are leases, then the answer.
    Breaks,
    /// A break of the client's own lease, then the answer.
    Break,
    /// More than was asked for: bytes, names, count, capabilities.
    TooMuch,
    /// The list goes on for ever; the logon goes on for ever.
    Endless,
    /// The list goes on for ever without a name.
    Dots,
    /// Names that lead elsewhere.
    Names,
    /// Push is granted, at addresses that are not the server's.
    Grant,
}

impl Misdeed {
    /// All of them, but for those that need bytes.
    pub const TABLE: &[Self] = &[
        Self::Silence,
        Self::PendForEver,
        Self::Trickle,
        Self::Late(9),
        Self::Late(3600),
        Self::Cut(0),
        Self::Cut(63),
        Self::Cut(66),
        Self::Body(Vec::new()),
        Self::OtherCommand,
        Self::OtherMessage,
        Self::OtherSession,
        Self::Unsigned,
        Self::BadSignature,
        Self::Twice,
        Self::NoCredit,
        Self::ManyCredits,
        Self::PendingForGood,
        Self::OtherRoute,
        Self::Close,
        Self::Status(NtStatus::ACCESS_DENIED),
        Self::Status(NtStatus(0)),
        Self::Status(NtStatus(0xffff_ffff)),
        Self::Garbage,
        Self::Sealed,
        Self::Outside,
        Self::Breaks,
        Self::Break,
        Self::TooMuch,
        Self::Endless,
        Self::Dots,
        Self::Names,
        Self::Grant,
    ];

    /// Whether the key of a session proves no answer that comes of it.
    pub(super) fn is_unproven(&self) -> bool {
        matches!(
            self,
            Self::OtherCommand
                | Self::OtherMessage
                | Self::OtherSession
                | Self::Unsigned
                | Self::BadSignature
                | Self::PendingForGood
                | Self::OtherRoute
                | Self::Garbage
                | Self::Sealed
        )
    }
}
