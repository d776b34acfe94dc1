//! The people and the shares of the table, and what each of them is granted at CREATE.
//!
//! ```text
//!            plain     read-only   sealed     clear
//!  owner     all       reads       all        all, but sends nothing encrypted
//!  writer    all       reads       all        the same
//!  reader    reads     reads       reads      the same
//!  guest     reads     reads       outside    outside
//!  nobody    outside   outside     outside    outside
//! ```
//!
//! * The **owner** may write, and made what the other columns of the table try to change.
//! * The **writer** is another account that may write.
//! * The **reader** has an account that may only read.
//! * The **guest** names no account, on a share that lets guests read.
//! * **Nobody** has an account, but not for this share: such a session tries the tree and the open of the keeper.
//!
//! Beside them the **keeper** has a session of the owner's account, holds a full open of what a cell is about,
//! and takes no part otherwise. Whoever is not granted an open tries that one instead.
//!
//! Spec: MS-SMB2 §2.2.13.1 (rights), §3.3.5.2.11 (encryption), §3.3.5.7 (shares), §3.3.5.9 (CREATE); MS-FSA §2.1.5.1.

use smb::create::AccessMask;

/// Who asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Person {
    Owner,
    Writer,
    Reader,
    Guest,
    Nobody,
}

impl Person {
    pub(crate) const ALL: [Self; 5] =
        [Self::Owner, Self::Writer, Self::Reader, Self::Guest, Self::Nobody];

    /// The name to log on with.
    pub(crate) fn account(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Guest => "mallory",
            Self::Nobody => "nobody-here",
        }
    }

    /// What a share lets the person do at most.
    pub(crate) fn entry(self, share: Share) -> Entry {
        match (self, share) {
            (Self::Nobody, _) | (Self::Guest, Share::Sealed | Share::Clear) => Entry::Outside,
            (Self::Reader | Self::Guest, _) | (_, Share::ReadOnly) => Entry::Reads,
            (Self::Owner | Self::Writer, _) => Entry::All,
        }
    }
}

/// Where.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Share {
    /// Without anything special.
    Plain,
    /// Nobody writes.
    ReadOnly,
    /// Requires encryption, and every request is encrypted.
    Sealed,
    /// Requires encryption. Opens are encrypted, and what a cell is about is signed alone.
    Clear,
}

impl Share {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::ReadOnly, Self::Sealed, Self::Clear];

    /// Of the share, and of the directory behind it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::ReadOnly => "readonly",
            Self::Sealed => "sealed",
            Self::Clear => "clear",
        }
    }

    /// Of a share of the same directory where only the keeper is, who may do anything.
    pub(crate) fn keepers(self) -> String {
        format!("{}-kept", self.name())
    }

    pub(crate) fn is_sealed(self) -> bool {
        matches!(self, Self::Sealed | Self::Clear)
    }
}

/// What a share lets somebody do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Entry {
    All,
    Reads,
    Outside,
}

impl Entry {
    /// The rights of a share permission, as Windows gives them: full control, or read.
    pub(crate) fn rights(self) -> AccessMask {
        AccessMask::from_bits_retain(match self {
            Self::All => FILE_ALL_ACCESS,
            Self::Reads => FILE_GENERIC_READ | FILE_GENERIC_EXECUTE,
            Self::Outside => 0,
        })
    }
}

/// A column of the table: what a CREATE asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Column(pub(crate) u32);

impl Column {
    /// All rights there are.
    pub(crate) const BRIEF: &[Self] = &[Self(MAXIMUM_ALLOWED)];

    /// No bit, each single bit, and all rights of a file but one.
    pub(crate) fn all() -> Vec<Self> {
        let singles = (0..32).map(|bit| 1 << bit);
        let without = rights_of_a_file().map(|bit| FILE_ALL_ACCESS & !bit);
        std::iter::once(0).chain(singles).chain(without).map(Self).collect()
    }

    /// The same, with only one of those bits that are no right at all.
    pub(crate) fn of_handles() -> Vec<Self> {
        let is_meant = |column: &Self| column.0 & NO_RIGHTS == 0 || column.0 == 0x0000_0200;
        Self::all().into_iter().filter(is_meant).collect()
    }

    /// What an open of a file is granted that may be granted as much as `most`. `None`: refused.
    pub(crate) fn granted(self, most: AccessMask) -> Option<AccessMask> {
        // MS-FSA §2.1.5.1, phase 1; the SACL takes a privilege that nobody has.
        if self.0 == 0 || self.0 & (NO_RIGHTS | ACCESS_SYSTEM_SECURITY) != 0 {
            return None;
        }
        let mut asked = self.0 & (FILE_ALL_ACCESS | MAXIMUM_ALLOWED);
        for (generic, rights) in GENERIC_MAPPING {
            if self.0 & generic != 0 {
                asked |= rights;
            }
        }
        let named = asked & !MAXIMUM_ALLOWED;
        if named & !most.bits() != 0 {
            return None;
        }
        let granted = if asked & MAXIMUM_ALLOWED == 0 { named } else { named | most.bits() };
        (granted != 0).then_some(AccessMask::from_bits_retain(granted))
    }
}

fn rights_of_a_file() -> impl Iterator<Item = u32> {
    (0..32).map(|bit| 1 << bit).filter(|bit| FILE_ALL_ACCESS & bit != 0)
}

// MS-SMB2 §2.2.13.1.1.
pub(crate) const FILE_ALL_ACCESS: u32 = 0x001f_01ff;
pub(crate) const MAXIMUM_ALLOWED: u32 = 0x0200_0000;
const ACCESS_SYSTEM_SECURITY: u32 = 0x0100_0000;
const FILE_GENERIC_READ: u32 = 0x0012_0089;
const FILE_GENERIC_WRITE: u32 = 0x0012_0116;
const FILE_GENERIC_EXECUTE: u32 = 0x0012_00a0;
// MS-FSA §2.1.5.1, phase 1: bits with which an open is refused.
const NO_RIGHTS: u32 = 0x0ce0_fe00;
// MS-DTYP §2.4.3 and MS-SMB2 §2.2.13.1.1.
const GENERIC_MAPPING: [(u32, u32); 4] = [
    (0x8000_0000, FILE_GENERIC_READ),
    (0x4000_0000, FILE_GENERIC_WRITE),
    (0x2000_0000, FILE_GENERIC_EXECUTE),
    (0x1000_0000, FILE_ALL_ACCESS),
];
