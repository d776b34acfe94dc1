//! Counters of an engine, for benches that divide them by operations.

use std::ops::Sub;

/// Counters since the engine was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EngineStats {
    /// Rounds of looking for work, in `poll` and in `wait`.
    pub polls: u64,
    /// Times `wait` went to sleep.
    pub sleeps: u64,
    /// Times a sleep ended because of an event, not because its time was over.
    pub wakes: u64,
    /// `epoll_wait` calls that did not sleep.
    pub epoll_calls: u64,
    /// `recv` calls, those that found nothing included.
    pub recv_calls: u64,
    /// `recv` calls that found nothing.
    pub recv_empty: u64,
    /// `send` calls.
    pub send_calls: u64,
    /// FPDUs received.
    pub frames_received: u64,
    /// FPDUs framed.
    pub frames_sent: u64,
    /// Bytes received from TCP.
    pub bytes_received: u64,
    /// Bytes handed to TCP.
    pub bytes_sent: u64,
    /// Bytes copied in user space: placed, read for a response, framed, staged, kept as residue.
    pub bytes_copied: u64,
    /// Batches of operations that went to a worker.
    pub deferred_batches: u64,
    /// Operations that went to a worker.
    pub deferred_operations: u64,
    /// Persist calls on media, on the engine or on a worker.
    pub persists: u64,
    /// Connections closed in their handshake to make room for later ones.
    pub handshakes_dropped: u64,
    /// Times a queue pair stopped reading because its peer did not drain its answers, or because a
    /// worker had as much queued work of it as it may have.
    pub parks: u64,
}

impl Sub for EngineStats {
    type Output = Self;

    /// The difference of two readings.
    fn sub(self, earlier: Self) -> Self {
        Self {
            polls: self.polls - earlier.polls,
            sleeps: self.sleeps - earlier.sleeps,
            wakes: self.wakes - earlier.wakes,
            epoll_calls: self.epoll_calls - earlier.epoll_calls,
            recv_calls: self.recv_calls - earlier.recv_calls,
            recv_empty: self.recv_empty - earlier.recv_empty,
            send_calls: self.send_calls - earlier.send_calls,
            frames_received: self.frames_received - earlier.frames_received,
            frames_sent: self.frames_sent - earlier.frames_sent,
            bytes_received: self.bytes_received - earlier.bytes_received,
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            bytes_copied: self.bytes_copied - earlier.bytes_copied,
            deferred_batches: self.deferred_batches - earlier.deferred_batches,
            deferred_operations: self.deferred_operations - earlier.deferred_operations,
            persists: self.persists - earlier.persists,
            handshakes_dropped: self.handshakes_dropped - earlier.handshakes_dropped,
            parks: self.parks - earlier.parks,
        }
    }
}
