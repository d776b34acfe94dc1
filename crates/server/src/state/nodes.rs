//! The files that anybody has open: the nodes of all inodes, by their keys.
//!
//! The table only points at them: a node lives as long as an open of it. What a directory that is moved
//! means for what is open below it is asked here too, of all of them.
//!
//! The table and a node are never locked together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use basics::Clock;
use basics::ordered::{Mutex, MutexGuard};
use tree::{FileKey, Naming, Share, SharePath};

use super::caching::Intent;
use super::given_up::GivenUp;
use super::lease::Owner;
use super::making::Makings;
use super::node::{Node, OpenRecord};
use super::open::Open;
use super::serial::OpenSerial;
use super::taking::Takings;
use crate::lock_order as order;

/// All nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    table: Mutex<Table, order::Nodes>,
    clock: Clock,
    break_timeout: Duration,
    given_up: Arc<GivenUp>,
    /// Names that are taken from their files while others look them up.
    pub(crate) takings: Arc<Takings>,
    /// Names that are given to new files while others look them up.
    pub(crate) makings: Arc<Makings>,
}

#[derive(Debug, Default)]
struct Table {
    nodes: HashMap<FileKey, Weak<Node>>,
    /// Nodes that have gone since the last sweep; their memory stays until the next one.
    gone: Arc<AtomicUsize>,
}

impl Table {
    // Nodes that have gone leave when they may be half of the table: amortised, no lock per close. So
    // many files that were open once leave no memory behind, not even half of it.
    fn sweep(&mut self) {
        if self.gone.load(Ordering::Relaxed) < GONE_MAX.max(self.nodes.len() / 2) {
            return;
        }
        // One that goes meanwhile may go uncounted: it only leaves later.
        self.gone.store(0, Ordering::Relaxed);
        self.nodes.retain(|_, node| node.strong_count() > 0);
        if self.nodes.capacity() > 4 * GONE_MAX.max(self.nodes.len()) {
            self.nodes.shrink_to(2 * GONE_MAX.max(self.nodes.len()));
        }
    }
}

/// An open and the name it has at one moment.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) serial: OpenSerial,
    pub(crate) share: Arc<Share>,
    pub(crate) path: SharePath,
    /// The open itself; there once it exists.
    pub(crate) open: Weak<Open>,
}

impl Named {
    /// Its name in its own share once what `share` calls `from` is `to`; `None` where that leads out of its share.
    pub(crate) fn moved(
        &self,
        share: &Share,
        from: &SharePath,
        to: &SharePath,
    ) -> Option<SharePath> {
        let path = self.share.path_in(share, &self.path)?;
        share.path_in(&self.share, &path.moved(from, to))
    }

    pub(crate) fn of(record: &OpenRecord) -> Self {
        let OpenRecord { serial, ref share, ref path, ref open, .. } = *record;
        Self { serial, share: Arc::clone(share), path: path.clone(), open: Weak::clone(open) }
    }
}

impl Nodes {
    pub(crate) fn new(clock: Clock, break_timeout: Duration, given_up: Arc<GivenUp>) -> Self {
        Self {
            table: Mutex::default(),
            clock,
            break_timeout,
            given_up,
            takings: Arc::default(),
            makings: Arc::default(),
        }
    }

    /// The node of an inode that has just been made. One that is known by its number was of a file that is no more.
    pub(crate) fn new_node(&self, key: FileKey) -> Arc<Node> {
        let mut table = self.lock();
        table.sweep();
        self.insert(&mut table, key)
    }

    /// The node of an inode, made if need be.
    pub(crate) fn node(&self, key: FileKey) -> Arc<Node> {
        let mut table = self.lock();
        if let Some(node) = table.nodes.get(&key).and_then(Weak::upgrade) {
            return node;
        }
        table.sweep();
        self.insert(&mut table, key)
    }

    fn insert(&self, table: &mut Table, key: FileKey) -> Arc<Node> {
        let (given_up, gone) = (Arc::clone(&self.given_up), Arc::clone(&table.gone));
        let names = (Arc::clone(&self.takings), Arc::clone(&self.makings));
        let node =
            Arc::new(Node::new(key, self.clock.clone(), self.break_timeout, given_up, gone, names));
        table.nodes.insert(key, Arc::downgrade(&node));
        node
    }

    /// The node of an inode if anybody has it open.
    pub(crate) fn existing(&self, key: FileKey) -> Option<Arc<Node>> {
        self.lock().nodes.get(&key).and_then(Weak::upgrade)
    }

    /// Whether anything below a directory is open: then it cannot be moved. By the rules of POSIX it can
    /// where all of that was opened by the same rules.
    pub(crate) fn is_open_below(&self, share: &Arc<Share>, directory: &SharePath) -> bool {
        self.all().iter().any(|node| is_in_the_way(node, share, directory))
    }

    /// Asks clients for the handles that they cache of what keeps a directory from being moved; the nodes of which an
    /// answer is owed.
    pub(crate) fn begin_breaks_below(
        &self,
        by: Owner,
        share: &Arc<Share>,
        directory: &SharePath,
    ) -> Vec<Arc<Node>> {
        let mut asked = self.all();
        asked.retain(|node| {
            is_in_the_way(node, share, directory) && node.begin_breaks(by, Intent::Unlink).is_some()
        });
        asked
    }

    /// What is open below a directory.
    pub(crate) fn open_below(&self, share: &Arc<Share>, directory: &SharePath) -> Vec<Named> {
        let mut found = Vec::new();
        for node in self.all() {
            let state = node.lock();
            let below = state.opens.iter().filter(|open| open.is_below(share, directory));
            found.extend(below.map(Named::of));
        }
        found
    }

    /// Whether a file below a directory is mapped for push or written through: its name is to be durable.
    pub(crate) fn owes_names_below(&self, share: &Arc<Share>, directory: &SharePath) -> bool {
        // Not under the lock of a node: an open may end here, and its file be closed.
        let below = self.open_below(share, directory).into_iter();
        below
            .filter_map(|named| named.open.upgrade())
            .any(|open| open.is_write_through() || open.node.lock().is_obstructed())
    }

    /// Gives what is open below a directory the name it has now.
    pub(crate) fn move_below(&self, share: &Arc<Share>, from: &SharePath, to: &SharePath) {
        for node in self.all() {
            let mut state = node.lock();
            let move_it = |path: &SharePath| path.is_below(from).then(|| path.moved(from, to));
            state.move_wished(share, move_it);
            for open in state.opens.iter_mut().filter(|open| open.is_below(share, from)) {
                if let Some(path) = open.path_in(share)
                    && let Some(moved) = share.path_in(&open.share, &path.moved(from, to))
                {
                    open.path = moved;
                }
            }
        }
    }

    /// Files somebody has open.
    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    /// Leases and oplocks held on all files.
    pub(crate) fn leases(&self) -> usize {
        self.all().iter().map(|node| node.lock().leases.len()).sum()
    }

    // Collected first: the table is never locked together with a node. Those that have gone leave.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        let (mut table, mut found) = (self.lock(), Vec::new());
        table.gone.store(0, Ordering::Relaxed);
        table.nodes.retain(|_, node| {
            let node = node.upgrade();
            let lives = node.is_some();
            found.extend(node);
            lives
        });
        found
    }

    fn lock(&self) -> MutexGuard<'_, Table, order::Nodes> {
        self.table.lock()
    }
}

// By the rules of POSIX a directory is moved with what was opened by the same rules.
fn is_in_the_way(node: &Node, share: &Arc<Share>, directory: &SharePath) -> bool {
    let is_posix = directory.naming() == Naming::Posix;
    let moves = |open: &OpenRecord| is_posix && open.path.naming() == Naming::Posix;
    let state = node.lock();
    let mut opens = state.opens.iter().filter(|open| open.is_below(share, directory));
    opens.any(|open| !moves(open))
}

/// Nodes, some 600 bytes each, that nobody has open any more and that are kept until a sweep.
const GONE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_files_that_were_open_nothing_is_kept() {
        let nodes = Nodes::new(Clock::host(), Duration::from_secs(1), Arc::default());
        let key = |inode| FileKey { device: 1, inode };
        let open: Vec<_> = (0..10_000).map(|inode| nodes.node(key(inode))).collect();
        let stays = Arc::clone(&open[7]);
        drop(open);
        drop(nodes.node(key(10_000)));
        let table = nodes.lock();
        assert_eq!(table.nodes.len(), 2, "the one that is open, and the one that was opened");
        assert!(table.nodes.capacity() <= 4 * GONE_MAX, "{}", table.nodes.capacity());
        drop(table);
        assert!(nodes.existing(key(7)).is_some_and(|node| Arc::ptr_eq(&node, &stays)));
        drop(stays);
        assert_eq!((nodes.len(), nodes.lock().nodes.len()), (0, 0));
    }

    #[test]
    fn a_file_opened_again_and_again_keeps_the_others() {
        let nodes = Nodes::new(Clock::host(), Duration::from_secs(1), Arc::default());
        let key = |inode| FileKey { device: 1, inode };
        let open: Vec<_> = (0..100).map(|inode| nodes.node(key(inode))).collect();
        for inode in 0..1_000 {
            drop(nodes.node(key(100 + inode % 300)));
            assert!(nodes.lock().nodes.len() <= 101 + GONE_MAX + open.len() / 2);
        }
        assert!((0..100).all(|inode| nodes.existing(key(inode)).is_some()));
    }
}
