//! Registrations against everything that ends them, with an engine whose drain the test controls.

/// Drives `work` until it waits for something, and fails if it does not.
macro_rules! assert_waits {
    ($work:expr) => {{
        let mut waited = false;
        tokio::select! {
            biased;
            _ = &mut $work => {}
            () = settle() => waited = true,
        }
        assert!(waited, "it had to wait");
    }};
}

mod device;
mod durable;
mod engine;
mod offered;
mod races;
pub(crate) mod rig;
mod space;
mod volume;

use crate::access::{Identity, MayAdd};
use std::fs::FileTimes;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use smb::info::{self, FileInfoClass};
use smb::push::{
    MapResponse, RecallReason, RecallRequest, RecallResponse, RegistrationId, UnmapRequest,
    WriteUnderLease,
};
use smb::{Command, ControlCode, FileTime, LeaseBreakAck, Name, NtStatus, create};
use tree::{DosAttributes, SharePath};

use self::rig::{LEN, Opened, Rig};
use super::Region;
use crate::state::caching::Intent;
use crate::state::lease::Owner;
use crate::state::node::Node;
use crate::state::range::LockRange;
use crate::state::serial::OpenSerial;
use crate::upkeep::recall_expired;

const PAGE: u64 = 4096;

async fn unmap(rig: &Rig, open: Opened, mapped: &MapResponse) -> Result<(), NtStatus> {
    let (registration, generation) = (mapped.registration, mapped.generation);
    let request = UnmapRequest { registration, generation };
    let code = ControlCode::UNMAP_REMOTE_REGION;
    rig.control(open, code, |out| request.emit(out), 0).await.map(drop)
}

async fn write_under_lease(
    rig: &Rig,
    open: Opened,
    epoch: u16,
    data: &[u8],
) -> Result<(), NtStatus> {
    let request = WriteUnderLease { file_offset: 8, epoch, data };
    let code = ControlCode::WRITE_UNDER_LEASE;
    rig.control(open, code, |out| request.emit(out), 0).await.map(drop)
}

async fn wait(rig: &Rig, open: Opened, room: u32) -> Result<Vec<RegistrationId>, NtStatus> {
    let code = ControlCode::WAIT_REGION_RECALL;
    let output = rig.control(open, code, |out| RecallRequest.emit(out), room).await?;
    let recalls = RecallResponse::parse(&output).unwrap().recalls;
    Ok(recalls.into_iter().map(|recall| recall.registration).collect())
}

fn node(rig: &Rig, open: Opened) -> Arc<Node> {
    let session = rig.core.sessions.get(7).unwrap();
    Arc::clone(&session.open(open.id.persistent, open.id.volatile).unwrap().node)
}

async fn recall(rig: &Rig, open: Opened) {
    crate::push::recall(&rig.core.push, &node(rig, open), RecallReason::REMAP, |_| true).await;
}

/// Runs a test on one thread, with one more for work that may wait.
fn run<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(test)
}

/// Runs every task that can run, and all work that may wait, of a test in [`run`]: work that is neither done nor waits for
/// an event would look as if it waited.
async fn settle() {
    for _ in 0..20 {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        // The one thread has done what it was asked before.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

#[test]
fn a_recall_stays_unreported_until_a_wait_has_room_for_it() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        let one = rig.map(open, 0, PAGE).await.unwrap().registration;
        let two = rig.map(open, PAGE, PAGE).await.unwrap().registration;
        let mut recall = Box::pin(recall(&rig, open));
        assert_waits!(recall);
        assert_eq!(wait(&rig, open, 16 + 23).await, Err(NtStatus::BUFFER_TOO_SMALL));
        let mut told = wait(&rig, open, 16 + 24).await.unwrap();
        assert_eq!(told.len(), 1);
        told.extend(wait(&rig, open, 4096).await.unwrap());
        told.sort();
        assert_eq!(told, [one, two]);
    });
}

#[tokio::test]
async fn a_file_that_a_client_pushes_to_has_no_set_id_bits() {
    let rig = Rig::new();
    let path = rig.dir.path().join("f");
    std::fs::write(&path, vec![0; usize::try_from(LEN).unwrap()]).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).unwrap();
    let open = rig.open("f", 1).await;
    rig.map(open, 0, PAGE).await.unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
}

#[tokio::test]
async fn one_open_has_a_bounded_number_of_regions() {
    let rig = Rig::new();
    let (open, other) = (rig.open("f", 1).await, rig.open("g", 2).await);
    let mut mapped = Vec::new();
    let refused = loop {
        match rig.map(open, 0, PAGE).await {
            Ok(region) => mapped.push(region),
            Err(status) => break status,
        }
    };
    let max = rig.core.push.policy.regions_per_open_max;
    assert_eq!((refused, mapped.len()), (NtStatus::INSUFFICIENT_RESOURCES, max as usize));
    rig.map(other, 0, PAGE).await.unwrap();
    unmap(&rig, open, &mapped[0]).await.unwrap();
    rig.map(open, 0, PAGE).await.unwrap();
}

#[test]
fn a_wait_without_room_does_not_end_an_earlier_wait() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        let mapped = rig.map(open, 0, PAGE).await.unwrap();
        let mut first = Box::pin(wait(&rig, open, 4096));
        assert_waits!(first);
        assert_eq!(wait(&rig, open, 0).await, Err(NtStatus::BUFFER_TOO_SMALL));
        let mut recall = Box::pin(recall(&rig, open));
        assert_waits!(recall);
        assert_eq!(first.await, Ok(vec![mapped.registration]));
    });
}

#[test]
fn no_region_is_mapped_while_its_file_is_resized() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        let other = rig.open("f", 1).await;
        let mapped = rig.map(open, LEN - PAGE, PAGE).await.unwrap();
        let mut cut = Box::pin(rig.set_end(other, PAGE));
        assert_waits!(cut);
        // The request waits for the region it found; it would not wait for a region mapped now.
        let mut late = Box::pin(rig.map(open, LEN - 2 * PAGE, PAGE));
        assert_waits!(late);
        let mut kept = Box::pin(rig.map(open, 0, PAGE));
        assert_waits!(kept);
        unmap(&rig, open, &mapped).await.unwrap();
        cut.await.unwrap();
        assert_eq!(rig.size("f"), PAGE);
        assert_eq!(late.await.err(), Some(NtStatus::INVALID_PARAMETER));
        kept.await.unwrap();
        assert_eq!(rig.registered(), 1);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_region_outlives_the_bytes_it_covers() {
    let rig = Arc::new(Rig::new());
    let (mapper, cutter) = (rig.open("f", 1).await, rig.open("f", 1).await);
    let cuts = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move {
            for _ in 0..300 {
                rig.set_end(cutter, PAGE).await.unwrap();
                rig.set_end(cutter, LEN).await.unwrap();
                let emptied = rig.overwrite("f", 1).await;
                rig.set_end(cutter, LEN).await.unwrap();
                rig.close(emptied).await;
            }
        }
    });
    while !cuts.is_finished() {
        let Ok(mapped) = rig.map(mapper, LEN - PAGE, PAGE).await else { continue };
        // A request that truncates the file waits: the file is whole until the region ends.
        assert_eq!(rig.size("f"), LEN);
        unmap(&rig, mapper, &mapped).await.unwrap();
    }
    cuts.await.unwrap();
    assert_eq!(rig.registered(), 0);
}

#[test]
fn a_returned_lease_ends_the_regions_mapped_under_it() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        let mapped = rig.map(open, 0, PAGE).await.unwrap();
        let node = node(&rig, open);
        let user = Identity::user("user").mark();
        let stranger = Owner::Lease { client: [9; 16], key: [9; 16], user };
        assert!(node.begin_breaks(stranger, Intent::Open).is_some(), "an answer is owed");
        rig.engine.hold();
        let state = create::LeaseState::READ | create::LeaseState::HANDLE;
        let ack = LeaseBreakAck { lease_key: create::LeaseKey([1; 16]), state };
        let mut answered = Box::pin(rig.ask(Command::OPLOCK_BREAK, |out| ack.emit(out)));
        assert_waits!(answered);
        assert_eq!(rig.registered(), 0, "the tag is void at once");
        rig.engine.release();
        answered.await.unwrap();
        assert_eq!(rig.core.push.counts().0, 0);
        assert!(!node.lock().is_obstructed());
        assert_eq!(unmap(&rig, open, &mapped).await, Err(NtStatus::NOT_FOUND));
        assert_eq!(rig.map(open, 0, PAGE).await.err(), Some(NtStatus::OPLOCK_NOT_GRANTED));
    });
}

#[tokio::test]
async fn bytes_are_written_under_a_lease_that_is_whole_since_then_and_not_otherwise() {
    let gone = Err(NtStatus::INVALID_OPLOCK_PROTOCOL);
    let rig = Rig::with_grace(Duration::ZERO);
    let open = rig.open("f", 1).await;
    assert_eq!(write_under_lease(&rig, open, 1, b"again").await, Ok(()));
    let bytes = || std::fs::read(rig.dir.path().join("f")).unwrap()[8..13].to_vec();
    assert_eq!(bytes(), b"again");
    for other in [0, 2] {
        assert_eq!(write_under_lease(&rig, open, other, b"older").await, gone, "epoch {other}");
    }
    // Another client wants the file, and waits: whether or not this one has heard of it, it has lost nothing.
    let stranger =
        Owner::Lease { client: [2; 16], key: [2; 16], user: Identity::user("other").mark() };
    assert!(node(&rig, open).begin_breaks(stranger, Intent::Open).is_some());
    assert_eq!(write_under_lease(&rig, open, 1, b"still").await, Ok(()));
    assert_eq!(write_under_lease(&rig, open, 2, b"older").await, gone);
    node(&rig, open).lock().expire_breaks(Instant::now() + Duration::from_secs(60));
    for epoch in 0..4 {
        assert_eq!(write_under_lease(&rig, open, epoch, b"older").await, gone, "epoch {epoch}");
    }
    assert_eq!(bytes(), b"still");
}

#[test]
fn nobody_else_opens_a_file_while_bytes_are_being_written_under_its_lease() {
    run(async {
        let rig = Rig::with_grace(Duration::ZERO);
        let open = rig.open("f", 1).await;
        let session = rig.core.sessions.get(7).unwrap();
        let held = session.open(open.id.persistent, open.id.volatile).unwrap();
        let (change, node) = (held.change(LockRange::WHOLE), node(&rig, open));
        let admitted = node.begin_change_under(change, 1, |_| true).unwrap().unwrap();
        // The holder is silent, and its time is over.
        let _ = node.begin_breaks(Owner::Open(OpenSerial(77)), Intent::Open);
        node.lock().expire_breaks(Instant::now() + Duration::from_secs(60));
        assert!(node.begin_change_under(change, 1, |_| true).is_none(), "the lease is gone");
        let mut other = Box::pin(rig.overwrite("f", 2));
        assert_waits!(other);
        drop(admitted);
        other.await;
    });
}

#[tokio::test]
async fn pushed_bytes_move_the_time_of_last_write_and_a_mere_mapping_does_not() {
    let rig = Rig::new();
    let open = rig.open("f", 1).await;
    let file = std::fs::File::open(rig.dir.path().join("f")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let modified = || file.metadata().unwrap().modified().unwrap();
    file.set_times(FileTimes::new().set_modified(old)).unwrap();
    let mapped = rig.map(open, 0, PAGE).await.unwrap();
    crate::push::settle_times(&node(&rig, open));
    unmap(&rig, open, &mapped).await.unwrap();
    assert_eq!(modified(), old, "nothing was written");

    let mapped = rig.map(open, 0, PAGE).await.unwrap();
    // The first store of a mapping may fault and move the time; later stores do not.
    rig.engine.place(0, b"first");
    file.set_times(FileTimes::new().set_modified(old)).unwrap();
    rig.engine.place(0, b"pushed");
    assert_eq!(modified(), old, "memory moves no time");
    crate::push::settle_times(&node(&rig, open));
    assert!(modified() > old, "whoever is shown the time sees it moved");

    file.set_times(FileTimes::new().set_modified(old)).unwrap();
    rig.engine.place(0, b"more");
    unmap(&rig, open, &mapped).await.unwrap();
    assert!(modified() > old, "and so does whoever waits for the end");
}

#[tokio::test]
async fn a_time_set_by_the_client_survives_earlier_pushed_bytes() {
    let rig = Rig::new();
    let open = rig.open("f", 1).await;
    let mapped = rig.map(open, 0, PAGE).await.unwrap();
    rig.engine.place(0, b"pushed");
    let wanted = FileTime::from_unix_ns(1_000_000_000_000_000_000);
    let basic = info::Basic {
        creation_time: FileTime::ZERO,
        last_access_time: FileTime::ZERO,
        last_write_time: wanted,
        change_time: FileTime::ZERO,
        attributes: info::FileAttributes::empty(),
    };
    let mut buffer = Vec::new();
    basic.emit(&mut buffer);
    rig.set_info(open, FileInfoClass::BASIC, &buffer).await.unwrap();
    unmap(&rig, open, &mapped).await.unwrap();
    let modified = std::fs::metadata(rig.dir.path().join("f")).unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
}

#[test]
fn a_recall_after_unmap_or_close_asks_no_client() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        let mapped = rig.map(open, 0, PAGE).await.unwrap();
        unmap(&rig, open, &mapped).await.unwrap();
        let mut waiting = Box::pin(wait(&rig, open, 4096));
        assert_waits!(waiting);
        recall(&rig, open).await;
        assert_waits!(waiting);
        rig.map(open, 0, PAGE).await.unwrap();
        let node = node(&rig, open);
        rig.close(open.id).await;
        assert_eq!(waiting.await, Err(NtStatus::FILE_CLOSED));
        assert_eq!((rig.registered(), rig.core.push.counts().0), (0, 0));
        crate::push::recall(&rig.core.push, &node, RecallReason::REMAP, |_| true).await;
    });
}

#[test]
fn a_region_recalled_twice_is_reported_once_and_ends_once() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        let mapped = rig.map(open, 0, PAGE).await.unwrap();
        let mut first = Box::pin(recall(&rig, open));
        let mut second = Box::pin(recall(&rig, open));
        assert_waits!(first);
        assert_waits!(second);
        assert_eq!(wait(&rig, open, 4096).await, Ok(vec![mapped.registration]));
        let mut again = Box::pin(wait(&rig, open, 4096));
        assert_waits!(again);
        unmap(&rig, open, &mapped).await.unwrap();
        tokio::join!(first, second);
        assert_waits!(again);
    });
}

#[test]
fn a_region_is_revoked_after_its_operations_have_ended() {
    run(async {
        let rig = Rig::with_grace(Duration::ZERO);
        let open = rig.open("f", 1).await;
        let mapped = rig.map(open, 0, PAGE).await.unwrap();
        let region = Region::all_of(&node(&rig, open)).remove(0);
        // A commit by control, and an operation on the engine.
        let committing = region.begin_commit().unwrap();
        rig.engine.hold();
        let mut recall = Box::pin(recall(&rig, open));
        while rig.registered() > 0 {
            assert_waits!(recall);
        }
        assert!(region.begin_commit().is_none(), "nothing new begins");
        assert_waits!(recall);
        rig.engine.release();
        assert_waits!(recall);
        drop(committing);
        recall.await;
        unmap(&rig, open, &mapped).await.expect("a revoked one is there until it is unmapped");
        assert_eq!(unmap(&rig, open, &mapped).await, Err(NtStatus::NOT_FOUND));
    });
}

#[test]
fn the_grace_ends_although_the_asking_request_gave_up() {
    run(async {
        let rig = Rig::with_grace(Duration::from_millis(1));
        let open = rig.open("f", 1).await;
        rig.map(open, 0, PAGE).await.unwrap();
        let region = Region::all_of(&node(&rig, open)).remove(0);
        // However fast the grace ends, the recall waits for what the engine has under way.
        rig.engine.hold();
        let mut recall = Box::pin(recall(&rig, open));
        assert_waits!(recall);
        drop(recall);
        rig.engine.release();
        region.wait_ended().await;
        assert_eq!(rig.registered(), 0);
    });
}

#[test]
fn regions_of_a_session_with_an_expired_ticket_are_recalled() {
    run(async {
        let rig = Rig::with_grace(Duration::from_millis(1));
        let open = rig.open("f", 1).await;
        rig.map(open, 0, PAGE).await.unwrap();
        let session = rig.core.sessions.get(7).unwrap();
        session.set_expiry(Some(FileTime(u64::MAX - 1)));
        recall_expired(Arc::clone(&rig.core)).await;
        assert_eq!(rig.registered(), 1, "there is time left");

        let code = ControlCode::WAIT_REGION_RECALL;
        let mut told = Box::pin(rig.control(open, code, |out| RecallRequest.emit(out), 4096));
        assert_waits!(told);
        session.set_expiry(Some(FileTime(1)));
        recall_expired(Arc::clone(&rig.core)).await;
        assert_eq!(rig.registered(), 0);
        let recalls = RecallResponse::parse(&told.await.unwrap()).unwrap().recalls;
        assert_eq!(recalls[0].reason, RecallReason::SESSION_EXPIRED);
        // The region is not recalled again, and without a ticket no region is mapped.
        recall_expired(Arc::clone(&rig.core)).await;
        let refused = rig.map(open, PAGE, PAGE).await.err();
        assert_eq!(refused, Some(NtStatus::NETWORK_SESSION_EXPIRED));
        session.set_expiry(None);
        rig.map(open, PAGE, PAGE).await.unwrap();
    });
}

#[test]
fn a_server_that_stops_recalls_every_region_and_maps_none() {
    run(async {
        let rig = Rig::new();
        let (one, two) = (rig.open("one", 1).await, rig.open("two", 2).await);
        let mapped = [rig.map(one, 0, PAGE).await.unwrap(), rig.map(two, 0, PAGE).await.unwrap()];
        let mut stopped = Box::pin(crate::push::stop(&rig.core.push, Duration::from_secs(3600)));
        assert_waits!(stopped);
        for (open, mapped) in [one, two].into_iter().zip(&mapped) {
            let code = ControlCode::WAIT_REGION_RECALL;
            let output =
                rig.control(open, code, |out| RecallRequest.emit(out), 4096).await.unwrap();
            assert_eq!(
                RecallResponse::parse(&output).unwrap().recalls[0].reason,
                RecallReason::SHUTDOWN
            );
            assert_waits!(stopped);
            unmap(&rig, open, mapped).await.unwrap();
        }
        stopped.await;
        assert_eq!(rig.map(one, 0, PAGE).await.err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
    });
}

#[test]
fn a_server_that_stops_waits_at_most_its_shutdown_grace() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        rig.map(open, 0, PAGE).await.unwrap();
        let mut recall = Box::pin(recall(&rig, open));
        assert_waits!(recall);
        crate::push::stop(&rig.core.push, Duration::from_millis(1)).await;
        recall.await;
        assert_eq!(rig.registered(), 0);
        // Nor does it wait for a device that hangs.
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        rig.map(open, 0, PAGE).await.unwrap();
        rig.engine.hold();
        crate::push::stop(&rig.core.push, Duration::from_millis(1)).await;
    });
}

#[tokio::test]
async fn a_mapped_file_keeps_its_name_through_a_crash() {
    let rig = Rig::on("/var/tmp", Duration::from_secs(3600));
    let share = Arc::clone(&rig.core.files.shares()[0]);
    let file =
        share.create_file(MayAdd::TEST, &SharePath::parse("f").unwrap(), DosAttributes::default());
    file.unwrap().set_size(LEN).unwrap();
    let open = rig.open("f", 1).await;
    rig.map(open, 0, PAGE).await.unwrap();
    assert_eq!(share.directories_synced(), 1);
    rig.map(open, PAGE, PAGE).await.unwrap();
    assert_eq!(share.directories_synced(), 1, "nothing changed since");
    let new = info::Rename { flags: info::RenameFlags::empty(), name: Name::new("g").unwrap() };
    let mut buffer = Vec::new();
    new.emit(&mut buffer);
    rig.set_info(open, FileInfoClass::RENAME, &buffer).await.unwrap();
    assert_eq!(share.directories_synced(), 2, "before the answer");
}
