//! LOGOFF.
//!
//! Spec: MS-SMB2 §3.3.5.6.

use std::sync::Arc;

use smb::Empty;
use smb::NtStatus;
use tokio::sync::mpsc;

use super::call::Call;
use super::frame::{Outcome, malformed};

/// Ends a session and everything in it.
pub(super) async fn handle(call: &Call, out: &mut Vec<u8>) -> Outcome {
    Empty::parse(call.pdu()).map_err(malformed)?;
    let id = call.session().id;
    call.link.remove_channel(id);
    let (kept, mut ends) = mpsc::channel::<()>(1);
    call.core.dissolve_on_a_thread(&call.session().account, id, Arc::new(kept));
    // Nothing is sent: it is over when nobody could.
    let _ = ends.recv().await;
    Empty.emit(out);
    Ok(NtStatus::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use smb::create::CreateRequestContext;
    use smb::{Command, Empty};

    use super::*;
    use crate::push::tests::rig::Rig;

    #[tokio::test]
    async fn a_logoff_goes_through_what_is_open_beside_the_reactor() {
        let rig = Rig::new();
        let opened = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
        let session = Arc::clone(rig.session());
        let open = session.open(opened.id.persistent, opened.id.volatile).unwrap();
        let ((held, is_held), (release, released)) = (channel(), channel::<()>());
        let holder = std::thread::spawn(move || {
            // The opens of the session are locked meanwhile, as if there were many.
            let mut in_time = false;
            let added = session.add_open(|_| {
                held.send(()).unwrap();
                in_time = released.recv_timeout(Duration::from_secs(20)).is_ok();
                open
            });
            assert!(added.is_ok());
            in_time
        });
        is_held.recv().unwrap();
        let call = rig.call(Command::LOGOFF, |out| Empty.emit(out));
        let off = tokio::spawn(async move { handle(&call, &mut Vec::new()).await });
        // The only thread that carries tasks comes back from it.
        tokio::task::yield_now().await;
        release.send(()).unwrap();
        assert!(holder.join().unwrap(), "nobody else was served");
        assert_eq!(off.await.unwrap(), Ok(NtStatus::SUCCESS));
    }
}
