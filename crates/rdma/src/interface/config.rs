//! The configuration of an engine and of a queue pair, and the bounds of its values.

use std::sync::Arc;
use std::time::Duration;

use basics::Environment;

use super::wire_hook::WireHook;
use super::work::Operation;

/// How to open an engine. Every number bounds what peers can make the engine spend.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// What `wait` does while there is no event.
    pub polling: PollPolicy,
    /// Queue pairs at once.
    pub qps_max: u32,
    /// Accepted TCP connections that have not finished their handshake, or whose request the owner
    /// has not answered. One more closes the oldest; connections whose request the owner has are
    /// spared while they are at most half. Each costs its socket and at most
    /// [`HANDSHAKE_BYTES_MAX`] bytes.
    pub handshakes_max: u32,
    /// Registered regions at once, over all queue pairs.
    pub regions_max: u32,
    /// Threads for operations that may block, for each device, started when first needed. A file
    /// gets a further thread only while more are free than it has, so a slow file has at most half
    /// of them; a commit of a file takes one, however many wait for it.
    pub workers_max: u16,
    /// How long a peer may take for its half of a handshake, and the owner to answer a request.
    pub handshake_timeout: Duration,
    /// How long a peer's machine may give no sign of life, not even an answer to a TCP probe, before
    /// its connections end; `None`: the setting of the host. Between two processes of one host, where
    /// the host tells each of the other's death: how long a process may take none of the bytes that
    /// wait for it. A provider whose connections an adapter keeps ignores this: the adapter itself
    /// gives up when its packets stay unanswered.
    pub silence_max: Option<Duration>,
    /// A hook that sees every byte of every stream; for captures and fault injection. A provider
    /// that cannot show bytes refuses to open.
    pub wire_hook: Option<Arc<dyn WireHook>>,
    /// The clock of all deadlines, and the source of steering tags. A peer that can guess a tag can
    /// write where the tag's owner may: outside tests this is the host.
    pub environment: Environment,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            polling: PollPolicy::Adaptive,
            qps_max: 4096,
            handshakes_max: 256,
            regions_max: 65_536,
            workers_max: 16,
            handshake_timeout: Duration::from_secs(5),
            silence_max: Some(SILENCE_MAX),
            wire_hook: None,
            environment: Environment::host(),
        }
    }
}

/// How long a peer's machine may be silent by default: long enough for a switch that restarts, and two
/// to six times as long as clients wait before they dial anew.
pub const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Most memory a connection costs before it is accepted, beside its socket: one request frame.
pub const HANDSHAKE_BYTES_MAX: usize = 1024;

/// Private data an application may send with a request or an answer. siw takes 256 in all and
/// adds fields of its own, some adapters add bytes; our profile announcement takes another part.
pub const PRIVATE_DATA_MAX: usize = 180;

/// What `Engine::wait` does while there is no event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PollPolicy {
    /// Spins a window that grows and shrinks with what it catches (0 to 200 µs), then sleeps.
    Adaptive,
    /// Never sleeps. Fastest, and uses a whole core.
    Spin,
    /// Sleeps at once.
    Block,
    /// Spins a window of this many microseconds, then sleeps. For comparison in benches.
    Fixed(u32),
}

/// How to make one queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpConfig {
    /// Work requests posted and not completed, 1 to [`QUEUE_DEPTH_MAX`].
    pub send_depth: u16,
    /// Receives posted and not filled, 1 to [`QUEUE_DEPTH_MAX`].
    pub recv_depth: u16,
    /// Reads, atomics, flushes and verifies the peer may have open with us, 0 to [`IRD_ORD_MAX`].
    pub ird: u8,
    /// The same operations of ours that may be open with the peer. More can be posted: they wait in
    /// the send queue.
    pub ord: u8,
    /// Whether this end asks for CRC-32C, which is on if either end asks.
    pub crc: bool,
    /// Whether this end announces the placement extensions (flush, verify, atomic write, long
    /// FPDUs).
    pub announce: bool,
    /// Longest FPDU that this end wants to receive from a peer that knows our profile, in bytes.
    pub fpdu_max: u16,
}

impl Default for QpConfig {
    fn default() -> Self {
        Self {
            send_depth: 256,
            recv_depth: 256,
            ird: 32,
            ord: 32,
            crc: true,
            announce: true,
            fpdu_max: u16::MAX,
        }
    }
}

/// Deepest send or receive queue.
pub const QUEUE_DEPTH_MAX: u16 = 4096;

/// Most reads, atomics, flushes and verifies open at once in one direction; also siw's limit.
pub const IRD_ORD_MAX: u8 = 128;

/// What both sides of an established connection can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QpCapabilities {
    /// The peer answers flushes.
    pub flush: bool,
    /// The peer takes atomic writes.
    pub atomic_write: bool,
    /// The peer answers verifies, with [`super::work::HASH_CRC32C`].
    pub verify: bool,
    /// The peer takes fetch-and-add, compare-and-swap and immediate messages (RFC 7306). A peer
    /// without our profile cannot announce these in the start-up, and siw does not have them.
    pub rfc7306: bool,
    /// Longest ULPDU we send, in bytes.
    pub fpdu_max: u16,
    /// Every frame carries a checked CRC-32C.
    pub crc: bool,
    /// Reads, atomics, flushes and verifies that the peer may have open with this end.
    pub ird: u8,
    /// Reads, atomics, flushes and verifies that this end may have open with the peer.
    pub ord: u8,
}

impl QpCapabilities {
    /// Whether the peer takes an operation.
    pub fn supports(&self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Send { .. } | Operation::Write { .. } => true,
            Operation::Read { .. } => self.ord > 0,
            Operation::Flush { .. } => self.flush && self.ord > 0,
            Operation::AtomicWrite { .. } => self.atomic_write && self.ord > 0,
            Operation::Verify { .. } => self.verify && self.ord > 0,
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {
                self.rfc7306 && self.ord > 0
            }
            Operation::Immediate { .. } => self.rfc7306,
        }
    }
}
