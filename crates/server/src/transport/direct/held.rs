//! What the requests of a connection hold before they are looked at, counted for the first user who has logged on over
//! it, or for guests.
//!
//! ```text
//!   bytes held:  0 ....... BACKLOG_UNCOUNTED_MAX ....... BACKLOG_PER_CONNECTION_MAX
//!                not counted: costs nothing   counted by pieces                     dropped
//! ```
//!
//! The bytes of a connection's user, or of all guests, may be used up by others. Then those end that hold a part of a
//! message and are slow with the rest, or else those that hold most, and this one goes on with what they give back: no
//! peer is kept from sending by what others send.

use std::mem;
use std::sync::Arc;

use super::error::End;
use crate::connections::Link;
use crate::limits::{BACKLOG_PER_CONNECTION_MAX, BACKLOG_UNCOUNTED_MAX};
use crate::state::{Account, Resource, Room};

/// See the module.
#[derive(Debug)]
pub(super) struct Held {
    link: Arc<Link>,
    /// Bytes that `room` is for.
    counted: usize,
    room: Option<Room>,
}

impl Held {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, counted: 0, room: None }
    }

    /// The connection holds `bytes` now.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), End> {
        let over = bytes.saturating_sub(BACKLOG_UNCOUNTED_MAX);
        if over > self.counted {
            return self.grow(over);
        }
        // A piece is kept, so that a connection at its edge does not take and return it with each request.
        if self.counted > over + PIECE {
            self.shrink(over);
        }
        Ok(())
    }

    /// A user has logged on over the connection: what it held as a guest's is that user's from now on.
    pub(super) fn move_to(&mut self, holder: &Arc<Account>) -> Result<(), End> {
        if self.room.as_ref().is_none_or(|room| room.is_of(holder)) {
            return Ok(());
        }
        // Given back first: the connection has it once.
        self.room = None;
        let counted = mem::take(&mut self.counted);
        self.grow(counted)
    }

    #[cold]
    fn grow(&mut self, over: usize) -> Result<(), End> {
        if over > BACKLOG_PER_CONNECTION_MAX - BACKLOG_UNCOUNTED_MAX {
            return Err(End::PeerTooManyRequests);
        }
        // A stranger has what is not counted, and no more.
        let Some(holder) = self.link.holder() else { return Err(End::PeerTooManyRequests) };
        let more = (over - self.counted).next_multiple_of(PIECE);
        let whose = (&self.link.account, &holder);
        let what = Resource::Backlog;
        let room = Room::try_take(whose, what, more);
        let room = room.or_else(|| self.link.room_of_others(&holder, what, more));
        let room = room.ok_or(End::PeerHoldsMost)?;
        let anothers = match &mut self.room {
            Some(held) => held.absorb(room),
            None => self.room.replace(room),
        };
        debug_assert!(anothers.is_none(), "all of it is of one holder");
        self.counted += more;
        Ok(())
    }

    #[cold]
    fn shrink(&mut self, over: usize) {
        self.counted = over.next_multiple_of(PIECE);
        match (&mut self.room, self.counted) {
            (Some(room), 1..) => room.shrink(self.counted),
            (_, 0) => self.room = None,
            (None, _) => {}
        }
    }
}

/// Bytes that are counted at a time.
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Identity;
    use crate::limits::{BACKLOG_OF_GUESTS_MAX, BACKLOG_PER_USER_MAX};
    use crate::push::tests::rig::{Rig, silent_link};

    const WHOLE: usize = BACKLOG_PER_CONNECTION_MAX;

    #[tokio::test]
    async fn waiting_requests_of_a_user_are_bounded_and_the_fullest_connection_ends() {
        let guest = Identity::Guest { client: [1; 16] };
        for (who, max) in
            [(Identity::User("user".into()), BACKLOG_PER_USER_MAX), (guest, BACKLOG_OF_GUESTS_MAX)]
        {
            let rig = Rig::new();
            let connect = || silent_link(&rig, Some(&who));
            let mut full: Vec<_> = (0..max / WHOLE)
                .map(|_| {
                    let mut held = Held::new(connect());
                    held.set(WHOLE).unwrap();
                    held
                })
                .collect();
            // What is not counted leaves some of the bound.
            let mut last = Held::new(connect());
            last.set(1 << 20).unwrap();
            let mut newcomer = Held::new(connect());
            newcomer.set(BACKLOG_UNCOUNTED_MAX).unwrap();
            newcomer.set(200_000).unwrap();
            assert!(full.iter().filter(|held| held.link.is_cut()).count() <= 1);
            let mut others: Vec<_> = (0..4).map(|_| Held::new(connect())).collect();
            for held in &mut others {
                held.set(1 << 20).unwrap();
            }
            let ended = full.iter().filter(|held| held.link.is_cut()).count();
            assert_eq!(ended, 1, "until it has returned what it holds, no other ends");
            assert!(!newcomer.link.is_cut() && !last.link.is_cut());
            full.retain(|held| !held.link.is_cut());
            drop((newcomer, last, others));
            let mut next = Held::new(connect());
            next.set(WHOLE).unwrap();
            assert!(!next.link.is_cut());
        }
    }

    #[tokio::test]
    async fn the_connection_with_most_waiting_requests_does_not_end_others() {
        let rig = Rig::new();
        let who = Identity::User("user".into());
        let mut all: Vec<_> = (0..8).map(|_| Held::new(silent_link(&rig, Some(&who)))).collect();
        for held in &mut all {
            held.set(14 << 20).unwrap();
        }
        let greedy = all.last_mut().unwrap();
        let ended = (15..=32).find_map(|mib| greedy.set(mib << 20).err());
        assert!(matches!(ended, Some(End::PeerHoldsMost)), "{ended:?}");
        assert!(!all.iter().any(|held| held.link.is_cut()));
    }

    #[tokio::test]
    async fn what_a_connection_holds_that_went_on_without_room_is_counted_from_its_next_growth_on()
    {
        let rig = Rig::new();
        let who = Identity::Guest { client: [1; 16] };
        let connect = || silent_link(&rig, Some(&who));
        let mut full: Vec<_> =
            (0..BACKLOG_OF_GUESTS_MAX / WHOLE).map(|_| Held::new(connect())).collect();
        for held in &mut full {
            held.set(WHOLE).unwrap();
        }
        full[0].set(WHOLE - PIECE).unwrap();
        let mut last = Held::new(connect());
        last.set(1 << 20).unwrap();
        let mut newcomer = Held::new(connect());
        newcomer.set(BACKLOG_UNCOUNTED_MAX + PIECE).unwrap();
        assert!(newcomer.room.is_some() && full.iter().any(|held| held.link.is_cut()));
        full.retain(|held| !held.link.is_cut());
        drop((last, full));
        let holder = newcomer.link.holder().unwrap();
        let before = holder.held(Resource::Backlog);
        newcomer.set(WHOLE).unwrap();
        let grown = WHOLE - BACKLOG_UNCOUNTED_MAX - PIECE;
        assert_eq!(holder.held(Resource::Backlog), before + grown);
        drop(newcomer);
        assert_eq!(holder.held(Resource::Backlog), 0);
    }

    #[tokio::test]
    async fn a_guest_whose_requests_wait_goes_on_beside_many_half_messages() {
        let rig = Rig::new();
        let who = Identity::Guest { client: [1; 16] };
        let connect = || silent_link(&rig, Some(&who));
        let mut half: Vec<_> = (0..BACKLOG_OF_GUESTS_MAX / PIECE)
            .map(|_| {
                let mut held = Held::new(connect());
                held.set(BACKLOG_UNCOUNTED_MAX + 1).unwrap();
                held
            })
            .collect();
        let quick = half.pop().unwrap();
        half.iter().for_each(|held| held.link.note_slow(true));
        let mut honest = Held::new(connect());
        // Much more than each of them has.
        for bytes in [200_000, 400_000, 600_000] {
            honest.set(bytes).unwrap();
        }
        assert!(!honest.link.is_cut() && !quick.link.is_cut());
        let ended = half.iter().filter(|held| held.link.is_cut()).count();
        assert!((1..=600_000 / PIECE).contains(&ended), "no more than have to: {ended}");
    }

    #[tokio::test]
    async fn what_a_connection_holds_is_its_users_from_the_logon_on() {
        let rig = Rig::new();
        let link = silent_link(&rig, Some(&Identity::Guest { client: [1; 16] }));
        let guests = link.holder().unwrap();
        let mut held = Held::new(Arc::clone(&link));
        held.set(BACKLOG_UNCOUNTED_MAX + 3 * PIECE).unwrap();
        let user = rig.core.connections.accounts.of(&Identity::User("user".into()));
        link.belong_to(Arc::clone(&user), false);
        held.move_to(&user).unwrap();
        let counted = || [&guests, &user, &link.account].map(|it| it.held(Resource::Backlog));
        assert_eq!(counted(), [0, 3 * PIECE, 3 * PIECE], "though it has not grown");
        held.move_to(&user).unwrap();
        held.set(BACKLOG_UNCOUNTED_MAX + 5 * PIECE).unwrap();
        assert_eq!(counted(), [0, 5 * PIECE, 5 * PIECE]);
        held.set(0).unwrap();
        assert_eq!(counted(), [0, 0, 0]);
    }

    #[tokio::test]
    async fn a_logon_takes_room_of_its_users_other_connections_and_of_no_guest() {
        let rig = Rig::new();
        let who = Identity::User("user".into());
        let mut full: Vec<_> = (0..BACKLOG_PER_USER_MAX / WHOLE)
            .map(|_| Held::new(silent_link(&rig, Some(&who))))
            .collect();
        full.iter_mut().for_each(|held| held.set(WHOLE).unwrap());
        let link = silent_link(&rig, Some(&Identity::Guest { client: [1; 16] }));
        let guests = link.holder().unwrap();
        let mut held = Held::new(Arc::clone(&link));
        held.set(WHOLE).unwrap();
        let user = rig.core.connections.accounts.of(&who);
        link.belong_to(Arc::clone(&user), false);
        held.move_to(&user).unwrap();
        assert_eq!(guests.held(Resource::Backlog), 0);
        assert_eq!(full.iter().filter(|held| held.link.is_cut()).count(), 1);
    }

    #[tokio::test]
    async fn guests_that_send_side_by_side_hold_no_more_than_all_guests_may() {
        let rig = Rig::new();
        let who = Identity::Guest { client: [1; 16] };
        let mut all: Vec<_> = (0..64).map(|_| Held::new(silent_link(&rig, Some(&who)))).collect();
        let guests = all[0].link.holder().unwrap();
        let mut most = 0;
        for mib in 1..28 {
            let mut ended = Vec::new();
            for (at, held) in all.iter_mut().enumerate() {
                if held.link.is_cut() || held.set(mib << 20).is_err() {
                    ended.push(at);
                }
            }
            let counted: usize = all.iter().map(|held| held.counted).sum();
            assert_eq!(guests.held(Resource::Backlog), counted, "all of it is counted");
            most = most.max(counted);
            // Those that end have returned what they held one turn later.
            ended.into_iter().rev().for_each(|at| drop(all.remove(at)));
        }
        assert!(all.len() < 8, "{}", all.len());
        assert!(most <= 2 * BACKLOG_OF_GUESTS_MAX, "{most}");
    }

    #[tokio::test]
    async fn a_stranger_has_few_requests_that_wait() {
        let rig = Rig::new();
        let mut held = Held::new(silent_link(&rig, None));
        held.set(BACKLOG_UNCOUNTED_MAX).unwrap();
        assert!(matches!(held.set(BACKLOG_UNCOUNTED_MAX + 1), Err(End::PeerTooManyRequests)));
    }

    #[tokio::test]
    async fn what_no_longer_waits_is_not_counted() {
        let rig = Rig::new();
        let link = silent_link(&rig, Some(&Identity::User("user".into())));
        let mut held = Held::new(Arc::clone(&link));
        let counted = || link.account.held(Resource::Backlog);
        for (bytes, expected) in [
            (BACKLOG_UNCOUNTED_MAX, 0),
            (BACKLOG_UNCOUNTED_MAX + 1, PIECE),
            (BACKLOG_UNCOUNTED_MAX + 3 * PIECE, 3 * PIECE),
            (BACKLOG_UNCOUNTED_MAX + 2 * PIECE, 3 * PIECE),
            (BACKLOG_UNCOUNTED_MAX + PIECE, PIECE),
            (BACKLOG_UNCOUNTED_MAX - 1, PIECE),
            (BACKLOG_UNCOUNTED_MAX + 2 * PIECE, 2 * PIECE),
            (0, 0),
        ] {
            held.set(bytes).unwrap();
            assert_eq!(counted(), expected, "{bytes}");
        }
    }
}
