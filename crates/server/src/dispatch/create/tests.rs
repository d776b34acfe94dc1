//! CREATE between two steps of somebody else.

use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::Duration;

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, DurableReconnectV2, DurableRequestV2, ImpersonationLevel, Lease, LeaseKey,
    LeaseState, LeaseVersion, OplockLevel, ShareAccess,
};
use smb::info::{FileAttributes, FileInfoClass, Rename, RenameFlags};
use smb::{Command, FileId, Guid, Name, NtStatus};
use tree::{MayWait, Reach, SharePath};

use super::attempt;
use super::enter::{self, Entered};
use super::outcome::Attempt;
use super::stream;
use super::take_over;
use super::wish::Wish;
use crate::access::MayRemove;
use crate::connections::Agreed;
use crate::push::tests::rig::Rig;
use crate::state::caching::{Caching, Intent};
use crate::state::lease::Owner;
use crate::state::node::Node;
use crate::state::node::StreamHold;
use crate::state::serial::OpenSerial;

const GUID: Guid = Guid([9; 16]);

fn durable() -> CreateRequestContext<'static> {
    let (timeout_ms, persistent) = (0, false);
    CreateRequestContext::DurableV2(DurableRequestV2 { timeout_ms, persistent, create_guid: GUID })
}

fn back(file_id: FileId) -> CreateRequestContext<'static> {
    let back = DurableReconnectV2 { file_id, create_guid: GUID, persistent: false };
    CreateRequestContext::DurableReconnectV2(back)
}

#[tokio::test]
async fn a_reconnect_looks_at_no_opens_but_the_one_it_names() {
    let mut rig = Rig::new();
    let waits = rig.open_with("f", 1, durable()).await.unwrap();
    rig.reconnect();
    let of_another = rig.open_with("g", 2, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let (session, other) = (Arc::clone(rig.session()), rig.log_on_beside());
    let of_another = session.open(of_another.id.persistent, of_another.id.volatile).unwrap();
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        // The opens of the session are locked meanwhile.
        let mut in_time = false;
        let added = other.add_open(|_| {
            held.send(()).unwrap();
            in_time = released.recv_timeout(Duration::from_secs(60)).is_ok();
            of_another
        });
        assert!(added.is_ok());
        in_time
    });
    is_held.recv().unwrap();
    let nothing = FileId { persistent: 1 << 40, volatile: 0 };
    let refused = rig.open_with("f", 1, back(nothing)).await;
    assert_eq!(refused.err(), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    rig.open_with("f", 1, back(waits.id)).await.unwrap();
    release.send(()).unwrap();
    assert!(holder.join().unwrap(), "the reconnects waited for opens they did not name");
}

#[tokio::test]
async fn whoever_ends_a_session_does_not_wait_for_its_opens() {
    let rig = Rig::new();
    let open = rig.open_with("f", 1, durable()).await.unwrap();
    let session = Arc::clone(rig.session());
    let node = Arc::clone(&session.open(open.id.persistent, open.id.volatile).unwrap().node);
    let busy = node.lock();
    let (ended, has_ended) = mpsc::channel();
    let (core, id) = (Arc::clone(&rig.core), session.id);
    std::thread::spawn(move || {
        core.dissolve_session(id);
        ended.send(()).unwrap();
    });
    let in_time = has_ended.recv_timeout(Duration::from_secs(60)).is_ok();
    drop(busy);
    assert!(in_time);
    session.work().settled().await;
    assert_eq!(rig.core.files.orphans.len(), 1);
}

/// To open the file `name` as the holder of lease `key`, and to delete it then.
fn request(name: &str, key: u8) -> CreateRequest<'_> {
    let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    let lease = Lease { key: LeaseKey([key; 16]), state, break_in_progress: false, version };
    CreateRequest {
        oplock_level: OplockLevel::LEASE,
        impersonation: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_GENERIC_READ | AccessMask::DELETE,
        attributes: FileAttributes::empty(),
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::DELETE_ON_CLOSE,
        name: Name::new(name).unwrap(),
        contexts: vec![CreateRequestContext::Lease(lease)],
    }
}

fn wish(rig: &Rig, name: &str, key: u8) -> Wish {
    wish_of(rig, request(name, key), CreateDisposition::OPEN)
}

fn wish_of(rig: &Rig, request: CreateRequest<'_>, disposition: CreateDisposition) -> Wish {
    let session = rig.session();
    let tree = &session.all_trees()[0];
    let serial = rig.core.files.next_serial();
    let request = CreateRequest { disposition, ..request };
    Wish::check(&request, tree, &session.agreed, &session.identity, serial).unwrap()
}

#[tokio::test]
async fn a_file_whose_last_open_closed_while_another_failed_is_deleted() {
    let rig = Rig::new();
    for is_deleted in [true, false] {
        let one = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
        let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
        let (path, seen) = (SharePath::parse("f").unwrap(), core.files.nodes.takings.seen());
        let found = share.locate(&path).unwrap().found.unwrap();
        let node = core.files.nodes.existing(found.key).unwrap();
        // The failing open's own wish to delete goes with it.
        let wish = wish(&rig, "f", 1);
        let sharing = wish.sharing(AccessMask::FILE_GENERIC_READ | AccessMask::DELETE);
        let record =
            enter::new_record(&core.files, &wish, &share, sharing, path, found.key).unwrap();
        let entered = enter::enter(&core.files, &node, &wish, record, &seen).unwrap();
        assert!(matches!(entered, Entered::Now(None)));
        if is_deleted {
            rig.set_info(one, FileInfoClass::DISPOSITION, &[1]).await.unwrap();
        }
        rig.close(one.id).await;
        assert!(rig.dir.path().join("f").exists(), "somebody opens it");
        // Whoever renames it is waited for, but not by this task.
        let path = SharePath::parse("f").unwrap();
        let renaming = core.files.nodes.makings.claim_file(&share, &path, found.key);
        let failed = attempt::conclude(
            &core.files,
            Arc::clone(&node),
            &wish,
            &found,
            Err(NtStatus::DISK_FULL),
        );
        assert_eq!(failed.err(), Some(NtStatus::DISK_FULL));
        assert!(rig.dir.path().join("f").exists());
        drop(renaming);
        node.removed().await;
        drop(node);
        assert_eq!(rig.dir.path().join("f").exists(), !is_deleted);
        while core.files.nodes.len() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_file_that_one_request_has_to_itself_is_not_opened() {
    let rig = Rig::new();
    let one = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let path = SharePath::parse("f").unwrap();
    let found = share.locate(&path).unwrap().found.unwrap();
    let node = core.files.nodes.existing(found.key).unwrap();
    let enter = || {
        let (wish, seen) = (wish(&rig, "f", 1), core.files.nodes.takings.seen());
        let sharing = wish.sharing(AccessMask::FILE_GENERIC_READ);
        let path = path.clone();
        let record = enter::new_record(&core.files, &wish, &share, sharing, path, found.key);
        enter::enter(&core.files, &node, &wish, record.unwrap(), &seen).unwrap()
    };
    let claimed = node.lock().begin_claim(&node);
    assert!(matches!(enter(), Entered::Wait(Attempt::Going(_))));
    drop(claimed);
    assert!(matches!(enter(), Entered::Now(None)));
    rig.close(one.id).await;
}

#[tokio::test]
async fn a_file_that_is_overwritten_is_kept_from_who_opens_and_who_maps_until_it_is_empty() {
    let rig = Rig::new();
    let one = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let path = SharePath::parse("f").unwrap();
    let found = share.locate(&path).unwrap().found.unwrap();
    let node = core.files.nodes.existing(found.key).unwrap();
    let enter = |disposition| {
        let request = CreateRequest { options: CreateOptions::empty(), ..request("f", 1) };
        let (wish, seen) = (wish_of(&rig, request, disposition), core.files.nodes.takings.seen());
        let sharing = wish.sharing(AccessMask::FILE_GENERIC_READ);
        let path = path.clone();
        let record = enter::new_record(&core.files, &wish, &share, sharing, path, found.key);
        enter::enter(&core.files, &node, &wish, record.unwrap(), &seen).unwrap()
    };
    let emptying = enter(CreateDisposition::OVERWRITE);
    assert!(matches!(emptying, Entered::Now(Some(_))));
    assert!(node.lock().resizing > 0, "a region would show the old length");
    assert!(matches!(enter(CreateDisposition::OPEN), Entered::Wait(Attempt::Going(_))));
    drop(emptying);
    assert_eq!(node.lock().resizing, 0);
    assert!(matches!(enter(CreateDisposition::OPEN), Entered::Now(None)));
    rig.close(one.id).await;
}

#[tokio::test]
async fn a_file_that_lost_its_name_after_it_was_found_is_not_opened() {
    let rig = Rig::new();
    let one = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let (path, seen) = (SharePath::parse("f").unwrap(), core.files.nodes.takings.seen());
    let found = share.locate(&path).unwrap().found.unwrap();
    rig.set_info(one, FileInfoClass::DISPOSITION, &[1]).await.unwrap();
    rig.close(one.id).await;
    let node = core.files.nodes.node(found.key);
    node.removed().await;
    assert!(!rig.dir.path().join("f").exists());
    let wish = wish(&rig, "f", 1);
    let sharing = wish.sharing(AccessMask::FILE_GENERIC_READ);
    let record = enter::new_record(&core.files, &wish, &share, sharing, path, found.key).unwrap();
    let entered = enter::enter(&core.files, &node, &wish, record, &seen).unwrap();
    assert!(matches!(entered, Entered::Wait(Attempt::Again)));
}

#[tokio::test]
async fn a_file_whose_last_open_closed_while_one_of_its_streams_failed_is_deleted() {
    let rig = Rig::new();
    let one = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let path = SharePath::parse("f").unwrap();
    let found = rig.core.files.shares()[0].locate(&path).unwrap().found.unwrap();
    let node = rig.core.files.nodes.existing(found.key).unwrap();
    let wish = wish(&rig, "f:s", 2);
    let sharing = wish.sharing(AccessMask::FILE_GENERIC_READ);
    node.lock().streams.push(StreamHold::new(wish.serial, sharing));
    rig.set_info(one, FileInfoClass::DISPOSITION, &[1]).await.unwrap();
    rig.close(one.id).await;
    assert!(rig.dir.path().join("f").exists(), "a stream of it is being opened");
    // Whoever renames it is waited for, but not by this task.
    let renaming =
        rig.core.files.nodes.makings.claim_file(&rig.core.files.shares()[0], &path, found.key);
    node.release_stream(wish.serial, &rig.core.files.put_off);
    assert!(rig.dir.path().join("f").exists());
    drop(renaming);
    node.removed().await;
    assert!(!rig.dir.path().join("f").exists());
}

#[tokio::test]
async fn no_stream_is_opened_while_its_file_is_emptied() {
    let rig = Rig::new();
    let one = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    rig.close(one.id).await;
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let path = SharePath::parse("f").unwrap();
    let found = share.locate(&path).unwrap().found.unwrap();
    let node = core.files.nodes.node(found.key);
    let seen = core.files.nodes.takings.seen();
    let empties = wish_of(&rig, request("f", 1), CreateDisposition::OVERWRITE);
    let sharing = empties.sharing(AccessMask::FILE_GENERIC_READ);
    let record =
        enter::new_record(&core.files, &empties, &share, sharing, path, found.key).unwrap();
    let entered = enter::enter(&core.files, &node, &empties, record, &seen).unwrap();
    assert!(matches!(entered, Entered::Now(Some(_))));
    let makes = wish_of(&rig, request("f:s", 2), CreateDisposition::CREATE);
    let attempt =
        || attempt::attempt(&core.files, &share, &makes, Reach::Everywhere, None).unwrap();
    assert!(matches!(attempt(), Attempt::Going(of) if Arc::ptr_eq(&of, &node)));
    drop(entered);
    assert!(matches!(attempt(), Attempt::Done(_)));
}

#[tokio::test]
async fn an_open_that_fails_takes_neither_the_lease_nor_the_file_from_others() {
    let rig = Rig::new();
    let one = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let session = Arc::clone(rig.session());
    let held = session.open(one.id.persistent, one.id.volatile).unwrap();
    while session.add_open(|_| Arc::clone(&held)).is_ok() {}
    let full = rig.ask(Command::CREATE, |out| request("f", 1).emit(out)).await;
    assert_eq!(full.err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
    let stranger = Owner::Open(OpenSerial(1 << 40));
    assert!(held.node.begin_breaks(stranger, Intent::Open).is_some(), "its holder has to be told");
    rig.close(one.id).await;
    assert!(rig.dir.path().join("f").exists());
}

#[tokio::test]
async fn a_create_that_waits_for_a_removal_lets_renames_go_on() {
    let rig = Rig::new();
    let nodes = &rig.core.files.nodes;
    // A name that is not there for a look-up, and there for whoever makes it: every attempt is sent back.
    let name = rig.dir.path().join("f");
    std::os::unix::fs::symlink("nothing", &name).unwrap();
    let renaming = nodes.takings.may_rename().await;
    let mut wanted = request("f", 1);
    (wanted.disposition, wanted.options) = (CreateDisposition::OPEN_IF, CreateOptions::empty());
    let create = rig.ask(Command::CREATE, |out| wanted.emit(out));
    let others = async {
        let is_held_up = async || {
            tokio::select! {
                biased;
                _ = nodes.takings.may_rename() => false,
                () = std::future::ready(()) => true,
            }
        };
        while !is_held_up().await {
            tokio::task::yield_now().await;
        }
        std::fs::remove_file(&name).unwrap();
        std::fs::write(&name, "").unwrap();
        let found =
            rig.core.files.shares()[0].locate(&SharePath::parse("f").unwrap()).unwrap().found;
        let node = nodes.node(found.unwrap().key);
        let claimed = Node::claim_victim(&node, |_, _| true).unwrap().unwrap();
        drop(renaming);
        let may_rename = nodes.takings.may_rename();
        let goes_on = tokio::time::timeout(Duration::from_secs(60), may_rename).await.is_ok();
        drop(claimed);
        goes_on
    };
    let (created, goes_on) = tokio::join!(create, others);
    assert!(goes_on, "the CREATE held names while it waited for a rename");
    created.unwrap();
}

#[tokio::test]
async fn handles_of_many_streams_are_asked_back_on_a_thread() {
    let rig = Rig::new();
    let file = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let held = rig.session().open(file.id.persistent, file.id.volatile).unwrap();
    let deletes = wish(&rig, "f", 1);
    let sharing = deletes.sharing(AccessMask::FILE_GENERIC_READ);
    let attempt = |reach| attempt::attempt(&core.files, &share, &deletes, reach, None).unwrap();
    let holds = (0..stream::HOLDS_INLINE_MAX + 1)
        .map(|_| StreamHold::new(core.files.next_serial(), sharing));
    held.node.lock().streams.extend(holds);
    for reach in [Reach::TopFileSystem, Reach::FewNames] {
        assert!(matches!(attempt(reach), Attempt::Farther));
    }
    assert!(matches!(attempt(Reach::Everywhere), Attempt::Done(_)));
}

#[tokio::test]
async fn an_application_that_takes_a_file_over_waits_for_the_log_where_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::with_log(&dir.path().join("opens"));
    let moves = CreateRequestContext::AppInstanceId(Guid([5; 16]));
    let kept = |number| {
        let create_guid = Guid([number; 16]);
        let kept = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid };
        CreateRequestContext::DurableV2(kept)
    };
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let log = || share.journal(MayWait::here()).unwrap();
    let mut serials = Vec::new();
    for number in 1..=20 {
        let how = CreateDisposition::OPEN_IF;
        let open = |request: &mut CreateRequest<'_>| request.contexts.push(moves.clone());
        let pdu = rig.create_as("f", 1, how, kept(number), |asked, _, _| open(asked)).await;
        serials.push(CreateResponse::parse(&pdu.unwrap()).unwrap().file_id.persistent);
    }
    assert!(serials.iter().all(|serial| log().has(*serial)));
    // The application is at another client now.
    let (session, next) = (rig.session(), core.files.next_serial());
    let there = Agreed { client_guid: [2; 16], ..session.agreed };
    let mut again = request("f", 2);
    again.options = CreateOptions::empty();
    again.contexts.extend([kept(99), moves.clone()]);
    let tree = &session.all_trees()[0];
    let wish = Wish::check(&again, tree, &there, &session.identity, next).unwrap();
    let attempt = |reach, may_wait| attempt::attempt(&core.files, &share, &wish, reach, may_wait);
    let on_the_spot = share.reach_on_the_spot().unwrap();
    assert!(matches!(attempt(on_the_spot, None), Ok(Attempt::Farther)));
    assert!(serials.iter().all(|serial| log().has(*serial)));
    let syncs = log().syncs();
    assert!(matches!(attempt(on_the_spot.farther(), Some(MayWait::here())), Ok(Attempt::Again)));
    assert!(!serials.iter().any(|serial| log().has(*serial)));
    assert_eq!(log().syncs(), syncs + 1, "however many it takes over");
}

#[tokio::test]
async fn an_application_that_takes_a_file_over_twice_side_by_side_gets_it_twice() {
    let rig = Rig::new();
    let moves = CreateRequestContext::AppInstanceId(Guid([5; 16]));
    let how = CreateDisposition::OPEN_IF;
    let open = |request: &mut CreateRequest<'_>| request.contexts.push(moves.clone());
    let pdu = rig.create_as("f", 1, how, durable(), |asked, _, _| open(asked)).await.unwrap();
    let taken = CreateResponse::parse(&pdu).unwrap().file_id;
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let session = rig.session();
    let there = Agreed { client_guid: [2; 16], ..session.agreed };
    let mut again = request("f", 2);
    again.options = CreateOptions::empty();
    again.contexts.extend([durable(), moves.clone()]);
    let (tree, next) = (&session.all_trees()[0], core.files.next_serial());
    let wish = Wish::check(&again, tree, &there, &session.identity, next).unwrap();
    let attempt = || {
        let may_wait = Some(MayWait::here());
        attempt::attempt(&core.files, &share, &wish, Reach::Everywhere, may_wait)
    };
    // The first one has taken it, and waits for the log.
    let old = session.open(taken.persistent, taken.volatile).unwrap();
    assert!(old.wrest());
    let Ok(Attempt::TakenByOthers { node, serials }) = attempt() else {
        panic!("it is refused when it has looked often enough")
    };
    let mut settled = std::pin::pin!(take_over::settled(&core.files, &node, &serials));
    let mut look = || settled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(!look());
    old.close(&core.files, MayWait::here()).unwrap();
    assert!(look());
    assert!(matches!(attempt(), Ok(Attempt::Done(_))));
    // A third one meets the second, whose CREATE goes on.
    let other = rig.open_with("other", 3, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let other = session.open(other.id.persistent, other.id.volatile).unwrap();
    let last = core.files.next_serial();
    let elsewhere = Agreed { client_guid: [4; 16], ..session.agreed };
    let wish = Wish::check(&again, tree, &elsewhere, &session.identity, last).unwrap();
    let attempt = || attempt::attempt(&core.files, &share, &wish, Reach::Everywhere, None);
    let Ok(Attempt::TakenByOthers { node, serials }) = attempt() else {
        panic!("refused for an open that it may take once it is there")
    };
    assert_eq!(serials, [next]);
    let comes = async {
        tokio::task::yield_now().await;
        node.lock().record_mut(next).unwrap().open = Arc::downgrade(&other);
        node.note_come();
    };
    tokio::join!(take_over::settled(&core.files, &node, &serials), comes);
}

/// To open the stream `name` with nothing cached, making it.
fn makes_stream(name: &str) -> CreateRequest<'_> {
    CreateRequest {
        oplock_level: OplockLevel::NONE,
        disposition: CreateDisposition::CREATE,
        options: CreateOptions::empty(),
        contexts: Vec::new(),
        ..request(name, 0)
    }
}

#[tokio::test]
async fn a_stream_that_is_opened_while_a_rename_waits_keeps_its_file() {
    let rig = Rig::new();
    let file = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let held = rig.core.files.nodes.takings.hold_names().await;
    let mut to = Vec::new();
    Rename { flags: RenameFlags::empty(), name: Name::new("g").unwrap() }.emit(&mut to);
    let rename = rig.set_info(file, FileInfoClass::RENAME, &to);
    let others = async {
        rig.ask(Command::CREATE, |out| makes_stream("f:s").emit(out)).await.unwrap();
        drop(held);
    };
    let (renamed, ()) = tokio::join!(rename, others);
    assert_eq!(renamed, Err(NtStatus::ACCESS_DENIED));
    assert!(rig.dir.path().join("f").exists());
}

#[tokio::test]
async fn no_stream_is_opened_while_its_file_is_renamed() {
    let rig = Rig::new();
    rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
    let (core, share) = (&rig.core, Arc::clone(&rig.core.files.shares()[0]));
    let path = SharePath::parse("f").unwrap();
    let found = share.locate(&path).unwrap().found.unwrap();
    for disposition in [CreateDisposition::CREATE, CreateDisposition::OPEN] {
        let claimed = core.files.nodes.makings.claim_file(&share, &path, found.key);
        let opens = wish_of(&rig, makes_stream("f:s"), disposition);
        let attempt =
            || attempt::attempt(&core.files, &share, &opens, Reach::Everywhere, None).unwrap();
        assert!(matches!(attempt(), Attempt::Making { .. }));
        drop(claimed);
        assert!(matches!(attempt(), Attempt::Done(_)));
    }
}

/// To open `name` as the holder of lease `key`, as an application does that deletes nothing.
fn caches(name: &str, key: u8) -> CreateRequest<'_> {
    CreateRequest { options: CreateOptions::empty(), ..request(name, key) }
}

/// Opens `f`, asks for its deletion when a CREATE of `name` that wants to cache its handle has opened that and was granted nothing
/// yet, and returns what that CREATE then holds, before and after the break that its client is asked for.
async fn asked_to_go_before_the_grant(name: &str) -> (Caching, bool) {
    let rig = Rig::new();
    std::fs::write(rig.dir.path().join("f"), "bytes").unwrap();
    if name != "f" {
        rig.ask(Command::CREATE, |out| makes_stream(name).emit(out)).await.unwrap();
    }
    let uncached =
        CreateRequest { oplock_level: OplockLevel::NONE, contexts: Vec::new(), ..caches("f", 0) };
    let pdu = rig.ask(Command::CREATE, |out| uncached.emit(out)).await.unwrap();
    let id = CreateResponse::parse(&pdu).unwrap().file_id;
    let session = Arc::clone(rig.session());
    let deletes = session.open(id.persistent, id.volatile).unwrap();
    let opened = Arc::clone(&deletes.node);
    let opens = |node: &Node| {
        let state = node.lock();
        state.opens.len() + state.streams.len()
    };
    let before = opens(&opened);
    let (held, is_held) = mpsc::channel();
    let asks = std::thread::spawn(move || {
        // The opens of the session are locked meanwhile, so the CREATE cannot be granted anything.
        let added = session.add_open(|_| {
            held.send(()).unwrap();
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while opens(&opened) == before && std::time::Instant::now() < deadline {
                std::thread::yield_now();
            }
            opened.lock().restore_wish(deletes.serial, MayRemove::TEST);
            deletes
        });
        assert!(added.is_ok());
    });
    is_held.recv().unwrap();
    let pdu = rig.ask(Command::CREATE, |out| caches(name, 7).emit(out)).await.unwrap();
    asks.join().unwrap();
    let id = CreateResponse::parse(&pdu).unwrap().file_id;
    let open = rig.session().open(id.persistent, id.volatile).unwrap();
    let state = open.node.lock();
    (state.leases.held(open.owner), state.leases.owed(open.owner).is_some())
}

#[tokio::test]
async fn a_handle_cached_of_a_file_that_is_to_go_is_asked_back() {
    for name in ["f", "f:s"] {
        let (held, is_asked) = asked_to_go_before_the_grant(name).await;
        assert!(held.contains(Caching::HANDLE), "{name}: until the answer");
        assert!(is_asked, "{name}: the name would stay until the client closes the handle");
    }
}

#[tokio::test]
async fn a_close_that_lets_a_file_go_waits_for_its_rename_on_a_thread() {
    let rig = Rig::new();
    for (name, closed_last) in [("f", "f"), ("g", "g:s")] {
        let path = SharePath::parse(name).unwrap();
        std::fs::write(rig.dir.path().join(name), "bytes").unwrap();
        let opens = async |name| {
            let request = CreateRequest {
                oplock_level: OplockLevel::NONE,
                disposition: CreateDisposition::OPEN_IF,
                contexts: Vec::new(),
                ..caches(name, 0)
            };
            let pdu = rig.ask(Command::CREATE, |out| request.emit(out)).await.unwrap();
            CreateResponse::parse(&pdu).unwrap().file_id
        };
        let (deletes, last) = (opens(name).await, opens(closed_last).await);
        let deletes = rig.session().open(deletes.persistent, deletes.volatile).unwrap();
        deletes.node.lock().restore_wish(deletes.serial, MayRemove::TEST);
        rig.close(FileId { persistent: deletes.serial.0, volatile: deletes.volatile }).await;
        let renaming = rig.core.files.nodes.makings.claim_file(
            &rig.core.files.shares()[0],
            &path,
            deletes.node.key(),
        );
        let renamed = async {
            tokio::task::yield_now().await;
            assert!(rig.dir.path().join(name).exists());
            drop(renaming);
        };
        // On one thread: a CLOSE that waited on it would wait for ever.
        tokio::join!(rig.close(last), renamed);
        assert!(!rig.dir.path().join(name).exists(), "{closed_last}");
    }
}
