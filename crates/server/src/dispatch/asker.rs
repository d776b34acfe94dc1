//! Who asks for something, with what protection, and what of the session that names.

use std::sync::Arc;

use smb::negotiate::Dialect;
use smb::{Command, FileId, Header, HeaderFlags, NtStatus};

use super::{asked, frame};
use crate::access::Tree;
use crate::connections::{Channel, Link};
use crate::limits::COMPOUND_ANSWER_MAX;
use crate::service::Core;
use crate::state::open::UnderWay;
use crate::state::sequence::{Claim, Stale};
use crate::state::{Open, Resource, Room};

/// Who asks, and with what protection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) link: &'a Arc<Link>,
    pub(crate) header: &'a Header,
    pub(crate) channel: &'a Arc<Channel>,
    pub(crate) sealed: bool,
    /// Whether the transport sends an answer before all of it is there.
    pub(crate) streams: bool,
}

impl Asker<'_> {
    /// Room for the bytes of an answer, if that is left to the connection and to whose session it is.
    pub(crate) fn try_room(&self, bytes: usize) -> Option<Room> {
        let whose = (&self.link.account, &self.channel.session.account);
        Room::try_take(whose, Resource::Answers, bytes.min(COMPOUND_ANSWER_MAX))
    }

    /// The open a request names, if it belongs to the session and the tree it names: for requests that
    /// change nothing.
    pub(crate) fn open(&self, id: FileId) -> Result<Arc<Open>, NtStatus> {
        let open = self.find(id)?;
        if let Some(claim) = self.claim() {
            debug_assert!(!claim.modifies, "it has to be counted");
            open.admit(claim).map_err(|Stale| NtStatus::FILE_NOT_AVAILABLE)?;
        }
        Ok(open)
    }

    /// The same for any request, which is under way until the second value is dropped: until then no copy
    /// of it is carried out.
    pub(crate) fn open_counted(&self, id: FileId) -> Result<(Arc<Open>, UnderWay), NtStatus> {
        let open = self.find(id)?;
        let counted = open.begin_request(self.claim());
        let under_way = counted.map_err(|Stale| NtStatus::FILE_NOT_AVAILABLE)?;
        Ok((open, under_way))
    }

    fn find(&self, id: FileId) -> Result<Arc<Open>, NtStatus> {
        let session = &self.channel.session;
        let open = session.open(id.persistent, id.volatile).ok_or_else(|| self.no_open())?;
        if self.header.tree_id().map(|tree| tree.0) != Some(open.tree.id) {
            return Err(NtStatus::NETWORK_NAME_DELETED);
        }
        self.check_protection(&open.tree)?;
        open.set_used(&self.core.files.creates);
        Ok(open)
    }

    // MS-SMB2 §3.3.5.2.11: the tree is looked for before the open. Here it is looked for when there is
    // no open, which spares those that have one a lock: the opens of a tree go with it.
    fn no_open(&self) -> NtStatus {
        if self.has_tree() { NtStatus::FILE_CLOSED } else { NtStatus::NETWORK_NAME_DELETED }
    }

    /// Whether the tree that a request names is there.
    pub(crate) fn has_tree(&self) -> bool {
        self.header.tree_id().is_some_and(|id| self.channel.session.tree(id.0).is_some())
    }

    // MS-SMB2 §3.3.5.2.10.
    fn claim(&self) -> Option<Claim> {
        (self.link.dialect() >= Dialect::SMB_3_0).then(|| Claim {
            sequence: self.header.channel_sequence(),
            modifies: matches!(
                self.header.command,
                Command::WRITE | Command::SET_INFO | Command::IOCTL
            ),
            replays: self.header.flags.contains(HeaderFlags::REPLAY),
        })
    }

    /// The tree a request names.
    pub(crate) fn tree(&self) -> Result<Arc<Tree>, NtStatus> {
        let id = self.header.tree_id().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        let tree = self.channel.session.tree(id.0).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
        self.check_protection(&tree)?;
        Ok(tree)
    }

    /// Whether the tree a request names has pipes instead of files. Asked when no file was found.
    pub(crate) fn is_on_pipes(&self) -> bool {
        self.tree().is_ok_and(|tree| tree.share().is_none())
    }

    /// Whether the request is as secret as a tree is to be. MS-SMB2 §3.3.5.2.11: a share that insists on
    /// encryption is not there for others.
    pub(crate) fn check_protection(&self, tree: &Tree) -> Result<(), NtStatus> {
        if tree.is_encrypt_required() && !self.sealed {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(())
    }

    /// Whether the data of a READ or WRITE may travel that way. What RDMA moves is not sealed, so
    /// a sealed request may not ask for it: nobody gets less protection than it negotiated.
    pub(crate) fn check_channel(&self, channel: smb::Channel) -> Result<(), NtStatus> {
        match channel {
            smb::Channel::NONE => Ok(()),
            smb::Channel::RDMA_V1 | smb::Channel::RDMA_V1_INVALIDATE
                if !self.sealed && self.link.remote_memory().is_some() =>
            {
                Ok(())
            }
            // MS-SMB2 §3.3.5.12 and §3.3.5.13: not on this connection, or not known here.
            _ => Err(NtStatus::INVALID_PARAMETER),
        }
    }

    /// MS-SMB2 §3.3.4.1: whatever a READ or WRITE of an established session on channel `V1_INVALIDATE` comes
    /// to, its answer ends the first of its tokens. Dialects before 3.0.2 have no such channel.
    pub(crate) fn note_invalidation(&self, channel: smb::Channel, descriptors: &[u8]) {
        if channel == smb::Channel::RDMA_V1_INVALIDATE
            && !self.sealed
            && self.link.dialect() >= Dialect::SMB_3_0_2
            && let Some(memory) = self.link.remote_memory()
        {
            memory.invalidate_by_answer(self.header.message_id.0, descriptors);
        }
    }

    /// Whether the answer will be signed or sealed: then all of it has to be there first.
    pub(crate) fn is_protected(&self) -> bool {
        self.sealed || frame::is_signed(self.header, self.channel)
    }

    /// See [`asked::is_paid`].
    pub(crate) fn check_charge(&self, bytes: u32) -> Result<(), NtStatus> {
        let is_paid = asked::is_paid(self.link, self.header, bytes);
        if is_paid { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
    }
}
