//! The promise of a Flush about the bytes that it covers.
//!
//! Spec: draft-talpey-rdma-commit-01 §3.

use bitflags::bitflags;

bitflags! {
    /// The flag word of a Flush Request. Unknown bits survive.
    ///
    /// These are the draft's values. InfiniBand has the same two flags with swapped values
    /// (1 is global, 2 is persistent), so this type never holds a verbs constant.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct PlacementFlags: u32 {
        /// Durable before the response leaves.
        const PERSISTENCE = 0x1;
        /// Visible to every reader on the responder before the response leaves.
        const GLOBAL_VISIBILITY = 0x2;
        const _ = !0;
    }
}
