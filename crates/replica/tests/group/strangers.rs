//! Who does not belong to the group, or does what its part is not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use log::Lsn;
use replica::core::{Config, News};
use replica::format::Extent;
use replica::message::Message;
use replica::ring::RingError;
use replica::runtime::StartError;
use replica::{Epoch, MemberId};

use crate::group::{Group, Plan, SECRET, SIZE};

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
fn copies_of_a_member_that_is_not_the_source_reach_no_volume() {
    let mut group = Group::stopped(Plan { members: 3, ..Plan::default() });
    group.start(0);
    group.promote(0, true);
    for at in 0..SIZE / 65536 {
        group.write(0, 0, at * 65536, 7, 65536);
        group.write(0, 1, at * 65536, 8, 65536);
    }
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        group.start(1);
        let group = &group;
        scope.spawn(|| {
            let extent = Extent { volume: 0, offset: 0, len: 65536 };
            let epoch = Epoch { number: 1, restart: 0, nonce: 1 };
            let copy = Message::Copy { epoch, at: Lsn(0), extent, is_zero: false };
            while !ends.load(Ordering::SeqCst) {
                let Ok(link) = group.dial_as(2, 1) else { continue };
                let (mut sender, _receiver) = link.split();
                while sender.send(&copy, &[&[0xee; 65536]]).is_ok() {}
            }
        });
        group.wait("all copies are there", || {
            group.has_told(0, |news| matches!(news, News::CopyEnds(MemberId(1))))
        });
        ends.store(true, Ordering::SeqCst);
    });
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
