//! What owner and watchers of a mapped file share: where the mapping stands, the lease, and the requests that both make.
//!
//! A [`Watcher`] waits until the server recalls one mapping, asks the owner to give it back, and does so itself when half of the
//! grace is over.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remote::Recall;
use smb::push::{
    CommitRange, CommitRequest, CommitResponse, Generation, RecallRequest, RecallResponse,
    RegistrationId, UnmapRequest,
};
use smb::{ControlCode, NtStatus};
use tokio::sync::watch;
use tracing::debug;

use super::answers::malformed;
use crate::connection::LeaseBreak;
use crate::error::{ClientError, ConnectionError};
use crate::file::{File, Lease};

/// State that owner and watchers share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The open that carries the registration.
    pub(super) mapper: Mutex<Arc<File>>,
    pub(super) standing: watch::Sender<Standing>,
    /// The end of the connection ends neither the open nor its lease.
    pub(super) outlives: AtomicBool,
    /// Held by the watcher that is active.
    pub(super) lease: tokio::sync::Mutex<Option<Lease>>,
}

/// The state of the mapping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    Unmapped,
    Mapped(RegistrationId, Generation),
    /// The server has not unmapped, and the connection lives: bytes on their way may still be placed.
    Refused(RegistrationId, Generation),
    /// The owner has unmapped, and may have something left to write.
    Settling,
}

impl Standing {
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(..))
    }

    /// The state behind an UNMAP: `then`, unless the registration may exist still. A later call asks again.
    fn after_unmap<T>(self, then: Self, answer: &Result<T, ClientError>) -> Self {
        match self {
            Self::Mapped(id, generation) | Self::Refused(id, generation) if !is_over(answer) => {
                Self::Refused(id, generation)
            }
            _ => then,
        }
    }
}

/// Whether a registration has ended that the client was to unmap, with this outcome.
fn is_over<T>(answer: &Result<T, ClientError>) -> bool {
    match answer {
        Ok(_) => true,
        // It ended first, or with its open.
        Err(ClientError::PeerStatus { status, .. }) => [
            NtStatus::NOT_FOUND,
            NtStatus::FILE_CLOSED,
            NtStatus::NETWORK_NAME_DELETED,
            NtStatus::USER_SESSION_DELETED,
        ]
        .contains(status),
        // The connection goes on behind these alone; with any other connection its registrations end.
        Err(ClientError::Connection(
            ConnectionError::PeerLate(_) | ConnectionError::PeerFewCredits { .. },
        )) => false,
        Err(ClientError::Connection(_)) => true,
        Err(_) => false,
    }
}

impl Shared {
    /// Returns the registration; on return the server places no more bytes through it.
    pub(super) async fn unmap(&self, then: Standing) -> Result<(), ClientError> {
        let mapped = *self.standing.borrow();
        let (Standing::Mapped(registration, generation)
        | Standing::Refused(registration, generation)) = mapped
        else {
            return Ok(());
        };
        let mut input = Vec::new();
        UnmapRequest { registration, generation }.emit(&mut input);
        let mapper = Arc::clone(&self.mapper());
        let answer = mapper.ioctl(ControlCode::UNMAP_REMOTE_REGION, &input, 0).await;
        // Owner and watcher may both ask; the region may be mapped again when the later answer
        // comes.
        let next = mapped.after_unmap(then, &answer);
        self.standing.send_if_modified(|present| {
            let is_ours = *present == mapped;
            if is_ours {
                *present = next;
            }
            is_ours
        });
        match answer {
            // The server ended the registration first: the region is unmapped.
            Err(error) if error.status() == Some(NtStatus::NOT_FOUND) => Ok(()),
            other => other.map(drop),
        }
    }

    pub(super) async fn commit(&self, range: Range<u64>) -> Result<(), ClientError> {
        let present = *self.standing.borrow();
        let mapper = Arc::clone(&self.mapper());
        let Standing::Mapped(registration, generation) = present else {
            return mapper.flush().await;
        };
        let range = CommitRange { file_offset: range.start, length: range.end - range.start };
        let mut input = Vec::new();
        CommitRequest { registration, generation, ranges: vec![range] }.emit(&mut input);
        let code = ControlCode::COMMIT_REMOTE_REGION;
        let output = mapper.ioctl(code, &input, COMMIT_OUTPUT_MAX).await?;
        CommitResponse::parse(&output).map(drop).map_err(malformed)
    }

    /// Answers breaks until the region is mapped again, whose watcher then takes the lease.
    pub(super) async fn acknowledge_while_unmapped(&self, lease: &mut Lease, patience: Duration) {
        let mut standing = self.standing.subscribe();
        loop {
            let found = tokio::select! {
                biased;
                _ = standing.wait_for(Standing::is_mapped) => return,
                found = lease.next_break() => found,
            };
            let Ok(found) = found else { return };
            let settled = standing.wait_for(|standing| *standing != Standing::Settling);
            let _ = tokio::time::timeout(patience, settled).await;
            acknowledge(lease, found).await;
        }
    }

    pub(super) fn mapper(&self) -> MutexGuard<'_, Arc<File>> {
        self.mapper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of the grace is the owner's, to give a region back; the rest is the watcher's, for it to reach the server.
pub(super) fn owners_part(grace: Duration) -> Duration {
    grace / 2
}

/// Waits until the server recalls one mapping.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) shared: Arc<Shared>,
    pub(super) recall: Arc<Recall>,
    pub(super) mapped: Standing,
    pub(super) grace: Duration,
}

impl Watcher {
    pub(super) async fn run(self) {
        // A watcher of an earlier mapping may still be acknowledging its break.
        let mut lease = self.shared.lease.lock().await;
        let Some(lease) = lease.as_mut() else { return };
        let mut standing = self.shared.standing.subscribe();
        let mapper = Arc::clone(&self.shared.mapper());
        let mapped = self.mapped;
        let recalled = tokio::select! {
            // The server announces a conflict both ways; the lease break needs an answer.
            biased;
            found = lease.next_break() => match found {
                // The lease outlives the connection.
                Err(_) if self.shared.outlives.load(Ordering::Relaxed) => return,
                found => Some(found.ok()),
            },
            // The lease break of the same conflict may be on its way.
            recalled = wait_recall(&mapper) => match recalled {
                Err(error) if error.is_lost() && self.shared.outlives.load(Ordering::Relaxed) => return,
                _ => Some(None),
            },
            _ = standing.wait_for(|standing| *standing != mapped) => None,
        };
        if let Some(found) = recalled {
            debug!(?found, "the server recalls the region");
            self.recall.ask();
            let is_over = |now: &Standing| *now != mapped && *now != Standing::Settling;
            let given_back = standing.wait_for(is_over);
            if tokio::time::timeout(owners_part(self.grace), given_back).await.is_err() {
                // The owner makes no calls: the watcher returns the region in its name, and
                // uncommitted writes are not written again. If the owner is about to return the
                // region, the lease break is not acknowledged before that.
                self.recall.leave();
                let _ = self.shared.unmap(Standing::Unmapped).await;
            }
            if let Some(found) = found {
                acknowledge(lease, found).await;
            }
        }
        self.shared.acknowledge_while_unmapped(lease, owners_part(self.grace)).await;
    }
}

async fn acknowledge(lease: &mut Lease, found: LeaseBreak) {
    if let Err(error) = lease.acknowledge(found).await {
        debug!(%error, "the lease break was not acknowledged");
    }
}

async fn wait_recall(mapper: &File) -> Result<RecallResponse, ClientError> {
    let mut input = Vec::new();
    RecallRequest.emit(&mut input);
    let code = ControlCode::WAIT_REGION_RECALL;
    let output = mapper.ioctl_for_ever(code, &input, RECALL_OUTPUT_MAX).await?;
    RecallResponse::parse(&output).map_err(malformed)
}

const COMMIT_OUTPUT_MAX: u32 = 64;
const RECALL_OUTPUT_MAX: u32 = 64 * 1024;

#[cfg(test)]
mod tests {
    use smb::{Command, MessageId};

    use super::*;

    #[test]
    fn the_owner_has_half_of_the_grace_to_give_a_region_back() {
        assert_eq!(owners_part(Duration::from_secs(7)), Duration::from_millis(3_500));
    }

    #[test]
    fn a_region_whose_unmapping_was_refused_does_not_count_as_unmapped() {
        let mapped = Standing::Mapped(RegistrationId(1), Generation(2));
        let refused = Standing::Refused(RegistrationId(1), Generation(2));
        let after = |answer: Result<(), ClientError>| {
            let [first, again] =
                [mapped, refused].map(|from| from.after_unmap(Standing::Settling, &answer));
            assert_eq!(first, again, "{answer:?}");
            first
        };
        let status =
            |status| after(Err(ClientError::PeerStatus { command: Command::IOCTL, status }));
        assert_eq!(after(Ok(())), Standing::Settling);
        for over in [NtStatus::NOT_FOUND, NtStatus::FILE_CLOSED, NtStatus::USER_SESSION_DELETED] {
            assert_eq!(status(over), Standing::Settling, "{over}");
        }
        for kept in [NtStatus::INSUFFICIENT_RESOURCES, NtStatus::NETWORK_SESSION_EXPIRED] {
            assert_eq!(status(kept), refused, "{kept}");
        }
        let lost = |error: ConnectionError| after(Err(error.into()));
        assert_eq!(lost(ConnectionError::PeerClosed), Standing::Settling);
        assert_eq!(lost(ConnectionError::PeerLate(MessageId(3))), refused);
        assert!(!refused.is_mapped(), "breaks are answered");
    }
}
