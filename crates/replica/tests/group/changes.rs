//! What writers do arrives at all members.

use std::thread;

use block::{BlockDevice as _, BlockError, Survives, Zeroing};
use replica::core::Mode;
use replica::wire::Policy;

use crate::group::{Group, Plan, SIZE};

#[test]
fn a_write_that_was_answered_is_durable_in_the_ring_of_each_member_in_sync() {
    let group = Group::new(Plan { members: 3, ..Plan::default() });
    group.write(0, 0, 8192, 7, 4096);
    let end = group.status(0).end;
    for member in [1, 2] {
        assert!(group.status(member).durable >= end, "member {member}");
    }
    for member in [1, 2] {
        group.compare(0, member);
    }
}

#[test]
fn writes_zeroes_and_trims_of_many_threads_are_the_same_everywhere() {
    for compression in [Policy::None, Policy::Lz4, Policy::Zstd, Policy::Adaptive] {
        let group = Group::new(Plan { compression, ..Plan::default() });
        let devices = group.devices(0);
        thread::scope(|scope| {
            for writer in 0..8_u64 {
                let devices = &devices;
                scope.spawn(move || many_changes(devices, writer));
            }
        });
        group.compare(0, 1);
    }
}

fn many_changes(devices: &[std::sync::Arc<dyn block::BlockDevice>], writer: u64) {
    let mut state = writer + 1;
    for round in 0..60_u8 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = state >> 33;
        let device = &devices[usize::try_from(number % 2).unwrap()];
        let offset = number / 2 % 900 * 4096;
        match number % 7 {
            0 => device.trim(offset, 8192, Survives::Placed).unwrap(),
            1 => device.write_zeroes(offset, 4096, Zeroing::KeepSpace, Survives::Placed).unwrap(),
            2 => device.write(offset, &vec![round; 300 << 10], Survives::Placed).unwrap(),
            _ => device.write(offset, &[round; 4096], Survives::Durable).unwrap(),
        }
    }
}

#[test]
fn a_write_longer_than_a_record_is_several_records() {
    let group = Group::new(Plan { capacity: 8 << 20, ..Plan::default() });
    let bytes: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    group.devices(0)[1].write(4096, &bytes, Survives::Durable).unwrap();
    let mut found = vec![0; bytes.len()];
    group.devices(0)[1].read(4096, &mut found).unwrap();
    assert!(found == bytes);
    group.compare(0, 1);
}

#[test]
fn what_was_written_is_read_and_the_end_is_the_end() {
    let group = Group::new(Plan::default());
    group.write(0, 0, SIZE - 4096, 9, 4096);
    let device = &group.devices(0)[0];
    let mut found = [0; 4096];
    device.read(SIZE - 4096, &mut found).unwrap();
    assert_eq!(found, [9; 4096]);
    let beyond = device.write(SIZE, &found, Survives::Placed).unwrap_err();
    assert!(matches!(beyond, BlockError::PeerNoRoom { .. }), "{beyond}");
    device.flush().unwrap();
}

#[test]
fn a_destination_refuses_every_request() {
    let group = Group::new(Plan::default());
    let device = &group.devices(1)[0];
    let refused = |done: Result<(), BlockError>| assert_eq!(done.unwrap_err().errno(), 108);
    refused(device.write(0, &[0; 4096], Survives::Placed));
    refused(device.read(0, &mut [0; 4096]));
    refused(device.flush());
    refused(device.trim(0, 4096, Survives::Placed));
}

#[test]
fn asynchronous_and_semi_synchronous_members_get_everything_too() {
    for mode in [Mode::Async, Mode::SemiSync] {
        let mut group = Group::stopped(Plan { mode, ..Plan::default() });
        group.start(0);
        group.start(1);
        group.promote(0, true);
        for round in 0..100 {
            group.write(0, 0, u64::from(round) * 4096, round, 4096);
        }
        group.wait("the member has everything", || {
            let (source, member) = (group.status(0), group.status(1));
            member.applied >= source.end
                && source.others[0].1.is_connected
                && !source.others[0].1.is_copying
                && member.is_consistent
        });
        let (ours, theirs) = (group.file(0, 0), group.file(1, 0));
        let mut bytes = [vec![0; 100 * 4096], vec![0; 100 * 4096]];
        ours.read(0, &mut bytes[0]).unwrap();
        theirs.read(0, &mut bytes[1]).unwrap();
        assert!(bytes[0] == bytes[1]);
    }
}

#[test]
fn a_write_that_waits_for_a_member_is_in_the_way_of_no_copy_to_that_member() {
    let mut group = Group::stopped(Plan { least_in_sync: 2, ..Plan::default() });
    group.start(0);
    group.promote(0, true);
    let device = std::sync::Arc::clone(&group.devices(0)[0]);
    let writer = thread::spawn(move || device.write(8192, &[5; 4096], Survives::Durable));
    group.start(1);
    group.wait("the write is answered", || writer.is_finished());
    writer.join().unwrap().unwrap();
    group.compare(0, 1);
}
