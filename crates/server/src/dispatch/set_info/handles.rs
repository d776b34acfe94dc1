//! Handles of a file's streams that clients only cache, asked back before a name of the file goes.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.4.12 (FileRenameInformation,
//! FileDispositionInformation).

use std::sync::Arc;

use smb::NtStatus;
use tree::InlineIo;

use crate::dispatch::call::Call;
use crate::state::caching::Intent;
use crate::state::lease::Owner;
use crate::state::node::Node;

/// Asks for the handles, and waits until they are given back or taken. A stream that is open then is in use, or has been
/// opened meanwhile.
pub(super) async fn yield_streams(
    call: &Call,
    file: &Arc<Node>,
    by: Owner,
) -> Result<(), NtStatus> {
    if file.lock().streams.is_empty() {
        return Ok(());
    }
    for stream in ask(call, file, by).await? {
        call.yield_caching(&stream, by, Intent::Unlink).await?;
    }
    // A stream that is being closed keeps others from its file until the file is without it.
    call.wait(file.removed()).await
}

/// Asks for the handles of the streams; the streams of which an answer is owed.
pub(super) async fn ask(
    call: &Call,
    file: &Arc<Node>,
    by: Owner,
) -> Result<Vec<Arc<Node>>, NtStatus> {
    if file.lock().streams.is_empty() {
        return Ok(Vec::new());
    }
    // Of as many streams as a file may have.
    let file = Arc::clone(file);
    let ask = move || file.begin_breaks_of_streams(by, Intent::Unlink, |_| true);
    call.blocking(InlineIo::CachedReads, ask).await
}
