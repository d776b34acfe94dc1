//! Copies, holes and zeros on the server, byte by byte on real sockets.

use smb::create::AccessMask;
use smb::fsctl::{
    CopyChunk, CopyChunkRequest, CopyChunkResponse, FileRange, ResumeKey, SetSparse, ZeroData,
};
use smb::{Command, ControlCode, FileId, LockElement, LockFlags, LockRequest, NtStatus};

use crate::support::{Fixture, Wire};

fn key(wire: &mut Wire, source: FileId) -> ResumeKey {
    let (status, output) = wire.control(source, ControlCode::SRV_REQUEST_RESUME_KEY, &[]);
    assert_eq!((status, output.len()), (NtStatus::SUCCESS, 32));
    ResumeKey::parse(&output).unwrap()
}

fn copy(
    wire: &mut Wire,
    source: ResumeKey,
    target: FileId,
    chunks: &[(u64, u64, u32)],
) -> (NtStatus, CopyChunkResponse) {
    let chunk = |&(source_offset, target_offset, length)| CopyChunk {
        source_offset,
        target_offset,
        length,
    };
    let chunks = chunks.iter().map(chunk).collect();
    let mut input = Vec::new();
    CopyChunkRequest { source, chunks }.emit(&mut input);
    let (status, output) = wire.control(target, ControlCode::SRV_COPYCHUNK, &input);
    (status, CopyChunkResponse::parse(&output).unwrap_or_default())
}

fn ranges(wire: &mut Wire, file: FileId, offset: u64, length: u64) -> Vec<(u64, u64)> {
    let mut input = Vec::new();
    FileRange { offset, length }.emit(&mut input);
    let (status, output) = wire.control(file, ControlCode::QUERY_ALLOCATED_RANGES, &input);
    assert_eq!(status, NtStatus::SUCCESS);
    let list = FileRange::parse_list(&output).unwrap();
    list.iter().map(|range| (range.offset, range.length)).collect()
}

fn zero(wire: &mut Wire, file: FileId, offset: u64, end: u64) -> NtStatus {
    let mut input = Vec::new();
    ZeroData { offset, end }.emit(&mut input);
    wire.control(file, ControlCode::SET_ZERO_DATA, &input).0
}

#[test]
fn a_copy_stays_on_the_server_and_says_how_far_it_came() {
    let fixture = Fixture::start();
    std::fs::write(fixture.dir.path().join("from"), [7; 10_000]).unwrap();
    let mut wire = fixture.client(1);
    let (from, to) = (wire.open("from", |_| {}).id, wire.open("to", |_| {}).id);
    let key = key(&mut wire, from);
    let (status, done) = copy(&mut wire, key, to, &[(0, 0, 4000), (4000, 6000, 6000)]);
    assert_eq!((status, done.chunks, done.total_bytes), (NtStatus::SUCCESS, 2, 10_000));
    let copied = std::fs::read(fixture.dir.path().join("to")).unwrap();
    assert_eq!(copied.len(), 12_000);
    assert!(copied[..4000].iter().chain(&copied[6000..]).all(|byte| *byte == 7));
    assert!(copied[4000..6000].iter().all(|byte| *byte == 0));

    let (status, done) = copy(&mut wire, key, to, &[(0, 0, 1), (9_999, 1, 2)]);
    assert_eq!((status, done.chunks, done.total_bytes), (NtStatus::INVALID_VIEW_SIZE, 1, 1));
    let (status, limits) = copy(&mut wire, key, to, &[(0, 0, (1 << 20) + 1)]);
    assert_eq!((status, limits.chunks), (NtStatus::INVALID_PARAMETER, 256));
    let mut foreign = key;
    foreign.0[0] ^= 1;
    assert_eq!(copy(&mut wire, foreign, to, &[]).0, NtStatus::OBJECT_NAME_NOT_FOUND);
    // A key means nothing to another session.
    let mut other = fixture.client(2);
    let elsewhere = other.open("elsewhere", |_| {}).id;
    assert_eq!(copy(&mut other, key, elsewhere, &[]).0, NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn overlapping_ranges_of_one_file_are_copied_as_they_were() {
    let fixture = Fixture::start();
    std::fs::write(fixture.dir.path().join("same"), b"abcdefghij").unwrap();
    let mut wire = fixture.client(1);
    let same = wire.open("same", |_| {}).id;
    let key = key(&mut wire, same);
    assert_eq!(copy(&mut wire, key, same, &[(0, 4, 6)]).0, NtStatus::SUCCESS);
    assert_eq!(std::fs::read(fixture.dir.path().join("same")).unwrap(), b"abcdabcdef");
}

#[test]
fn a_copy_and_zeros_meet_locks_and_rights() {
    let fixture = Fixture::start();
    std::fs::write(fixture.dir.path().join("f"), [7; 100]).unwrap();
    let mut wire = fixture.client(1);
    let reads = wire.open("f", |open| open.desired_access = AccessMask::FILE_GENERIC_READ).id;
    assert_eq!(zero(&mut wire, reads, 0, 10), NtStatus::ACCESS_DENIED);
    let key = key(&mut wire, reads);
    assert_eq!(copy(&mut wire, key, reads, &[(0, 50, 1)]).0, NtStatus::ACCESS_DENIED);

    let mut holder = fixture.client(2);
    let held = holder.open("f", |_| {}).id;
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let locks = vec![LockElement { offset: 0, length: 10, flags }];
    let lock = LockRequest { lock_sequence: 0, file_id: held, locks };
    assert_eq!(holder.ask(Command::LOCK, |out| lock.emit(out)).0.status, NtStatus::SUCCESS);
    let writes = wire.open("f", |_| {}).id;
    assert_eq!(zero(&mut wire, writes, 9, 20), NtStatus::FILE_LOCK_CONFLICT);
    assert_eq!(copy(&mut wire, key, writes, &[(5, 50, 1)]).0, NtStatus::FILE_LOCK_CONFLICT);
    assert_eq!(copy(&mut wire, key, writes, &[(50, 5, 1)]).0, NtStatus::FILE_LOCK_CONFLICT);
    assert_eq!(zero(&mut wire, writes, 10, 20), NtStatus::SUCCESS);
    let bytes = std::fs::read(fixture.dir.path().join("f")).unwrap();
    assert_eq!((bytes[9], bytes[10], bytes[19], bytes[20]), (7, 0, 0, 7));
}

#[test]
fn only_a_file_marked_sparse_shows_holes() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let file = wire.open("holes", |_| {}).id;
    let path = fixture.dir.path().join("holes");
    std::fs::write(&path, vec![7; 256 << 10]).unwrap();
    assert_eq!(zero(&mut wire, file, 0, 128 << 10), NtStatus::SUCCESS);
    assert_eq!(ranges(&mut wire, file, 0, 1 << 20), [(0, 256 << 10)]);
    let mut input = Vec::new();
    SetSparse { sparse: true }.emit(&mut input);
    assert_eq!(wire.control(file, ControlCode::SET_SPARSE, &input).0, NtStatus::SUCCESS);
    assert_eq!(zero(&mut wire, file, 0, 128 << 10), NtStatus::SUCCESS);
    assert_eq!(ranges(&mut wire, file, 4096, 1 << 20), [(128 << 10, 128 << 10)]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 256 << 10);
    assert_eq!(wire.control(file, ControlCode::SET_SPARSE, &[0]).0, NtStatus::SUCCESS);
    assert_eq!(ranges(&mut wire, file, 0, 1 << 20), [(0, 256 << 10)]);
}

#[test]
fn a_copy_takes_the_right_to_read_its_source() {
    let fixture = Fixture::start();
    std::fs::write(fixture.dir.path().join("f"), b"secret").unwrap();
    let mut wire = fixture.client(1);
    let to = wire.open("g", |_| {}).id;
    for (access, status) in [
        (AccessMask::FILE_GENERIC_WRITE, NtStatus::ACCESS_DENIED),
        (AccessMask::READ_ATTRIBUTES, NtStatus::ACCESS_DENIED),
        (AccessMask::READ_DATA, NtStatus::SUCCESS),
        (AccessMask::EXECUTE, NtStatus::SUCCESS),
    ] {
        let from = wire.open("f", |open| open.desired_access = access).id;
        let key = key(&mut wire, from);
        assert_eq!(copy(&mut wire, key, to, &[(0, 0, 6)]).0, status, "{access:?}");
    }
}
