//! Controls with invalid lengths, and with names and rights that the caller does not have.

use smb::push::{Capabilities, Durability, PushConnectionId, Rights};
use smb::{ControlCode, NtStatus};

use crate::fixture::Fixture;
use crate::peer::{Deed, Honest, LEN, Opened};
use crate::{ALL, PAGE};

#[test]
fn lengths_of_a_map_beyond_the_file_are_refused_and_register_nothing() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let evil = Opened::new(&fixture, "evil", ALL);
    let link = evil.dial();
    let invalid = Some(NtStatus::INVALID_PARAMETER);
    let lengths = [
        (0, 0),
        (0, LEN + 1),
        (0, u64::MAX),
        (LEN, 1),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (PAGE, u64::MAX - PAGE + 1),
    ];
    for (offset, length) in lengths {
        assert_eq!(evil.map(link.id, ALL, offset, length).err(), invalid, "{offset} {length}");
    }
    let beyond = evil.map(link.id, ALL | Rights::ATOMIC, 0, LEN);
    assert_eq!(beyond.err(), Some(NtStatus::ACCESS_DENIED));
    assert_eq!(fixture.running.status().regions, 1, "the honest client's");
    evil.map(link.id, ALL, 0, LEN).expect("none of it cost the connection anything");
    honest.still_works();
}

#[test]
fn a_file_longer_than_descriptors_can_name_is_not_mapped_whole() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    fixture.file_named("huge", 1 << 41);
    let evil = Opened::existing(&fixture, "huge", ALL);
    let link = evil.dial();
    let whole = evil.map(link.id, Rights::READ, 0, 1 << 41);
    assert_eq!(whole.err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
    evil.map(link.id, Rights::READ, (1 << 41) - PAGE, PAGE).unwrap();
    honest.still_works();
}

#[test]
fn ranges_of_a_commit_beyond_the_region_are_refused() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let evil = Opened::new(&fixture, "evil", ALL);
    let link = evil.dial();
    let mapped = evil.map(link.id, ALL, PAGE, PAGE).unwrap();
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    for range in [(0, 8), (PAGE, PAGE + 1), (2 * PAGE, 1), (PAGE, u64::MAX), (u64::MAX, 2)] {
        assert_eq!(evil.commit(&mapped, &[range]), invalid, "{range:?}");
        assert_eq!(evil.commit(&mapped, &[(PAGE, 8), range]), invalid, "{range:?}");
    }
    let too_many = evil.commit(&mapped, &[(PAGE, 1); 257]);
    assert_eq!(too_many, Err(NtStatus::INSUFFICIENT_RESOURCES));
    evil.commit(&mapped, &[(PAGE, 1); 256]).unwrap();
    honest.still_works();
}

#[test]
fn controls_with_truncated_inputs_are_refused() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let evil = Opened::new(&fixture, "evil", ALL);
    let codes = [
        ControlCode::MAP_REMOTE_REGION,
        ControlCode::UNMAP_REMOTE_REGION,
        ControlCode::COMMIT_REMOTE_REGION,
        ControlCode::QUERY_REMOTE_REGIONS,
        ControlCode::WAIT_REGION_RECALL,
        ControlCode::WRITE_UNDER_LEASE,
    ];
    for code in codes {
        for input in
            [&b""[..], b"\x01", b"\x01\0\xff\xff", b"\x01\0\x04\0", b"\x01\0\xff\xff\0\0\0\0"]
        {
            let status = evil.control(code, input, 4096).err();
            assert_eq!(status, Some(NtStatus::INVALID_PARAMETER), "{code:?} {input:?}");
        }
    }
    honest.still_works();
}

#[test]
fn a_push_connection_of_another_session_is_not_found() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let victim = Opened::new(&fixture, "victim", ALL);
    let victims = victim.dial();
    let evil = Opened::new(&fixture, "evil", ALL);
    let evils = evil.dial();
    let foreign = evil.map(victims.id, ALL, 0, PAGE);
    assert_eq!(foreign.err(), Some(NtStatus::INVALID_HANDLE));
    let invented = evil.map(PushConnectionId(u64::MAX), ALL, 0, PAGE);
    assert_eq!(invented.err(), Some(NtStatus::INVALID_HANDLE));
    // The registration cannot be used either.
    let mapped = victim.map(victims.id, ALL, 0, PAGE).unwrap();
    assert_eq!(evil.unmap(&mapped), Err(NtStatus::NOT_FOUND));
    assert_eq!(evil.commit(&mapped, &[]), Err(NtStatus::NOT_FOUND));
    victim.commit(&mapped, &[]).unwrap();
    evil.map(evils.id, ALL, 0, PAGE).unwrap();
    honest.still_works();
}

#[test]
fn a_commit_needs_the_right_to_flush() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let evil = Opened::new(&fixture, "evil", ALL);
    let link = evil.dial();
    let mapped = evil.map(link.id, Rights::READ | Rights::WRITE, 0, PAGE).unwrap();
    assert_eq!(evil.commit(&mapped, &[]), Err(NtStatus::ACCESS_DENIED));
    honest.still_works();
}

#[test]
fn volatile_memory_commits_only_if_the_operator_enabled_emulation() {
    let fixture = Fixture::start("/dev/shm", |config| config.shares[0].emulate_persistence = false);
    let evil = Opened::new(&fixture, "evil", ALL);
    let link = evil.dial();
    let mapped = evil.map(link.id, ALL, 0, PAGE).unwrap();
    assert_eq!(mapped.durability, Durability::VOLATILE);
    assert!(!mapped.capabilities.contains(Capabilities::EMULATED_PERSISTENCE));
    assert_eq!(evil.commit(&mapped, &[]), Err(NtStatus::NOT_SUPPORTED));
    assert_eq!(link.ended_by(Deed::Flush(0, 8), &mapped), (0, 1, 2));
    evil.has_not_noticed();
}
