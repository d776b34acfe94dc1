//! What every provider does, through shared memory.

#[path = "every_provider/main.rs"]
mod every_provider;
