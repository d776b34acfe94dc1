//! Tools that every provider of this crate uses: readiness of sockets, timers, polling.

mod keep_alive;
mod poll_window;
pub(crate) mod poller;
pub(crate) mod timers;
pub(crate) mod waiting;

pub use keep_alive::watch_peer;
pub use poll_window::PollWindow;
