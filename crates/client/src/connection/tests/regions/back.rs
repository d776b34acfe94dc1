//! A region whose handle comes back by another session.

use std::fmt;

use super::*;
use crate::error::{ClientError, ConnectionError};
use crate::region::{Getting, Returning, Wanted};

/// Gives a handle that was opened before, once.
#[derive(Debug)]
struct Kept {
    found: Option<(Client, File)>,
    is_over: bool,
    wanted: Sender<(FileId, Option<(u16, LeaseState)>)>,
}

impl Returning for Kept {
    fn deadline(&self) -> Instant {
        Instant::now()
    }

    fn is_over(&self, _: Instant) -> bool {
        self.is_over
    }

    fn get<'a>(&'a mut self, wanted: Wanted<'a>, _: Instant) -> Getting<'a> {
        assert_eq!((wanted.path, wanted.options.push), ("region", pushing().push));
        self.wanted.send((wanted.id, wanted.lease)).unwrap();
        let found = self.found.take();
        Box::pin(async move { found.ok_or_else(|| ConnectionError::HostName.into()) })
    }
}

/// A mapped region at a server, and another one that has its handle.
struct Story {
    first: Site,
    second: Site,
    control: FileControl,
    recall: Arc<Recall>,
    wanted: Receiver<(FileId, Option<(u16, LeaseState)>)>,
    /// The key of the lease at the second.
    key: LeaseKey,
    _runtime: Runtime,
}

fn story(is_over: bool) -> Story {
    story_with(is_over, |_| {})
}

fn story_with(is_over: bool, manners: impl FnOnce(&mut Manners)) -> Story {
    let (runtime, first, mut control, _) = opened(manners);
    let (second, client) = Site::start(&runtime);
    second.manners().lease = (4, whole());
    second.manners().found = b"second";
    let (file, key) = open(&runtime, &second, &client);
    let (says, wanted) = channel();
    control =
        control.coming_back(Box::new(Kept { found: Some((client, file)), is_over, wanted: says }));
    let recall = Arc::new(Recall::default());
    control.invite().unwrap();
    control.map(CONNECTION, &recall).unwrap();
    assert!(matches!(first.next(), Asked::Map { .. }));
    Story { first, second, control, recall, wanted, key, _runtime: runtime }
}

fn is_lost<T: fmt::Debug>(outcome: Result<T, ClientError>) -> bool {
    matches!(outcome, Err(ClientError::Connection(_)))
}

#[test]
fn calls_of_a_lost_session_are_made_again_by_the_next_one() {
    let mut story = story(false);
    story.first.ends();
    let mut out = [0; 6];
    story.control.read(4096, &mut out).unwrap();
    assert_eq!(&out, b"second");
    assert_eq!(story.wanted.try_recv(), Ok((file(1), Some((1, whole())))));
    story.control.write(4096, b"x").unwrap();
    story.control.flush().unwrap();
    story.control.close().unwrap();
    let asked = story.second.so_far();
    assert!(
        matches!(
            asked[..],
            [
                Asked::Read { file: 1, .. },
                Asked::Write { file: 1, .. },
                Asked::Flush { file: 1 },
                Asked::Close { file: 1 }
            ]
        ),
        "{asked:?}"
    );
    let of_first = story.first.so_far();
    let is_close = |asked: &Asked| matches!(asked, Asked::Close { .. });
    assert!(!of_first.iter().any(is_close), "its file is left: {of_first:?}");
}

#[test]
fn the_end_of_the_session_takes_no_region_whose_handle_comes_back() {
    let story = story_with(false, |manners| manners.grace_ms = 0);
    story.first.ends();
    unwatched(&story.recall);
    assert!(story.recall.is_granted());
}

#[test]
fn what_was_mapped_by_a_lost_session_is_settled_before_its_lease_goes_on() {
    let mut story = story(false);
    story.first.ends();
    story.control.flush().unwrap();
    story.second.breaks(story.key, 5, LeaseState::READ);
    // The registration ended with its connection.
    story.control.unmap().unwrap();
    story.control.write_again(4096, b"left").unwrap();
    for _ in 0..8 {
        story.control.flush().unwrap();
    }
    let asked = story.second.so_far();
    assert!(!asked.iter().any(|asked| matches!(asked, Asked::Acknowledge(..))), "{asked:?}");
    assert!(!asked.iter().any(|asked| matches!(asked, Asked::Unmap { .. })), "{asked:?}");
    story.control.settle();
    assert_eq!(story.second.next(), Asked::Acknowledge(story.key, LeaseState::READ));
}

#[test]
fn a_commit_by_a_lost_session_is_not_made_by_the_next_one() {
    let mut story = story(false);
    story.first.ends();
    assert!(is_lost(story.control.commit(4096..8192)));
    assert_eq!(story.second.so_far(), []);
}

#[test]
fn a_call_whose_time_is_over_fails_and_asks_for_no_handle() {
    let mut story = story(true);
    story.first.ends();
    assert!(is_lost(story.control.flush()));
    story.wanted.try_recv().unwrap_err();
}

#[test]
fn a_handle_that_does_not_come_back_fails_its_call() {
    let mut story = story(false);
    story.first.ends();
    story.control.flush().unwrap();
    story.second.ends();
    let failed = story.control.flush();
    assert!(
        matches!(failed, Err(ClientError::Connection(ConnectionError::HostName))),
        "{failed:?}"
    );
    assert!(is_lost(story.control.close()), "the server may have it still");
}

#[test]
fn a_refused_call_is_not_made_again_by_another_session() {
    let mut story = story(false);
    story.first.refuses(NtStatus::DISK_FULL, |asked| matches!(asked, Asked::Write { .. }));
    let refused = story.control.write(4096, b"full").unwrap_err();
    assert_eq!(refused.status(), Some(NtStatus::DISK_FULL));
    story.wanted.try_recv().unwrap_err();
    assert_eq!(story.second.so_far(), []);
}

#[test]
fn a_region_is_pushed_again_by_the_token_that_came_with_its_handle() {
    let mut story = story(false);
    story.first.ends();
    story.control.flush().unwrap();
    story.control.unmap().unwrap();
    story.control.settle();
    story.control.invite().unwrap();
    let recall = Arc::new(Recall::default());
    story.control.map(CONNECTION, &recall).unwrap();
    assert!(story.control.may_replay());
    story.control.write_again(4096, b"again").unwrap();
    let asked = story.second.so_far();
    let [Asked::Flush { .. }, Asked::Map { file: 1, .. }, Asked::WriteAgain { epoch: 4, .. }] =
        asked[..]
    else {
        panic!("{asked:?}")
    };
    story.second.breaks(story.key, 5, LeaseState::READ);
    asked_back(&recall);
}
