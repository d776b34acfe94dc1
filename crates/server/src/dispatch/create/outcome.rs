//! What an attempt to open or create came to.

use std::sync::Arc;

use smb::create::CreateAction;
use smb::push::RecallReason;
use tokio::sync::futures::OwnedNotified;
use tree::{Entry, FileKey, Metadata, SharePath};

use crate::state::OpenSerial;
use crate::state::caching::Intent;
use crate::state::making::Making;
use crate::state::node::Node;

/// What an attempt came to.
#[derive(Debug)]
pub(super) enum Attempt {
    Done(Box<Created>),
    /// Somebody else created or removed the name meanwhile.
    Again,
    /// The file is being removed: what comes of that has to be known first.
    Going(Arc<Node>),
    /// Caching of others has to go first; they have been told.
    Breaking {
        node: Arc<Node>,
        intent: Intent,
    },
    /// A directory above the name is being moved.
    Moving(SharePath),
    /// Somebody is just making the name, or what was found by it.
    Making {
        making: Arc<Making>,
        found: Option<FileKey>,
    },
    /// The name may lead to what is mounted in the share, or to much work: to be tried again by who may wait.
    Farther,
    /// A client writes bytes again under its lease: that has to end first.
    WrittenAgain(OwnedNotified),
    /// Somebody else takes these opens from their client, closes them, or gives them back to it.
    TakenByOthers {
        node: Arc<Node>,
        serials: Vec<OpenSerial>,
    },
    /// Push regions of others have to go first.
    Mapped {
        node: Arc<Node>,
        reason: RecallReason,
    },
}

/// An open file, entered in its node.
#[derive(Debug)]
pub(super) struct Created {
    pub(super) entry: Entry,
    pub(super) node: Arc<Node>,
    pub(super) metadata: Metadata,
    pub(super) action: CreateAction,
}
