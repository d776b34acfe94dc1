//! Names that are being made: what has got one is opened by nobody else before its maker has it open.
//!
//! A CREATE makes a file and enters its open in the file's node in two steps, between which others find the file. A
//! directory has no such file to begin with, but the kernel tells apart names that clients do not.
//!
//! ```text
//!  to make    remember the count of the name --> find nothing --> claim the name: claimed? wait   counted since? look again
//!             --> make it --> furnish it --> its open is in its node, or it is unmade --> count --> give the claim back
//!  to find    find a file --> is it being made? wait, then look again
//!  to rename  claim the new name and the file --> is a directory above the old or the new name moving? wait
//!             --> is the old name the open's still, and no stream of the file open? --> change the disk --> note it
//!             --> give the claim back
//!  to open a stream  is its file claimed? wait
//!  to move    claim as any rename --> note the directory --> wait as any rename --> wait until nothing is claimed below
//!  a directory
//!  to remove  claim the file --> is a directory above moving? wait --> is its name the same still? --> remove it
//! ```
//!
//! A claim is of a directory and a name in it as names are compared: whoever makes a name that differs in case alone
//! waits too. It is held by a thread at work and never over an await, so every wait for it ends by itself.
//!
//! One wait under a claim there is, of who moves a directory for claims below it. It is never for itself, in however many
//! steps: every rename asks what is moving after it has noted its own directory, and gives its claim back if it has
//! to wait; so whoever is waited for has asked before the directory that waits was noted, and that one before it.
//!
//! Spec: MS-FSA §2.1.5.1.1 (creation), §2.1.5.1 (names are compared ignoring case).

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::lock_order as order;
use basics::ordered::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;
use tree::{FileKey, Found, NewName, Share, SharePath, StreamName, folded};

/// What is being made, in all shares of a server.
#[derive(Debug)]
pub(crate) struct Makings {
    /// How many names were made: by groups of names, whatever directory they are in.
    counts: Box<[AtomicU64]>,
    /// Nobody chooses which names share a group.
    groups: RandomState,
    /// As many as threads that make something.
    under_way: Mutex<Vec<Arc<Making>>, order::Makings>,
    /// How many there are: mostly none, and then who finds something pays for no lock.
    how_many: AtomicUsize,
    given_back: Condvar,
}

/// How often names of one group were made before a look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeBefore {
    group: usize,
    count: u64,
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Makes {
    File,
    Directory,
    /// One more name, or another one, of what is there already.
    Name,
}

/// What one directory entry is called for all shares, and in any case.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Spot {
    parent: FileKey,
    folded: String,
}

impl Spot {
    /// Of a name in a directory.
    pub(crate) fn of(name: &NewName) -> Self {
        Self { parent: name.parent_key(), folded: name.folded() }
    }

    // Of what adds no name.
    fn of_file(file: FileKey) -> Self {
        Self { parent: file, folded: String::new() }
    }

    /// Of a stream. No other name of the file's own node begins like this, so a clash costs a wait at most.
    pub(crate) fn of_stream(file: FileKey, name: &StreamName) -> Self {
        Self { parent: file, folded: format!(":{}", name.folded()) }
    }

    // Not so the claim of the directory itself.
    fn is_in(&self, directory: FileKey) -> bool {
        self.parent == directory && !self.folded.is_empty()
    }
}

/// What a rename gives another name, a removal none.
#[derive(Clone, Debug)]
pub(crate) struct Renames {
    pub(crate) file: FileKey,
    /// Its name until then.
    pub(crate) from: SharePath,
}

/// A name that is being made.
#[derive(Debug)]
pub(crate) struct Making {
    spot: Spot,
    share: Arc<Share>,
    path: SharePath,
    makes: Makes,
    renames: Option<Renames>,
    /// What has the name, once that is known.
    made: OnceLock<FileKey>,
    has_ended: AtomicBool,
    changed: Notify,
}

impl Making {
    // Until it is known what was made it may be whatever is as empty as something new and has the name that is made, or
    // was found by a link. In a share that has nothing to do with this one it is not: a file system that does not answer
    // holds up nobody there.
    fn may_be(&self, share: &Share, found: &Sighting) -> bool {
        match (self.makes, self.made.get()) {
            (Makes::Name, _) => false,
            (_, Some(made)) => *made == found.key,
            (makes, None) => {
                found.is_as_new
                    && found.is_directory == (makes == Makes::Directory)
                    && self.share.overlaps(share)
                    && found.spot.as_ref().is_none_or(|spot| *spot == self.spot)
            }
        }
    }

    /// Returns once the claim is given back; who has found something, once it is not what is being made.
    pub(crate) async fn settled(&self, found: Option<FileKey>) {
        let is_settled = || {
            let is_another =
                found.is_some() && self.made.get().is_some_and(|made| Some(*made) != found);
            is_another || self.has_ended.load(Ordering::SeqCst)
        };
        basics::until(&self.changed, is_settled).await;
    }

    fn is_below(&self, share: &Share, directory: &SharePath) -> bool {
        let is_below = |path: &SharePath| {
            self.share.path_in(share, path).is_some_and(|path| path.is_below(directory))
        };
        is_below(&self.path) || self.renames.as_ref().is_some_and(|one| is_below(&one.from))
    }

    fn is_in_the_way(&self, spot: &Spot, renames: Option<&Renames>) -> bool {
        let file = |one: &Renames| one.file;
        let is_renamed = renames.is_some() && self.renames.as_ref().map(file) == renames.map(file);
        self.spot == *spot || is_renamed
    }
}

/// Something that was found by its name.
#[derive(Debug)]
pub(crate) struct Sighting {
    key: FileKey,
    is_directory: bool,
    is_as_new: bool,
    /// `None` where it was found by a symbolic link.
    spot: Option<Spot>,
}

impl Sighting {
    /// Of a file or directory that a share has at `path`. May block.
    pub(crate) fn of(share: &Share, found: &Found, path: &SharePath) -> Self {
        let (key, is_directory) = (found.key, found.is_directory);
        let is_as_new = found.is_as_new() && key != share.root_key();
        let entry = is_as_new.then(|| share.entry_of(path, key)).flatten();
        let spot = entry.map(|parent| Spot { parent, folded: folded(path.leaf()) });
        Self { key, is_directory, is_as_new, spot }
    }

    /// Of a stream of a file.
    pub(crate) fn of_stream(file: FileKey, name: &StreamName, key: FileKey) -> Self {
        let spot = Some(Spot::of_stream(file, name));
        Self { key, is_directory: false, is_as_new: true, spot }
    }
}

impl Default for Makings {
    fn default() -> Self {
        Self {
            counts: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            groups: RandomState::new(),
            under_way: Mutex::default(),
            how_many: AtomicUsize::new(0),
            given_back: Condvar::new(),
        }
    }
}

impl Makings {
    /// To be asked before a name, in any case, is looked up.
    pub(crate) fn before(&self, folded: &str) -> MadeBefore {
        let group = usize::try_from(self.groups.hash_one(folded) % GROUPS as u64)
            .expect("less than the groups");
        MadeBefore { group, count: self.counts[group].load(Ordering::SeqCst) }
    }

    /// Claims a name for who is about to make it.
    ///
    /// # Errors
    ///
    /// Somebody else is just making it.
    pub(crate) fn claim(
        self: &Arc<Self>,
        spot: Spot,
        share: &Arc<Share>,
        path: &SharePath,
        makes: Makes,
    ) -> Result<Claim, Arc<Making>> {
        self.enter(spot, share, path, (makes, None))
    }

    /// Claims a name that something is about to get, and the file, if that loses the name it has.
    ///
    /// # Errors
    ///
    /// Somebody else is just making the name, or renaming the file.
    pub(crate) fn claim_name(
        self: &Arc<Self>,
        spot: Spot,
        share: &Arc<Share>,
        path: &SharePath,
        renames: Option<Renames>,
    ) -> Result<Claim, Arc<Making>> {
        self.enter(spot, share, path, (Makes::Name, renames))
    }

    /// Claims a file that is to keep its name, or about to lose it. Blocks while others have claimed it.
    pub(crate) fn claim_file(
        self: &Arc<Self>,
        share: &Arc<Share>,
        path: &SharePath,
        file: FileKey,
    ) -> Claim {
        loop {
            let other = match self.enter_file(share, path, file) {
                Ok(claim) => return claim,
                Err(other) => other,
            };
            let is_there =
                |under_way: &mut Vec<_>| under_way.iter().any(|one| Arc::ptr_eq(one, &other));
            drop(self.given_back.wait_while(self.lock(), is_there));
        }
    }

    /// [`Makings::claim_file`]; `None` where that would wait.
    pub(crate) fn try_claim_file(
        self: &Arc<Self>,
        share: &Arc<Share>,
        path: &SharePath,
        file: FileKey,
    ) -> Option<Claim> {
        self.enter_file(share, path, file).ok()
    }

    fn enter_file(
        self: &Arc<Self>,
        share: &Arc<Share>,
        path: &SharePath,
        file: FileKey,
    ) -> Result<Claim, Arc<Making>> {
        let keeps = Renames { file, from: path.clone() };
        self.enter(Spot::of_file(file), share, path, (Makes::Name, Some(keeps)))
    }

    /// The claim of a file, by a request that renames or removes it or keeps its name: [`Makings::claim_file`] would wait
    /// for it.
    pub(crate) fn of_file(&self, file: FileKey) -> Option<Arc<Making>> {
        if self.how_many.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let is_its = |one: &&Arc<Making>| one.renames.as_ref().is_some_and(|one| one.file == file);
        self.lock().iter().find(is_its).cloned()
    }

    fn enter(
        self: &Arc<Self>,
        spot: Spot,
        share: &Arc<Share>,
        path: &SharePath,
        (makes, renames): (Makes, Option<Renames>),
    ) -> Result<Claim, Arc<Making>> {
        let mut under_way = self.lock();
        let in_the_way = |other: &&Arc<Making>| other.is_in_the_way(&spot, renames.as_ref());
        if let Some(other) = under_way.iter().find(in_the_way) {
            return Err(Arc::clone(other));
        }
        let making = Arc::new(Making {
            spot,
            share: Arc::clone(share),
            path: path.clone(),
            makes,
            renames,
            made: OnceLock::new(),
            has_ended: AtomicBool::new(false),
            changed: Notify::new(),
        });
        under_way.push(Arc::clone(&making));
        self.how_many.store(under_way.len(), Ordering::SeqCst);
        Ok(Claim { makings: Arc::clone(self), making })
    }

    /// What makes what was found in a share, if anybody does: it is not to be opened, nor to lose its name, before that
    /// is over.
    pub(crate) fn of(
        &self,
        share: &Share,
        found: impl FnOnce() -> Sighting,
    ) -> Option<Arc<Making>> {
        if self.how_many.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let found = found();
        self.lock().iter().find(|making| making.may_be(share, &found)).cloned()
    }

    /// Waits for requests that make or rename something below a directory, where nobody else begins to. Blocks, as long as
    /// one CREATE or rename.
    pub(crate) fn finish_below(&self, share: &Share, directory: &SharePath) {
        self.finish(|one| one.is_below(share, directory));
    }

    /// The same of a directory that stays where it is, or is just moved: whatever it is called, it is `key`.
    pub(crate) fn finish_in(&self, share: &Share, directory: &SharePath, key: FileKey) {
        self.finish(|one| one.spot.is_in(key) || one.is_below(share, directory));
    }

    fn finish(&self, is_awaited: impl Fn(&Making) -> bool) {
        if self.how_many.load(Ordering::SeqCst) == 0 {
            return;
        }
        let is_busy =
            |under_way: &mut Vec<Arc<Making>>| under_way.iter().any(|one| is_awaited(one));
        drop(self.given_back.wait_while(self.lock(), is_busy));
    }

    #[cfg(test)]
    pub(super) fn is_claimed_below(&self, share: &Share, directory: &SharePath) -> bool {
        self.lock().iter().any(|one| one.is_below(share, directory))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Making>>, order::Makings> {
        self.under_way.lock()
    }
}

/// A name that one thread is making until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    makings: Arc<Makings>,
    making: Arc<Making>,
}

impl Claim {
    /// Whether nobody has made the name, in any case, since before it was found missing.
    pub(crate) fn is_first_since(&self, before: MadeBefore) -> bool {
        let now = self.makings.before(&self.making.spot.folded);
        now.group == before.group && now.count == before.count
    }

    /// What was made is this.
    pub(crate) fn note(&self, made: FileKey) {
        let _ = self.making.made.set(made);
        self.making.changed.notify_waiters();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let makings = &self.makings;
        // Before it is given back: who claims the name next has either found what was made, or looks again.
        let group = makings.before(&self.making.spot.folded).group;
        makings.counts[group].fetch_add(1, Ordering::SeqCst);
        let mut under_way = makings.lock();
        under_way.retain(|one| !Arc::ptr_eq(one, &self.making));
        makings.how_many.store(under_way.len(), Ordering::SeqCst);
        drop(under_way);
        self.making.has_ended.store(true, Ordering::SeqCst);
        self.making.changed.notify_waiters();
        makings.given_back.notify_all();
    }
}

/// Groups of names with a count each, 8 KiB in all: one CREATE remembers the count of its own alone.
const GROUPS: usize = 1024;

#[cfg(test)]
mod tests;
