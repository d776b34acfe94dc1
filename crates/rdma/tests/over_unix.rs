//! What every provider does, over unix sockets.

#[path = "every_provider/main.rs"]
mod every_provider;
