//! Software iWARP: start-up, segment and operation headers, the stream machine.

pub(crate) mod handshake;
pub(crate) mod headers;
pub(crate) mod pair;
pub(crate) mod start;
pub(crate) mod stream;
