//! Deletions of a directory between two steps of somebody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smb::NtStatus;
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
    ImpersonationLevel, OplockLevel, ShareAccess,
};
use smb::info::FileAttributes;
use smb::{Command, Name};
use tree::{MayWait, SharePath};

use super::{ask_to_go, change_wish};
use crate::access::MayRemove;
use crate::push::tests::rig::Rig;
use crate::state::Open;
use crate::state::making::{Makes, Spot};

const LEAVE: MayRemove = MayRemove::TEST;

/// The directory `d`, opened to be deleted.
async fn open(rig: &Rig) -> Arc<Open> {
    let request = CreateRequest {
        oplock_level: OplockLevel::NONE,
        impersonation: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_GENERIC_READ | AccessMask::DELETE,
        attributes: FileAttributes::empty(),
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        disposition: CreateDisposition::OPEN_IF,
        options: CreateOptions::DIRECTORY_FILE,
        name: Name::new("d").unwrap(),
        contexts: Vec::new(),
    };
    let opened = rig.ask(Command::CREATE, |out| request.emit(out)).await.unwrap();
    let id = CreateResponse::parse(&opened).unwrap().file_id;
    rig.session().open(id.persistent, id.volatile).unwrap()
}

#[tokio::test]
async fn a_deletion_that_is_refused_leaves_other_handles_their_own() {
    const NOT_EMPTY: Result<(), NtStatus> = Err(NtStatus::DIRECTORY_NOT_EMPTY);
    let rig = Rig::new();
    let is_there = || rig.dir.path().join("d").exists();
    // A file comes and goes: one of them finds it, the other does not.
    for is_asked_first in [true, false] {
        let (one, other) = (open(&rig).await, open(&rig).await);
        if is_asked_first {
            let refused = ask_to_go(&one, LEAVE, None, || {
                ask_to_go(&other, LEAVE, None, || Ok(true)).unwrap();
                Ok(false)
            });
            assert_eq!(refused, NOT_EMPTY);
        } else {
            let granted = ask_to_go(&other, LEAVE, None, || {
                assert_eq!(ask_to_go(&one, LEAVE, None, || Ok(false)), NOT_EMPTY);
                Ok(true)
            });
            assert_eq!(granted, Ok(()));
        }
        one.close(&rig.core.files, MayWait::here()).unwrap();
        assert!(is_there(), "another handle is open");
        other.close(&rig.core.files, MayWait::here()).unwrap();
        assert!(!is_there(), "asked first: {is_asked_first}");
    }
}

#[tokio::test]
async fn a_deletion_refused_to_all_who_ask_is_nobodys() {
    let rig = Rig::new();
    let (one, other) = (open(&rig).await, open(&rig).await);
    let refused = ask_to_go(&one, LEAVE, None, || {
        ask_to_go(&other, LEAVE, None, || Ok(false)).unwrap_err();
        // Nor that of a handle that has gone meanwhile.
        one.close(&rig.core.files, MayWait::here()).unwrap();
        Ok(false)
    });
    assert_eq!(refused, Err(NtStatus::DIRECTORY_NOT_EMPTY));
    other.close(&rig.core.files, MayWait::here()).unwrap();
    assert!(rig.dir.path().join("d").exists());
}

#[tokio::test]
async fn a_deletion_waits_for_a_file_made_by_the_directorys_next_name() {
    let rig = Rig::new();
    let open = open(&rig).await;
    // A rename is on the disk, and not noted yet.
    std::fs::rename(rig.dir.path().join("d"), rig.dir.path().join("e")).unwrap();
    let (share, path) =
        (Arc::clone(&rig.core.files.shares()[0]), SharePath::parse("e\\f").unwrap());
    let spot = Spot::of(&share.new_name(&path).unwrap());
    let claim = rig.core.files.nodes.makings.claim(spot, &share, &path, Makes::File).unwrap();
    let is_made = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let asked = change_wish(&open, Some(LEAVE), None);
            assert!(is_made.load(Ordering::SeqCst), "it has not waited");
            asked
        });
        while open.node.lock().delete_pending.is_empty() {
            std::thread::yield_now();
        }
        // Whoever does not wait is through by then, more often than not.
        (0..100).for_each(|_| std::thread::yield_now());
        std::fs::write(rig.dir.path().join("e/f"), "").unwrap();
        is_made.store(true, Ordering::SeqCst);
        drop(claim);
        assert_eq!(asked.join().unwrap(), Err(NtStatus::DIRECTORY_NOT_EMPTY));
    });
}
