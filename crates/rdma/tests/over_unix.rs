//! The tests of every provider, over provider `unix`.

#[path = "every_provider/main.rs"]
mod every_provider;
