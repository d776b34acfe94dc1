//! What the server does by itself as long as it lives: periodic checks, and the end of opens whose client stays away.

mod scavenge;
mod sweep;

pub(crate) use scavenge::scavenge;
#[cfg(test)]
pub(crate) use sweep::recall_expired;
pub(crate) use sweep::sweep;
