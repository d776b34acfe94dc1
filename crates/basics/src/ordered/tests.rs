use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use super::*;

crate::ranks! {
    const ALL;
    Outer = 0, "the outer lock";
    Middle = 7, "the middle lock";
    Inner = 31, "the inner lock";
    Leaf = LEAVES, "a leaf";
    Other = 63, "another leaf";
}

// Whether the thread may lock out of the order; each violation panics, as the tests run with `VARIABLE`.
fn is_refused(lock: impl FnOnce()) -> bool {
    assert_eq!(std::env::var(VARIABLE).as_deref(), Ok("panic"), "run by cargo");
    let Err(panic) = catch_unwind(AssertUnwindSafe(lock)) else { return false };
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("the order of locks is violated"), "{text}");
    true
}

#[test]
fn locks_taken_in_rising_order_are_granted() {
    let (outer, middle) = (Mutex::<_, Outer>::new(1), RwLock::<_, Middle>::new(2));
    let (inner, leaf) = (Mutex::<_, Inner>::new(3), Mutex::<_, Leaf>::new(4));
    for _ in 0..3 {
        let (one, two) = (outer.lock(), middle.write());
        let (three, four) = (inner.lock(), leaf.lock());
        assert_eq!((*one, *two, *three, *four), (1, 2, 3, 4));
    }
    assert_eq!(ALL.len(), 5);
}

#[test]
fn a_lock_below_a_held_one_panics_and_leaves_no_trace() {
    let (outer, inner) = (Mutex::<_, Outer>::new(()), Mutex::<_, Inner>::new(()));
    let held = inner.lock();
    assert!(is_refused(|| drop(outer.lock())));
    assert!(is_refused(|| drop(outer.lock())), "each time");
    drop(held);
    drop(outer.lock());
    assert!(outer.try_lock().is_some() && inner.try_lock().is_some(), "neither is held");
}

#[test]
fn the_report_names_both_locks() {
    let (outer, inner) = (Mutex::<_, Outer>::new(()), RwLock::<_, Inner>::new(()));
    let _held = inner.read();
    let panic = catch_unwind(AssertUnwindSafe(|| drop(outer.lock()))).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    let expected =
        "the outer lock (rank 0) is locked while this thread holds the inner lock (rank 31)";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn two_locks_of_one_rank_panic_but_for_those_taken_at_once() {
    let mutexes = [(); 3].map(|()| Mutex::<_, Middle>::new(()));
    let held = mutexes[0].lock();
    assert!(is_refused(|| drop(mutexes[1].lock())));
    assert!(is_refused(|| drop(Mutex::lock_all(&mutexes[1..]))));
    drop(held);
    let all = Mutex::lock_all(mutexes.iter().chain(&mutexes));
    assert!(mutexes.iter().all(|mutex| mutex.try_lock().is_none()));
    drop(all);
    assert!(mutexes.iter().all(|mutex| mutex.try_lock().is_some()));
    drop(Mutex::lock_all([&mutexes[0]; 0]));
}

#[test]
fn a_reader_that_reads_again_panics() {
    let lock = RwLock::<_, Middle>::new(());
    let _held = lock.read();
    assert!(is_refused(|| drop(lock.read())));
    assert!(is_refused(|| drop(lock.write())));
}

#[test]
fn a_leaf_under_another_leaf_panics_whichever_comes_first() {
    let (leaf, other) = (Mutex::<_, Leaf>::new(()), Mutex::<_, Other>::new(()));
    let held = leaf.lock();
    assert!(is_refused(|| drop(other.lock())));
    drop(held);
    let _held = other.lock();
    assert!(is_refused(|| drop(leaf.lock())));
}

#[test]
fn locks_released_in_another_order_stay_known() {
    let (outer, middle) = (Mutex::<_, Outer>::new(()), Mutex::<_, Middle>::new(()));
    let inner = Mutex::<_, Inner>::new(());
    let (first, second) = (outer.lock(), middle.lock());
    drop(first);
    assert!(is_refused(|| drop(outer.lock())), "the middle lock is still held");
    let third = inner.lock();
    drop(second);
    assert!(is_refused(|| drop(middle.lock())), "the inner lock is still held");
    drop(third);
    drop((outer.lock(), middle.lock()));
}

#[test]
fn a_lock_that_is_free_is_taken_in_any_order_and_counts() {
    let (outer, middle) = (Mutex::<_, Outer>::new(()), RwLock::<_, Middle>::new(()));
    let inner = Mutex::<_, Inner>::new(());
    let held = inner.lock();
    let (free, read) = (outer.try_lock().unwrap(), middle.try_read().unwrap());
    drop(held);
    drop(free);
    assert!(is_refused(|| drop(outer.lock())), "the read lock is held");
    drop(read);
    drop(outer.lock());
}

#[test]
fn a_poisoned_lock_is_taken_like_any_other() {
    let (mutex, lock) = (Mutex::<_, Outer>::new(1), RwLock::<_, Middle>::new(1));
    let poison = || {
        let (mut one, mut two) = (mutex.lock(), lock.write());
        (*one, *two) = (2, 2);
        panic!("under the locks");
    };
    catch_unwind(AssertUnwindSafe(poison)).unwrap_err();
    assert_eq!((*mutex.lock(), *lock.read()), (2, 2));
    assert_eq!(
        (mutex.try_lock().map(|one| *one), lock.try_write().map(|two| *two)),
        (Some(2), Some(2))
    );
}

#[test]
fn who_waits_for_a_condition_holds_the_rank_before_and_after() {
    let (state, changed) = (Mutex::<_, Middle>::new(0), Condvar::new());
    let outer = Mutex::<_, Outer>::new(());
    let (ask, asked) = mpsc::channel();
    std::thread::scope(|scope| {
        let (state, changed) = (&state, &changed);
        scope.spawn(move || {
            for _ in 0..2 {
                asked.recv().unwrap();
                // Taken only once the other thread waits.
                *state.lock() += 1;
                changed.notify_all();
            }
        });
        let mut guard = state.lock();
        ask.send(()).unwrap();
        while *guard == 0 {
            guard = changed.wait(guard);
        }
        ask.send(()).unwrap();
        let guard = changed.wait_while(guard, |count| *count == 1);
        assert!(is_refused(|| drop(outer.lock())));
        drop(guard);
        drop(outer.lock());
    });
}
