//! The life of one registration.
//!
//! ```text
//!                    registered           recalled                 grace over
//!  +-------------+ -----------> +--------+ --------> +-----------+ ---------+
//!  | Registering |              | Active |           | Recalling |          |
//!  +-------------+              +--------+           +-----------+          v
//!        |                          | unmap, close, lost | unmap        +--------+
//!        | recalled meanwhile       v                    v              | Ending |
//!        +----------------------> Ending <---------------+              +--------+
//!                                   | nothing touches it any more           |
//!                                   v                                       |
//!                               +-------+ <---------------------------------+
//!                                +-------+ <---------------------------------+
//!                               +-------+
//! ```

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pmem::{DurabilityClass, Medium, MediumError};
use rdma::{MemoryRegion, Rkey};
use smb::push::{Generation, PushConnectionId, RecallReason, RegionState, RegistrationId, Rights};
use tokio::sync::Notify;
use tree::{Entry, SharePath};

use super::registrar::EngineConnection;
use super::witness::{Media, Witness};
use crate::access::Identity;
use crate::state::lease::Owner;
use crate::state::node::Node;
use crate::state::obstacle::Obstacle;
use crate::state::open_push::OpenPush;
use crate::state::{Hold, OpenSerial};

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
    pub(crate) connection: EngineConnection,
    pub(crate) medium: Arc<dyn Medium>,
    /// Notes whether bytes came whose time is not recorded.
    pub(crate) witness: Option<Arc<Witness>>,
    pub(crate) node: Arc<Node>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) open: Arc<OpenPush>,
    _place: Option<Hold>,
    life: Mutex<Life>,
    /// Notified when the region, or the last commit on it, has ended.
    ended: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    stage: Stage,
    rkey: Option<Rkey>,
    /// A device places the bytes by itself.
    unseen: bool,
    reason: RecallReason,
    revoked: bool,
    reported: bool,
    deadline: Option<Instant>,
    /// Commits by control that have begun and not ended.
    commits: usize,
    commits_total: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Registering,
    Active,
    Recalling,
    Ending,
    Ended,
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
    pub(crate) connection: EngineConnection,
    pub(crate) media: Media,
    /// The account of the medium's descriptor.
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

/// The next step for a caller that ends a registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    /// Deregister, then call [`Region::set_ended`].
    Deregister(Rkey),
    /// Another caller is ending it; wait for [`Region::wait_ended`].
    Underway,
    /// The registration has ended.
    Over,
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
        let life = Life {
            stage: Stage::Registering,
            rkey: None,
            unseen: false,
            reason: RecallReason::NONE,
            revoked: false,
            reported: false,
            deadline: None,
            commits: 0,
            commits_total: 0,
        };
        Self {
            owner: parts.owner,
            open_serial: parts.open_serial,
            end: parts.file_offset + parts.length,
            id: parts.id,
            generation: parts.generation,
            session_id: parts.session_id,
            holder: parts.holder,
            file_offset: parts.file_offset,
            length: parts.length,
            rights: parts.rights,
            connection_id: parts.connection_id,
            connection: parts.connection,
            medium: parts.media.medium,
            witness: parts.media.witness,
            node: parts.node,
            entry: parts.entry,
            open: parts.open,
            _place: parts.place,
            life: Mutex::new(life),
            ended: Notify::new(),
        }
    }

    /// Records the registration by the engine. False: the region was recalled meanwhile and has to
    /// be ended.
    pub(crate) fn set_registered(&self, memory: &MemoryRegion) -> bool {
        let mut life = self.lock();
        life.rkey = Some(memory.rkey);
        life.unseen = memory.unseen;
        let wanted = life.stage == Stage::Registering;
        if wanted {
            life.stage = Stage::Active;
        }
        wanted
    }

    /// Recalls the region with the deadline `now + grace`. Returns the time when it will be
    /// revoked.
    pub(crate) fn recall(&self, reason: RecallReason, now: Instant, grace: Duration) -> Instant {
        let mut life = self.lock();
        // After a second recall the earlier deadline counts.
        let deadline = life.deadline.map_or(now + grace, |earlier| earlier.min(now + grace));
        life.deadline = Some(deadline);
        match life.stage {
            Stage::Active => {
                life.stage = Stage::Recalling;
                life.reason = reason;
            }
            // The client does not hold the region yet: it is revoked as soon as it is registered.
            Stage::Registering => {
                life.stage = Stage::Ending;
                life.reason = reason;
            }
            Stage::Recalling | Stage::Ending | Stage::Ended => {}
        }
        deadline
    }

    /// Whether the region is recalled, or has ended.
    pub(crate) fn is_recalled(&self) -> bool {
        !matches!(self.lock().stage, Stage::Registering | Stage::Active)
    }

    /// Starts the end. `revoked`: against the client's will, so that a trace stays.
    pub(crate) fn begin_end(&self, revoked: bool) -> Ending {
        let mut life = self.lock();
        match (life.stage, life.rkey) {
            (Stage::Ended, _) => Ending::Over,
            (Stage::Active | Stage::Recalling, Some(rkey)) => {
                life.stage = Stage::Ending;
                life.revoked = revoked;
                Ending::Deregister(rkey)
            }
            _ => {
                life.stage = Stage::Ending;
                life.revoked |= revoked;
                Ending::Underway
            }
        }
    }

    /// Begins a commit by control, unless the region may not be used any more. The region does not
    /// end before the commit has.
    pub(crate) fn begin_commit(self: &Arc<Self>) -> Option<Committing> {
        let mut life = self.lock();
        if !matches!(life.stage, Stage::Active | Stage::Recalling) {
            return None;
        }
        life.commits += 1;
        life.commits_total += 1;
        Some(Committing(Arc::clone(self)))
    }

    /// Returns once no commit by control is in progress. After the start of the end none begins.
    pub(crate) async fn wait_committed(&self) {
        self.wait_until(|life| life.commits == 0).await;
    }

    /// Whether the client's bytes may have been placed without a call of the medium.
    pub(crate) fn is_unseen(&self) -> bool {
        self.lock().unseen
    }

    /// Makes the placed bytes of a range of the file durable. Blocks.
    ///
    /// # Durability
    ///
    /// As [`Medium::persist`], whether the engine or a device has placed the bytes.
    pub(crate) fn persist(&self, file_offset: u64, length: u64) -> Result<(), MediumError> {
        if !self.is_unseen() {
            return self.medium.persist(file_offset, length);
        }
        // The time of their placement is unknown, so the present time is recorded.
        self.note_unseen();
        self.medium.persist_foreign(file_offset, length)
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

    /// Records that no operation touches the region any more.
    pub(crate) fn set_ended(&self) {
        self.lock().stage = Stage::Ended;
        self.ended.notify_waiters();
    }

    /// Returns once no operation touches the region any more.
    pub(crate) async fn wait_ended(&self) {
        self.wait_until(|life| life.stage == Stage::Ended).await;
    }

    async fn wait_until(&self, is_so: impl Fn(&Life) -> bool) {
        basics::until(&self.ended, || is_so(&self.lock())).await;
    }

    /// State and reason in the form of QUERY.
    pub(crate) fn shown(&self) -> (RegionState, RecallReason) {
        let life = self.lock();
        let state = match life.stage {
            Stage::Registering | Stage::Active => RegionState::ACTIVE,
            Stage::Recalling => RegionState::RECALLING,
            Stage::Ending | Stage::Ended => RegionState::REVOKED,
        };
        (state, life.reason)
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
            class: self.medium.class(),
            rights: self.rights,
            connection: self.connection_id.0,
            state: self.shown().0,
            commits: self.lock().commits_total,
        }
    }

    /// A recall that is not reported yet: reason and time left. Each recall is reported once.
    pub(crate) fn take_report(&self, now: Instant) -> Option<(RecallReason, Duration)> {
        let mut life = self.lock();
        if life.reported || life.reason == RecallReason::NONE {
            return None;
        }
        life.reported = true;
        let left = match life.stage {
            Stage::Recalling => life.deadline.map(|deadline| deadline.duration_since(now)),
            _ => None,
        };
        Some((life.reason, left.unwrap_or_default()))
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A commit by control in progress.
pub(crate) struct Committing(Arc<Region>);

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.lock().commits -= 1;
        self.0.ended.notify_waiters();
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
