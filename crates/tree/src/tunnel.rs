//! File name tunneling: the facts of a name that was just removed pass to the next file of that
//! name.
//!
//! ```text
//!   a file loses its name (removed, renamed) --> kept for 15 s, under the name by which it was opened:
//!                                             its long name, its creation time
//!   a file gets that name (created, renamed) --> it inherits the creation time, and the long name
//!                                             if the request has only the short name
//! ```
//!
//! Programs save a file by writing another, removing the first and giving its name to the second.
//! Programs that know only short names would otherwise lose the long names, and every program would
//! give an old document a new creation time.
//!
//! Deviates: a long name comes back in the spelling of the new request, not in the old one. Names
//! of POSIX clients take no part in it, as the specification requires.
//!
//! Spec: MS-FSA §2.1.1.2 (TunnelCacheEntry), §2.1.5.1.1 (creation), §2.1.5.5 phase 7 (deletion),
//! §2.1.5.15.12 (renaming).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inode::FileKey;
use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};

/// The names that a share lost a moment ago.
#[derive(Debug, Default)]
pub(super) struct Tunnel {
    kept: Mutex<Kept, order::Removed>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By the name in upper case, the oldest first.
    names: HashMap<Arc<str>, Vec<Gone>>,
    /// The time when each was kept, the oldest first.
    order: VecDeque<(Instant, Arc<str>)>,
}

/// A name that was removed.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) parent: FileKey,
    /// The long name of the file, if its client used its short name.
    pub(super) long: Option<String>,
    pub(super) creation: u64,
    /// The name was used again, or its directory is gone.
    pub(super) spent: bool,
}

/// The meaning of a removed name.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Meaning {
    pub(super) long: Option<String>,
    pub(super) creation: u64,
}

impl Tunnel {
    pub(super) fn knows(&self, name: &str, now: Instant) -> bool {
        let mut kept = self.lock();
        kept.expire(now);
        kept.names.contains_key(name)
    }

    pub(super) fn keep(&self, name: &str, gone: Gone, now: Instant) {
        let mut kept = self.lock();
        kept.expire(now);
        if kept.order.len() >= ENTRIES_MAX {
            kept.drop_oldest();
        }
        let name: Arc<str> = name.into();
        kept.order.push_back((now, Arc::clone(&name)));
        kept.names.entry(name).or_default().push(gone);
    }

    pub(super) fn take(&self, parent: FileKey, name: &str, now: Instant) -> Option<Meaning> {
        let mut kept = self.lock();
        kept.expire(now);
        let mut latest = kept.names.get_mut(name)?.iter_mut().rev();
        let found = latest.find(|gone| gone.parent == parent && !gone.spent)?;
        found.spent = true;
        Some(Meaning { long: found.long.take(), creation: found.creation })
    }

    // A new directory may have the old one's inode.
    pub(super) fn forget_below(&self, directory: FileKey) {
        let mut kept = self.lock();
        let all = kept.names.values_mut().flatten();
        all.filter(|gone| gone.parent == directory).for_each(|gone| gone.spent = true);
    }

    fn lock(&self) -> MutexGuard<'_, Kept, order::Removed> {
        self.kept.lock()
    }
}

impl Kept {
    fn expire(&mut self, now: Instant) {
        let is_old = |(since, _): &(Instant, Arc<str>)| {
            now.saturating_duration_since(*since) >= REMEMBERED_FOR
        };
        while self.order.front().is_some_and(is_old) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((_, name)) = self.order.pop_front() else { return };
        if let Some(same) = self.names.get_mut(&name) {
            same.remove(0);
            if same.is_empty() {
                self.names.remove(&name);
            }
        }
    }
}

/// MS-FSA §2.1.1.2: the time of NTFS.
const REMEMBERED_FOR: Duration = Duration::from_secs(15);
/// As many as a Windows server keeps for a volume; with two names of 255 bytes each, half a
/// megabyte.
const ENTRIES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: FileKey = FileKey { device: 1, inode: 1 };
    const THERE: FileKey = FileKey { device: 1, inode: 2 };

    fn gone(parent: FileKey, creation: u64) -> Gone {
        Gone { parent, long: Some("long".to_owned()), creation, spent: false }
    }

    fn creation(tunnel: &Tunnel, parent: FileKey, name: &str, now: Instant) -> Option<u64> {
        tunnel.take(parent, name, now).map(|meaning| meaning.creation)
    }

    #[test]
    fn a_name_is_remembered_for_fifteen_seconds_in_its_directory_and_once() {
        let (tunnel, start) = (Tunnel::default(), Instant::now());
        tunnel.keep("A", gone(HERE, 1), start);
        tunnel.keep("A", gone(THERE, 2), start);
        tunnel.keep("A", gone(HERE, 3), start + Duration::from_secs(1));
        let late = start + Duration::from_millis(14_999);
        assert_eq!(creation(&tunnel, HERE, "A", late), Some(3), "the latest");
        assert_eq!(creation(&tunnel, THERE, "A", late), Some(2));
        assert_eq!(creation(&tunnel, THERE, "A", late), None, "once");
        assert_eq!(creation(&tunnel, HERE, "A", start + REMEMBERED_FOR), None, "too late");
    }

    #[test]
    fn names_of_a_removed_directory_are_forgotten() {
        let (tunnel, now) = (Tunnel::default(), Instant::now());
        tunnel.keep("A", gone(HERE, 1), now);
        tunnel.keep("A", gone(THERE, 2), now);
        tunnel.forget_below(HERE);
        assert_eq!(creation(&tunnel, HERE, "A", now), None);
        assert_eq!(creation(&tunnel, THERE, "A", now), Some(2));
    }

    #[test]
    fn remembered_names_are_bounded_and_the_latest() {
        let (tunnel, now) = (Tunnel::default(), Instant::now());
        for number in 0..5_000 {
            // Two successive entries have the same name.
            tunnel.keep(&format!("N{}", number / 2), gone(HERE, number), now);
        }
        let kept = tunnel.lock();
        assert_eq!(kept.order.len(), ENTRIES_MAX);
        assert_eq!(kept.names.values().map(Vec::len).sum::<usize>(), ENTRIES_MAX);
        drop(kept);
        assert_eq!(creation(&tunnel, HERE, "N2499", now), Some(4_999));
        assert_eq!(creation(&tunnel, HERE, "N0", now), None);
        assert!(!tunnel.knows("N2499", now + REMEMBERED_FOR));
        assert!(tunnel.lock().names.is_empty());
    }
}
