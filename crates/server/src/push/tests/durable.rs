//! A durable open outlives its connection; its registrations do not.

use smb::create::{CreateRequestContext, DurableReconnectV2, DurableRequestV2};
use smb::{Guid, NtStatus};

use super::rig::Rig;
use super::{PAGE, run, settle};

const GUID: Guid = Guid([9; 16]);

fn durable() -> CreateRequestContext<'static> {
    let (timeout_ms, persistent) = (0, false);
    CreateRequestContext::DurableV2(DurableRequestV2 { timeout_ms, persistent, create_guid: GUID })
}

#[test]
fn a_lost_connection_ends_the_registrations_of_a_durable_open() {
    run(async {
        let mut rig = Rig::new();
        let open = rig.open_with("f", 1, durable()).await.unwrap();
        rig.map(open, 0, PAGE).await.unwrap();
        assert_eq!(rig.registered(), 1);
        rig.reconnect();
        assert_eq!(rig.core.files.orphans.len(), 1, "the open waits for its client");
        settle().await;
        assert_eq!(rig.registered(), 0);
        assert_eq!(rig.core.push.counts().0, 0);
    });
}

#[test]
fn a_reconnect_waits_until_no_operation_touches_old_registrations() {
    run(async {
        let mut rig = Rig::new();
        let open = rig.open_with("f", 1, durable()).await.unwrap();
        rig.map(open, 0, PAGE).await.unwrap();
        rig.engine.hold();
        rig.reconnect();
        let again = DurableReconnectV2 { file_id: open.id, create_guid: GUID, persistent: false };
        let context = CreateRequestContext::DurableReconnectV2(again);
        let mut back = Box::pin(rig.open_with("f", 1, context));
        assert_waits!(back);
        rig.engine.release();
        let back = back.await.unwrap();
        assert_eq!(back.id.persistent, open.id.persistent);
        // Push starts anew: with a new token and connection, and without a region.
        assert_eq!(rig.registered(), 0);
        let stale = super::rig::Opened { id: back.id, connection: open.connection };
        assert_eq!(rig.map(stale, 0, PAGE).await.err(), Some(NtStatus::INVALID_HANDLE));
        rig.map(back, 0, PAGE).await.unwrap();
        assert_eq!(rig.registered(), 1);
    });
}

#[test]
fn a_reconnect_waits_for_regions_of_the_other_opens_of_its_lease() {
    run(async {
        let mut rig = Rig::new();
        let open = rig.open_with("f", 1, durable()).await.unwrap();
        // Not durable: it is closed with its connection, and its regions end meanwhile.
        let beside = rig.open("f", 1).await;
        rig.map(beside, 0, PAGE).await.unwrap();
        rig.engine.hold();
        rig.reconnect();
        let again = DurableReconnectV2 { file_id: open.id, create_guid: GUID, persistent: false };
        let context = CreateRequestContext::DurableReconnectV2(again);
        let mut back = Box::pin(rig.open_with("f", 1, context));
        assert_waits!(back);
        rig.engine.release();
        back.await.unwrap();
        assert_eq!(rig.registered(), 0);
    });
}

#[test]
#[expect(
    clippy::await_holding_invalid_type,
    reason = "the test is that the reconnect waits for it"
)]
fn a_reconnect_waits_for_a_change_of_the_lost_connection() {
    run(async {
        let mut rig = Rig::new();
        let open = rig.open_with("f", 1, durable()).await.unwrap();
        let old = rig.session().open(open.id.persistent, open.id.volatile).unwrap();
        let changing = old.begin_change().unwrap();
        rig.reconnect();
        let again = DurableReconnectV2 { file_id: open.id, create_guid: GUID, persistent: false };
        let context = CreateRequestContext::DurableReconnectV2(again);
        let mut back = Box::pin(rig.open_with("f", 1, context));
        // Once somebody waits for the end of all changes no further change begins.
        while old.try_begin_change().is_some() {
            tokio::select! {
                biased;
                outcome = &mut back => panic!("it did not wait: {outcome:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(changing);
        back.await.unwrap();
    });
}

#[tokio::test]
async fn an_open_that_has_ended_or_waits_for_its_client_changes_nothing() {
    let mut rig = Rig::new();
    let (closed, lost) = (rig.open("g", 2).await, rig.open_with("f", 1, durable()).await.unwrap());
    let [closed, lost] = [closed, lost]
        .map(|open| rig.session().open(open.id.persistent, open.id.volatile).unwrap());
    assert!(closed.begin_change().is_ok() && lost.begin_change().is_ok());
    rig.close(smb::FileId { persistent: closed.serial.0, volatile: closed.volatile }).await;
    rig.reconnect();
    assert!(lost.is_orphan());
    for open in [closed, lost] {
        open.begin_change().unwrap_err();
        assert!(open.try_begin_change().is_some_and(|begun| begun.is_err()));
    }
}
