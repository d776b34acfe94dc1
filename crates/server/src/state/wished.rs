//! The names of a file that are to go: a wish to delete is spoken of one name, and takes that one away.
//!
//! ```text
//!  FileDispositionInformation --+               no open is left by the name, nor of a stream
//!  CLOSE of an open that  ------+--> [Wished] ----------------------------------------------> the name is removed
//!    deletes on close                   |
//!                                       +--> taken back by the same name, or refused to all that ask for it: nothing happens
//! ```
//!
//! A request that speaks a wish is answered later, when it is known whether a directory stays empty, and whether the wish is
//! noted. Several may ask at once: the wish goes with the last of those that are refused, and stays once one is granted.
//!
//! A wish keeps the share and the path of the open that spoke it, kept up to date by renames: other hard links of
//! the file are nobody's wish, and the last open by the name may be of a share that is only read. Which opens are by
//! a name is known by their paths, and only where the file has been seen with several links: a path may lead through
//! symbolic links, so of a file with one link all paths are that one.
//!
//! Spec: MS-FSA §2.1.5.4, §2.1.5.15.3 (Link.IsDeleted).

use std::sync::Arc;

use tree::{Share, SharePath};

use super::making::Claim;
use super::node::{Node, NodeState, OpenRecord};
use super::serial::OpenSerial;
pub(crate) use super::wish::{Stays, Wished};
use crate::access::MayRemove;

impl Wished {
    fn of(record: &OpenRecord, leave: MayRemove) -> Self {
        let (share, path) = (Arc::clone(&record.share), record.path.clone());
        Self { share, path, leave, asking: Vec::new(), is_granted: false }
    }

    fn may_be(&self, share: &Share, path: &SharePath) -> bool {
        may_be((&self.share, &self.path), share, path)
    }
}

impl Node {
    /// The name that `now` sees, which the file keeps until the claim is dropped. Blocks while the file is renamed, or a
    /// directory above it is moved.
    pub(crate) fn hold_name(
        &self,
        now: impl Fn(&NodeState) -> Option<(Arc<Share>, SharePath)>,
    ) -> Option<(SharePath, Claim)> {
        loop {
            let (share, path) = now(&self.lock())?;
            let claim = self.makings.claim_file(&share, &path, self.key());
            if self.takings.is_moving(&share, &path) {
                drop(claim);
                self.takings.settle(&share, &path);
                continue;
            }
            let again = now(&self.lock());
            if again.is_some_and(|(other, still)| Arc::ptr_eq(&other, &share) && still == path) {
                return Some((path, claim));
            }
        }
    }
}

impl Node {
    /// [`Node::hold_name`]; `None` where that would wait, for work of others that may be long: a file that is replaced gives
    /// back its pages.
    pub(crate) fn try_hold_name(
        &self,
        now: impl Fn(&NodeState) -> Option<(Arc<Share>, SharePath)>,
    ) -> Option<Option<(SharePath, Claim)>> {
        let Some((share, path)) = now(&self.lock()) else { return Some(None) };
        let claim = self.makings.try_claim_file(&share, &path, self.key())?;
        if self.takings.is_moving(&share, &path) {
            return None;
        }
        let again = now(&self.lock());
        let is_named =
            again.is_some_and(|(other, still)| Arc::ptr_eq(&other, &share) && still == path);
        is_named.then_some(Some((path, claim)))
    }
}

impl NodeState {
    /// The name that an open has is to go. Costs nothing the second time.
    pub(crate) fn wish(&mut self, record: &OpenRecord, leave: MayRemove) {
        spoken(&mut self.delete_pending, self.is_linked, record, leave).is_granted = true;
    }

    /// The same of an open that is there.
    pub(crate) fn restore_wish(&mut self, serial: OpenSerial, leave: MayRemove) {
        self.ask_to_go(serial, leave);
        self.grant_wish(serial);
    }

    /// Speaks the wish for the name of an open that is there, until [`NodeState::grant_wish`] or
    /// [`NodeState::refuse_wish`]: meanwhile it is a wish as any other.
    pub(crate) fn ask_to_go(&mut self, serial: OpenSerial, leave: MayRemove) {
        let Self { opens, delete_pending, is_linked, .. } = self;
        if let Some(record) = opens.iter().find(|open| open.serial == serial) {
            spoken(delete_pending, *is_linked, record, leave).asking.push(serial);
        }
    }

    /// Whoever spoke the wish through an open is told that the name goes.
    pub(crate) fn grant_wish(&mut self, serial: OpenSerial) {
        if let Some(wished) = self.answer_wish(serial) {
            wished.is_granted = true;
        }
    }

    /// Whoever spoke the wish through an open is told that the name stays, on account of this request: what others were
    /// granted, or have asked for and not been told, stays a wish.
    pub(crate) fn refuse_wish(&mut self, serial: OpenSerial) {
        if self.answer_wish(serial).is_some() {
            self.delete_pending.retain(|wished| wished.is_granted || !wished.asking.is_empty());
        }
    }

    // What an open has asked for, with one request less that waits for its answer. `None`: taken back meanwhile.
    fn answer_wish(&mut self, serial: OpenSerial) -> Option<&mut Wished> {
        let asks = |wished: &Wished| wished.asking.iter().position(|asking| *asking == serial);
        let wished = self.delete_pending.iter_mut().find(|wished| asks(wished).is_some())?;
        let at = asks(wished)?;
        wished.asking.swap_remove(at);
        Some(wished)
    }

    /// Takes back what was wished of the name of an open that is there.
    pub(crate) fn take_wish_back(&mut self, serial: OpenSerial) {
        let Self { opens, delete_pending, is_linked, .. } = self;
        if let Some(record) = opens.iter().find(|open| open.serial == serial) {
            delete_pending.retain(|wished| !is_by(*is_linked, record, wished));
        }
    }

    /// Whether the name of an open is to go.
    pub(crate) fn is_record_to_go(&self, record: &OpenRecord) -> bool {
        self.delete_pending.iter().any(|wished| self.is_by(record, wished))
    }

    /// Whether a name is to go.
    pub(crate) fn is_to_go(&self, share: &Share, path: &SharePath) -> bool {
        let may_be = |wished: &Wished| !self.is_linked || wished.may_be(share, path);
        self.delete_pending.iter().any(may_be)
    }

    /// Whether what has a name stays for who is about to put something in it, a stream or a name.
    pub(crate) fn stays(&self, share: &Share, path: &SharePath) -> Stays {
        match (self.removing, self.is_to_go(share, path)) {
            (true, _) => Stays::Unknown,
            (false, true) => Stays::No,
            (false, false) => Stays::Yes,
        }
    }

    /// Takes the names out that nobody has open any more: the caller removes them. While a stream of the file is
    /// open it has all its names.
    pub(super) fn take_wished(&mut self) -> Vec<Wished> {
        if !self.streams.is_empty() || self.delete_pending.is_empty() {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.delete_pending);
        let (stays, goes) = all
            .into_iter()
            .partition(|wished| self.opens.iter().any(|open| self.is_by(open, wished)));
        self.delete_pending = stays;
        goes
    }

    /// The same of the name an open had, whoever has it open: the rules of POSIX.
    pub(super) fn take_wished_of(&mut self, record: &OpenRecord) -> Vec<Wished> {
        let all = std::mem::take(&mut self.delete_pending);
        let (goes, stays) = all.into_iter().partition(|wished| self.is_by(record, wished));
        self.delete_pending = stays;
        goes
    }

    /// A name of the file has changed, or that of a directory above: `to` says the new one of `share`'s old.
    pub(crate) fn move_wished(
        &mut self,
        share: &Arc<Share>,
        to: impl Fn(&SharePath) -> Option<SharePath>,
    ) {
        let going = self.going.iter_mut().map(|(_, wished)| wished);
        for wished in self.delete_pending.iter_mut().chain(going) {
            let path = wished.share.path_in(share, &wished.path);
            let Some(moved) = path.and_then(|path| to(&path)) else { continue };
            let (of, path) = match share.path_in(&wished.share, &moved) {
                Some(path) => (Arc::clone(&wished.share), path),
                // It has left the share that the wish was spoken in.
                None => (Arc::clone(share), moved),
            };
            wished.path = path.meant(wished.path.naming());
            wished.share = of;
        }
    }

    /// Whether an open certainly has another name of the file than this.
    pub(crate) fn is_by_another_name(
        &self,
        record: &OpenRecord,
        share: &Share,
        path: &SharePath,
    ) -> bool {
        self.is_linked && !may_be((&record.share, &record.path), share, path)
    }

    fn is_by(&self, record: &OpenRecord, wished: &Wished) -> bool {
        is_by(self.is_linked, record, wished)
    }
}

// Whether two paths may be one name. Shares that lie apart may be one directory mounted twice.
fn may_be(name: (&Share, &SharePath), share: &Share, path: &SharePath) -> bool {
    let ours = share.path_in(name.0, path);
    ours.map_or_else(|| !share.overlaps(name.0), |path| path == *name.1)
}

// The wish for the name of an open, spoken if need be.
fn spoken<'a>(
    wishes: &'a mut Vec<Wished>,
    is_linked: bool,
    record: &OpenRecord,
    leave: MayRemove,
) -> &'a mut Wished {
    let at = wishes.iter().position(|wished| is_by(is_linked, record, wished));
    let at = at.unwrap_or_else(|| {
        wishes.push(Wished::of(record, leave));
        wishes.len() - 1
    });
    &mut wishes[at]
}

// Of a stream there is one name, whatever its file's are.
fn is_by(is_linked: bool, record: &OpenRecord, wished: &Wished) -> bool {
    !is_linked || record.base.is_some() || wished.may_be(&record.share, &record.path)
}
