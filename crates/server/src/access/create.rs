//! The decision on a CREATE: the access of its open, and the changes of the share that it may make.
//!
//! Spec: MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1 phases 1 and 6.

use smb::NtStatus;
use smb::create::{AccessMask, CreateDisposition, CreateOptions};
use tree::{DosAttributes, OpenMode, Share, Writing};

use super::leave::{Decided, Leave, MayAdd, MayRemove, MaySet, MayWrite};
use super::rights::Rights;
use crate::access::{Identity, Tree};

/// The rights of an admitted CREATE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    desired: AccessMask,
    rights: Rights,
    overwrites: bool,
    is_read_only: bool,
    delete: Option<MayRemove>,
}

impl Grant {
    /// Decides on the request, as far as possible without looking at the file.
    pub(crate) fn decide(
        desired: AccessMask,
        disposition: CreateDisposition,
        options: CreateOptions,
        tree: &Tree,
    ) -> Result<Self, NtStatus> {
        let rights = tree.rights;
        let desired = desired.without_generics();
        let asked = desired - AccessMask::MAXIMUM_ALLOWED;
        if desired.is_empty() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if asked.contains(AccessMask::ACCESS_SYSTEM_SECURITY) {
            return Err(NtStatus::PRIVILEGE_NOT_HELD);
        }
        if !rights.may(asked) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let overwrites = matches!(
            disposition,
            CreateDisposition::OVERWRITE
                | CreateDisposition::OVERWRITE_IF
                | CreateDisposition::SUPERSEDE
        );
        let is_read_only = tree.share().is_none_or(|share| share.is_read_only());
        let grant = Self { desired, rights, overwrites, is_read_only, delete: None };
        let deletes = options.contains(CreateOptions::DELETE_ON_CLOSE);
        let delete = deletes.then(|| grant.may_delete()).transpose()?;
        Ok(Self { delete, ..grant })
    }

    // MS-SMB2 §3.3.5.9: a client that opens with delete on close must be granted DELETE. For maximum
    // allowed the rights that the open gets count, as with smbd.
    fn may_delete(&self) -> Result<MayRemove, NtStatus> {
        if self.is_read_only || !self.of_new().contains(AccessMask::DELETE) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(MayRemove::given(Decided::yes()))
    }

    /// The leave to delete, if the file is deleted with the open.
    pub(crate) fn deletes_on_close(&self) -> Option<MayRemove> {
        self.delete
    }

    /// Whether this user may make files here, whatever access the request asks for. MS-FSA §2.1.5.1.1:
    /// FILE_ADD_FILE of the directory.
    pub(crate) fn may_add(&self) -> Result<MayAdd, NtStatus> {
        self.in_share(AccessMask::WRITE_DATA)
    }

    /// The user that makes a file sets its first attributes.
    pub(crate) fn may_furnish(&self) -> Result<MaySet, NtStatus> {
        self.in_share(AccessMask::WRITE_DATA)
    }

    /// Whether this user may replace the content of a file, whatever access the request asks for. MS-FSA
    /// §2.1.5.1.2: overwriting needs the rights to write bytes, attributes and extended attributes,
    /// superseding needs DELETE as well.
    pub(crate) fn may_overwrite(&self, disposition: CreateDisposition) -> Result<MaySet, NtStatus> {
        let mut needs =
            AccessMask::WRITE_DATA | AccessMask::WRITE_EA | AccessMask::WRITE_ATTRIBUTES;
        needs.set(AccessMask::DELETE, disposition == CreateDisposition::SUPERSEDE);
        self.in_share(needs)
    }

    fn in_share<L: Leave>(&self, needs: AccessMask) -> Result<L, NtStatus> {
        if self.is_read_only {
            return Err(NtStatus::MEDIA_WRITE_PROTECTED);
        }
        if !self.rights.may(needs) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(L::given(Decided::yes()))
    }

    /// Whether the CREATE replaces the content of the file.
    pub(crate) fn overwrites(&self) -> bool {
        self.overwrites
    }

    /// The most this user may do with a file of these attributes.
    pub(crate) fn maximal_access(&self, attributes: DosAttributes) -> AccessMask {
        let mut access = self.rights.mask();
        if attributes.contains(DosAttributes::READONLY)
            && !attributes.contains(DosAttributes::DIRECTORY)
        {
            access -= WRITES;
        }
        access
    }

    /// The access of an open of a file with these attributes.
    pub(crate) fn of(&self, attributes: DosAttributes) -> AccessMask {
        if self.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            return (self.desired - AccessMask::MAXIMUM_ALLOWED) | self.maximal_access(attributes);
        }
        self.desired
    }

    /// The access of an open of a new file: its attributes bind later opens only.
    pub(crate) fn of_new(&self) -> AccessMask {
        self.of(DosAttributes::default())
    }

    /// Whether the client insists on writing data, which the read-only attribute of a file forbids.
    pub(crate) fn insists_on_writing(&self) -> bool {
        self.desired.intersects(WRITES)
    }

    /// The access that the request names explicitly.
    pub(crate) fn desired(&self) -> AccessMask {
        self.desired
    }

    /// The mode in which the handle is opened. Maximum allowed tries writing, and does without if
    /// that fails.
    pub(crate) fn open_mode(&self, access: AccessMask) -> OpenMode {
        let mut mode = mode(access, self.rights);
        if self.overwrites {
            let leave = self.in_share::<MayWrite>(AccessMask::WRITE_DATA);
            mode.write = leave.ok().map(Writing::by);
        }
        mode
    }
}

/// The rights that remain of an earlier open, under the present configuration of the share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regrant {
    /// The rights that the open was granted.
    pub(crate) rights: Rights,
    /// The mode in which the handle is opened.
    pub(crate) mode: OpenMode,
    /// The leave to delete, if the file is deleted with the open.
    pub(crate) delete: Option<MayRemove>,
}

impl Regrant {
    /// Leave for a deletion that was requested before, by a user who was admitted to it. `None`: the share is
    /// read-only now.
    pub(crate) fn wish(share: &Share) -> Option<MayRemove> {
        (!share.is_read_only()).then(|| MayRemove::given(Decided::yes()))
    }

    /// Decides again on an open with this access. `None`: its user would not get all of this access now,
    /// and loses the open rather than keeping a reduced one.
    pub(crate) fn decide(
        share: &Share,
        user: &Identity,
        access: AccessMask,
        deletes: bool,
    ) -> Option<Self> {
        let rights = Rights::of(share, user).filter(|rights| rights.may(access))?;
        let may_delete = access.contains(AccessMask::DELETE) && !share.is_read_only();
        if deletes && !may_delete {
            return None;
        }
        let delete = deletes.then(|| MayRemove::given(Decided::yes()));
        Some(Self { rights: rights.within(access), mode: mode(access, rights), delete })
    }
}

// Reading and executing read bytes; writing and appending write them.
fn mode(access: AccessMask, rights: Rights) -> OpenMode {
    let reads = AccessMask::READ_DATA | AccessMask::EXECUTE;
    let writes = access.intersects(WRITES) && rights.may(access & WRITES);
    OpenMode {
        read: access.intersects(reads),
        write: writes.then(|| Writing::by(MayWrite::given(Decided::yes()))),
    }
}

const WRITES: AccessMask = AccessMask::WRITE_DATA.union(AccessMask::APPEND_DATA);
