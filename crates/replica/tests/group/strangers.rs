//! Who does not belong to the group.

use crate::group::{Group, Plan};

#[test]
fn a_member_with_another_secret_is_not_let_in_and_the_source_says_why() {
    let mut group = Group::stopped(Plan::default());
    group.start(0);
    group.start_with(1, b"another secret than theirs");
    group.promote(0, true);
    group.write(0, 0, 0, 1, 4096);
    group.wait("the source tells why", || !group.member(0).report().failures.is_empty());
    assert_eq!(group.status(1).follows, None);
    assert!(group.room().exists());
    group.stop(1);
    group.start(1);
    group.compare(0, 1);
}
