//! The client and a hostile server: each misdeed of the table at each command, in each dialect, on virtual time, with
//! the memory counted.
//!
//! # Safety rules of this module
//!
//! The allocator counts and passes every request on to the system's, unchanged.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

// What is instrumented calls the engine, which asks for a target.
#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|_data: &[u8]| {});

/// Counts the bytes in use, and the most that ever were.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn more(len: usize) {
    let now = IN_USE.fetch_add(len, Ordering::Relaxed) + len;
    MOST.fetch_max(now, Ordering::Relaxed);
}

fn less(len: usize) {
    IN_USE.fetch_sub(len, Ordering::Relaxed);
}

// SAFETY: every method hands its arguments to the system's allocator and returns its answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        less(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        more(new_len);
        less(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`, which is the same.
        unsafe { System.realloc(memory, layout, new_len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    use bodies::hostile::{DIALECTS, Misdeed, Plan, Seen, Standing, run};
    use smb::Command;
    use smb::negotiate::Dialect;

    use super::{IN_USE, MOST};

    /// One misdeed with the requests of one command, from the `first` of them on.
    #[derive(Clone, Debug)]
    struct At {
        command: Command,
        misdeed: Misdeed,
        first: u32,
        seen: u32,
    }

    impl Plan for At {
        fn next(&mut self, command: Command) -> Misdeed {
            if command != self.command {
                return Misdeed::None;
            }
            self.seen += 1;
            if self.seen > self.first { self.misdeed.clone() } else { Misdeed::None }
        }
    }

    /// A conversation alone, as its memory is counted.
    fn converse(standing: Standing, dialect: Dialect, plan: At) -> Seen {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap();
        let shown = format!("{standing:?}, {dialect}, {plan:?}");
        let before = IN_USE.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let outcome = std::panic::catch_unwind(|| run(standing, dialect, Box::new(plan)));
        let Ok(seen) = outcome else { panic!("a promise is broken: {shown}") };
        let grown = MOST.load(Ordering::Relaxed).saturating_sub(before);
        assert!(grown <= BYTES_MAX, "{grown} bytes: {shown}");
        seen
    }

    fn honest() -> At {
        At { command: Command::LOGOFF, misdeed: Misdeed::None, first: 0, seen: 0 }
    }

    #[test]
    fn an_honest_conversation_reaches_every_call() {
        for dialect in DIALECTS {
            for standing in [Standing::Guest, Standing::Member, Standing::Sealed] {
                if standing == Standing::Sealed && dialect < Dialect::SMB_3_0 {
                    continue;
                }
                let seen = converse(standing, dialect, honest());
                assert!(seen.entered, "{dialect} {standing:?}");
                // The server takes no control.
                assert_eq!(seen.failed, 1, "{dialect} {standing:?}");
                assert_eq!(seen.succeeded, CALLS - 1, "{dialect} {standing:?}");
            }
        }
    }

    #[test]
    fn no_misdeed_of_a_server_breaks_a_promise_of_the_client() {
        for (standing, dialects) in [
            (Standing::Member, &DIALECTS[..]),
            (Standing::Sealed, &[Dialect::SMB_3_0_2, Dialect::SMB_3_1_1]),
            (Standing::Guest, &[Dialect::SMB_2_1, Dialect::SMB_3_1_1]),
        ] {
            for dialect in dialects {
                for command in COMMANDS {
                    for misdeed in Misdeed::TABLE {
                        for first in [0, 1] {
                            let misdeed = misdeed.clone();
                            converse(standing, *dialect, At { command, misdeed, first, seen: 0 });
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_without_the_key_lets_no_client_in() {
        for dialect in DIALECTS {
            assert!(!converse(Standing::Stranger, dialect, honest()).entered);
            for command in [Command::NEGOTIATE, Command::SESSION_SETUP, Command::TREE_CONNECT] {
                for misdeed in Misdeed::TABLE {
                    let plan = At { command, misdeed: misdeed.clone(), first: 0, seen: 0 };
                    assert!(!converse(Standing::Stranger, dialect, plan).entered);
                }
            }
        }
    }

    /// Every command of the conversation.
    const COMMANDS: [Command; 14] = [
        Command::NEGOTIATE,
        Command::SESSION_SETUP,
        Command::TREE_CONNECT,
        Command::TREE_DISCONNECT,
        Command::CREATE,
        Command::CLOSE,
        Command::FLUSH,
        Command::READ,
        Command::WRITE,
        Command::IOCTL,
        Command::ECHO,
        Command::QUERY_DIRECTORY,
        Command::QUERY_INFO,
        Command::SET_INFO,
    ];
    /// Calls of a conversation.
    const CALLS: u32 = 20;
    /// What a conversation may use: the largest frame and its copy, both ends, the region, a listing.
    const BYTES_MAX: usize = 64 << 20;
}
