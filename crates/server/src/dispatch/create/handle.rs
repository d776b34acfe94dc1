//! The steps of a CREATE.

use smb::{FileId, NtStatus};
use tracing::debug;

use super::admit::{self, Admitted};
use super::{answer, grant, open, reconnect};
use crate::dispatch::call::Call;
use crate::dispatch::frame::Outcome;

/// Opens or creates a file or directory.
pub(crate) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
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
    }
    answer::answer(call, &admission, (&open, &metadata), (granted, durable), out);
    if let Some(reservation) = admission.reservation.take() {
        open.settle_create(reservation);
    }
    Ok(NtStatus::SUCCESS)
}
