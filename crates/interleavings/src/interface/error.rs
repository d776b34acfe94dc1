//! In the place of `rdma`'s.

/// Nothing that a model makes is refused.
#[derive(Clone, Copy, Debug)]
pub enum EngineError {}
