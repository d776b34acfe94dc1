//! How long a peer may leave answers untaken, RDMA Reads unserved, and a message half sent: as over TCP
//! ([`crate::transport::patience`]).
//!
//! A peer that sends the rest of a message slowly goes on, but is the first to end where others find no room for their
//! requests ([`Link::room_of_others`]): it need not hold most.

use std::time::Instant;

use super::error::End;
use crate::connections::Link;
use crate::limits::{WRITE_PATIENCE_WANTED, WRITE_PROGRESS_WANTED};
use crate::transport::patience::Patience;

/// What has moved since the start of a connection, and since when something waits to move.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of answers that the queue pair has taken.
    pub(super) sent: u64,
    /// Bytes that RDMA Reads have brought.
    pub(super) fetched: u64,
    /// Bytes of messages of several parts that have come.
    pub(super) received: u64,
    sending: Option<Patience>,
    fetching: Option<Patience>,
    starving: Option<Patience>,
    receiving: Option<Patience>,
    /// Since when the rest of a message is awaited in this span, and what had come then.
    span: Option<(Instant, u64)>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    /// That the peer takes answers.
    pub(super) is_sending: bool,
    /// That the peer serves RDMA Reads.
    pub(super) is_fetching: bool,
    /// Memory to read into: others of its user may hold all of that.
    pub(super) is_starved: bool,
    /// The rest of a message.
    pub(super) is_mid_message: bool,
}

impl Progress {
    /// Looks whether the peer is too slow, and tells the connection whether it is slow with a message.
    pub(super) fn look(
        &mut self,
        now: Instant,
        link: &Link,
        Awaited { is_sending, is_fetching, is_starved, is_mid_message }: Awaited,
    ) -> Result<(), End> {
        let wanted = || link.wanted_answers();
        if is_slow(&mut self.sending, now.into(), is_sending.then_some(self.sent), wanted) {
            return Err(End::PeerDoesNotRead);
        }
        let wanted = || link.wanted_requests();
        if is_slow(&mut self.fetching, now.into(), is_fetching.then_some(self.fetched), wanted) {
            return Err(End::PeerServesSlowly);
        }
        let moved = is_starved.then_some(self.fetched);
        if is_slow(&mut self.starving, now.into(), moved, || None) {
            return Err(End::LocalStagingScarce);
        }
        let moved = is_mid_message.then_some(self.received);
        if is_slow(&mut self.receiving, now.into(), moved, || None) {
            return Err(End::PeerSendsHalf);
        }
        self.look_at_span(now, link, is_mid_message);
        Ok(())
    }

    fn look_at_span(&mut self, now: Instant, link: &Link, is_mid_message: bool) {
        if !is_mid_message {
            self.span = None;
            return link.note_slow(false);
        }
        let (since, before) = *self.span.get_or_insert((now, self.received));
        if now.duration_since(since) >= WRITE_PATIENCE_WANTED {
            link.note_slow(self.received - before < WRITE_PROGRESS_WANTED);
            self.span = Some((now, self.received));
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::push::tests::rig::{Rig, silent_link};

    const HALF: Awaited =
        Awaited { is_sending: false, is_fetching: false, is_starved: false, is_mid_message: true };

    #[tokio::test]
    async fn a_message_that_stays_half_sent_ends_its_connection_after_a_minute() {
        let (rig, begin) = (Rig::new(), Instant::now());
        let link = silent_link(&rig, None);
        let mut progress = Progress::default();
        let at = |second: u64| begin + Duration::from_secs(second);
        for second in 0..60 {
            progress.look(at(second), &link, HALF).unwrap();
            assert_eq!(link.is_slow(), second >= 5, "{second} s");
        }
        let ended = progress.look(at(60), &link, HALF);
        assert!(matches!(ended, Err(End::PeerSendsHalf)), "{ended:?}");
    }

    #[tokio::test]
    async fn a_write_whose_bytes_cannot_be_fetched_ends_its_connection_after_a_minute() {
        let (rig, begin) = (Rig::new(), Instant::now());
        let link = silent_link(&rig, None);
        let mut progress = Progress::default();
        let starved = Awaited { is_starved: true, is_mid_message: false, ..HALF };
        for second in 0..60 {
            progress.look(begin + Duration::from_secs(second), &link, starved).unwrap();
        }
        let ended = progress.look(begin + Duration::from_secs(60), &link, starved);
        assert!(matches!(ended, Err(End::LocalStagingScarce)), "{ended:?}");
    }

    #[tokio::test]
    async fn a_message_that_comes_well_is_not_slow() {
        let (rig, begin) = (Rig::new(), Instant::now());
        let link = silent_link(&rig, None);
        let mut progress = Progress::default();
        for second in 0..100 {
            progress.received += WRITE_PROGRESS_WANTED.div_ceil(5);
            progress.look(begin + Duration::from_secs(second), &link, HALF).unwrap();
            assert!(!link.is_slow() || second < 10, "{second} s");
        }
        progress.look(begin + Duration::from_secs(100), &link, HALF).unwrap();
        let whole = Awaited { is_mid_message: false, ..HALF };
        progress.look(begin + Duration::from_secs(101), &link, whole).unwrap();
        assert!(!link.is_slow());
    }
}
