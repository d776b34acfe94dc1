//! The rights that each operation on an open needs: the tables.
//!
//! An operation needs all rights of one mask and one right of another, both of the access that its open was
//! granted. Rights that no open can be granted (to add a name, to remove one from another file) are checked
//! against the rights in the share.
//!
//! Spec: MS-SMB2 §3.3.5.10 to §3.3.5.21, MS-FSA §2.1.5.3 to §2.1.5.17; the access bits of control codes.

use std::sync::Arc;

use smb::NtStatus;
use smb::create::AccessMask;
use smb::info::SecurityInformation;

use super::Tree;
use super::leave::{Decided, Leave, MayAdd, MayRemove, MaySet, MayWrite};

/// The rights that an operation needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Needs {
    /// All of these rights, of the open.
    all: AccessMask,
    /// One of these rights, of the open; empty: none is needed.
    any: AccessMask,
    /// All of these rights, in the share.
    in_share: AccessMask,
}

/// An operation on an open.
pub(crate) trait Operation: Copy {
    /// The leave that an admission gives.
    type Leave: Leave;

    /// The rights that the operation needs.
    fn needs(self) -> Needs;
}

/// An open, as far as its rights go.
pub(crate) trait Granted {
    /// The access that the open was granted.
    fn access(&self) -> AccessMask;

    /// The tree that the file was opened in.
    fn tree(&self) -> &Tree;

    /// Whether another file has the place of this one now.
    fn is_superseded(&self) -> bool;
}

impl<T: Granted> Granted for Arc<T> {
    fn access(&self) -> AccessMask {
        T::access(self)
    }

    fn tree(&self) -> &Tree {
        T::tree(self)
    }

    fn is_superseded(&self) -> bool {
        T::is_superseded(self)
    }
}

/// Admits an operation, or returns the status of the refusal.
pub(crate) fn admit<O: Operation>(open: &impl Granted, operation: O) -> Result<O::Leave, NtStatus> {
    let needs = operation.needs();
    // Another file has its place now: bytes read would be stale, and bytes written lost.
    if open.is_superseded() {
        return Err(NtStatus::FILE_CLOSED);
    }
    let access = open.access();
    if !access.contains(needs.all) || !(needs.any.is_empty() || access.intersects(needs.any)) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if O::Leave::CHANGES {
        let share = open.tree().share().ok_or(NtStatus::INVALID_PARAMETER)?;
        if share.is_read_only() {
            return Err(NtStatus::MEDIA_WRITE_PROTECTED);
        }
    }
    if !open.tree().rights.may(needs.in_share) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(O::Leave::given(Decided::yes()))
}

/// Operations that change nothing in the share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// READ.
    Read,
    /// FLUSH.
    Flush,
    /// LOCK. Releasing needs no right: only a held lock can be released.
    Lock,
    /// QUERY_DIRECTORY.
    List,
    /// CHANGE_NOTIFY.
    Watch,
    /// Times and attributes: FileBasicInformation and the classes that have it within them.
    Attributes,
    /// FileFullEaInformation.
    ExtendedAttributes,
    /// Any other class of QUERY_INFO: sizes, names, streams, properties of the handle.
    Facts,
    /// FileSystem classes of QUERY_INFO.
    Volume,
    /// A security descriptor.
    Security(SecurityInformation),
    /// FilePositionInformation and FileModeInformation, set: state of the handle itself.
    Handle,
    /// SRV_REQUEST_RESUME_KEY.
    ResumeKey,
    /// The role of the source of SRV_COPYCHUNK.
    CopySource,
    /// The role of the source of DUPLICATE_EXTENTS_TO_FILE.
    CloneSource,
    /// QUERY_ALLOCATED_RANGES.
    AllocatedRanges,
    /// Controls that every handle may use: compression, object id, reparse point, snapshots.
    Controls,
    /// The controls of push mode, whose codes carry both access bits.
    Push,
}

impl Operation for Look {
    type Leave = ();

    fn needs(self) -> Needs {
        match self {
            Self::Read | Self::CopySource => any(READ_DATA.union(AccessMask::EXECUTE)),
            Self::Flush => any(WRITE_DATA.union(APPEND_DATA)),
            // MS-SMB2 §3.3.5.14.
            Self::Lock => any(READ_DATA.union(WRITE_DATA)),
            Self::List | Self::CloneSource | Self::AllocatedRanges => all(READ_DATA),
            Self::Watch => all(READ_DATA),
            Self::Attributes => all(AccessMask::READ_ATTRIBUTES),
            Self::ExtendedAttributes => all(AccessMask::READ_EA),
            Self::Security(parts) if parts.contains(SecurityInformation::SACL) => {
                all(AccessMask::ACCESS_SYSTEM_SECURITY)
            }
            // A request for no part reveals nothing.
            Self::Security(parts) if parts.is_empty() => NOTHING,
            Self::Security(_) => all(AccessMask::READ_CONTROL),
            Self::Facts | Self::Volume | Self::Handle | Self::ResumeKey | Self::Controls => NOTHING,
            Self::Push => all(READ_DATA.union(WRITE_DATA)),
        }
    }
}

/// Operations that change bytes or the length of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    /// WRITE.
    Bytes,
    /// FileEndOfFileInformation, FileAllocationInformation.
    Resize,
    /// SET_ZERO_DATA.
    Zero,
    /// FILE_LEVEL_TRIM.
    Trim,
    /// The role of the target of SRV_COPYCHUNK.
    Copy,
    /// The role of the target of SRV_COPYCHUNK_WRITE.
    CopyWriteOnly,
    /// The role of the target of DUPLICATE_EXTENTS_TO_FILE.
    Clone,
}

impl Operation for Write {
    type Leave = MayWrite;

    fn needs(self) -> Needs {
        match self {
            // At any offset, as with Windows: no share grants less to a user who may only append.
            Self::Bytes | Self::CopyWriteOnly => any(WRITE_DATA.union(APPEND_DATA)),
            // MS-SMB2 §3.3.5.15.6.
            Self::Copy => Needs { all: READ_DATA, ..any(WRITE_DATA.union(APPEND_DATA)) },
            Self::Resize | Self::Zero | Self::Trim | Self::Clone => all(WRITE_DATA),
        }
    }
}

/// Operations that change the metadata of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Set {
    /// FileBasicInformation.
    Basic,
    /// FileFullEaInformation.
    ExtendedAttributes,
    /// A security descriptor with these parts.
    Security(SecurityInformation),
    /// SET_SPARSE.
    Sparse,
    /// SET_REPARSE_POINT.
    ReparsePoint,
    /// SET_COMPRESSION.
    Compression,
}

impl Operation for Set {
    type Leave = MaySet;

    fn needs(self) -> Needs {
        match self {
            Self::Basic => all(AccessMask::WRITE_ATTRIBUTES),
            Self::ExtendedAttributes => all(AccessMask::WRITE_EA),
            Self::Security(parts) => {
                let owner =
                    parts.intersects(SecurityInformation::OWNER | SecurityInformation::GROUP);
                let mut needs = AccessMask::empty();
                needs.set(AccessMask::WRITE_OWNER, owner);
                needs.set(AccessMask::WRITE_DAC, parts.contains(SecurityInformation::DACL));
                let system = parts.contains(SecurityInformation::SACL);
                needs.set(AccessMask::ACCESS_SYSTEM_SECURITY, system);
                all(needs)
            }
            Self::Sparse => any(WRITE_DATA.union(APPEND_DATA).union(AccessMask::WRITE_ATTRIBUTES)),
            Self::ReparsePoint => any(WRITE_DATA.union(AccessMask::WRITE_ATTRIBUTES)),
            // Its control code carries both access bits.
            Self::Compression => all(READ_DATA.union(WRITE_DATA)),
        }
    }
}

/// Operations that remove a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remove {
    /// FileDispositionInformation, either way.
    Delete,
    /// FileRenameInformation.
    Rename,
    /// Giving the name of another file to this one. MS-FSA §2.1.5.15.6, §2.1.5.15.11: DELETE on that
    /// file.
    Replace,
    /// Making a stream the unnamed one: the file's bytes are replaced.
    ReplaceBytes,
}

impl Operation for Remove {
    type Leave = MayRemove;

    fn needs(self) -> Needs {
        match self {
            Self::Delete | Self::Rename => all(AccessMask::DELETE),
            Self::Replace => in_share(AccessMask::DELETE),
            Self::ReplaceBytes => {
                let overwrites = AccessMask::DELETE.union(WRITE_DATA);
                Needs { in_share: overwrites, ..all(AccessMask::DELETE) }
            }
        }
    }
}

/// Operations that add a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Add {
    /// FileLinkInformation. MS-FSA §2.1.5.15.6: any handle of the file will do, but the user must be
    /// allowed to add a file to the directory.
    Link,
}

impl Operation for Add {
    type Leave = MayAdd;

    fn needs(self) -> Needs {
        match self {
            Self::Link => in_share(WRITE_DATA),
        }
    }
}

const fn all(mask: AccessMask) -> Needs {
    Needs { all: mask, ..NOTHING }
}

const fn any(mask: AccessMask) -> Needs {
    Needs { any: mask, ..NOTHING }
}

const fn in_share(mask: AccessMask) -> Needs {
    Needs { in_share: mask, ..NOTHING }
}

const NOTHING: Needs =
    Needs { all: AccessMask::empty(), any: AccessMask::empty(), in_share: AccessMask::empty() };
// On a directory: to list it, to add a file, to add a directory.
const READ_DATA: AccessMask = AccessMask::READ_DATA;
const WRITE_DATA: AccessMask = AccessMask::WRITE_DATA;
const APPEND_DATA: AccessMask = AccessMask::APPEND_DATA;
