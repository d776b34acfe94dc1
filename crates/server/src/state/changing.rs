//! A change or read of one file that is under way, in the [table](super::changes) of that file until it is dropped.

use std::sync::Arc;

use super::changes::{Change, Changes, Place, Use};
use super::node::{Node, NodeState};

/// A change under way: to be held until its bytes are visible to every reader.
#[derive(Debug)]
pub(crate) struct Changing {
    _entered: Entered,
}

/// A place in the table of a node. Dropped, it is free, and who waits for that goes on.
#[derive(Debug)]
pub(super) struct Entered {
    node: Arc<Node>,
    place: Place,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let ended = self.node.lock().changes.end(self.place);
        if let Some(ended) = ended {
            ended.notify_waiters();
        }
    }
}

impl Changes {
    pub(super) fn begin(&mut self, node: &Arc<Node>, change: Change) -> Changing {
        Changing { _entered: self.enter(node, Use::Change(change)) }
    }

    /// Enters what the locks of `node`, whose table this is, allow.
    pub(super) fn enter(&mut self, node: &Arc<Node>, what: Use) -> Entered {
        Entered { node: Arc::clone(node), place: self.add(what) }
    }
}

impl NodeState {
    /// Begins a change of bytes; what others may not keep beside it was broken under this lock.
    pub(crate) fn begin_change(&mut self, node: &Arc<Node>, change: Change) -> Changing {
        self.changes.begin(node, change)
    }

    /// Begins one that its owner may make only while nobody else opens the file.
    pub(super) fn begin_change_again(&mut self, node: &Arc<Node>, change: Change) -> Changing {
        Changing { _entered: self.changes.enter(node, Use::ChangeAgain(change)) }
    }
}
