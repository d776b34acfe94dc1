//! What the logs of persistent opens learn of a lease that is not whole any more, before anybody goes on who had it broken.
//!
//! ```text
//!  a lease was broken, its note says that it is whole:  who wants the file has the logs say so, and waits
//!  one thread writes to the log of a share              however many wait for it
//!  all logs say so, or have failed to                   those who wait look again
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;
use tracing::error;
use tree::{MayWait, Share};

use super::lease::Owner;
use super::lease_note::NoteNumber;
use super::node::{Node, NodeState};
use super::serial::OpenSerial;

impl NodeState {
    // The opens of leases, by the shares in whose logs they are.
    fn noted(&self, of: &HashMap<Owner, NoteNumber>) -> Vec<(Arc<Share>, Vec<u64>)> {
        let mut noted: Vec<(Arc<Share>, Vec<u64>)> = Vec::new();
        for open in self.opens.iter().filter(|open| of.contains_key(&open.owner)) {
            match noted.iter_mut().find(|(share, _)| Arc::ptr_eq(share, &open.share)) {
                Some((_, serials)) => serials.push(open.serial.0),
                None => noted.push((Arc::clone(&open.share), vec![open.serial.0])),
            }
        }
        noted
    }
}

impl Node {
    /// Has the logs say that leases are not whole any more: the first who waits for that, of all leases that `by` waits
    /// for, with one wait for the disk of each log. What it waits behind is the note of `owner`; `None`: the logs say so.
    pub(super) fn correct_notes(
        self: &Arc<Self>,
        by: Owner,
        owner: Owner,
    ) -> Option<OwnedNotified> {
        let mut state = self.lock();
        if !state.leases.has_stale_note(owner) {
            return None;
        }
        let ended = state.break_waiters.wait_behind(owner);
        let begun = state.leases.begin_notes(by);
        if !begun.is_empty() {
            let noted = state.noted(&begun);
            drop(state);
            let correction = Arc::new(Correction { node: Arc::clone(self), begun });
            noted.into_iter().for_each(|(share, serials)| write(share, serials, &correction));
        }
        Some(ended)
    }
}

// Dropped once all logs say what they are to say, have failed to, or cannot be asked any more.
struct Correction {
    node: Arc<Node>,
    begun: HashMap<Owner, NoteNumber>,
}

impl Drop for Correction {
    fn drop(&mut self) {
        let mut state = self.node.lock();
        state.leases.notes_are_right(&self.begun);
        self.begun.keys().for_each(|owner| state.break_waiters.end(*owner));
    }
}

// One thread writes to the log of a share, whoever waits for it.
fn write(share: Arc<Share>, serials: Vec<u64>, correction: &Arc<Correction>) {
    let kept = Arc::clone(correction);
    let first = serials.first().copied().unwrap_or_default();
    let is_ours = share.ask_doubt(serials, move |written| {
        let _kept = kept;
        if let Err(error) = written {
            note_failed(first, error);
        }
    });
    if is_ours {
        let writer = Writer(Some(share));
        drop(tokio::task::spawn_blocking(move || writer.run()));
    }
}

// A thread that writes to a log. A runtime that goes down may never have it run.
struct Writer(Option<Arc<Share>>);

impl Writer {
    fn run(mut self) {
        let share = self.0.take();
        if let Some(journal) = share.as_ref().and_then(|share| share.journal(MayWait::here())) {
            journal.write_doubts();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(share) = &self.0 {
            share.give_up_doubts();
        }
    }
}

/// Makes the log say of an open that its lease is not held, or not whole. Blocks.
pub(crate) fn doubt(share: &Share, serial: OpenSerial, may_wait: MayWait) {
    let Some(journal) = share.journal(may_wait) else { return };
    if let Err(error) = journal.doubt_durably(&[serial.0]) {
        note_failed(serial.0, &error);
    }
}

// The log promises nothing more, and says so; nobody waits for it for ever.
fn note_failed(serial: u64, error: &io::Error) {
    error!(serial, %error, "the log of opens does not learn that a lease was broken: after a crash it is whole again");
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tree::journal::OpenNote;
    use tree::{FileKey, ShareConfig, SharePath};

    use super::super::breaks::tests::{client, node};
    use super::super::caching::{Caching, Flavor, Intent};
    use super::super::holder::Holder;
    use super::super::lease_keys::LeaseKeys;
    use super::super::node::OpenRecord;
    use super::super::sharing::{Kinds, Sharing};
    use super::*;

    fn open_of(owner: Owner, serial: OpenSerial, share: &Arc<Share>) -> OpenRecord {
        let all = Kinds { read: true, write: true, delete: true };
        OpenRecord {
            serial,
            sharing: Sharing { uses: all, shares: all },
            owner,
            has_lease: true,
            share: Arc::clone(share),
            path: SharePath::parse("f").unwrap(),
            delete_on_close: None,
            holder: None,
            orphan: None,
            _key_claim: Arc::<LeaseKeys>::default()
                .claim(owner, FileKey { device: 1, inode: 1 })
                .unwrap(),
            instance: None,
            open: std::sync::Weak::new(),
            base: None,
        }
    }

    fn note_of(serial: u64) -> OpenNote {
        OpenNote {
            boot: None,
            serial,
            inode: 1,
            identity: None,
            access: 0x1f_01ff,
            mode: 0,
            action: 1,
            timeout_ms: 60_000,
            flags: 0,
            flavor: 2,
            held: Caching::READ.0.try_into().unwrap(),
            epoch: 1,
            lease_key: [1; 16],
            client: [1; 16],
            create_guid: [1; 16],
            instance: None,
            user: "user".to_owned(),
            path: "f".to_owned(),
            earlier: None,
            locks: Vec::new(),
            delete_pending: false,
            sequences: Default::default(),
        }
    }

    fn taken_over(config: &ShareConfig) -> Share {
        let mut share = Share::open(config).unwrap();
        share.take_over().unwrap();
        share
    }

    #[tokio::test]
    async fn a_change_waits_for_one_sync_of_the_log_however_many_leases_it_breaks() {
        const LEASES: u64 = 700;
        let dir = tempfile::tempdir().unwrap();
        let mut config = ShareConfig::new("s", dir.path());
        config.persistent_opens = Some(dir.path().join("opens.log"));
        let share = Arc::new(taken_over(&config));
        let node = node();
        let syncs = || share.journal(MayWait::here()).unwrap().syncs();
        {
            let mut state = node.lock();
            for id in 1..=LEASES {
                let (owner, flavor) = (client(id), Flavor::LeaseV2);
                state.leases.grant(owner, flavor, Caching::READ, true, 0, Holder::default());
                state.opens.push(open_of(owner, OpenSerial(id), &share));
                share.journal(MayWait::here()).unwrap().open_durably(note_of(id)).unwrap();
                assert!(state.leases.note(owner).is_some());
            }
        }
        let before = syncs();
        node.yield_caching(client(0), Intent::Modify).await;
        assert_eq!(syncs(), before + 1);
        let log = Arc::downgrade(&share);
        drop((node, share));
        // The thread that wrote may hold it for a moment.
        while log.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        let share = taken_over(&config);
        let left = share.left_over().begin().unwrap();
        assert!(left.notes().into_iter().all(|note| note.held == 0));
    }

    #[test]
    fn however_many_wait_for_a_log_one_thread_writes_to_it() {
        const OPENS: u64 = 50;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("opens.log");
        let mut config = ShareConfig::new("s", dir.path());
        config.persistent_opens = Some(log);
        let share = Arc::new(taken_over(&config));
        let node = node();
        {
            let mut state = node.lock();
            for serial in 1..=OPENS {
                let (owner, flavor) = (client(0), Flavor::LeaseV2);
                state.leases.grant(owner, flavor, Caching::READ, true, 0, Holder::default());
                state.opens.push(open_of(owner, OpenSerial(serial), &share));
                share.journal(MayWait::here()).unwrap().open_durably(note_of(serial)).unwrap();
            }
            assert!(state.leases.note(client(0)).is_some());
        }
        let threads = Arc::new(AtomicUsize::new(0));
        let started = Arc::clone(&threads);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let count = move || {
            started.fetch_add(1, Ordering::Relaxed);
        };
        let runtime = runtime.enable_all().on_thread_start(count).build().unwrap();
        runtime.block_on(async {
            let yields = (1..=100).map(|id| {
                let node = Arc::clone(&node);
                async move { node.yield_caching(client(id), Intent::Modify).await }
            });
            let waiting: Vec<_> = yields.map(tokio::spawn).collect();
            for request in waiting {
                request.await.unwrap();
            }
        });
        assert_eq!(threads.load(Ordering::Relaxed), 1);
        drop((node, share, runtime));
        let share = taken_over(&config);
        let left = share.left_over().begin().unwrap();
        let held: Vec<_> = left.notes().into_iter().map(|note| note.held).collect();
        assert_eq!(held, vec![0; usize::try_from(OPENS).unwrap()], "the log says so of each");
    }
}
