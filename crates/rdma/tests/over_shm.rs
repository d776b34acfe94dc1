//! The tests of every provider, over provider `shm`.

#[path = "every_provider/main.rs"]
mod every_provider;
