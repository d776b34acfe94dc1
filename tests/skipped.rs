//! What a test says that finds its host lacking: `cargo xtask test` counts it as skipped, with the reason.
//!
//! Test files of several crates include this one by its path.

use std::fmt::Display;
use std::io::Write as _;

/// Says why the test of this thread is left out, or a part of it: past libtest's capture, in a line of its own.
pub(crate) fn skip(why: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // libtest may have begun a line.
    let _ = writeln!(std::io::stdout(), "\nskipped: {}: {test}: {why}", env!("CARGO_CRATE_NAME"));
}
