//! Metadata contexts: the one that this server has, and how clients ask for it.
//!
//! ```text
//!   LIST_META_CONTEXT, SET_META_CONTEXT:  export name (string) | number of queries (32 bits) | queries (strings)
//! ```
//!
//! Spec: NBD protocol, "Metadata querying".

use super::option::string;

/// The name of the context that tells holes and zeroes from data.
pub(super) const ALLOCATION: &[u8] = b"base:allocation";
/// Its number within a connection.
pub(super) const ALLOCATION_ID: u32 = 1;

/// A question for contexts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Query<'b> {
    pub(super) name: &'b [u8],
    /// Whether the client asks for any context, by asking for none.
    pub(super) is_for_all: bool,
    /// Whether a query names [`ALLOCATION`] or, with a wildcard, its namespace.
    pub(super) names_allocation: bool,
    /// Whether a query is the namespace alone, which a list answers and a choice does not.
    pub(super) names_namespace: bool,
}

impl<'b> Query<'b> {
    /// `None` unless the data are as long as they say.
    pub(super) fn parse(data: &'b [u8]) -> Option<Self> {
        let (name, rest) = string(data)?;
        let (count, mut rest) = rest.split_first_chunk::<4>()?;
        let count = u32::from_be_bytes(*count);
        let (mut names_allocation, mut names_namespace) = (false, false);
        // Each query has 4 bytes at least, so the data bound the loop.
        for _ in 0..count {
            let (query, more) = string(rest)?;
            names_allocation |= query == ALLOCATION;
            names_namespace |= query == b"base:";
            rest = more;
        }
        let is_for_all = count == 0;
        rest.is_empty().then_some(Self { name, is_for_all, names_allocation, names_namespace })
    }
}
