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
use std::sync::Once;

use crate::forks;
use crate::handles::AllHeld;

/// From now on forks are counted.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: functions of the C calling convention that live as long as the library.
        let refused = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        // Without memory for three pointers; a child is then only told by the documentation.
        let _ = refused;
    });
}

extern "C" fn prepare() {
    let held = AllHeld::all();
    let _ = HELD.try_with(|slot| *slot.borrow_mut() = Some(held));
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
    use std::sync::atomic::{AtomicBool, Ordering};
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
