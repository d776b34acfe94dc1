#![cfg(test)]

use smb::create::{DurableRequestV2, ImpersonationLevel, Lease, LeaseKey, LeaseState};
use smb::push::{Durability, Rights as PushRights};
use smb::{FileTime, Guid, Name};

use super::*;
use crate::push::tests::rig::Rig;

fn request() -> CreateRequest<'static> {
    CreateRequest {
        oplock_level: OplockLevel::NONE,
        impersonation: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::READ_DATA,
        attributes: FileAttributes::empty(),
        share_access: ShareAccess::empty(),
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::empty(),
        name: Name::new("f").unwrap(),
        contexts: Vec::new(),
    }
}

/// A request, changed, at a server on which `change_agreed` was agreed.
fn checked_as(
    rig: &Rig,
    change: impl FnOnce(&mut CreateRequest<'static>),
    change_agreed: impl FnOnce(&mut Agreed),
) -> Result<Wish, NtStatus> {
    let session = rig.session();
    let (mut request, mut agreed) = (request(), session.agreed.clone());
    change(&mut request);
    change_agreed(&mut agreed);
    let tree = &session.all_trees()[0];
    let serial = rig.core.files.next_serial();
    Wish::check(&request, tree, &agreed, &session.identity, serial)
}

fn checked(rig: &Rig, change: impl FnOnce(&mut CreateRequest<'static>)) -> Result<Wish, NtStatus> {
    checked_as(rig, change, |_| ())
}

fn wish(rig: &Rig, change: impl FnOnce(&mut CreateRequest<'static>)) -> Wish {
    checked(rig, change).unwrap()
}

fn bits(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0)
}

#[tokio::test]
async fn values_without_a_meaning_are_refused() {
    let rig = Rig::new();
    let level = |level| checked(&rig, |it| it.impersonation = ImpersonationLevel(level)).err();
    assert_eq!([3, 4].map(level), [None, Some(NtStatus::BAD_IMPERSONATION_LEVEL)]);
    let invalid = Some(NtStatus::INVALID_PARAMETER);
    let how = |how| checked(&rig, |it| it.disposition = CreateDisposition(how)).err();
    assert_eq!([5, 6].map(how), [None, invalid]);
    let shares =
        |bits| checked(&rig, |it| it.share_access = ShareAccess::from_bits_retain(bits)).err();
    assert_eq!([7, 8].map(shares), [None, invalid]);
    for bit in bits(u32::MAX) {
        let status = checked(&rig, |it| it.options = CreateOptions::from_bits_retain(bit)).err();
        let expected = match bit {
            0x0100_0000.. => invalid,
            // By file id, of a tree connection, a filter oplock.
            0x2000 | 0x80 | 0x0010_0000 => Some(NtStatus::NOT_SUPPORTED),
            // DELETE_ON_CLOSE without the right to delete.
            0x1000 => Some(NtStatus::ACCESS_DENIED),
            _ => None,
        };
        assert_eq!(status, expected, "option {bit:x}");
        let status =
            checked(&rig, |it| it.attributes = FileAttributes::from_bits_retain(bit)).err();
        let expected = match bit {
            0x8 | 0x40 | 0x8000.. => invalid,
            0x4000 => Some(NtStatus::ACCESS_DENIED),
            _ => None,
        };
        assert_eq!(status, expected, "attribute {bit:x}");
    }
}

#[tokio::test]
async fn a_directory_is_neither_a_file_nor_overwritten() {
    let rig = Rig::new();
    let (directory, file) = (CreateOptions::DIRECTORY_FILE, CreateOptions::NON_DIRECTORY_FILE);
    let status = |options, disposition| {
        checked(&rig, |it| (it.options, it.disposition) = (options, disposition)).err()
    };
    let invalid = Some(NtStatus::INVALID_PARAMETER);
    use CreateDisposition as How;
    for how in [How::OPEN, How::CREATE, How::OPEN_IF] {
        assert_eq!(status(directory, how), None);
        assert_eq!(status(directory | file, how), invalid);
    }
    for how in [How::SUPERSEDE, How::OVERWRITE, How::OVERWRITE_IF] {
        assert_eq!((status(directory, how), status(file, how)), (invalid, None));
    }
    assert!(wish(&rig, |it| it.options = directory).wants_directory());
    assert!(wish(&rig, |it| it.options = file).refuses_directory());
    assert!(wish(&rig, |it| it.options = CreateOptions::OPEN_REPARSE_POINT).opens_links());
    let none = wish(&rig, |_| ());
    assert!(!none.wants_directory() && !none.refuses_directory() && !none.opens_links());
    assert!(!none.deletes_on_close());
}

#[tokio::test]
async fn what_an_open_reports_of_its_options_are_those_of_its_mode() {
    let rig = Rig::new();
    let all = CreateOptions::from_bits_retain(0x00e3_5f7e) - CreateOptions::NON_DIRECTORY_FILE;
    let open = wish(&rig, |it| {
        it.options = all;
        it.desired_access = AccessMask::DELETE;
    });
    assert_eq!(open.mode(), 0x103e, "MS-FSCC 2.4.26");
    assert!(open.deletes_on_close());
}

#[tokio::test]
async fn each_disposition_makes_or_replaces_as_its_name_says() {
    let rig = Rig::new();
    use CreateDisposition as How;
    for (how, creates, overwrites, takes) in [
        (How::SUPERSEDE, true, true, false),
        (How::OPEN, false, false, true),
        (How::CREATE, true, false, false),
        (How::OPEN_IF, true, false, true),
        (How::OVERWRITE, false, true, false),
        (How::OVERWRITE_IF, true, true, false),
    ] {
        let open = wish(&rig, |it| it.disposition = how);
        let found = (open.creates(), open.overwrites(), open.takes_what_is_there());
        assert_eq!(found, (creates, overwrites, takes), "{how:?}");
        open.may_overwrite().expect("this user may write");
        open.may_add().unwrap();
        let action = open.overwriting_action();
        let is_superseded = action == CreateAction::SUPERSEDED;
        assert_eq!(is_superseded, how == How::SUPERSEDE);
        assert!(is_superseded || action == CreateAction::OVERWRITTEN);
        // An overwrite writes, whatever the open may do later.
        let entered = open.sharing_to_enter(open.sharing(AccessMask::READ_DATA));
        assert_eq!((entered.uses.read, entered.uses.write), (true, overwrites), "{how:?}");
    }
    let stream = wish(&rig, |it| it.name = Name::new("f:s").unwrap());
    assert!(!stream.takes_what_is_there());
    assert_eq!(stream.descriptors(), tree::STREAM_DESCRIPTORS);
    assert_eq!(wish(&rig, |_| ()).descriptors(), 1);
}

#[tokio::test]
async fn an_open_uses_what_its_access_reads_writes_and_deletes_and_leaves_what_it_shares() {
    let rig = Rig::new();
    let open = wish(&rig, |_| ());
    for bit in bits(0x001f_01ff) {
        let Sharing { uses, .. } = open.sharing(AccessMask::from_bits_retain(bit));
        let expected = Kinds {
            read: [0x1, 0x20].contains(&bit),
            write: [0x2, 0x4].contains(&bit),
            delete: bit == 0x1_0000,
        };
        assert_eq!(uses, expected, "{bit:x}");
    }
    for bits in 0..8 {
        let open = wish(&rig, |it| it.share_access = ShareAccess::from_bits_retain(bits));
        let Kinds { read, write, delete } = open.sharing(AccessMask::READ_DATA).shares;
        assert_eq!((read, write, delete), (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0));
    }
}

#[tokio::test]
async fn an_open_that_looks_at_attributes_alone_breaks_no_oplock() {
    let rig = Rig::new();
    // READ_ATTRIBUTES, WRITE_ATTRIBUTES, READ_CONTROL, SYNCHRONIZE: MS-FSA 2.1.5.1.2.
    let looks = 0x80 | 0x100 | 0x2_0000 | 0x10_0000;
    for bit in bits(0x001f_01ff) {
        let open = |how| {
            checked(&rig, |it| {
                it.desired_access = AccessMask::from_bits_retain(bit);
                it.disposition = how;
            })
        };
        // This user may not take ownership, for one.
        let Ok(plain) = open(CreateDisposition::OPEN) else { continue };
        assert_eq!(plain.only_looks(), looks & bit != 0, "{bit:x}");
        assert_eq!(plain.looks_at_security(), bit == 0x2_0000, "{bit:x}");
        assert!(!open(CreateDisposition::OVERWRITE).unwrap().only_looks(), "{bit:x}");
    }
    let all = AccessMask::from_bits_retain(looks);
    assert!(wish(&rig, |it| it.desired_access = all).only_looks());
    let more = all | AccessMask::DELETE;
    let goes = wish(&rig, |it| {
        (it.desired_access, it.options) = (more, CreateOptions::DELETE_ON_CLOSE);
    });
    assert!(!goes.only_looks());
}

fn leases(level: OplockLevel, version: LeaseVersion) -> impl FnOnce(&mut CreateRequest<'static>) {
    let state = LeaseState::READ | LeaseState::HANDLE;
    let lease = Lease { key: LeaseKey([7; 16]), state, break_in_progress: false, version };
    move |it| {
        (it.oplock_level, it.contexts) = (level, vec![CreateRequestContext::Lease(lease)]);
    }
}

#[tokio::test]
async fn a_lease_is_asked_for_by_its_level_and_by_dialects_that_know_it() {
    let rig = Rig::new();
    let version = LeaseVersion::V2 { parent: None, epoch: 9 };
    let leased = wish(&rig, leases(OplockLevel::LEASE, version));
    let held = Bits::READ.union(Bits::HANDLE);
    assert_eq!(leased.caching.wanted(), Some((held, Flavor::LeaseV2, 9)));
    let session = rig.session();
    let (client, key, user) = (session.agreed.client_guid, [7; 16], session.identity.mark());
    assert_eq!(leased.owner, Owner::Lease { client, key, user });
    let older = wish(&rig, leases(OplockLevel::LEASE, LeaseVersion::V1));
    assert_eq!(older.caching.wanted(), Some((held, Flavor::LeaseV1, 0)));
    let at = |dialect| {
        let change = leases(OplockLevel::LEASE, version);
        let open = checked_as(&rig, change, |agreed| agreed.dialect = dialect).unwrap();
        matches!(open.caching, Caching::Lease { .. })
    };
    assert!(at(Dialect::SMB_2_1) && !at(Dialect::SMB_2_0_2));
    for level in [OplockLevel::NONE, OplockLevel::II, OplockLevel::EXCLUSIVE, OplockLevel::BATCH] {
        let open = wish(&rig, leases(level, version));
        assert_eq!(open.owner, Owner::Open(open.serial), "a context alone is no lease");
        let expected = match level {
            OplockLevel::NONE => None,
            _ => Some((levels::from_level(level), Flavor::Oplock, 0)),
        };
        assert_eq!(open.caching.wanted(), expected);
    }
}

#[tokio::test]
async fn contexts_are_asked_for_one_by_one() {
    let rig = Rig::new();
    let with = |context| checked(&rig, |it| it.contexts = vec![context]);
    let none = wish(&rig, |_| ());
    assert!(!none.wants_maximal_access && !none.wants_disk_id && none.allocation.is_none());
    assert!(!none.is_much());
    assert!(with(CreateRequestContext::MaximalAccess(None)).unwrap().wants_maximal_access);
    assert!(with(CreateRequestContext::QueryOnDiskId).unwrap().wants_disk_id);
    let some = with(CreateRequestContext::AllocationSize(5)).unwrap();
    assert_eq!((some.allocation, some.is_much()), (Some(5), false));
    assert!(with(CreateRequestContext::AllocationSize(1 << 40)).unwrap().is_much());
    let before = with(CreateRequestContext::Timewarp(FileTime(1))).err();
    assert_eq!(before, Some(NtStatus::OBJECT_NAME_NOT_FOUND), "there are no previous versions");
    let unknown = with(CreateRequestContext::PushUnknownVersion(9)).unwrap();
    assert!(matches!(unknown.push, Some(PushWish::UnknownVersion)));
    let asked = PushRequest {
        rights: PushRights::READ,
        durability: Durability::ANY,
        accept_emulated: false,
        regions_max: 1,
    };
    let pushed = with(CreateRequestContext::Push(asked)).unwrap();
    assert!(matches!(pushed.push, Some(PushWish::Asked(found)) if found == asked));
    assert_eq!(pushed.pushes_for.as_ref(), Some(&rig.session().identity));
}

#[tokio::test]
async fn an_application_is_named_by_handles_that_can_be_told_apart_in_dialects_that_know_it() {
    let rig = Rig::new();
    let (timeout_ms, persistent, create_guid) = (0, false, Guid([3; 16]));
    let durable = DurableRequestV2 { timeout_ms, persistent, create_guid };
    let named = |dialect, is_durable: bool, version: Option<(u64, u64)>| {
        let change = move |it: &mut CreateRequest<'static>| {
            it.contexts = vec![CreateRequestContext::AppInstanceId(Guid([8; 16]))];
            let durable = is_durable.then_some(CreateRequestContext::DurableV2(durable));
            it.contexts.extend(durable);
            it.contexts.extend(
                version.map(|(high, low)| CreateRequestContext::AppInstanceVersion { high, low }),
            );
        };
        checked_as(&rig, change, |agreed| agreed.dialect = dialect).unwrap()
    };
    let open = named(Dialect::SMB_3_0, true, Some((1, 2)));
    assert!(!open.takes_what_is_there(), "it takes the file from another open");
    let instance = open.instance.unwrap();
    assert_eq!((instance.id, instance.version), ([8; 16], Some((1, 2))));
    assert_eq!(instance.client, rig.session().agreed.client_guid);
    assert_eq!(named(Dialect::SMB_3_0, true, None).instance.unwrap().version, None);
    assert!(named(Dialect::SMB_2_1, true, None).instance.is_none());
    assert!(named(Dialect::SMB_3_0, false, None).instance.is_none());
}

#[tokio::test]
async fn names_and_modes_are_those_of_posix_where_both_ends_know_it_and_the_open_says_so() {
    let rig = Rig::new();
    let named = |name: &'static str, mode: Option<u32>, knows: bool| {
        let change = move |it: &mut CreateRequest<'static>| {
            it.name = Name::new(name).unwrap();
            it.attributes = FileAttributes::READONLY;
            it.contexts.extend(mode.map(|mode| CreateRequestContext::Posix { mode }));
        };
        checked_as(&rig, change, |agreed| agreed.posix = knows)
    };
    let invalid = Some(NtStatus::INVALID_PARAMETER);
    for name in ["\\f", "/f"] {
        assert_eq!(named(name, None, true).err(), invalid, "names are relative");
        assert_eq!(named(name, Some(0o644), false).err(), invalid);
    }
    let posix = named("a:b", Some(0o100_644), true).unwrap();
    assert!(posix.is_posix && matches!(posix.stream, StreamPart::Absent));
    assert_eq!(posix.permissions, Some(0o644));
    assert!(!posix.attributes.contains(DosAttributes::READONLY), "its mode says who may write");
    assert_eq!(named("a", Some(u32::MAX), true).unwrap().permissions, None);
    assert_eq!(named("a", Some(0o7777), true).unwrap().permissions, Some(0o7777));
    let plain = named("a:b", Some(0o644), false).unwrap();
    assert!(!plain.is_posix && matches!(plain.stream, StreamPart::Named(_)));
    assert_eq!(plain.permissions, None);
    assert!(plain.attributes.contains(DosAttributes::READONLY));
}
