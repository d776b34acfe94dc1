//! Room for the memory that a connection keeps for its next long frames and answers.
//!
//! It is of whoever the connection is counted for. Nobody waits for it: where there is none, memory is freed with each frame.

use std::sync::Arc;

use crate::connections::Link;
use crate::state::{Hold, Resource};

/// See the module. Without a connection nothing is kept.
#[derive(Debug, Default)]
pub(super) struct SpareRoom {
    link: Option<Arc<Link>>,
    held: Option<Hold>,
}

impl SpareRoom {
    pub(super) fn of(link: &Arc<Link>) -> Self {
        Self { link: Some(Arc::clone(link)), held: None }
    }

    /// Whether so many bytes may be kept, of which there is room until [`SpareRoom::clear`].
    pub(super) fn allows(&mut self, bytes: usize) -> bool {
        self.grow(bytes) >= bytes
    }

    /// Asks for room for so many bytes, and says for how many there is room: for no fewer than before, unless somebody else
    /// is charged since. No more may be kept.
    pub(super) fn grow(&mut self, bytes: usize) -> usize {
        let Some(holder) = self.link.as_ref().and_then(|link| link.holder()) else { return 0 };
        // A user may have logged on where there was a guest.
        drop(self.held.take_if(|held| !held.is_of(&holder)));
        let has = self.held.as_ref().map_or(0, Hold::amount);
        if let Some(more) =
            holder.try_take(Resource::Spares, bytes.saturating_sub(has)).filter(|_| bytes > has)
        {
            let more = match &mut self.held {
                None => Some(more),
                Some(held) => held.absorb(more),
            };
            self.held = more.or_else(|| self.held.take());
        }
        self.held.as_ref().map_or(0, Hold::amount)
    }

    /// Gives the room back: nothing is kept.
    pub(super) fn clear(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Identity;
    use crate::limits::SPARES_OF_GUESTS_MAX;
    use crate::push::tests::rig::{Rig, silent_link};

    #[tokio::test]
    async fn what_connections_keep_for_their_next_frames_is_bounded_for_all_guests_together() {
        const LONG: usize = 5 << 20;
        let rig = Rig::new();
        let guest = |number| Identity::Guest { client: [number; 16] };
        let mut rooms: Vec<_> = (0..100)
            .map(|number| SpareRoom::of(&silent_link(&rig, Some(&guest(number)))))
            .collect();
        let allowed = |rooms: &mut Vec<SpareRoom>| {
            rooms.iter_mut().map(|room| room.allows(LONG)).filter(|is_allowed| *is_allowed).count()
        };
        assert_eq!(allowed(&mut rooms), SPARES_OF_GUESTS_MAX / LONG);
        assert!(rooms[0].allows(1 << 20), "it has more");
        rooms.iter_mut().for_each(SpareRoom::clear);
        rooms.reverse();
        assert_eq!(allowed(&mut rooms), SPARES_OF_GUESTS_MAX / LONG, "all of it was given back");
        // A user has logged on over the connection of a guest, and has no room left.
        let user = rig.core.connections.accounts.of(&Identity::user("alice"));
        let all = user.try_take(Resource::Spares, user.left(Resource::Spares)).unwrap();
        let link = silent_link(&rig, Some(&guest(200)));
        let mut room = SpareRoom::of(&link);
        rooms.iter_mut().for_each(SpareRoom::clear);
        assert_eq!(room.grow(LONG), LONG);
        link.belong_to(Arc::clone(&user), false);
        assert_eq!(room.grow(LONG), 0, "what is kept has to go");
        drop(all);
        assert_eq!((room.grow(LONG), user.held(Resource::Spares)), (LONG, LONG));
        let mut stranger = SpareRoom::of(&silent_link(&rig, None));
        assert!(!stranger.allows(1));
    }
}
