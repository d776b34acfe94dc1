//! How an open leaves its node: with what it held, and with the file, if that was to go with its last open.
//!
//! ```text
//!  Open::close ---------------+                  +--> others have it open: the wish to delete stays with the file
//!  a CREATE that has failed --+--> Node::leave --+--> streams of it are open: it goes with the last of them
//!  an open not restored ------+                  +--> Left::finish removes the name, and then lets others in
//! ```
//!
//! This is the only way out of a node: whoever left it another way would swallow the deletion of a file whose last
//! other open was closed meanwhile. Names that are to go keep others out ([`Claimed`]) until they have gone, or until
//! who was to remove them has panicked; a stream that is being closed keeps them out of its file.
//!
//! Spec: MS-FSA §2.1.5.4 (close).

use std::ops::ControlFlow;
use std::sync::Arc;

use tracing::warn;
use tree::ShareError;

use super::claim::Claimed;
use super::ends::{Over, PutOff};
use super::making::Claim;
use super::node::{Node, NodeState, OpenRecord};
use super::serial::OpenSerial;
use super::wish::Wished;

/// Why an open leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Leaving {
    /// It is closed. Its wish to delete passes to the file, if it had one.
    Closed,
    /// It is closed, or never was open for its client; the file does not go for its sake.
    WithoutWish,
}

/// What is left to do when an open has left its node.
#[derive(Debug)]
#[must_use]
pub(crate) struct Left {
    serial: OpenSerial,
    doomed: Option<Doomed>,
    // Its lease's key is free once the names have gone.
    record: Option<OpenRecord>,
    leaves_wish: bool,
    base: Option<LeftBase>,
}

/// The file of a stream that an open leaves.
#[derive(Debug)]
struct LeftBase {
    node: Arc<Node>,
    _claimed: Claimed,
    /// The open has left it, and its names go now.
    doomed: Option<Doomed>,
}

/// Names that go, as the node knows them, and whoever comes waits until this is dropped.
#[derive(Debug)]
struct Doomed {
    node: Arc<Node>,
    serial: OpenSerial,
    _claimed: Claimed,
}

impl Doomed {
    fn new(
        names: Vec<Wished>,
        state: &mut NodeState,
        (node, serial): (&Arc<Node>, OpenSerial),
    ) -> Option<Self> {
        if names.is_empty() {
            return None;
        }
        state.going.extend(names.into_iter().map(|name| (serial, name)));
        Some(Self { node: Arc::clone(node), serial, _claimed: state.begin_claim(node) })
    }

    fn remove(self, remove: impl Fn(&Wished) -> Result<(), ShareError>) -> Result<(), ShareError> {
        let mut removed = Ok(());
        while let Some((name, _claim)) = self.next() {
            let gone = remove(&name);
            removed = removed.and(gone);
        }
        removed
    }

    // By `remove`, which returns `None` where it would wait: then they are all left.
    fn remove_on_the_spot(
        self,
        remove: impl FnOnce(&Wished) -> Option<Result<(), ShareError>>,
    ) -> ControlFlow<Result<(), ShareError>, Self> {
        let is_ours = |(serial, _): &(OpenSerial, Wished)| *serial == self.serial;
        let only = {
            let state = self.node.lock();
            let mut ours = state.going.iter().filter(|name| is_ours(name));
            ours.next().filter(|_| ours.next().is_none()).map(|(_, name)| name.clone())
        };
        let Some(name) = only else { return ControlFlow::Continue(self) };
        let now = |state: &NodeState| {
            let still = state.going.iter().find(|name| is_ours(name));
            still.map(|(_, still)| (Arc::clone(&still.share), still.path.clone()))
        };
        let Some(Some((path, _claim))) = self.node.try_hold_name(now) else {
            return ControlFlow::Continue(self);
        };
        match remove(&Wished { path, ..name }) {
            Some(removed) => ControlFlow::Break(removed),
            None => ControlFlow::Continue(self),
        }
    }

    // A stream is kept of files and of directories.
    fn remove_with_streams(self, node: &Node) -> Result<(), ShareError> {
        self.remove(|Wished { share, path, leave, .. }| {
            share
                .remove(*leave, path, node.key(), false)
                .or_else(|_| share.remove(*leave, path, node.key(), true))
        })
    }

    // One of them, out of the list, by the name it has and keeps while the claim is held.
    fn next(&self) -> Option<(Wished, Claim)> {
        let is_ours = |(serial, _): &(OpenSerial, Wished)| *serial == self.serial;
        let (_, claim) = self.node.hold_name(|state| {
            let ours = state.going.iter().find(|name| is_ours(name));
            ours.map(|(_, name)| (Arc::clone(&name.share), name.path.clone()))
        })?;
        let mut state = self.node.lock();
        // The first still: the others keep their order.
        let at = state.going.iter().position(is_ours)?;
        Some((state.going.remove(at).1, claim))
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.node.lock().going.retain(|(serial, _)| *serial != self.serial);
    }
}

impl Node {
    /// Takes an open out, with its locks and its part in a lease. `None`: it is not there, or no more.
    pub(crate) fn leave(self: &Arc<Self>, serial: OpenSerial, leaving: Leaving) -> Option<Left> {
        let base = self.lock().record(serial)?.base.clone();
        // Whoever waits for a stream's caching to end, and then comes for its file, finds the file without this stream.
        let claim = |base: Arc<Self>| {
            let claimed = base.lock().begin_claim(&base);
            (base, claimed)
        };
        let base =
            base.map(claim).map(|(node, _claimed)| LeftBase { node, _claimed, doomed: None });
        let mut state = self.lock();
        let at = state.opens.iter().position(|open| open.serial == serial)?;
        let record = state.opens.swap_remove(at);
        state.locks.release(serial);
        if record.has_lease {
            state.close_lease(record.owner);
        }
        // MS-FSA §2.1.5.4: the wish to delete passes from the handle to the file.
        let wish = record.delete_on_close.filter(|_| leaving == Leaving::Closed);
        if let Some(leave) = wish {
            state.wish(&record, leave);
        }
        let mut names = state.take_wished();
        if wish.is_some() && state.is_record_to_go(&record) && state.unlink(&record) {
            names.extend(state.take_wished_of(&record));
        }
        let leaves_wish = wish.is_some() && state.is_record_to_go(&record);
        let doomed = Doomed::new(names, &mut state, (self, serial));
        drop(state);
        self.note_left();
        Some(Left { serial, doomed, record: Some(record), leaves_wish, base })
    }

    // A stream of the file is open no more: the file's names, if they were only waiting for that.
    fn leave_stream(self: &Arc<Self>, serial: OpenSerial) -> Option<Doomed> {
        let mut state = self.lock();
        state.streams.retain(|hold| hold.serial != serial);
        let names = state.take_wished();
        Doomed::new(names, &mut state, (self, serial))
    }

    /// A stream of the file is open no more, or never was. The file goes if it was only waiting for that: on a thread for
    /// what is put off, as that may wait.
    pub(crate) fn release_stream(self: &Arc<Self>, serial: OpenSerial, put_off: &PutOff) {
        if let Some(doomed) = self.leave_stream(serial) {
            let node = Arc::clone(self);
            put_off.spawn(Over::node(self), move || log(serial, doomed.remove_with_streams(&node)));
        }
    }

    /// An open leaves that its client never got: [`Node::leave`] and [`Left::finish`], which is put off where a name goes.
    pub(crate) fn fail(
        self: &Arc<Self>,
        serial: OpenSerial,
        put_off: &PutOff,
        remove: impl Fn(&Wished) -> Result<(), ShareError> + Send + 'static,
    ) {
        let left = self.leave(serial, Leaving::WithoutWish);
        let left = left.map(|left| left.finish_on_the_spot(|_| None));
        if let Some(ControlFlow::Continue(left)) = left {
            put_off.spawn(Over::node(self), move || log(serial, left.finish(remove)));
        }
    }
}

impl Left {
    /// Whether those that are left have its wish to delete from now on.
    pub(crate) fn leaves_wish(&self) -> bool {
        self.leaves_wish
    }

    /// [`Left::finish`] where no name goes, or `remove` removes it without waiting; else what is to be finished by a
    /// thread that may wait.
    pub(crate) fn finish_on_the_spot(
        mut self,
        remove: impl FnOnce(&Wished) -> Option<Result<(), ShareError>>,
    ) -> ControlFlow<Result<(), ShareError>, Self> {
        let mut removed = Ok(());
        if let Some(doomed) = self.doomed.take() {
            match doomed.remove_on_the_spot(remove) {
                ControlFlow::Break(done) => removed = done,
                ControlFlow::Continue(doomed) => {
                    return ControlFlow::Continue(Self { doomed: Some(doomed), ..self });
                }
            }
        }
        self.record = None;
        let Some(base) = self.base.as_mut() else { return ControlFlow::Break(removed) };
        base.doomed = base.node.leave_stream(self.serial);
        if base.doomed.is_none() {
            ControlFlow::Break(removed)
        } else {
            ControlFlow::Continue(self)
        }
    }

    /// Removes what went with the open, by `remove`, and lets in who waits for it. May block.
    pub(crate) fn finish(
        self,
        remove: impl Fn(&Wished) -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        let Self { serial, doomed, record, base, .. } = self;
        // Whoever waits for this open to go finds the name gone too.
        let removed = doomed.map_or(Ok(()), |doomed| doomed.remove(remove));
        drop(record);
        let finished = base.map_or(Ok(()), |LeftBase { node, doomed, _claimed }| {
            let doomed = doomed.or_else(|| node.leave_stream(serial));
            doomed.map_or(Ok(()), |doomed| doomed.remove_with_streams(&node))
        });
        removed.and(finished)
    }
}

fn log(serial: OpenSerial, removed: Result<(), ShareError>) {
    if let Err(error) = removed {
        warn!(serial = serial.0, %error, "a file to be deleted on close stays");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use basics::Clock;
    use tree::{FileKey, Share, ShareConfig, SharePath};

    use super::*;
    use crate::access::MayRemove;
    use crate::state::lease::Owner;
    use crate::state::lease_keys::LeaseKeys;
    use crate::state::sharing::{Kinds, Sharing};

    /// The last open of `d\f` is closed, and the file goes with it.
    fn closed(dir: &tempfile::TempDir) -> (Arc<Node>, Arc<Share>, Left) {
        let share = Arc::new(Share::open(&ShareConfig::new("s", dir.path())).unwrap());
        let key = FileKey { device: 1, inode: 1 };
        let (timeout, orphans) = (Duration::from_secs(1), Arc::default());
        let node = Arc::new(Node::new(
            key,
            Clock::host(),
            timeout,
            orphans,
            Arc::default(),
            Default::default(),
        ));
        let all = Kinds { read: true, write: true, delete: true };
        let (serial, owner) = (OpenSerial(1), Owner::Open(OpenSerial(1)));
        node.lock().opens.push(OpenRecord {
            serial,
            sharing: Sharing { uses: all, shares: all },
            owner,
            has_lease: false,
            share: Arc::clone(&share),
            path: SharePath::parse("d\\f").unwrap(),
            delete_on_close: Some(MayRemove::TEST),
            holder: None,
            orphan: None,
            _key_claim: Arc::<LeaseKeys>::default().claim(owner, key).unwrap(),
            instance: None,
            open: std::sync::Weak::new(),
            base: None,
        });
        let left = node.leave(serial, Leaving::Closed).unwrap();
        assert!(node.lock().removing);
        (node, share, left)
    }

    #[test]
    fn a_file_whose_removal_panicked_may_be_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let (node, _, left) = closed(&dir);
        let removed = catch_unwind(AssertUnwindSafe(|| left.finish(|_| panic!("by the test"))));
        removed.unwrap_err();
        let state = node.lock();
        assert!(!state.removing && state.going.is_empty());
    }

    #[test]
    fn a_name_that_goes_while_its_directory_moves_goes_from_where_that_is_then() {
        let dir = tempfile::tempdir().unwrap();
        let (node, share, left) = closed(&dir);
        let (from, to) = (SharePath::parse("d").unwrap(), SharePath::parse("e").unwrap());
        let moving = node.takings.begin_move(&share, &from);
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| {
                left.finish(|name| {
                    assert_eq!(name.path.to_wire(), "e\\f");
                    // A directory that moves now would wait for this.
                    assert!(node.makings.is_claimed_below(&share, &to));
                    Ok(())
                })
            });
            let move_it = |path: &SharePath| path.is_below(&from).then(|| path.moved(&from, &to));
            node.lock().move_wished(&share, move_it);
            drop(moving);
            assert_eq!(removal.join().unwrap(), Ok(()));
        });
        assert!(!node.lock().removing && !node.makings.is_claimed_below(&share, &to));
    }
}
