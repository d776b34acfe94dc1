//! MAP beside requests that change the file, close its handle, or end its connection.

use std::sync::mpsc;

use remote::host::{Gate as _, PushConnection};
use smb::fsctl::ZeroData;
use smb::{ControlCode, NtStatus};

use super::rig::{LEN, Rig};
use super::{PAGE, run, settle, unmap};
use crate::push::gate::PushGate;

#[test]
fn zeros_wait_for_regions_and_no_region_is_mapped_meanwhile() {
    run(async {
        let rig = Rig::new();
        let (open, other) = (rig.open("f", 1).await, rig.open("f", 1).await);
        let mapped = rig.map(open, LEN - PAGE, PAGE).await.unwrap();
        let range = ZeroData { offset: LEN - PAGE, end: LEN };
        let code = ControlCode::SET_ZERO_DATA;
        let mut zeroed = Box::pin(rig.control(other, code, |out| range.emit(out), 0));
        assert_waits!(zeroed);
        let mut late = Box::pin(rig.map(open, 0, PAGE));
        assert_waits!(late);
        unmap(&rig, open, &mapped).await.unwrap();
        zeroed.await.unwrap();
        late.await.unwrap();
    });
}

#[test]
fn an_overwrite_waits_for_regions_and_no_region_is_mapped_meanwhile() {
    run(async {
        let rig = Rig::new();
        let open = rig.open("f", 1).await;
        let mapped = rig.map(open, 0, PAGE).await.unwrap();
        let mut emptied = Box::pin(rig.try_overwrite("f", 1));
        assert_waits!(emptied);
        assert_eq!(rig.size("f"), LEN);
        let mut late = Box::pin(rig.map(open, PAGE, PAGE));
        assert_waits!(late);
        unmap(&rig, open, &mapped).await.unwrap();
        emptied.await.unwrap();
        assert_eq!(late.await.err(), Some(NtStatus::INVALID_PARAMETER), "the file is empty");
        assert_eq!(rig.registered(), 0);
    });
}

#[test]
fn a_close_that_comes_while_a_region_is_mapped_leaves_no_region() {
    run(async {
        let rig = Rig::new();
        // The lease lives on with another handle.
        let (open, _other) = (rig.open("f", 1).await, rig.open("f", 1).await);
        let (release, released) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let mut mapped = Box::pin(rig.map(open, 0, PAGE));
        for _ in 0..100 {
            tokio::select! {
                biased;
                outcome = &mut mapped => panic!("it needs the thread: {outcome:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        rig.close(open.id).await;
        drop(release);
        // The other end is dropped and says nothing.
        busy.await.unwrap().unwrap_err();
        assert_eq!(mapped.await.err(), Some(NtStatus::FILE_CLOSED));
        assert_eq!((rig.registered(), rig.core.push.counts().0), (0, 0));
    });
}

#[test]
fn the_regions_of_a_lost_push_connection_end_and_no_others() {
    run(async {
        let rig = Rig::new();
        let (lost, kept) = (rig.open("f", 1).await, rig.open("g", 2).await);
        rig.map(lost, 0, PAGE).await.unwrap();
        rig.map(kept, 0, PAGE).await.unwrap();
        PushGate::new(&rig.core.push).gone(PushConnection(1));
        settle().await;
        assert_eq!((rig.registered(), rig.core.push.counts().0), (1, 1));
        assert_eq!(rig.map(lost, 0, PAGE).await.err(), Some(NtStatus::INVALID_HANDLE));
    });
}
