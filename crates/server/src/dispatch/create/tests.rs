//! CREATE between two steps of somebody else.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use smb::create::{CreateRequestContext, DurableReconnectV2, DurableRequestV2};
use smb::{FileId, Guid, NtStatus};

use crate::push::tests::rig::Rig;

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
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        // The opens of the session are locked meanwhile.
        let mut in_time = false;
        let added = other.add_open(|_| {
            held.send(()).unwrap();
            in_time = released.recv_timeout(Duration::from_secs(60)).is_ok();
            session.open(of_another.id.persistent, of_another.id.volatile).unwrap()
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
