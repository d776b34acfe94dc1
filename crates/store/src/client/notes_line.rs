//! The connection by which a client asks for a region's counters.

use std::sync::Mutex;
use std::time::Instant;

use super::control::Control;

/// The control connection for counters, apart from that of the mapping: a wait occupies it.
#[derive(Debug, Default)]
pub(super) struct NotesLine(pub(super) Mutex<Known>);

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) line: Option<Control>,
    /// When it was used last: a daemon closes one that says nothing for long.
    pub(super) used: Option<Instant>,
    /// The daemon whose counters this client has seen, and its incarnation.
    pub(super) keeper: Option<(String, u64)>,
}
