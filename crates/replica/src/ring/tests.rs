//! What a ring does.
