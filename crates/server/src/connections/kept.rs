//! A frame of a peer, and what it holds of the server while what it asks for is done.
//!
//! ```text
//!                  +--> Requests: the frame, and what a request costs         (flow control: nothing more is read)
//!   works ---------+--> Answers: what it asks for                             (waits until there is some)
//!     |
//!     | other clients are in the way
//!     v
//!   waits ------------> Waiting: the frame, its cost, the answers made so far (refused where there is none)
//! ```
//!
//! Work ends by itself, so whoever needs its room may wait for it. What waits for other clients may wait for ever, so it holds
//! nothing that anybody waits for.

use std::ops::Deref;
use std::sync::Arc;

use basics::ordered::{Mutex, MutexGuard};
use smb::Command;
use smb::frame_memory::InFrame;

use super::link::Link;
use crate::limits::{COMPOUND_REQUEST_COST, REQUEST_COST};
use crate::lock_order as order;
use crate::state::account::{Account, Hold, Room};
use crate::state::resource::Resource;

/// A frame, in the read buffer of its transport or on its own.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    /// Must be copied by whoever wants to keep it.
    Borrowed(&'a mut [u8]),
    /// Can be kept as it is, with the room it takes.
    Owned(InFrame, Option<Room>),
}

impl Frame<'_> {
    /// Its bytes, the header of its transport not among them.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes, _) => bytes,
        }
    }

    /// Forgets what stands behind `len` bytes, and gives its memory back.
    pub(crate) fn cut(&mut self, len: usize) {
        match self {
            Self::Borrowed(bytes) => {
                let whole = std::mem::take(bytes);
                *bytes = whole.split_at_mut(len.min(whole.len())).0;
            }
            Self::Owned(bytes, room) if len < bytes.len() => {
                *bytes = bytes[..len].to_vec().into();
                if let Some(room) = room {
                    room.shrink(len + REQUEST_COST);
                }
            }
            Self::Owned(..) => {}
        }
    }

    /// Keeps it with so many requests, and so many bytes that these fetch from the client's memory, counted for `whose`
    /// they are, or for whom the connection is counted. One that finds no room is kept all the same; the transport reads
    /// no other before there is some.
    pub(crate) fn keep(
        self,
        link: &Link,
        whose: Option<&Arc<Account>>,
        command: Command,
        (requests, fetches): (usize, usize),
    ) -> Arc<Kept> {
        let (frame, room) = match self {
            Self::Borrowed(bytes) => (bytes.to_vec().into(), None),
            Self::Owned(bytes, room) => (bytes, room),
        };
        let mut held = Held { frame: room, ..Held::default() };
        let holder = link.holder();
        let parts = if requests > 1 { requests * COMPOUND_REQUEST_COST } else { 0 };
        let parts = parts.saturating_add(fetches);
        let cost = if held.frame.is_some() { parts } else { frame.len() + REQUEST_COST + parts };
        if cost > 0
            && let Some(holder) = whose.or(holder.as_ref())
        {
            let whose = (&link.account, holder);
            held.requests = Room::try_take(whose, Resource::Requests, cost);
            if held.requests.is_none() && releases(command) {
                held.reserve = link.account.try_take(Resource::Releases, 1);
            }
            if held.requests.is_none() && held.reserve.is_none() {
                link.set_crowded(Some(Arc::clone(holder)));
            }
        }
        Arc::new(Kept { frame, parts, fetches, held: Mutex::new(held) })
    }
}

/// A frame that is kept while what it asks for is done.
#[derive(Debug)]
pub(crate) struct Kept {
    frame: InFrame,
    /// Bytes that the requests of a compound take beside it, and those that are fetched.
    parts: usize,
    fetches: usize,
    held: Mutex<Held, order::Kept>,
}

#[derive(Debug, Default)]
struct Held {
    /// Of a long frame: from before it came.
    frame: Option<Room>,
    /// For all else that the frame and its requests take.
    requests: Option<Room>,
    /// In place of room for requests, for what releases something.
    reserve: Option<Hold>,
    answers: Option<Room>,
    waiting: Option<Room>,
    /// As many bytes as `waiting` was taken for.
    waiting_for: usize,
    /// Bytes of answers made so far.
    made: usize,
}

impl Kept {
    /// The answers made so far take so many bytes of memory.
    pub(crate) fn set_made(&self, bytes: usize) {
        self.held().made = bytes;
    }

    /// Waits for room for what it fetches, where there was none when it came. Whoever waits holds none.
    pub(crate) async fn room_to_fetch(&self, whose: (&Arc<Account>, &Arc<Account>)) {
        let has_room = {
            let held = self.held();
            held.requests.is_some() || held.waiting.is_some()
        };
        if self.fetches > 0 && !has_room {
            let room = Room::take(whose, Resource::Requests, self.len_kept() + REQUEST_COST).await;
            self.held().requests = Some(room);
        }
    }

    /// Bytes that are kept for it: of the frame, of the requests of a compound with what they fetch, and of the answers
    /// made so far.
    pub(crate) fn len_kept(&self) -> usize {
        let made = self.held().made;
        self.frame.capacity().saturating_add(self.parts).saturating_add(made)
    }

    /// It waits for other clients from now on: what work holds it gives back. False where as much waits as may.
    pub(crate) fn begin_wait(&self, whose: (&Arc<Account>, &Arc<Account>)) -> bool {
        let bytes = self.len_kept().saturating_add(REQUEST_COST);
        let mut held = self.held();
        // One that has waited before has it, unless answers were made since.
        if held.waiting.is_none() || bytes > held.waiting_for {
            held.waiting = None;
            held.waiting = Room::try_take(whose, Resource::Waiting, bytes);
            held.waiting_for = bytes;
        }
        if held.waiting.is_none() {
            return false;
        }
        (held.frame, held.requests) = (None, None);
        (held.reserve, held.answers) = (None, None);
        true
    }

    /// Whether it has room for the answers that are left to make.
    pub(crate) fn has_answers(&self) -> bool {
        self.held().answers.is_some()
    }

    /// The room for its answers.
    pub(crate) fn set_answers(&self, room: Option<Room>) {
        self.held().answers = room;
    }

    /// The room of an answer that is `len` bytes long, for whoever sends it.
    pub(crate) fn take_answers(&self, len: usize) -> Option<Room> {
        let mut held = self.held();
        let room = held.answers.take();
        let mut room = room.or_else(|| held.waiting.take())?;
        room.shrink(len);
        Some(room)
    }

    fn held(&self) -> MutexGuard<'_, Held, order::Kept> {
        self.held.lock()
    }
}

impl From<Vec<u8>> for Kept {
    fn from(bytes: Vec<u8>) -> Self {
        Self { frame: bytes.into(), parts: 0, fetches: 0, held: Mutex::default() }
    }
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame
    }
}

/// Whether a request gives back what others may wait for: it waits behind nothing that it would free.
pub(crate) fn releases(command: Command) -> bool {
    let giving = [Command::LOGOFF, Command::TREE_DISCONNECT, Command::CLOSE, Command::OPLOCK_BREAK];
    giving.contains(&command)
}

/// What a compound counts as, which has a request at least: it releases something if all its requests do.
pub(crate) fn counts_as(commands: impl Iterator<Item = Command> + Clone) -> Option<Command> {
    commands.clone().find(|command| !releases(*command)).or_else(|| commands.clone().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Identity;
    use crate::limits::{RELEASES_PER_CONNECTION_MAX, REQUESTS_PER_CONNECTION_MAX};
    use crate::push::tests::rig::Rig;

    #[test]
    fn a_compound_releases_something_if_all_its_requests_do() {
        let (close, read) = (Command::CLOSE, Command::READ);
        for (commands, expected) in
            [(&[close, close][..], close), (&[close, read, close], read), (&[read], read)]
        {
            assert_eq!(counts_as(commands.iter().copied()), Some(expected), "{commands:?}");
        }
    }

    #[tokio::test]
    async fn where_there_is_no_room_so_many_requests_that_release_something_are_kept_and_no_more() {
        let rig = Rig::new();
        let link = rig.link();
        let whose = rig.core.connections.accounts.of(&Identity::User("user".into()));
        let used_up = link.account.try_take(Resource::Requests, REQUESTS_PER_CONNECTION_MAX);
        let keep =
            |command| Frame::Borrowed(&mut [0; 64]).keep(link, Some(&whose), command, (1, 0));
        let kept: Vec<_> = (0..RELEASES_PER_CONNECTION_MAX).map(|_| keep(Command::CLOSE)).collect();
        assert!(used_up.is_some() && !link.is_crowded());
        // It is kept all the same, and none is read after it.
        let one_more = keep(Command::CLOSE);
        assert!(link.is_crowded());
        link.set_crowded(None);
        drop((kept, one_more));
        let write = keep(Command::WRITE);
        assert!(link.is_crowded(), "it releases nothing");
        drop(write);
    }

    #[tokio::test]
    async fn what_a_request_fetches_is_counted_before_it_is_fetched() {
        const LEN: usize = 8 << 20;
        let rig = Rig::new();
        let link = rig.link();
        let user = rig.core.connections.accounts.of(&Identity::User("user".into()));
        let whose = (&link.account, &user);
        let keep =
            || Frame::Borrowed(&mut [0; 64]).keep(link, Some(&user), Command::WRITE, (1, LEN));
        let kept: Vec<_> = (0..3).map(|_| keep()).collect();
        assert!(user.held(Resource::Requests) >= 3 * LEN && !link.is_crowded());
        kept[0].room_to_fetch(whose).await;
        assert!(user.held(Resource::Requests) < 4 * LEN, "it has its room");
        // There is none for a fourth, which fetches nothing before there is; no other is taken behind it.
        let late = keep();
        assert!(link.is_crowded());
        let mut waits = std::pin::pin!(late.room_to_fetch(whose));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        drop(kept);
        assert!(waits.as_mut().poll(&mut context).is_ready());
        let held = user.held(Resource::Requests);
        assert!((LEN..LEN + 2 * REQUEST_COST).contains(&held), "{held}");
        // What it waits for lasts: the bytes go with it.
        assert!(late.begin_wait(whose));
        let held = (user.held(Resource::Requests), user.held(Resource::Waiting));
        assert!(held.0 == 0 && held.1 >= LEN, "{held:?}");
        link.set_crowded(None);
    }

    #[tokio::test]
    async fn each_request_of_a_compound_is_counted() {
        let rig = Rig::new();
        let link = rig.link();
        let whose = rig.core.connections.accounts.of(&Identity::User("user".into()));
        let counted = |what| (link.account.held(what), whose.held(what));
        let cost = 4_000 * COMPOUND_REQUEST_COST;
        // A short one, and a long one that was counted as it came.
        let room = Room::try_take((&link.account, &whose), Resource::Requests, 64);
        let frames = [
            (Frame::Borrowed(&mut [0; 64]), REQUEST_COST),
            (Frame::Owned(vec![0; 64].into(), room), 0),
        ];
        for (frame, other) in frames {
            let kept = frame.keep(link, Some(&whose), Command::ECHO, (4_000, 0));
            let expected = 64 + other + cost;
            assert!(counted(Resource::Requests).0 >= expected, "{:?}", counted(Resource::Requests));
            assert!(kept.begin_wait((&link.account, &whose)));
            let waiting = 64 + REQUEST_COST + cost;
            assert_eq!(counted(Resource::Waiting), (waiting, waiting));
            drop(kept);
        }
        assert_eq!((counted(Resource::Requests), counted(Resource::Waiting)), ((0, 0), (0, 0)));
    }
}
