//! A window onto the byte streams of an engine, for captures and fault injection.
//!
//! The `Engine` seam lies above TCP: a wrapper sees work requests and completions, never bytes. A
//! wrapper that needs bytes puts itself into [`super::EngineConfig::wire_hook`] before it opens the
//! inner engine, and calls the hook that was there before. Without a hook the cost is one branch.

use std::fmt::Debug;
use std::net::SocketAddr;

/// Called by an engine for every stream it has. Calls for one stream come in stream order.
pub trait WireHook: Debug + Send + Sync {
    /// A TCP connection is established; `stream` names it in every later call. The number is never
    /// reused.
    fn opened(&self, stream: u64, local: SocketAddr, peer: SocketAddr, active: bool);
    /// TCP took these bytes from us.
    fn sent(&self, stream: u64, bytes: &[u8]);
    /// TCP gave us these bytes; the engine will see them as the hook leaves them in `bytes`.
    fn received(&self, stream: u64, bytes: &mut [u8]) -> WireVerdict;
    /// The connection is closed.
    fn closed(&self, stream: u64);
}

/// What happens to a stream after these bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireVerdict {
    /// The stream continues.
    Pass,
    /// The engine sees it reset by the peer.
    Cut,
}
