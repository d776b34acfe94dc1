//! Who does not belong to the group, or does what its part is not.

use replica::core::Config;
use replica::ring::RingError;
use replica::runtime::StartError;

use crate::group::{Group, Plan, SECRET};

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

#[test]
fn a_member_starts_with_no_other_members_memory_and_with_none_of_another_size() {
    let group = Group::stopped(Plan::default());
    let longer = Config { capacity: 2 << 20, ..group.config(0) };
    let refused = group.try_start(0, longer, SECRET).unwrap_err();
    assert!(matches!(refused, StartError::OtherCapacity { .. }), "{refused}");
    let (one, other) = (group.room().join("0/ring"), group.room().join("1/ring"));
    std::fs::rename(&other, &one).unwrap();
    let refused = group.try_start(0, group.config(0), SECRET).unwrap_err();
    let is_told = matches!(refused, StartError::Ring(RingError::OtherMember { .. }));
    assert!(is_told, "{refused}");
}
