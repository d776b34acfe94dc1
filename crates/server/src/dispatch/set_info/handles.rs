//! Handles that clients only cache, asked back before a name goes: those of a file's streams, and those of what is below
//! a directory.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.4.2 (open files below a directory), §2.1.4.12 (FileRenameInformation,
//! FileDispositionInformation).

use std::sync::Arc;

use smb::NtStatus;
use tree::InlineIo;

use super::Call;
use super::target::Target;
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

/// Asks for the handles of what is below a directory that is about to be moved, and waits until they are given back or
/// taken. Whether anything is open there then: a client uses it, or has opened it meanwhile.
pub(super) async fn yield_below(
    call: &Call,
    target: &Arc<Target>,
    by: Owner,
) -> Result<bool, NtStatus> {
    // Everything that is open is looked at.
    let (files, below) = (Arc::clone(&call.core.files), Arc::clone(target));
    let ask = move || below.begin_breaks_below(&files, by);
    for node in call.blocking(InlineIo::CachedReads, ask).await? {
        call.yield_caching(&node, by, Intent::Unlink).await?;
    }
    let (files, below) = (Arc::clone(&call.core.files), Arc::clone(target));
    call.blocking(InlineIo::CachedReads, move || below.is_open_below(&files)).await
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
