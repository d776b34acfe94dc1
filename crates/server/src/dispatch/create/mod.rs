//! CREATE: opening and creating, with every disposition.
//!
//! ```text
//!  admit (checked request) -> open: attempt ----------------> grant -> answer
//!                            ^     | a lease or a push region stands in the way
//!                            |     v
//!                            +-- wait until it is given back or taken
//! ```
//!
//! A CREATE that opens nothing goes another way: [`reconnect`] takes back an open whose connection
//! was lost, and gives the answer again to a request that was sent twice.
//!
//! An attempt does all the work on the file system and in the node's table in one go, on a worker
//! where that may block, and leaves nothing behind unless it succeeds.
//!
//! Spec: MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1.

mod admit;
mod answer;
mod attempt;
mod durable;
mod enter;
mod fresh;
mod grant;
mod open;
mod reconnect;
mod stream;
#[cfg(test)]
mod tests;
mod wish;

use std::sync::Arc;

use smb::{FileId, NtStatus};
use tracing::debug;
use tree::InlineIo;

use self::admit::Admitted;
use self::reconnect::Extras;
pub(crate) use self::wish::PushWish;
use super::call::Call;
use super::frame::Outcome;

/// Opens or creates a file or directory.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let mut admission = match admit::admit(call)? {
        Admitted::New(admission) => admission,
        Admitted::Back(tree, back, extras) => {
            return reconnect::take_back(call, &tree, back, &extras, out).await;
        }
        Admitted::Again(tree, open, asked, extras) => {
            return reconnect::repeat(call, &tree, open, asked, &extras, out).await;
        }
    };
    let (open, metadata) = match open::open(call, &mut admission).await {
        Err(NtStatus::STOPPED_ON_SYMLINK) => {
            return answer::say_where_it_leads(call, &admission, out).await;
        }
        opened => opened?,
    };
    let granted = grant::grant(call, &admission.wish, &open, metadata.allocation);
    let durable = grant::grant_return(call, &admission, &open, granted).await;
    call.chain_file = Some(FileId { persistent: open.serial.0, volatile: open.volatile });
    let (path, action) = (open.path(), open.origin.action);
    let directory = open.entry.is_directory();
    debug!(path = path.to_wire(), ?action, directory, ?durable, "opened");
    if let Some(durable) = durable {
        open.set_durable(&call.core.files.durable_opens, durable);
        // Closed while it was being noted, by who did not know of the note.
        if durable.persistent && open.node.lock().record(open.serial).is_none() {
            let open = Arc::clone(&open);
            call.blocking(InlineIo::CachedReads, move || open.forget_note()).await?;
        }
    }
    answer::answer(call, &admission, (&open, &metadata), (granted, durable), out);
    if let Some(reservation) = admission.reservation.take() {
        reservation.settle(&open);
    }
    Ok(NtStatus::SUCCESS)
}
