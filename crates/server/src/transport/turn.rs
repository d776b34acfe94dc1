//! The turn of a connection on its reactor: the work of its task before other tasks of the thread have
//! their turns.
//!
//! ```text
//!  bytes of one request                              > 1 MiB  --+
//!                                                               +--> others have their turn
//!  bytes of several, and 512 KiB for each of them   > 64 MiB  --+
//! ```
//!
//! Without a bound, a client whose next request is always there, and whose answers the kernel always takes, would
//! keep its reactor for as long as it likes: the runtime ends the turn of a task after 128 reads of its socket,
//! however much each is. A task that had to wait meanwhile begins no new count: that sometimes costs a needless end
//! of a turn.
//!
//! The bound of several requests is 64 times that of one. For the only connection no bytes are counted, and 512
//! requests are a turn: with long requests the runtime's own bound comes first. At the end of a turn the runtime wakes
//! another of its threads, which finds nothing to do, waits for sockets in place of this one, and is woken by each
//! segment that comes for this connection: one to three switches for each MiB, a tenth of the time.

use smb::framing;

use crate::limits::IO_INLINE_MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turn {
    of_request: usize,
    of_all: usize,
    /// There is no other connection.
    is_alone: bool,
}

impl Turn {
    /// Takes the number of connections, this one included.
    pub(super) fn look(&mut self, connections: usize) {
        self.is_alone = connections <= 1;
    }

    /// Charges bytes of a request or of its answer that were copied, or are about to be. Returns whether the turn is
    /// over: the caller then sends the gathered bytes, and yields.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(IO_INLINE_MAX);
        self.of_request += bytes;
        if !self.is_alone {
            self.of_all += bytes;
        }
        let is_over = self.of_request > OF_REQUEST_MAX || self.of_all > TURN_MAX;
        if is_over {
            (self.of_request, self.of_all) = (bytes, bytes);
        }
        is_over
    }

    /// Charges a finished request, or an answer that leaves, and its bytes, as
    /// [`Turn::charge_bytes`] does. The next request begins.
    pub(super) fn end_request(&mut self, bytes: usize) -> bool {
        let mut is_over = self.charge_bytes(bytes);
        self.of_request = 0;
        let request = if self.is_alone { REQUEST / 4 } else { REQUEST };
        self.of_all += request;
        if self.of_all > TURN_MAX {
            self.of_all = request;
            is_over = true;
        }
        is_over
    }
}

/// Bytes of one request in one turn: as many as are copied on the calling thread, in its frame.
pub(super) const OF_REQUEST_MAX: usize = IO_INLINE_MAX + framing::FRAME_OVERHEAD_MAX;
/// Bytes of several requests in one turn.
const TURN_MAX: usize = 64 * IO_INLINE_MAX;
/// The charge of a request beside its bytes: 128 of the shortest are carried out in one turn.
const REQUEST: usize = TURN_MAX / 128;

#[cfg(test)]
pub(super) mod tests {
    use std::pin::pin;

    use tokio::task::yield_now;

    use super::*;

    /// How often other tasks have their turn during this work, from the beginning of a turn on.
    pub(in super::super) async fn turns_of_others<T>(work: impl Future<Output = T>) -> (usize, T) {
        yield_now().await;
        let (mut work, mut turns) = (pin!(work), 0);
        let done = std::future::poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            turns += usize::from(polled.is_pending());
            polled
        });
        let done = done.await;
        (turns, done)
    }

    /// Runs on one thread.
    pub(in super::super) fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn a_turn_ends_at_each_of_its_three_bounds() {
        let one = |count: usize, each: usize| {
            let mut turn = Turn::default();
            (0..count).filter(|_| turn.charge_bytes(each)).count()
        };
        assert_eq!(one(1, IO_INLINE_MAX), 0);
        assert_eq!(one(8, IO_INLINE_MAX), 7);
        assert_eq!(one(32, IO_INLINE_MAX / 4), 7);
        assert_eq!(one(8, usize::MAX), 7, "it is over once");
        let several = |count: usize, each: usize| {
            let mut turn = Turn::default();
            turn.look(2);
            (0..count).filter(|_| turn.end_request(each)).count()
        };
        assert_eq!(several(1024, 0), 7);
        // The bytes are a MiB and the charge of a request.
        assert_eq!((several(42, IO_INLINE_MAX), several(43, IO_INLINE_MAX)), (0, 1));
    }
    #[test]
    fn bytes_of_the_only_connection_end_no_turn_until_another_comes() {
        let mut turn = Turn::default();
        turn.look(1);
        let ended = (0..1024).filter(|_| turn.end_request(IO_INLINE_MAX)).count();
        assert_eq!(ended, 1, "each is one of 512 requests");
        assert!(!turn.charge_bytes(IO_INLINE_MAX));
        assert!(turn.charge_bytes(IO_INLINE_MAX), "of one request");
        turn.look(2);
        assert!((0..44).any(|_| turn.end_request(IO_INLINE_MAX)));
    }
}
