//! Sectors that cannot be read any more, and come from another member.

use block::Survives;
use replica::MemberId;
use replica::core::{News, Wish};
use replica::format::Extent;

use crate::group::{Group, Plan, one_sided};

#[test]
fn a_sector_that_a_source_cannot_read_comes_from_a_member_in_sync_and_is_written_again() {
    for one_sided in [None, Some(one_sided())] {
        let group = Group::new(Plan { members: 3, one_sided, ..Plan::default() });
        let device = &group.devices(0)[0];
        device.write(0, &[1; 64 << 10], Survives::Durable).unwrap();
        device.write(4096, &[2; 8192], Survives::Durable).unwrap();
        group.lose(0, 9);
        group.lose(0, 17);
        let mut found = [0; 16 << 10];
        device.read(512, &mut found).unwrap();
        assert!(found[..3584].iter().chain(&found[11776..]).all(|byte| *byte == 1));
        assert!(found[3584..11776].iter().all(|byte| *byte == 2));
        assert!(group.is_whole(0));
        assert!(group.has_told(0, |news| matches!(news, News::Healed(MemberId(1 | 2), _))));
        group.compare(0, 1);
    }
}

#[test]
fn a_sector_that_no_member_in_sync_has_fails_the_request_and_nothing_else() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 8192);
    group.wait("it is applied", || group.status(1).applied >= group.status(0).end);
    group.lose(0, 3);
    group.lose(1, 3);
    let device = &group.devices(0)[0];
    device.read(0, &mut [0; 4096]).unwrap_err();
    device.read(4096, &mut [0; 4096]).unwrap();
    group.stop(1);
    device.read(0, &mut [0; 4096]).unwrap_err();
    assert!(!group.status(0).has_failed);
    // What is written is there.
    device.write(0, &[7; 4096], Survives::Durable).unwrap();
    device.read(0, &mut [0; 4096]).unwrap();
}

#[test]
fn a_sector_that_cannot_be_read_is_in_the_way_of_no_copy_and_no_comparison() {
    let mut group = Group::new(Plan { members: 3, ..Plan::default() });
    for part in 0..4 {
        group.write(0, 0, part << 18, 1, 1 << 18);
    }
    group.wait_in_sync(0);
    // The third one is copied whole, from a source that cannot read all.
    group.stop(2);
    group.make(2);
    group.lose(0, 100);
    group.start(2);
    group.compare(0, 2);
    assert!(group.is_whole(0));
    // A member that cannot read all is compared.
    group.lose(1, 300);
    group.member(0).want(Wish::Compare(MemberId(1)));
    group.wait("it is written again", || group.is_whole(1));
    // And so where a record has it compare what it has.
    group.wait_in_sync(0);
    group.lose(1, 301);
    group.member(0).verify(Extent { volume: 0, offset: 0, len: 1 << 20 }).unwrap();
    group.wait("it is written again", || group.is_whole(1));
    group.compare(0, 1);
}

#[test]
fn a_difference_that_was_found_while_there_was_no_source_is_told_to_the_next_one() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 1 << 20, 4, 4096);
    group.compare(0, 1);
    group.file(1, 0).write(1 << 20, &[9; 4096], Survives::Durable).unwrap();
    // What it applies waits at the gate, and the comparison behind it.
    let gate = group.lose_slowly(1, 8);
    group.write(0, 0, 4096, 5, 4096);
    group.wait("it applies", || gate.is_reached());
    group.member(0).verify(Extent { volume: 0, offset: 1 << 20, len: 64 << 10 }).unwrap();
    // This record says that what is before it is committed.
    group.write(0, 0, 8192, 6, 4096);
    group.stop(0);
    gate.open();
    group.wait("it finds the difference", || group.member(1).report().differences == 1);
    group.start(0);
    group.wait("the source hears of it", || {
        group.has_told(0, |news| matches!(news, News::Differs(MemberId(1), ..)))
    });
    group.compare(0, 1);
}

#[test]
fn what_was_fetched_for_healing_is_not_written_once_the_member_is_no_source() {
    let group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 8192);
    group.wait("it is applied", || group.status(1).applied >= group.status(0).end);
    let device = group.devices(0).remove(0);
    let gate = group.lose_slowly(0, 3);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| device.read(0, &mut [0; 4096]));
        group.wait("the healer writes", || gate.is_reached());
        let nonce = group.member(0).nonce().unwrap();
        group.member(0).want(Wish::Reverse { to: MemberId(1), nonce });
        group.wait("the next is the source", || group.status(1).is_ready);
        group.write(1, 0, 0, 2, 4096);
        // It follows only once nobody writes to its volumes for clients.
        assert!(group.status(0).is_source);
        gate.open();
        let _ = reader.join().unwrap();
    });
    group.compare(1, 0);
}

#[test]
fn a_sector_that_no_member_has_is_in_the_way_of_its_own_block_alone_when_a_member_is_copied() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 8192);
    group.stop(1);
    group.make(1);
    group.lose(0, 3);
    group.start(1);
    group.wait("it is told", || {
        group.has_told(0, |news| matches!(news, News::NotCopied(MemberId(1), _)))
    });
    // The source goes on, with all other blocks and volumes.
    group.write(0, 1, 0, 2, 4096);
    group.devices(0)[0].read(4096, &mut [0; 4096]).unwrap();
    assert!(!group.status(0).has_failed);
    // Once the block is written, the member is copied whole.
    group.write(0, 0, 0, 3, 4096);
    group.compare(0, 1);
}
