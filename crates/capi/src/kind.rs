//! The kinds of handles.

use std::fmt;

/// What a handle names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A session.
    Client,
    /// An open file.
    File,
    /// A mapped region.
    Region,
    /// A client of a striped store.
    Store,
    /// A mapped region of a striped store.
    StoreRegion,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "connection",
            Self::File => "file",
            Self::Region => "region",
            Self::Store => "store",
            Self::StoreRegion => "region of a store",
        })
    }
}
