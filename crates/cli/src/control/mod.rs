//! The control socket: how `landfast status` asks a running server on the same machine.
//!
//! ```text
//!  client: {"landfast":1,"ask":"status","rows_max":1000}\n
//!  server: {"landfast":1,"status":{...}}\n        or {"landfast":1,"error":"..."}\n      then closes
//! ```
//!
//! A unix socket that only the server's own user can open (mode 0600). It only shows state, and
//! changes nothing. One request per connection, a bounded line, a bounded time, few connections at
//! once: a program that opens the socket cannot make the server spend much. The field `landfast` is
//! the version: a server answers a version that it does not know with an error.

mod place;
mod serve;

use serde::{Deserialize, Serialize};
use server::Report;

pub(crate) use place::{Place, RUN_DIRECTORY, make_run_directory, only_socket};
pub(crate) use serve::Control;

/// A request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    pub(crate) landfast: u32,
    pub(crate) ask: Ask,
    /// At most this many rows of each table.
    #[serde(default = "rows_default")]
    pub(crate) rows_max: usize,
}

/// The kinds of request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ask {
    Status,
}

/// A response: one of the two fields.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Response {
    pub(crate) landfast: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Report>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

fn rows_default() -> usize {
    ROWS_DEFAULT
}

pub(crate) const VERSION: u32 = 1;
/// Rows of a table if the request does not ask for more.
pub(crate) const ROWS_DEFAULT: usize = 1_000;
/// The most rows that a request can ask for: some 20 MiB of text.
pub(crate) const ROWS_MAX: usize = 65_536;
