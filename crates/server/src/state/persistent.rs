//! Opens that survive the server: from an open to its note in the share's journal, and back.
//!
//! ```text
//!  CREATE, granted --> note durable --> answered --> crash --> server starts --> orphan --> DH2C
//! ```
//!
//! A note leads back to its file by path, inode and identity (`tree::identity`): a file that somebody replaced on the
//! machine itself is not opened in its place, though it was given the inode number. Where the file cannot be looked for now (the medium fails, descriptors are
//! used up) the note stays, nobody else opens the file, and it is tried again until its client's time is over. What its user may do is decided anew: who would not be granted as
//! much today does not get the open back. Leases come back as they were granted, if nothing was broken since: who
//! breaks the lease of a noted open goes on when the log says so (`state::corrections`), whether its holder was there to be told or
//! away. From then on the open comes back without a lease. An open that ends otherwise than by its client's CLOSE, because its
//! time is over or another instance of its application takes the file, is gone from the log durably before others get in
//! (`state::closing`): its client asks for it, and would find the lease whole. Where several clients have a file open none caches writes any more.
//!
//! The end of the server takes nothing from a file that was written, the end of the machine takes what was not
//! made durable. A persistent open writes through, so its client finds all that it was told of, and flushes in
//! vain of nothing. Where that cannot be said an open does not come back after a boot: of a file in memory, or
//! noted by a server that did not write through. Its client then learns that something may be lost, and no
//! FLUSH says otherwise.
//!
//! Spec: MS-SMB2 §3.3.5.9.10 (persistent opens), §3.3.3 (initialization).

use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::DurabilityClass;
use smb::create::{AccessMask, CreateAction};
use thiserror::Error;
use tracing::{info, warn};
use tree::journal::{BootId, DELETE_ON_CLOSE, InstanceNote, OpenNote};
use tree::left_over::Trying;
use tree::{Entry, FileIdentity, Found, MayWait, Share, ShareError, SharePath};

use super::account::Accounts;
use super::app_instance::AppInstance;
use super::caching::{Caching, Flavor};
use super::closing::forget_notes;
use super::corrections::doubt;
use super::files::Files;
use super::lease::{Granted, Owner};
use super::node::{NodeState, OpenRecord};
use super::open::{Durable, Open, OpenParts, Origin};
use super::range::LockRange;
use super::resource::Resource;
use super::serial::OpenSerial;
use super::sharing::{Kinds, Sharing};
use crate::access::Identity;
use crate::access::Regrant;
use crate::access::{Target, Tree};
use crate::config::Users;

/// What has to be written down of an open.
pub(crate) fn note(open: &Open, durable: Durable, granted: Option<Granted>) -> Option<OpenNote> {
    let identity = FileIdentity::of(open.entry.as_fd()).ok().flatten();
    let mut state = open.node.lock();
    // Not as it was granted: a break may have begun since.
    let granted = granted.and_then(|granted| state.leases.note(open.owner).or(Some(granted)));
    let record = state.record(open.serial)?;
    let Identity::User(user) = &open.origin.user else { return None };
    let (flavor, lease_key) = match (open.owner, granted.map(|granted| granted.flavor)) {
        (Owner::Lease { key, .. }, Some(Flavor::LeaseV2)) => (LEASE_V2, key),
        (Owner::Lease { key, .. }, _) => (LEASE, key),
        (Owner::Open(_), _) => (OPLOCK, [0; 16]),
    };
    let [held, ..] = granted.map_or(0, |granted| granted.caching.0).to_le_bytes();
    Some(OpenNote {
        boot: None,
        serial: open.serial.0,
        inode: open.node.key().inode,
        identity,
        access: open.access.bits(),
        mode: open.mode(),
        action: open.origin.action.0,
        timeout_ms: u32::try_from(durable.timeout.as_millis()).unwrap_or(u32::MAX),
        flags: flags(record.sharing, open.is_write_through(), record.delete_on_close.is_some()),
        flavor,
        held,
        epoch: granted.map_or(0, |granted| granted.epoch),
        lease_key,
        client: open.origin.client,
        create_guid: open.origin.create_guid,
        user: user.to_string(),
        path: record.path.to_wire(),
        earlier: None,
        locks: Vec::new(),
        delete_pending: state.is_record_to_go(record),
        sequences: std::collections::BTreeMap::new(),
        instance: record
            .instance
            .as_ref()
            .map(|it| InstanceNote { id: it.id, version: it.version }),
    })
}

/// The second look at a lease, when its note is durable and before its open is answered. A break that began while the note
/// was written found nothing in the log that it could have corrected. Blocks.
pub(crate) fn check_note(open: &Open, share: &Share, may_wait: MayWait) {
    if !open.node.lock().leases.is_note_whole(open.owner) {
        doubt(share, open.serial, may_wait);
    }
}

/// What an attempt to bring an open back came to.
#[derive(Clone, Copy, Debug)]
enum Tried {
    Back,
    Lost,
    /// It may be opened later.
    Later,
}

/// Brings persistent opens back: the parts of the server that it takes.
#[derive(Debug)]
pub(crate) struct Restorer<'a> {
    pub(crate) files: &'a Files,
    pub(crate) accounts: &'a Accounts,
    /// The users who may log on now.
    pub(crate) users: Users,
    pub(crate) now: Instant,
    pub(crate) may_wait: MayWait,
}

impl Restorer<'_> {
    /// Opens again what was open when the server ended; it waits for its clients from now on. What cannot be
    /// opened now is left over for [`Restorer::restore_later`] and [`Restorer::restore_one`]. Blocks.
    pub(crate) fn restore(&self, share: &Arc<Share>) {
        if let Some(trying) = share.left_over().begin() {
            self.try_each(share, &trying, trying.notes());
        }
    }

    /// Tries again what could not be opened before, and gives up what no client comes back for any more. Blocks.
    pub(crate) fn restore_later(&self, share: &Arc<Share>) {
        if let Some(trying) = share.left_over().begin() {
            let expired = trying.expired(self.now);
            for OpenNote { serial, path, .. } in &expired {
                warn!(
                    serial,
                    path, "a persistent open is lost: its file could not be opened in time"
                );
            }
            let lost: Vec<u64> = expired.iter().map(|note| note.serial).collect();
            self.give_up(share, &trying, &lost);
        }
        self.restore(share);
    }

    /// Tries one again, whose client has come back. Blocks.
    pub(crate) fn restore_one(&self, share: &Arc<Share>, serial: OpenSerial) {
        if let Some(trying) = share.left_over().begin() {
            self.try_each(share, &trying, trying.note(serial.0));
        }
    }

    // Nothing is tried while another thread tries: that one may wait for a disk.
    fn try_each(
        &self,
        share: &Arc<Share>,
        trying: &Trying<'_>,
        notes: impl IntoIterator<Item = OpenNote>,
    ) {
        let mut lost = Vec::new();
        for note in notes {
            let serial = note.serial;
            match self.try_one(share, note) {
                Tried::Later => {}
                Tried::Back => trying.settle(serial),
                Tried::Lost => lost.push(serial),
            }
        }
        self.give_up(share, trying, &lost);
    }

    // With one wait for the disk, however many there are.
    fn give_up(&self, share: &Share, trying: &Trying<'_>, lost: &[u64]) {
        if !lost.is_empty() {
            forget_notes(share, lost, self.may_wait);
            lost.iter().for_each(|serial| trying.settle(*serial));
        }
    }

    fn try_one(&self, share: &Arc<Share>, note: OpenNote) -> Tried {
        let (serial, path) = (note.serial, note.path.clone());
        match self.bring_back(share, note) {
            Ok(()) => {
                info!(serial, path, "a persistent open waits for its client");
                Tried::Back
            }
            Err(error) if error.may_pass() => {
                warn!(serial, path, %error, "a persistent open cannot be opened yet");
                Tried::Later
            }
            Err(error) => {
                warn!(serial, path, %error, "a persistent open is lost");
                Tried::Lost
            }
        }
    }

    // The file of a note, opened with the rights that its user has now, if it is the same file with all that was acknowledged.
    fn reopen(
        &self,
        share: &Arc<Share>,
        (note, user, access): (&OpenNote, &Identity, AccessMask),
        found: &Found,
    ) -> Result<(Regrant, Entry), Lost> {
        let deletes = note.flags & DELETE_ON_CLOSE != 0;
        let granted = Regrant::decide(share, user, access, deletes);
        let granted = granted.filter(|_| user.is_welcome_to(&self.users)).ok_or(Lost::Rights)?;
        let entry = share.open_found(found, granted.mode)?;
        let noted = note.identity.ok_or(Lost::Identity)?;
        if !FileIdentity::of(entry.as_fd())?.is_some_and(|found| found.is_of(&noted)) {
            return Err(Lost::Gone);
        }
        let boot = share.journal_boot();
        let writes = access.intersects(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA);
        if !has_all(note, boot, entry.class(), writes) {
            return Err(Lost::Boot);
        }
        Ok((granted, entry))
    }

    fn bring_back(&self, share: &Arc<Share>, note: OpenNote) -> Result<(), Lost> {
        let (path, found) = find(share, &note)?;
        let access = AccessMask::from_bits_retain(note.access);
        let user = Identity::user(&note.user);
        let (granted, entry) = self.reopen(share, (&note, &user, access), &found)?;
        let serial = OpenSerial(note.serial);
        let owner = match note.flavor {
            OPLOCK => Owner::Open(serial),
            _ => Owner::Lease { client: note.client, key: note.lease_key, user: user.mark() },
        };
        let place = self.accounts.of(&user).try_take(Resource::Opens, 1).ok_or(Lost::TooMany)?;
        let key_claim = self.files.lease_keys.claim(owner, found.key).ok_or(Lost::LeaseKey)?;
        let node = self.files.nodes.node(found.key);
        let tree = Tree::new(0, Target::Disk(Arc::clone(share)), granted.rights);
        let open = Arc::new(Open::new(OpenParts {
            serial,
            tree: Arc::new(tree),
            node: Arc::clone(&node),
            entry: Arc::new(entry),
            access,
            owner,
            mode: note.mode,
            origin: Origin {
                user,
                client: note.client,
                create_guid: note.create_guid,
                action: CreateAction(note.action),
            },
            session: None,
            volatile: 0,
            sequence: 0,
            place: Some(place),
        }));
        let timeout = Duration::from_millis(u64::from(note.timeout_ms));
        open.set_durable(&self.files.durable_opens, Durable { timeout, persistent: true });
        let record = OpenRecord {
            serial,
            sharing: sharing(note.flags),
            owner,
            has_lease: false,
            share: Arc::clone(share),
            path,
            delete_on_close: granted.delete,
            holder: None,
            orphan: Some(true),
            _key_claim: key_claim,
            // Else a later one would not get the file from it, and an earlier one would get in beside it.
            instance: note.instance.map(|it| AppInstance {
                id: it.id,
                client: note.client,
                user: open.origin.user.clone(),
                version: it.version,
            }),
            base: None,
            open: Arc::downgrade(&open),
        };
        restore_record(&mut node.lock(), record, &note, found.has_several_names());
        for &done in note.sequences.values() {
            open.lock_sequences().set_done(done);
        }
        if let Some(key) = open.origin.key() {
            self.files.creates.restore(key, &open);
        }
        self.files.orphans.adopt_restored(open).map_err(|open| {
            open.set_used(&self.files.creates);
            let (key, is_directory) = (found.key, found.is_directory);
            open.node.fail(serial, &self.files.put_off, move |name| {
                name.share.remove(name.leave, &name.path, key, is_directory)
            });
            Lost::TooMany
        })
    }
}

/// Why an open does not come back.
#[derive(Debug, Error)]
enum Lost {
    #[error(transparent)]
    File(#[from] ShareError),
    #[error("its file is gone, or another one has its name")]
    Gone,
    #[error("nobody has noted what tells its file from another of the same inode number")]
    Identity,
    #[error("its user would not be granted as much today")]
    Rights,
    #[error("its lease is another file's")]
    LeaseKey,
    #[error("too many opens wait for their clients")]
    TooMany,
    #[error("the machine was started anew, and may have lost what was written")]
    Boot,
}

impl Lost {
    // Whether it may come back all the same: only what is known to be lost is.
    fn may_pass(&self) -> bool {
        match self {
            Self::File(error) => !is_gone(error),
            Self::TooMany => true,
            Self::Gone | Self::Identity | Self::Rights | Self::LeaseKey | Self::Boot => false,
        }
    }
}

// What a look-up says of a name that leads to no file, or to no regular one.
fn is_gone(error: &ShareError) -> bool {
    use ShareError::{NotDirectory, NotFound, PathNotFound, PeerNameInvalid, SpecialFile};
    matches!(error, NotFound | PathNotFound | NotDirectory | PeerNameInvalid | SpecialFile)
}

// Whether the file has all that the client of an open was told of.
fn has_all(note: &OpenNote, boot: Option<BootId>, class: DurabilityClass, writes: bool) -> bool {
    let wrote_through = note.boot.is_some() || note.flags & WRITE_THROUGH != 0;
    let is_durable = class != DurabilityClass::Volatile && (wrote_through || !writes);
    note.boot.is_some() && note.boot == boot || is_durable
}

// The open stands in its node again, with what it had there: its lease, its wish to delete, its locks.
fn restore_record(state: &mut NodeState, record: OpenRecord, note: &OpenNote, is_linked: bool) {
    let (serial, owner) = (record.serial, record.owner);
    let leave = Regrant::wish(&record.share).filter(|_| note.delete_pending);
    state.is_linked |= is_linked;
    state.opens.push(record);
    restore_lease(state, owner, note);
    if let Some(leave) = leave {
        state.restore_wish(serial, leave);
    }
    for lock in &note.locks {
        if let Some(range) = LockRange::new(lock.offset, lock.length) {
            state.locks.restore(serial, range, lock.exclusive);
        }
    }
}

// Under the name it had last, or the one before: the crash may have come before the rename. Somebody
// may also have put another file there.
fn find(share: &Share, note: &OpenNote) -> Result<(SharePath, Found), Lost> {
    let mut unknown = None;
    for name in std::iter::once(&note.path).chain(&note.earlier) {
        let is_it = |found: &Found| found.key.inode == note.inode && !found.is_directory;
        match SharePath::parse(name).and_then(|path| share.locate(&path)) {
            Ok(located) => {
                if let Some(found) = located.found.filter(is_it) {
                    return Ok((located.path, found));
                }
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => unknown = Some(error),
        }
    }
    Err(unknown.map_or(Lost::Gone, Lost::File))
}

fn restore_lease(state: &mut NodeState, owner: Owner, note: &OpenNote) {
    let flavor = match note.flavor {
        OPLOCK => Flavor::Oplock,
        LEASE => Flavor::LeaseV1,
        _ => Flavor::LeaseV2,
    };
    if note.held == 0 && flavor == Flavor::Oplock {
        return;
    }
    state.leases.restore(owner, flavor, Caching(u32::from(note.held)), note.epoch);
    if let Some(record) = state.record_mut(OpenSerial(note.serial)) {
        record.has_lease = true;
    }
}

fn flags(sharing: Sharing, write_through: bool, delete_on_close: bool) -> u8 {
    let Sharing { uses, shares } = sharing;
    let bits = [
        uses.read,
        uses.write,
        uses.delete,
        shares.read,
        shares.write,
        shares.delete,
        write_through,
        delete_on_close,
    ];
    bits.iter().enumerate().fold(0, |flags, (bit, is_set)| flags | u8::from(*is_set) << bit)
}

fn sharing(flags: u8) -> Sharing {
    let kinds = |at: u8| Kinds {
        read: flags >> at & 1 != 0,
        write: flags >> at & 2 != 0,
        delete: flags >> at & 4 != 0,
    };
    Sharing { uses: kinds(0), shares: kinds(3) }
}

const WRITE_THROUGH: u8 = 1 << 6;
const OPLOCK: u8 = 0;
const LEASE: u8 = 1;
const LEASE_V2: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_keeps_what_an_open_uses_and_shares_and_how_it_ends() {
        let kinds =
            |bits: u8| Kinds { read: bits & 1 != 0, write: bits & 2 != 0, delete: bits & 4 != 0 };
        for bits in 0..64 {
            let both = Sharing { uses: kinds(bits), shares: kinds(bits >> 3) };
            for (through, deletes) in [(false, false), (true, false), (false, true), (true, true)] {
                let flags = flags(both, through, deletes);
                assert_eq!(sharing(flags), both, "{bits:b}");
                assert_eq!(flags & WRITE_THROUGH != 0, through, "{bits:b}");
                assert_eq!(flags & DELETE_ON_CLOSE != 0, deletes, "{bits:b}");
            }
        }
    }

    #[test]
    fn an_open_is_tried_again_unless_it_is_known_that_it_cannot_come_back() {
        use ShareError::{NotDirectory, NotFound, PathNotFound, PeerNameInvalid, SpecialFile};
        let gone = [NotDirectory, NotFound, PathNotFound, PeerNameInvalid, SpecialFile];
        assert!(gone.into_iter().all(|error| !Lost::File(error).may_pass()));
        assert!(Lost::File(ShareError::Exists).may_pass(), "the disk, descriptors, and so on");
        assert!(Lost::TooMany.may_pass());
        let known = [Lost::Gone, Lost::Identity, Lost::Rights, Lost::LeaseKey, Lost::Boot];
        assert!(known.iter().all(|lost| !lost.may_pass()));
    }

    #[test]
    fn an_open_that_may_miss_answered_writes_does_not_come_back() {
        let (now, before) = (Some(BootId([1; 16])), Some(BootId([2; 16])));
        let note = |boot, flags| OpenNote {
            boot,
            serial: 1,
            inode: 1,
            identity: None,
            access: 0,
            mode: 0,
            action: 0,
            timeout_ms: 0,
            flags,
            flavor: OPLOCK,
            held: 0,
            epoch: 0,
            lease_key: [0; 16],
            client: [0; 16],
            create_guid: [0; 16],
            user: String::new(),
            path: String::new(),
            earlier: None,
            locks: Vec::new(),
            delete_pending: false,
            sequences: std::collections::BTreeMap::new(),
            instance: None,
        };
        use DurabilityClass::{Storage, Volatile};
        for (boot, flags, class, writes, comes_back) in [
            (now, 0, Storage, true, true),
            (now, 0, Volatile, true, true),
            (before, 0, Storage, true, true),
            (before, 0, Volatile, false, false),
            // As a server noted them that did not write through, and knew of no boots.
            (None, 0, Storage, true, false),
            (None, WRITE_THROUGH, Storage, true, true),
            (None, 0, Storage, false, true),
            (None, 0, Volatile, false, false),
        ] {
            let case = (boot, flags, class, writes);
            assert_eq!(has_all(&note(boot, flags), now, class, writes), comes_back, "{case:?}");
        }
    }
}
