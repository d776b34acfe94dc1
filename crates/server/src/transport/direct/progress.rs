//! How long a peer may leave answers untaken, and RDMA Reads unserved: as over TCP ([`crate::transport::patience`]).

use std::time::Instant;

use super::error::End;
use crate::connections::Link;
use crate::transport::patience::Patience;

/// What has moved since the start of a connection, and since when something waits to move.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of answers that the queue pair has taken.
    pub(super) sent: u64,
    /// Bytes that RDMA Reads have brought.
    pub(super) fetched: u64,
    sending: Option<Patience>,
    fetching: Option<Patience>,
}

impl Progress {
    /// Looks whether the peer is too slow. `is_sending`: answers wait; `is_fetching`: so do RDMA Reads.
    pub(super) fn look(
        &mut self,
        now: Instant,
        link: &Link,
        (is_sending, is_fetching): (bool, bool),
    ) -> Result<(), End> {
        let wanted = || link.wanted_answers();
        if is_slow(&mut self.sending, now.into(), is_sending.then_some(self.sent), wanted) {
            return Err(End::PeerDoesNotRead);
        }
        let wanted = || link.wanted_requests();
        if is_slow(&mut self.fetching, now.into(), is_fetching.then_some(self.fetched), wanted) {
            return Err(End::PeerServesSlowly);
        }
        Ok(())
    }
}

fn is_slow(
    patience: &mut Option<Patience>,
    now: tokio::time::Instant,
    moved: Option<u64>,
    wanted: impl FnOnce() -> Option<usize>,
) -> bool {
    let Some(moved) = moved else {
        *patience = None;
        return false;
    };
    patience.get_or_insert_with(|| Patience::starting(now, moved)).is_over(now, moved, wanted)
}
