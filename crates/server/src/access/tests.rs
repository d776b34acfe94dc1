//! The tables of rights, bit by bit, typed from the specification. `crates/server/tests/access_matrix` asks a whole server the same.
#![cfg(test)]

use std::sync::Arc;

use ::tree::{Admission, DosAttributes, Share, ShareConfig};
use smb::NtStatus;
use smb::create::{AccessMask, CreateDisposition, CreateOptions};
use smb::info::SecurityInformation;

use super::*;
use crate::config::PushPolicy;
use crate::push::tests::rig::Rig;

/// An open that was granted what a test says.
struct Opened {
    access: AccessMask,
    tree: Tree,
    is_superseded: bool,
}

impl Granted for Opened {
    fn access(&self) -> AccessMask {
        self.access
    }

    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn is_superseded(&self) -> bool {
        self.is_superseded
    }
}

fn share(configure: impl FnOnce(&mut ShareConfig)) -> Arc<Share> {
    let rig = Rig::of("/dev/shm", PushPolicy::default(), configure);
    Arc::clone(rig.session().all_trees()[0].share().unwrap())
}

fn mask(bits: u32) -> AccessMask {
    AccessMask::from_bits_retain(bits)
}

fn within(share: &Arc<Share>, rights: Rights) -> Tree {
    Tree::new(1, Target::Disk(Arc::clone(share)), rights)
}

fn rights(bits: u32) -> Rights {
    Rights::ALL.within(mask(bits))
}

/// Rights that files have, and that to the audit list.
const KNOWN: u32 = 0x011f_01ff;

fn single() -> impl Iterator<Item = u32> {
    (0..32).map(|bit| 1 << bit).filter(|bit| KNOWN & bit != 0)
}

/// An operation, the rights of the open that it needs, all of the first and one of the second, those in the share, and whether
/// it changes the share.
type Row = (&'static str, fn(&Opened) -> Result<(), NtStatus>, u32, u32, u32, bool);

const OWNER: SecurityInformation = SecurityInformation::OWNER;
const GROUP: SecurityInformation = SecurityInformation::GROUP;
const DACL: SecurityInformation = SecurityInformation::DACL;
const SACL: SecurityInformation = SecurityInformation::SACL;

const TABLE: [Row; 41] = [
    ("READ", |it| admit(it, Look::Read), 0, 0x21, 0, false),
    ("copy from", |it| admit(it, Look::CopySource), 0, 0x21, 0, false),
    ("FLUSH", |it| admit(it, Look::Flush), 0, 0x6, 0, false),
    ("LOCK", |it| admit(it, Look::Lock), 0, 0x3, 0, false),
    ("list", |it| admit(it, Look::List), 1, 0, 0, false),
    ("watch", |it| admit(it, Look::Watch), 1, 0, 0, false),
    ("clone from", |it| admit(it, Look::CloneSource), 1, 0, 0, false),
    ("ranges", |it| admit(it, Look::AllocatedRanges), 1, 0, 0, false),
    ("attributes", |it| admit(it, Look::Attributes), 0x80, 0, 0, false),
    ("EAs", |it| admit(it, Look::ExtendedAttributes), 0x8, 0, 0, false),
    ("owner", |it| admit(it, Look::Security(OWNER)), 0x2_0000, 0, 0, false),
    ("list of access", |it| admit(it, Look::Security(DACL)), 0x2_0000, 0, 0, false),
    ("audit list", |it| admit(it, Look::Security(SACL)), 0x100_0000, 0, 0, false),
    ("audit and owner", |it| admit(it, Look::Security(SACL | OWNER)), 0x100_0000, 0, 0, false),
    ("no part", |it| admit(it, Look::Security(SecurityInformation::empty())), 0, 0, 0, false),
    ("facts", |it| admit(it, Look::Facts), 0, 0, 0, false),
    ("volume", |it| admit(it, Look::Volume), 0, 0, 0, false),
    ("handle", |it| admit(it, Look::Handle), 0, 0, 0, false),
    ("resume key", |it| admit(it, Look::ResumeKey), 0, 0, 0, false),
    ("controls", |it| admit(it, Look::Controls), 0, 0, 0, false),
    ("push", |it| admit(it, Look::Push), 0x3, 0, 0, false),
    ("WRITE", |it| admit(it, Write::Bytes).map(drop), 0, 0x6, 0, true),
    ("copy to, write", |it| admit(it, Write::CopyWriteOnly).map(drop), 0, 0x6, 0, true),
    ("copy to", |it| admit(it, Write::Copy).map(drop), 1, 0x6, 0, true),
    ("resize", |it| admit(it, Write::Resize).map(drop), 2, 0, 0, true),
    ("zero", |it| admit(it, Write::Zero).map(drop), 2, 0, 0, true),
    ("trim", |it| admit(it, Write::Trim).map(drop), 2, 0, 0, true),
    ("clone to", |it| admit(it, Write::Clone).map(drop), 2, 0, 0, true),
    ("set times", |it| admit(it, Set::Basic).map(drop), 0x100, 0, 0, true),
    ("set EAs", |it| admit(it, Set::ExtendedAttributes).map(drop), 0x10, 0, 0, true),
    ("set owner", |it| admit(it, Set::Security(OWNER)).map(drop), 0x8_0000, 0, 0, true),
    ("set group", |it| admit(it, Set::Security(GROUP)).map(drop), 0x8_0000, 0, 0, true),
    ("set list", |it| admit(it, Set::Security(DACL)).map(drop), 0x4_0000, 0, 0, true),
    ("set audit", |it| admit(it, Set::Security(SACL)).map(drop), 0x100_0000, 0, 0, true),
    ("set both", |it| admit(it, Set::Security(OWNER | DACL)).map(drop), 0xc_0000, 0, 0, true),
    ("sparse", |it| admit(it, Set::Sparse).map(drop), 0, 0x106, 0, true),
    ("reparse", |it| admit(it, Set::ReparsePoint).map(drop), 0, 0x102, 0, true),
    ("delete", |it| admit(it, Remove::Delete).map(drop), 0x1_0000, 0, 0, true),
    ("rename", |it| admit(it, Remove::Rename).map(drop), 0x1_0000, 0, 0, true),
    ("replace", |it| admit(it, Remove::Replace).map(drop), 0, 0, 0x1_0000, true),
    ("link", |it| admit(it, Add::Link).map(drop), 0, 0, 0x2, true),
];

#[tokio::test]
async fn an_operation_is_admitted_by_the_rights_that_it_needs_and_by_no_others() {
    let share = share(|_| {});
    for (name, admitted, all, any, in_share, _) in TABLE {
        let masks = single().flat_map(|bit| [bit, KNOWN & !bit]);
        for access in masks.chain([0, KNOWN, all, any, all | any]) {
            for granted in single().map(|bit| KNOWN & !bit).chain([KNOWN, 0]) {
                let tree = within(&share, rights(granted));
                let open = Opened { access: mask(access), tree, is_superseded: false };
                let may = access & all == all
                    && (any == 0 || access & any != 0)
                    && granted & in_share == in_share;
                let expected = if may { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) };
                assert_eq!(admitted(&open), expected, "{name} {access:x} {granted:x}");
            }
        }
    }
    let replaces = |access, granted| {
        let tree = within(&share, rights(granted));
        let open = Opened { access: mask(access), tree, is_superseded: false };
        admit(&open, Remove::ReplaceBytes).is_ok()
    };
    assert!(replaces(0x1_0000, 0x1_0002));
    assert!(!replaces(0x2, 0x1_0002) && !replaces(0x1_0000, 2) && !replaces(0x1_0000, 0x1_0000));
    let packs = |access| {
        let tree = within(&share, Rights::ALL);
        admit(&Opened { access: mask(access), tree, is_superseded: false }, Set::Compression)
    };
    assert!(packs(0x3).is_ok() && packs(0x1).is_err() && packs(0x2).is_err());
}

#[tokio::test]
async fn nothing_is_changed_in_a_share_that_is_read_only_nor_where_no_share_is() {
    let read_only = share(|config| config.read_only = true);
    for (name, admitted, .., changes) in TABLE {
        let open = |tree| Opened { access: mask(u32::MAX), tree, is_superseded: false };
        let refused = admitted(&open(within(&read_only, Rights::ALL))).err();
        assert_eq!(refused, changes.then_some(NtStatus::MEDIA_WRITE_PROTECTED), "{name}");
        let refused = admitted(&open(Tree::new(1, Target::Pipes, Rights::ALL))).err();
        assert_eq!(refused, changes.then_some(NtStatus::INVALID_PARAMETER), "{name}");
    }
}

#[tokio::test]
async fn an_open_whose_file_has_lost_its_place_does_nothing() {
    let share = share(|_| {});
    for (name, admitted, ..) in TABLE {
        let tree = within(&share, Rights::ALL);
        let open = Opened { access: mask(u32::MAX), tree, is_superseded: true };
        assert_eq!(admitted(&open), Err(NtStatus::FILE_CLOSED), "{name}");
        assert_eq!(admit(&Arc::new(open), Look::Facts), Err(NtStatus::FILE_CLOSED));
    }
}

#[tokio::test]
async fn a_user_has_in_a_share_what_its_lists_say() {
    let alice = Identity::user("alice");
    let bob = Identity::user("bob");
    let guest = Identity::Guest { client: [1; 16] };
    let reading = 0x0012_00a9;
    let of = |share: &Share| {
        [&alice, &bob, &guest].map(|who| Rights::of(share, who).map(|it| it.mask().bits()))
    };
    let named = |name: &str| Some(vec![name.to_owned()]);
    let open = share(|_| {});
    assert_eq!(of(&open), [Some(0x001f_01ff), Some(0x001f_01ff), None]);
    let both = share(|it| (it.users, it.readers) = (named("alice"), named("bob")));
    assert_eq!(of(&both), [Some(0x001f_01ff), Some(reading), None]);
    let read_only = share(|it| {
        (it.read_only, it.users, it.guests) = (true, named("alice"), Admission::Full);
    });
    assert_eq!(of(&read_only), [Some(reading), None, Some(reading)]);
    let guests = share(|it| it.guests = Admission::Reading);
    assert_eq!(of(&guests)[2], Some(reading));
    let rights = Rights::of(&both, &bob).unwrap();
    assert!(rights.may(mask(0x0012_0089)) && !rights.may(mask(0x3)));
    assert_eq!(rights.within(mask(0x3)).mask(), mask(1));
}

fn decided(
    tree: &Tree,
    desired: u32,
    how: CreateDisposition,
    options: CreateOptions,
) -> Result<Grant, NtStatus> {
    Grant::decide(mask(desired), how, options, tree)
}

#[tokio::test]
async fn a_create_gets_what_it_asks_for_or_nothing() {
    let share = share(|_| {});
    let (how, none) = (CreateDisposition::OPEN, CreateOptions::empty());
    let reader = within(&share, rights(0x0012_00a9));
    let refused = |desired| decided(&reader, desired, how, none).err();
    assert_eq!(refused(0), Some(NtStatus::ACCESS_DENIED));
    assert_eq!(refused(0x0100_0001), Some(NtStatus::PRIVILEGE_NOT_HELD));
    assert_eq!(refused(0x3), Some(NtStatus::ACCESS_DENIED));
    assert_eq!(refused(0x0200_0002), Some(NtStatus::ACCESS_DENIED), "it insists on writing");
    let of = |tree: &Tree, desired| {
        let grant = decided(tree, desired, how, none).unwrap();
        let plain = grant.of_new().bits();
        let read_only = grant.of(DosAttributes::READONLY).bits();
        let directory = grant.of(DosAttributes::READONLY.union(DosAttributes::DIRECTORY)).bits();
        (plain, read_only, directory, grant.insists_on_writing())
    };
    assert_eq!(of(&reader, 0x1), (1, 1, 1, false));
    assert_eq!(of(&reader, 0x0200_0000), (0x0012_00a9, 0x0012_00a9, 0x0012_00a9, false));
    let writer = within(&share, Rights::ALL);
    assert_eq!(of(&writer, 0x0200_0000), (0x001f_01ff, 0x001f_01f9, 0x001f_01ff, false));
    for writes in [2, 4] {
        assert_eq!(of(&writer, writes), (writes, writes, writes, true));
    }
    // Generic rights are those that they stand for.
    assert_eq!(of(&writer, 0x8000_0000).0, 0x0012_0089);
}

#[tokio::test]
async fn a_create_deletes_adds_and_overwrites_with_the_rights_for_it_alone() {
    let (writable, read_only) = (share(|_| {}), share(|it| it.read_only = true));
    use CreateDisposition as How;
    let none = CreateOptions::empty();
    let protected = NtStatus::MEDIA_WRITE_PROTECTED;
    for how in [How::SUPERSEDE, How::OPEN, How::OVERWRITE, How::OVERWRITE_IF] {
        for bit in single().chain([0]) {
            let granted = 0x001f_01ff & !bit;
            let desired = if bit == 1 { 0x80 } else { 1 };
            let of = |share| decided(&within(share, rights(granted)), desired, how, none).unwrap();
            let (grant, fixed) = (of(&writable), of(&read_only));
            let may =
                |needs: u32| if bit & needs == 0 { None } else { Some(NtStatus::ACCESS_DENIED) };
            assert_eq!(grant.may_add().err(), may(0x2), "{bit:x}");
            assert_eq!(grant.may_furnish().err(), may(0x2), "{bit:x}");
            let needs = if how == How::SUPERSEDE { 0x1_0112 } else { 0x112 };
            assert_eq!(grant.may_overwrite(how).err(), may(needs), "{bit:x} {how:?}");
            assert_eq!(fixed.may_add().err(), Some(protected));
            assert_eq!(fixed.may_furnish().err(), Some(protected));
            assert_eq!(fixed.may_overwrite(how).err(), Some(protected));
            assert_eq!(grant.overwrites(), how != How::OPEN);
        }
    }
    let deletes = |share, desired, granted| {
        let tree = within(share, rights(granted));
        let grant = decided(&tree, desired, How::OPEN, CreateOptions::DELETE_ON_CLOSE);
        grant.map(|grant| grant.deletes_on_close().is_some()).err()
    };
    let denied = Some(NtStatus::ACCESS_DENIED);
    assert_eq!(deletes(&writable, 0x1_0000, 0x001f_01ff), None);
    assert_eq!(deletes(&writable, 0x0200_0000, 0x001f_01ff), None, "whatever it may");
    assert_eq!(deletes(&writable, 0x0200_0000, 0x0012_00a9), denied);
    assert_eq!(deletes(&writable, 0x1, 0x001f_01ff), denied);
    assert_eq!(deletes(&read_only, 0x1_0000, 0x001f_01ff), denied);
}

#[tokio::test]
async fn a_handle_reads_and_writes_what_its_access_does() {
    let share = share(|_| {});
    let all = within(&share, Rights::ALL);
    let reader = within(&share, rights(0x0012_00a9));
    let none = CreateOptions::empty();
    let plain = decided(&all, 0x1, CreateDisposition::OPEN, none).unwrap();
    let less = decided(&reader, 0x1, CreateDisposition::OPEN, none).unwrap();
    for bit in single() {
        let mode = plain.open_mode(mask(bit));
        assert_eq!((mode.read, mode.write.is_some()), (bit & 0x21 != 0, bit & 0x6 != 0), "{bit:x}");
        assert!(less.open_mode(mask(bit)).write.is_none(), "{bit:x}");
    }
    let overwrites = decided(&all, 0x1, CreateDisposition::OVERWRITE, none).unwrap();
    assert!(overwrites.open_mode(mask(1)).write.is_some(), "its bytes are replaced");
}

#[tokio::test]
async fn an_open_comes_back_with_all_of_its_access_or_not_at_all() {
    let (writable, read_only) = (share(|_| {}), share(|it| it.read_only = true));
    let only = share(|it| it.readers = Some(vec!["alice".to_owned()]));
    let alice = Identity::user("alice");
    let of = |share: &Share, access, deletes| Regrant::decide(share, &alice, mask(access), deletes);
    let back = of(&writable, 0x1_0003, true).unwrap();
    assert_eq!(back.rights.mask(), mask(0x1_0003));
    assert!(back.mode.read && back.mode.write.is_some() && back.delete.is_some());
    let back = of(&writable, 0x1_0001, false).unwrap();
    assert!(back.mode.write.is_none() && back.delete.is_none());
    assert!(of(&writable, 0x3, true).is_none(), "it was not granted DELETE");
    assert!(of(&only, 0x3, false).is_none() && of(&only, 0x1, false).is_some());
    assert!(of(&read_only, 0x1_0001, true).is_none());
    assert!(Regrant::wish(&writable).is_some() && Regrant::wish(&read_only).is_none());
}
