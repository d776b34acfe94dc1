//! One registration with what it means to the server: its file, its open, its user, its names on the wire.
//!
//! Its life is that of [`remote::host::Registration`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use pmem::{DurabilityClass, Medium, MediumError};
use remote::host::{Committing, PushConnection, Registrar, Registration, Stage};
use smb::push::{Generation, PushConnectionId, RecallReason, RegionState, RegistrationId, Rights};
use tree::{Entry, SharePath};

use super::witness::{Media, Witness};
use crate::access::Identity;
use crate::state::lease::Owner;
use crate::state::node::Node;
use crate::state::obstacle::Obstacle;
use crate::state::open_push::OpenPush;
use crate::state::{Account, Hold, OpenSerial};

/// One registration.
pub(crate) struct Region {
    pub(crate) owner: Owner,
    pub(crate) open_serial: OpenSerial,
    pub(crate) end: u64,
    pub(crate) id: RegistrationId,
    pub(crate) generation: Generation,
    pub(crate) session_id: u64,
    /// The user whose share of the regions it counts against.
    pub(crate) holder: Identity,
    pub(crate) file_offset: u64,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
    pub(crate) connection_id: PushConnectionId,
    /// The range of the file as the engine threads know it.
    pub(crate) registration: Arc<Registration<RecallReason>>,
    /// Notes whether bytes came whose time is not recorded.
    pub(crate) witness: Option<Arc<Witness>>,
    pub(crate) node: Arc<Node>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) open: Arc<OpenPush>,
    /// Of its user.
    pub(crate) account: Arc<Account>,
    _place: Option<Hold>,
}

/// The unchanging parts of a registration.
pub(crate) struct RegionParts {
    pub(crate) owner: Owner,
    pub(crate) open_serial: OpenSerial,
    pub(crate) id: RegistrationId,
    pub(crate) generation: Generation,
    pub(crate) session_id: u64,
    pub(crate) holder: Identity,
    pub(crate) file_offset: u64,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
    pub(crate) connection_id: PushConnectionId,
    pub(crate) connection: PushConnection,
    pub(crate) registrar: Arc<dyn Registrar>,
    pub(crate) media: Media,
    pub(crate) account: Arc<Account>,
    /// The place of the medium's descriptor.
    pub(crate) place: Option<Hold>,
    pub(crate) node: Arc<Node>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) open: Arc<OpenPush>,
}

/// A region in the form of a report.
pub(crate) struct RegionView {
    pub(crate) session_id: u64,
    pub(crate) path: SharePath,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) class: DurabilityClass,
    pub(crate) rights: Rights,
    pub(crate) connection: u64,
    pub(crate) state: RegionState,
    /// Commits by control.
    pub(crate) commits: u64,
}

impl Obstacle for Region {
    fn owner(&self) -> Owner {
        self.owner
    }
}

impl Region {
    /// The regions that are mapped of a file.
    pub(crate) fn all_of(node: &Node) -> Vec<Arc<Self>> {
        let state = node.lock();
        // Without regions, which is nearly always so, this allocates nothing.
        let any = state.obstacles().map(|one| Arc::clone(one) as Arc<dyn Any + Send + Sync>);
        any.filter_map(|one| one.downcast().ok()).collect()
    }

    pub(crate) fn new(parts: RegionParts) -> Self {
        let Media { medium, witness } = parts.media;
        let end = parts.file_offset + parts.length;
        let range = parts.file_offset..end;
        let registration = Registration::new(parts.registrar, parts.connection, medium, range);
        Self {
            owner: parts.owner,
            open_serial: parts.open_serial,
            end,
            id: parts.id,
            generation: parts.generation,
            session_id: parts.session_id,
            holder: parts.holder,
            file_offset: parts.file_offset,
            length: parts.length,
            rights: parts.rights,
            connection_id: parts.connection_id,
            registration: Arc::new(registration),
            witness,
            node: parts.node,
            entry: parts.entry,
            open: parts.open,
            account: parts.account,
            _place: parts.place,
        }
    }

    /// The connection whose peer may use the region.
    pub(crate) fn connection(&self) -> PushConnection {
        self.registration.connection()
    }

    /// The medium that the engine places into.
    pub(crate) fn medium(&self) -> &Arc<dyn Medium> {
        self.registration.medium()
    }

    /// Begins a commit by control, unless the region may not be used any more. The region does not
    /// end before the commit has.
    pub(crate) fn begin_commit(&self) -> Option<Committing<RecallReason>> {
        self.registration.begin_commit()
    }

    /// Whether the client's bytes may have been placed without a call of the medium.
    pub(crate) fn is_unseen(&self) -> bool {
        self.registration.is_unseen()
    }

    /// Makes the placed bytes of a range of the file durable. Blocks.
    ///
    /// # Durability
    ///
    /// As [`Medium::persist`], whether the engine or a device has placed the bytes.
    pub(crate) fn persist(&self, file_offset: u64, length: u64) -> Result<(), MediumError> {
        if self.is_unseen() {
            // The time of their placement is unknown, so the present time is recorded.
            self.note_unseen();
        }
        self.registration.persist(file_offset, length)
    }

    /// Called when the region ends: a later SMB2 FLUSH no longer finds the bytes that a device has placed
    /// in it, so they are made durable now; if that fails no FLUSH of the file succeeds any more. Blocks.
    pub(crate) fn persist_placed(&self) {
        match self.persist(self.file_offset, self.length) {
            Ok(()) | Err(MediumError::VolatileRefused) => {}
            Err(error) => {
                tracing::error!(region = self.id.0, %error, "what was written and not committed may be lost");
                self.node.poison(&self.entry);
            }
        }
    }

    /// Returns once no operation touches the region any more.
    pub(crate) async fn wait_ended(&self) {
        self.registration.wait_ended().await;
    }

    /// State and reason in the form of QUERY.
    pub(crate) fn shown(&self) -> (RegionState, RecallReason) {
        let (stage, reason) = self.registration.stage();
        let state = match stage {
            Stage::Registering | Stage::Active => RegionState::ACTIVE,
            Stage::Recalling => RegionState::RECALLING,
            Stage::Ending | Stage::Ended => RegionState::REVOKED,
        };
        (state, reason.unwrap_or(RecallReason::NONE))
    }

    /// Grows from region to region.
    pub(crate) fn number(&self) -> u64 {
        self.id.0
    }

    /// The region in the form of a report.
    pub(crate) fn view(&self) -> RegionView {
        let path = self.node.lock().path_of(self.open_serial).unwrap_or_default();
        RegionView {
            session_id: self.session_id,
            path,
            offset: self.file_offset,
            length: self.length,
            class: self.medium().class(),
            rights: self.rights,
            connection: self.connection_id.0,
            state: self.shown().0,
            commits: self.registration.commits(),
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("id", &self.id)
            .field("file_offset", &self.file_offset)
            .field("length", &self.length)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}
