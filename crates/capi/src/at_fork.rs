//! What a fork does to the tables of handles.
//!
//! ```text
//!   fork: prepare (takes the tables) --> parent: gives them back
//!                                    --> child:  counts, gives them back
//! ```
//!
//! Safety rules of this module: the handlers are run by `fork`, in the thread that forks, and touch locks, an atomic number and
//! a variable of that thread alone. No panic leaves them.

#![allow(unsafe_code, reason = "handlers of pthread_atfork")]

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::forks;
use crate::handles::AllHeld;

/// From now on forks are counted.
pub(crate) fn watch() {
    let me = u64::from(std::process::id());
    loop {
        match WATCH.compare_exchange(NOBODY, me, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(WATCHED) => return,
            // Another thread of this process is about to.
            Err(other) if other == me => std::thread::yield_now(),
            // It was one of the parent, which forked meanwhile: it is not here. Whether it was done does not matter.
            Err(other) => {
                let taken = WATCH.compare_exchange(other, me, Ordering::AcqRel, Ordering::Acquire);
                if taken.is_ok() {
                    break;
                }
            }
        }
    }
    // SAFETY: functions of the C calling convention that live as long as the library.
    let refused = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    // Without memory for three pointers; a child is then only told by the documentation.
    let _ = refused;
    WATCH.store(WATCHED, Ordering::Release);
}

/// Nobody, the process of which a thread registers the handlers, or all of them.
static WATCH: AtomicU64 = AtomicU64::new(NOBODY);
const NOBODY: u64 = 0;
const WATCHED: u64 = u64::MAX;

extern "C" fn prepare() {
    // The handlers may be there twice.
    let _ = HELD.try_with(|slot| {
        let mut held = slot.borrow_mut();
        if held.is_none() {
            *held = Some(AllHeld::all());
        }
    });
}

extern "C" fn parent() {
    let _ = HELD.try_with(|slot| slot.borrow_mut().take());
}

extern "C" fn child() {
    forks::add_one();
    parent();
}

thread_local! {
    static HELD: RefCell<Option<AllHeld>> = const { RefCell::new(None) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::fault::Fault;
    use crate::handles::{FILES, Registry};
    use crate::kind::Kind;

    /// What `act` says in a child, which is ended where it hangs.
    fn in_child(act: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls `act` and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: numbers.
            unsafe { libc::alarm(20) };
            let code = if act() { 0 } else { 1 };
            // SAFETY: ends this process, without the other threads' destructors.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: a child of this process, and room for a number.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        waited == child && status == 0
    }

    #[test]
    fn a_child_of_a_fork_is_refused_what_its_parent_has_open() {
        watch();
        let registry = Registry::new(Kind::File);
        let parents = registry.add("the parent's").unwrap();
        assert!(in_child(|| {
            let is_forked =
                |fault: Fault| matches!(fault, Fault::Forked { id, .. } if id == parents);
            let childs = registry.add("the child's").unwrap();
            registry.find(parents).is_err_and(is_forked)
                && registry.take(parents).is_err_and(is_forked)
                && *registry.take(childs).unwrap() == "the child's"
        }));
        assert_eq!(*registry.take(parents).unwrap(), "the parent's");
    }

    #[test]
    fn a_child_of_a_fork_in_whose_parent_a_thread_was_about_to_watch_watches_itself() {
        watch();
        assert!(in_child(|| {
            // As that thread, which is not here, left it; the handlers are there twice from then on.
            WATCH.store(u64::from(std::os::unix::process::parent_id()), Ordering::Release);
            watch();
            FILES.take(0).is_err() && in_child(|| FILES.take(0).is_err())
        }));
    }

    #[test]
    fn a_child_of_a_fork_finds_no_table_held_by_a_thread_of_its_parent() {
        watch();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        FILES.take(0).unwrap_err();
                    }
                });
            }
            let children = (0..100).filter(|_| in_child(|| FILES.take(0).is_err())).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(children, 100);
        });
    }
}
