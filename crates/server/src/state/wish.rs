//! A name of a file that is to go with the file's last open.

use std::sync::Arc;

use tree::{Share, SharePath};

use super::serial::OpenSerial;
use crate::access::MayRemove;

/// A name that is to go.
#[derive(Clone, Debug)]
pub(crate) struct Wished {
    /// Where it is.
    pub(crate) share: Arc<Share>,
    /// Its path there.
    pub(crate) path: SharePath,
    /// It was spoken by whoever was admitted to that.
    pub(crate) leave: MayRemove,
    /// The opens through which requests ask for it that are not answered yet: an open for each request.
    pub(super) asking: Vec<OpenSerial>,
    /// Whoever is refused it does not take it back.
    pub(super) is_granted: bool,
}

/// Whether something stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stays {
    Yes,
    /// Its deletion is wished for.
    No,
    /// It is being removed: what comes of that is known when [`super::node::Node::removed`] returns.
    Unknown,
}
