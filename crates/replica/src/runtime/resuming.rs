//! How a member that was the source goes on as such when it starts: once its witness says what has been recorded meanwhile.
//!
//! ```text
//!   start -- the witness answers --------------------------------------> source, before anybody is heard
//!         -- it cannot be asked --> a destination, asks again --answers--> source
//!                                        |  another source is followed, or an operator promotes: it waits no more
//! ```

use std::time::Duration;

use super::inner::Inner;
use crate::core::{Core, News};
use crate::names::Epoch;
use crate::witness::WitnessError;

/// The newest epoch that the witness knows; `None` where it has to be asked again.
pub(super) fn ask(inner: &Inner) -> Result<Option<Epoch>, WitnessError> {
    match inner.witness.load() {
        Ok(seat) => Ok(Some(seat.map(|seat| seat.epoch).unwrap_or_default())),
        Err(error) if may_pass(&error) => {
            tracing::warn!(%error, "this member was the source, and waits for its witness");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Asks until the witness answers, or somebody else has decided.
pub(super) fn wait(inner: &Inner) {
    let hub = &inner.hub;
    hub.note(&mut hub.lock(), News::WaitsForWitness);
    while waits(inner) && !hub.pauses_to_end(ASK_EVERY) {
        match inner.witness.load() {
            Ok(seat) => {
                let above = seat.map(|seat| seat.epoch).unwrap_or_default();
                while !hub.pauses_to_end(LOOK_EVERY) {
                    match resume(inner, above) {
                        Ok(true) => return,
                        Ok(false) => {}
                        Err(error) => tracing::warn!(%error, "no random number for an epoch"),
                    }
                    if !waits(inner) {
                        return;
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "the witness does not answer yet"),
        }
    }
}

// Nobody has decided: neither another source, nor an operator who promoted this member.
fn waits(inner: &Inner) -> bool {
    let core = &inner.hub.lock().core;
    core.was_source() && !core.is_source()
}

// What is under way ends first: a source that wrote to its volumes may be followed by one that applies.
fn resume(inner: &Inner, above: Epoch) -> Result<bool, std::io::Error> {
    let nonce = inner.nonce()?;
    let mut state = inner.hub.lock();
    if !Core::may_resume(&state.core) {
        return Ok(false);
    }
    let actions = state.core.resume_as_source(inner.hub.now(), nonce, above);
    inner.hub.take(&mut state, actions);
    Ok(true)
}

/// Whether the witness may answer later without an operator's doing.
fn may_pass(error: &WitnessError) -> bool {
    match error {
        WitnessError::File { .. }
        | WitnessError::Unreachable { .. }
        | WitnessError::Contended { .. } => true,
        WitnessError::Foreign { .. }
        | WitnessError::Refused { .. }
        | WitnessError::Options(_)
        | WitnessError::Thread(_) => false,
    }
}

/// How often the witness is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked at whether what is under way has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
