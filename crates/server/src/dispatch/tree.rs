//! TREE_CONNECT and TREE_DISCONNECT.
//!
//! Spec: MS-SMB2 §3.3.5.7, §3.3.5.8.

use std::sync::Arc;

use smb::Empty;
use smb::NtStatus;
use smb::{ShareCapabilities, ShareFlags, ShareType, TreeConnectRequest, TreeConnectResponse};
use tokio::sync::mpsc;
use tracing::debug;

use super::call::Call;
use super::frame::{Outcome, malformed};
use crate::access::Rights;
use crate::access::Target;
use crate::service::Kept;

/// Enters a share.
pub(super) fn connect(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = TreeConnectRequest::parse(call.pdu()).map_err(malformed)?;
    let name = request.share();
    if name.eq_ignore_ascii_case("IPC$") {
        let rights = Rights::ALL;
        let tree = call
            .session()
            .connect_tree(Target::Pipes, rights)
            .ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        call.chain_tree = Some(tree.id);
        let response = TreeConnectResponse {
            share_type: ShareType::PIPE,
            flags: ShareFlags::NO_CACHING,
            capabilities: ShareCapabilities::empty(),
            maximal_access: rights.mask(),
        };
        response.emit(out);
        return Ok(NtStatus::SUCCESS);
    }
    let share = call.core.files.share(name).ok_or(NtStatus::BAD_NETWORK_NAME)?;
    let rights = call.session().rights_in(&share).ok_or(NtStatus::ACCESS_DENIED)?;
    if share.is_encrypt_required() && call.session().sealing.is_none() {
        debug!(share = share.name(), "refused: the share requires encryption, the client has none");
        return Err(NtStatus::ACCESS_DENIED);
    }
    let target = Target::Disk(Arc::clone(&share));
    let tree =
        call.session().connect_tree(target, rights).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
    // Whoever takes rights away ends the sessions that are in; this one may not have been yet.
    if !call.core.files.is_welcome_in(&call.session().identity, &tree) {
        // Another channel may have opened something by then.
        let nobody: Kept = Arc::new(());
        let opens = call.session().leave_tree(tree.id).unwrap_or_default();
        call.core.close_in_background(&call.session().account, opens, &nobody);
        return Err(NtStatus::ACCESS_DENIED);
    }
    debug!(share = share.name(), class = %share.class(), "share entered");
    call.chain_tree = Some(tree.id);
    let mut flags = ShareFlags::empty();
    flags.set(ShareFlags::ENCRYPT_DATA, tree.is_encrypt_required());
    let mut capabilities = ShareCapabilities::empty();
    capabilities.set(ShareCapabilities::CONTINUOUS_AVAILABILITY, share.keeps_journal());
    let response = TreeConnectResponse {
        share_type: ShareType::DISK,
        flags,
        capabilities,
        maximal_access: rights.mask(),
    };
    response.emit(out);
    Ok(NtStatus::SUCCESS)
}

/// Leaves a share; what was opened through it closes.
pub(super) async fn disconnect(call: &Call, out: &mut Vec<u8>) -> Outcome {
    Empty::parse(call.pdu()).map_err(malformed)?;
    let tree = call.asker().tree()?;
    if !leave(call, tree.id).await? {
        return Err(NtStatus::NETWORK_NAME_DELETED);
    }
    Empty.emit(out);
    Ok(NtStatus::SUCCESS)
}

// Answered when all of it is closed; what hangs keeps nothing else open.
async fn leave(call: &Call, id: u32) -> Result<bool, NtStatus> {
    let session = Arc::clone(call.session());
    let Some(opens) = call.waiting(move |_| session.leave_tree(id)).await? else {
        return Ok(false);
    };
    let (kept, mut ends) = mpsc::channel::<()>(1);
    let kept: Kept = Arc::new((kept, call.session().begin_work()));
    call.core.close_in_background(&call.session().account, opens, &kept);
    drop(kept);
    // Nothing is sent: it is over when nobody could.
    let _ = ends.recv().await;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use smb::create::{CreateRequestContext, DurableRequestV2};
    use smb::{Command, Empty, FileId, Guid, NtStatus};

    use crate::access::{Rights, Target};
    use crate::limits::TREES_PER_USER_MAX;
    use crate::push::tests::rig::Rig;
    use crate::state::Resource;

    #[tokio::test]
    async fn what_a_tree_leaves_ends_by_itself_where_some_of_it_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let rig = Rig::with_log(&dir.path().join("opens"));
        let persistent = CreateRequestContext::DurableV2(DurableRequestV2 {
            timeout_ms: 0,
            persistent: true,
            create_guid: Guid([1; 16]),
        });
        let hangs = rig.open_with("hangs", 1, persistent).await.unwrap().id;
        let goes = rig.open_with("goes", 2, CreateRequestContext::QueryOnDiskId).await.unwrap().id;
        let of = |id: FileId| rig.session().open(id.persistent, id.volatile).unwrap();
        let (hanging, going) = (of(hangs), of(goes));
        assert!(hanging.is_persistent(), "its log is waited for elsewhere");
        let ((held, is_held), (release, released)) = (channel(), channel::<()>());
        let changed = Arc::clone(&hanging);
        let holder = std::thread::spawn(move || {
            let _change = changed.try_begin_change().unwrap().unwrap();
            held.send(()).unwrap();
            let _ = released.recv();
        });
        is_held.recv().unwrap();
        let call = rig.call(Command::TREE_DISCONNECT, |out| Empty.emit(out));
        let left = tokio::spawn(async move { super::disconnect(&call, &mut Vec::new()).await });
        let (node, serial) = (Arc::clone(&going.node), going.serial);
        let is_gone = node.changes_until(|| node.lock().record(serial).is_none());
        let in_time = tokio::time::timeout(Duration::from_secs(20), is_gone).await.is_ok();
        assert!(!left.is_finished(), "something is open");
        release.send(()).unwrap();
        holder.join().unwrap();
        assert_eq!(left.await.unwrap(), Ok(NtStatus::SUCCESS));
        assert!(in_time, "one kept the other");
    }

    #[tokio::test]
    async fn tree_connects_of_a_user_are_bounded_whatever_its_sessions_are() {
        let rig = Rig::new();
        let (session, account) = (rig.session(), &rig.session().account);
        let before = account.held(Resource::Trees);
        assert!(before > 0, "it has entered a share");
        let of_others = account.try_take(Resource::Trees, TREES_PER_USER_MAX - before).unwrap();
        assert!(session.connect_tree(Target::Pipes, Rights::ALL).is_none());
        drop(of_others);
        let tree = session.connect_tree(Target::Pipes, Rights::ALL).unwrap();
        assert_eq!(account.held(Resource::Trees), before + 1);
        assert_eq!(session.leave_tree(tree.id).map(|opens| opens.len()), Some(0));
        assert_eq!(account.held(Resource::Trees), before);
    }
}
