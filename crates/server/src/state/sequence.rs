//! The channel sequence of an open: which requests come from before the client lost a channel.
//!
//! ```text
//!   request's sequence - open's sequence, as u16
//!        0            goes on; counted as current
//!   1 ..= 0x7fff      the client moved on: what is under way now is from before
//!   0x8000 ..         from before: a request that changes something is stale
//! ```
//!
//! A client that lost a channel counts its sequence up and sends again what was not answered. The
//! first copy may still be on its way; were it to arrive behind a later write it would undo that.
//!
//! Spec: MS-SMB2 §3.3.5.2.10.

/// Where an open's channel sequence stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sequence {
    current: u16,
    // Counts the steps of `current`: a value that comes again after a full turn is another one.
    epoch: u64,
    under_way: u32,
    under_way_before: u32,
}

/// A request under way, as [`Sequence::begin`] saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ticket {
    epoch: u64,
}

/// What a request is to a sequence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Claim {
    /// Channel sequence of its header.
    pub(crate) sequence: u16,
    /// WRITE, SET_INFO or IOCTL.
    pub(crate) modifies: bool,
    /// Its header says that it is sent again.
    pub(crate) replays: bool,
}

impl Sequence {
    /// Starts from the CREATE's.
    pub(crate) fn starting_at(current: u16) -> Self {
        Self { current, ..Self::default() }
    }

    /// Whether a request may be carried out. Asking twice is asking once.
    pub(crate) fn admit(&mut self, claim: Claim) -> Result<(), Stale> {
        let ahead = claim.sequence.wrapping_sub(self.current);
        if ahead > AHEAD_MAX {
            return if claim.modifies { Err(Stale) } else { Ok(()) };
        }
        if ahead > 0 {
            self.current = claim.sequence;
            self.epoch += 1;
            self.under_way_before = self.under_way_before.saturating_add(self.under_way);
            self.under_way = 0;
        }
        // The copy sent first may be among those under way.
        if claim.modifies && claim.replays && self.under_way_before > 0 {
            return Err(Stale);
        }
        Ok(())
    }

    /// Admits and counts a request in one step. A request that were counted later could be overtaken in between by
    /// its own copy, which finds nothing under way, and then undo what came after that.
    pub(crate) fn enter(&mut self, claim: Claim) -> Result<Ticket, Stale> {
        self.admit(claim)?;
        Ok(self.begin())
    }

    /// Counts a request that takes its time.
    pub(crate) fn begin(&mut self) -> Ticket {
        self.under_way = self.under_way.saturating_add(1);
        Ticket { epoch: self.epoch }
    }

    /// The request is answered.
    pub(crate) fn end(&mut self, ticket: Ticket) {
        let count = if ticket.epoch == self.epoch {
            &mut self.under_way
        } else {
            &mut self.under_way_before
        };
        *count = count.saturating_sub(1);
    }
}

/// The request is from before the client lost a channel, or may meet a copy that is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stale;

const AHEAD_MAX: u16 = 0x7fff;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sequence: u16) -> Claim {
        Claim { sequence, modifies: true, replays: false }
    }

    #[test]
    fn the_half_of_the_circle_behind_is_stale() {
        let mut state = Sequence::starting_at(0);
        assert_eq!(state.admit(write(0)), Ok(()));
        for stale in [0x8000, 0x8001, 0xffff] {
            assert_eq!(state.admit(write(stale)), Err(Stale));
        }
        assert_eq!(state.admit(write(0x7fff)), Ok(()));
        assert_eq!(state.admit(write(0x7ffe)), Err(Stale));
        assert_eq!(state.admit(write(0)), Err(Stale));
        assert_eq!(state.admit(write(0x8000)), Ok(()));
        assert_eq!(state.admit(write(0xffff)), Ok(()));
        assert_eq!(state.admit(write(0)), Ok(()), "it goes round");
    }

    #[test]
    fn what_changes_nothing_is_never_stale() {
        let mut state = Sequence::starting_at(5);
        let read = Claim { sequence: 4, modifies: false, replays: false };
        assert_eq!(state.admit(read), Ok(()));
        assert_eq!(state, Sequence::starting_at(5), "and moves nothing back");
    }

    #[test]
    fn a_replay_waits_until_the_first_copy_cannot_come_any_more() {
        let mut state = Sequence::default();
        let first = state.begin();
        let again = Claim { replays: true, ..write(1) };
        assert_eq!(state.admit(again), Err(Stale));
        state.end(first);
        assert_eq!(state.admit(again), Ok(()));
    }

    #[test]
    fn a_request_is_under_way_from_when_it_is_admitted() {
        let mut state = Sequence::default();
        let first = state.enter(write(0)).unwrap();
        let again = Claim { replays: true, ..write(1) };
        assert_eq!(state.enter(again), Err(Stale));
        state.end(first);
        let again = state.enter(again).unwrap();
        assert_eq!(state.enter(write(0)), Err(Stale), "one that is refused is not counted");
        state.end(again);
        assert_eq!((state.under_way, state.under_way_before), (0, 0));
    }

    #[test]
    fn a_request_that_outlives_a_full_turn_is_counted_off_where_it_was_counted() {
        let mut state = Sequence::default();
        let first = state.begin();
        for sequence in [30_000, 60_000, 0] {
            assert_eq!(state.admit(write(sequence)), Ok(()));
        }
        assert_eq!((state.under_way, state.under_way_before), (0, 1));
        state.end(first);
        assert_eq!((state.under_way, state.under_way_before), (0, 0));
    }

    #[test]
    fn counts_come_back_to_zero_whatever_the_order() {
        proptest::proptest!(|(steps in proptest::collection::vec((0u16..4, 0usize..8), 0..200))| {
            let mut state = Sequence::default();
            let mut open = Vec::new();
            let mut sequence = 0u16;
            for (step, pick) in steps {
                match step {
                    0 => open.push(state.begin()),
                    1 if !open.is_empty() => {
                        let ticket = open.swap_remove(pick % open.len());
                        state.end(ticket);
                    }
                    2 => {
                        sequence = sequence.wrapping_add(1);
                        proptest::prop_assert_eq!(state.admit(write(sequence)), Ok(()));
                    }
                    _ => {
                        let before = Claim { replays: true, ..write(sequence) };
                        let may = state.admit(before).is_ok();
                        let older = open.iter().any(|ticket| ticket.epoch != state.epoch);
                        proptest::prop_assert_eq!(may, !older);
                    }
                }
                let counted = state.under_way + state.under_way_before;
                proptest::prop_assert_eq!(usize::try_from(counted).unwrap(), open.len());
            }
        });
    }
}
