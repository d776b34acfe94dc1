//! The ranks that a thread holds, and the report of a lock that is taken out of order.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::error;

use super::rank::{LEAVES, RANKS, Rank};

/// The environment variable that says what happens when a lock is taken out of order: `panic`, or else an error in the
/// log.
pub const VARIABLE: &str = "LANDFAST_LOCK_ORDER";

thread_local! {
    // Bit by bit the ranks that this thread holds.
    static HELD: Cell<u64> = const { Cell::new(0) };
}

/// A rank that this thread holds until the value is dropped.
#[derive(Debug)]
pub(super) struct Held<R: Rank>(PhantomData<fn() -> R>);

impl<R: Rank> Held<R> {
    // Bits of the ranks under which this one may not be taken.
    const BARRED: u64 = {
        assert!(R::LEVEL < RANKS, "a rank is too high");
        u64::MAX << if R::LEVEL < LEAVES { R::LEVEL } else { LEAVES }
    };
    const BIT: u64 = 1 << R::LEVEL;

    /// Before the lock is taken: a thread that would wait for ever reports first.
    #[inline]
    pub(super) fn take() -> Self {
        let held = HELD.get();
        if held & Self::BARRED != 0 {
            violated(R::LEVEL, held & Self::BARRED);
        }
        HELD.set(held | Self::BIT);
        Self(PhantomData)
    }

    /// Of a lock that is taken only if it is free: nobody waits, so the order does not matter.
    #[inline]
    pub(super) fn take_free() -> Self {
        HELD.set(HELD.get() | Self::BIT);
        Self(PhantomData)
    }
}

impl<R: Rank> Drop for Held<R> {
    // Of two locks of one rank, taken out of order, the first release clears the bit of both.
    #[inline]
    fn drop(&mut self) {
        HELD.set(HELD.get() & !Self::BIT);
    }
}

/// The names of ranks of which there is a lock.
static NAMES: [OnceLock<&'static str>; RANKS as usize] =
    [const { OnceLock::new() }; RANKS as usize];
/// For each rank that was taken, the ranks under which that was reported.
static REPORTED: [AtomicU64; RANKS as usize] = [const { AtomicU64::new(0) }; RANKS as usize];

/// Notes the name of a rank, when a lock of it is made.
pub(super) fn register<R: Rank>() {
    let name = NAMES[R::LEVEL as usize].get_or_init(|| R::NAME);
    if *name != R::NAME {
        report(&format!("{:?} and {name:?} have one rank, {}", R::NAME, R::LEVEL));
    }
}

#[cold]
#[inline(never)]
fn violated(taken: u32, barred: u64) {
    let before = REPORTED[taken as usize].fetch_or(barred, Ordering::Relaxed);
    let is_new = barred & !before != 0;
    if is_new || panics() {
        let held: Vec<_> = (0..RANKS).filter(|rank| barred >> rank & 1 == 1).map(shown).collect();
        report(&format!("{} is locked while this thread holds {}", shown(taken), held.join(", ")));
    }
}

fn shown(rank: u32) -> String {
    format!("{} (rank {rank})", NAMES[rank as usize].get().unwrap_or(&"a lock"))
}

fn report(what: &str) {
    // A second panic on the way out of a first one would end the process.
    if panics() && !std::thread::panicking() {
        panic!("the order of locks is violated: {what}");
    }
    error!(what, "the order of locks is violated");
}

fn panics() -> bool {
    static PANICS: OnceLock<bool> = OnceLock::new();
    *PANICS.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|set| set == "panic"))
}
