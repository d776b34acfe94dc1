//! What a link of several connections has at most, and how long it waits.

use std::time::Duration;

/// Connections of a link at most.
pub const CONNECTIONS_MAX: usize = 8;
/// Bytes that are sent at most before the other end says that it took them; a single frame may be longer.
pub const AHEAD_MAX: usize = 32 << 20;
/// The same in frames.
pub const FRAMES_AHEAD_MAX: usize = 1 << 14;
/// Frames of this length at most are sent by the thread that has them.
pub(super) const INLINE_MAX: usize = 64 << 10;
/// A link that is capped to less than so many bytes in a second sends over one of its connections at a time: the cap is what it
/// waits for, and frames that share it over several would each be late.
pub(super) const CAP_OF_SEVERAL: u64 = 64 << 20;
/// A connection that says nothing for so long, while another of its link does, is ended.
pub(super) const STALE: Duration = Duration::from_secs(1);
/// How often each connection says something.
pub(super) const PULSE: Duration = Duration::from_millis(200);
