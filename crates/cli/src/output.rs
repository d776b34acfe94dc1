//! Standard output, whose reader may have gone: `landfast ls ... | head -1`.

use std::io::{self, Write as _};

use crate::failure::Failure;

/// Writes text as it is.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}
