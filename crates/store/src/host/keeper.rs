//! What a daemon does beside serving.
use std::sync::Arc;
use super::Parts;
pub(super) fn keep(_parts: &Arc<Parts>) {}
