//! What becomes of a region whose lease the server takes back.

use super::*;

fn left() -> LeaseState {
    LeaseState::READ | LeaseState::HANDLE
}

#[test]
fn a_break_that_comes_while_nothing_is_mapped_is_acknowledged_at_once() {
    let (_runtime, site, _control, key) = opened(|_| {});
    site.breaks(key, 2, left());
    assert_eq!(site.next(), Asked::Acknowledge(key, left()));
    // And the one behind it.
    site.breaks(key, 3, LeaseState::empty());
    assert_eq!(site.next(), Asked::Acknowledge(key, LeaseState::empty()));
}

#[test]
fn a_break_is_acknowledged_when_the_owner_has_given_the_region_back_and_has_nothing_left_to_write()
{
    let (_runtime, site, mut control, key, recall) = mapped(|_| {});
    site.breaks(key, 2, left());
    asked_back(&recall);
    control.commit(4096..8192).unwrap();
    control.unmap().unwrap();
    control.write_again(4096, b"left").unwrap();
    control.flush().unwrap();
    let [commit, unmap, again, flush] = [site.next(), site.next(), site.next(), site.next()];
    assert!(matches!(commit, Asked::Commit { .. }), "{commit:?}");
    assert!(matches!(unmap, Asked::Unmap { .. }), "{unmap:?}");
    assert!(matches!(again, Asked::WriteAgain { .. }), "{again:?}");
    assert!(matches!(flush, Asked::Flush { .. }), "{flush:?}");
    control.settle();
    assert_eq!(site.next(), Asked::Acknowledge(key, left()));
    assert!(recall.leave(), "the owner gave it back, and nobody else");
}

#[test]
fn a_break_that_comes_before_the_owner_has_written_the_rest_waits_for_it() {
    let (_runtime, site, mut control, key, recall) = mapped(|_| {});
    control.unmap().unwrap();
    assert!(matches!(site.next(), Asked::Unmap { .. }));
    site.breaks(key, 2, left());
    for _ in 0..8 {
        control.flush().unwrap();
        assert_eq!(site.next(), Asked::Flush { file: 1 });
    }
    control.settle();
    assert_eq!(site.next(), Asked::Acknowledge(key, left()));
    assert!(recall.is_granted() || recall.leave());
}

#[test]
fn the_watcher_gives_a_region_back_whose_owner_makes_no_calls() {
    let (_runtime, site, mut control, key, recall) = mapped(|manners| manners.grace_ms = 0);
    site.breaks(key, 2, left());
    assert!(matches!(site.next(), Asked::Unmap { .. }));
    assert_eq!(site.next(), Asked::Acknowledge(key, left()));
    assert!(!recall.leave(), "the watcher did");
    control.unmap().unwrap();
    assert_eq!(site.so_far(), [], "it is unmapped");
}

#[test]
fn a_recall_without_a_break_takes_the_region_too() {
    let (_runtime, site, _control, key, recall) = mapped(|manners| manners.grace_ms = 0);
    site.recalls();
    assert!(matches!(site.next(), Asked::Unmap { .. }));
    assert!(!recall.leave());
    site.breaks(key, 2, left());
    assert_eq!(site.next(), Asked::Acknowledge(key, left()), "which comes behind it");
}

#[test]
fn a_region_that_was_given_back_is_not_recalled() {
    let (_runtime, site, mut control, key, recall) = mapped(|_| {});
    control.unmap().unwrap();
    control.settle();
    // Acknowledged by whoever listens while nothing is mapped.
    site.breaks(key, 2, left());
    assert!(matches!(site.next(), Asked::Unmap { .. }));
    assert_eq!(site.next(), Asked::Acknowledge(key, left()));
    assert!(recall.leave());
}

#[test]
fn a_region_that_is_mapped_again_is_watched_again() {
    let (_runtime, site, mut control, key, _) = mapped(|_| {});
    control.unmap().unwrap();
    control.settle();
    control.invite().unwrap();
    let recall = Arc::new(Recall::default());
    control.map(CONNECTION, &recall).unwrap();
    site.breaks(key, 2, left());
    asked_back(&recall);
    control.unmap().unwrap();
    control.settle();
    let asked: Vec<Asked> = std::iter::repeat_with(|| site.next()).take(5).collect();
    assert_eq!(asked.last(), Some(&Asked::Acknowledge(key, left())), "{asked:?}");
}

#[test]
fn the_end_of_a_connection_takes_the_region_of_a_client_that_does_not_come_back() {
    let (_runtime, site, _control, _, recall) = mapped(|manners| manners.grace_ms = 0);
    site.ends();
    unwatched(&recall);
    assert!(!recall.is_granted());
}
