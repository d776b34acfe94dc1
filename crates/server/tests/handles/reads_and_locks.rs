//! READs, and copies, beside exclusive locks of others: no answer has bytes that were written under such a lock.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use server::{ServerConfig, SigningPolicy};
use smb::fsctl::{CopyChunk, CopyChunkRequest, ResumeKey};
use smb::{
    Command, ControlCode, Empty, FileId, LockElement, LockFlags, LockRequest, NtStatus,
    ReadResponse,
};
use tempfile::TempDir;

use crate::support::compound::with_header;
use crate::support::crowd::save_credits;
use crate::support::{Fixture, Wire, read, write};

/// Memory: nothing but what is long goes to a thread.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn serving(path: PathBuf) -> impl FnOnce(&mut ServerConfig) {
    move |config| {
        config.shares[0].path = path;
        config.signing = SigningPolicy::WhenAsked;
    }
}

fn lock(wire: &mut Wire, file_id: FileId, length: usize, flags: LockFlags) -> NtStatus {
    let locks = vec![LockElement { offset: 0, length: length as u64, flags }];
    let request = LockRequest { lock_sequence: 0, file_id, locks };
    wire.ask(Command::LOCK, |out| request.emit(out)).0.status
}

/// A READ that pays for its length; its message id.
fn start_read(wire: &mut Wire, id: FileId, length: usize) -> u64 {
    let (charge, message) = (u16::try_from(length.div_ceil(64 << 10)).unwrap(), wire.next_id);
    let request = read(id, 0, u32::try_from(length).unwrap());
    let mut pdu = wire.pdu(Command::READ, |out| request.emit(out));
    // As many credits as it takes come back with its answer.
    with_header(&mut pdu, |header| (header.credit_charge, header.credits) = (charge, charge));
    wire.next_id += u64::from(charge) - 1;
    wire.sign(&mut pdu);
    wire.send_frame(&pdu);
    message
}

/// What a READ came to, and its bytes.
fn finish_read(wire: &mut Wire, message: u64) -> (NtStatus, Vec<u8>) {
    let (header, pdu) = wire.answer_to(message);
    let data = ReadResponse::parse(&pdu).map(|response| response.data.to_vec());
    (header.status, data.unwrap_or_default())
}

#[test]
fn a_refused_lock_of_two_ranges_keeps_the_locks_held_before() {
    let fixture = Fixture::start();
    let (mut first, mut second) = (fixture.client(1), fixture.client(2));
    let (held, other) = (first.open("f", |_| {}).id, second.open("f", |_| {}).id);
    assert_eq!(first.write(held, &[1; 64]), NtStatus::SUCCESS);
    assert_eq!(lock(&mut first, held, 10, EXCLUSIVE), NtStatus::SUCCESS);
    let element = |offset, flags| LockElement { offset, length: 10, flags };
    let ask = |wire: &mut Wire, file_id, locks| {
        let request = LockRequest { lock_sequence: 0, file_id, locks };
        wire.ask(Command::LOCK, |out| request.emit(out)).0.status
    };
    let theirs = vec![element(20, EXCLUSIVE)];
    assert_eq!(ask(&mut second, other, theirs), NtStatus::SUCCESS);
    let shared = LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY;
    let both = vec![element(0, shared), element(20, EXCLUSIVE)];
    assert_eq!(ask(&mut first, held, both), NtStatus::LOCK_NOT_GRANTED);
    assert_eq!(second.read(other, 10).0, NtStatus::FILE_LOCK_CONFLICT, "locked exclusively");
    assert_eq!(first.write(held, b"own"), NtStatus::SUCCESS, "no shared lock is left");
}

const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE.union(LockFlags::FAIL_IMMEDIATELY);

#[test]
fn a_read_that_waited_for_a_thread_meets_a_lock_that_was_taken_meanwhile() {
    let memory = in_memory();
    std::fs::write(memory.path().join("f"), b"old").unwrap();
    let fixture = Fixture::start_with_one_thread_and(serving(memory.path().to_owned()));
    let (mut reader, mut holder) = (fixture.client(1), fixture.client(2));
    let (reads, held) = (reader.open("f", |_| {}).id, holder.open("f", |_| {}).id);
    save_credits(&mut reader, 64);
    let taken = fixture.take_thread();
    // Longer than what is copied on the spot.
    let message = start_read(&mut reader, reads, 2 << 20);
    assert_eq!(reader.ask(Command::ECHO, |out| Empty.emit(out)).0.status, NtStatus::SUCCESS);
    assert_eq!(lock(&mut holder, held, 100, EXCLUSIVE), NtStatus::SUCCESS);
    assert_eq!(holder.write(held, b"new"), NtStatus::SUCCESS);
    drop(taken);
    assert_eq!(finish_read(&mut reader, message), (NtStatus::FILE_LOCK_CONFLICT, Vec::new()));
    assert_eq!(lock(&mut holder, held, 100, LockFlags::UNLOCK), NtStatus::SUCCESS);
    assert_eq!(reader.read(reads, 100), (NtStatus::SUCCESS, b"new".to_vec()));
}

/// One client fills a file again and again under an exclusive lock, `look` of another one gets bytes of it:
/// none may be of two fillings.
fn fill(len: usize, rounds: usize, look: impl Fn(&mut Wire, FileId) -> Option<Vec<u8>>) {
    let memory = in_memory();
    std::fs::write(memory.path().join("f"), vec![0; len]).unwrap();
    let fixture = Fixture::start_with(serving(memory.path().to_owned()));
    let stop = AtomicBool::new(false);
    let (mut seen, mut mixed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = fixture.client(1);
            wire.signs = false;
            let id = wire.open("f", |_| {}).id;
            for filling in (1..=u8::MAX).cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // Whoever reads just now is waited for.
                assert_eq!(lock(&mut wire, id, len, EXCLUSIVE), NtStatus::SUCCESS);
                let (data, parts) = (vec![filling; PART], (0..len).step_by(PART));
                let started: Vec<_> = parts
                    .map(|at| {
                        wire.start(Command::WRITE, |out| write(id, at as u64, &data).emit(out))
                    })
                    .collect();
                for message in started {
                    assert_eq!(wire.answer_to(message).0.status, NtStatus::SUCCESS);
                }
                assert_eq!(lock(&mut wire, id, len, LockFlags::UNLOCK), NtStatus::SUCCESS);
            }
        });
        let _stops = Stops(&stop);
        let mut wire = fixture.client(2);
        wire.signs = false;
        let id = wire.open("f", |_| {}).id;
        save_credits(&mut wire, 256);
        // On a busy machine it may take many before one comes between two locks.
        for round in 0..rounds * 100 {
            if round >= rounds && seen > 0 {
                break;
            }
            let Some(data) = look(&mut wire, id) else { continue };
            assert_eq!(data.len(), len);
            seen += 1;
            mixed += usize::from(data != vec![data[0]; len]);
        }
    });
    assert!(seen > 0);
    assert_eq!(mixed, 0, "of {seen} answers had bytes of a filling that was not done");
}

/// Has the other client stop, also where this one fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// A READ of so much at most, and what it had where no lock was in its way.
fn read_all(wire: &mut Wire, id: FileId, most: usize) -> Option<Vec<u8>> {
    let message = start_read(wire, id, most);
    match finish_read(wire, message) {
        (NtStatus::FILE_LOCK_CONFLICT, _) => None,
        (status, data) => {
            assert_eq!(status, NtStatus::SUCCESS);
            Some(data)
        }
    }
}

#[test]
fn an_answer_that_leaves_in_pieces_has_no_bytes_written_under_a_lock() {
    fill(LONG, ROUNDS, |wire, id| read_all(wire, id, LONG));
}

#[test]
fn an_answer_of_a_thread_has_no_bytes_written_under_a_lock() {
    fill(SHORT, ROUNDS, |wire, id| read_all(wire, id, LONG));
}

#[test]
fn an_answer_given_on_the_spot_has_no_bytes_written_under_a_lock() {
    fill(SHORT, QUICK_ROUNDS, |wire, id| read_all(wire, id, SHORT));
}

#[test]
fn a_copy_has_no_bytes_written_under_a_lock() {
    fill(SHORT, ROUNDS, |wire, id| {
        let (status, key) = wire.control(id, ControlCode::SRV_REQUEST_RESUME_KEY, &[]);
        assert_eq!(status, NtStatus::SUCCESS);
        let to = wire.open("copy", |_| {}).id;
        let length = u32::try_from(SHORT).unwrap();
        let chunks = vec![CopyChunk { source_offset: 0, target_offset: 0, length }];
        let mut input = Vec::new();
        CopyChunkRequest { source: ResumeKey::parse(&key).unwrap(), chunks }.emit(&mut input);
        let (status, _) = wire.control(to, ControlCode::SRV_COPYCHUNK, &input);
        let copied = match status {
            NtStatus::FILE_LOCK_CONFLICT => None,
            status => {
                assert_eq!(status, NtStatus::SUCCESS);
                read_all(wire, to, SHORT)
            }
        };
        assert_eq!(wire.close(to), NtStatus::SUCCESS);
        copied
    });
}

/// Of a file whose bytes leave in pieces; of a READ that a thread answers where they do not.
const LONG: usize = 4 << 20;
/// Of one that is read on the spot, or copied as one chunk.
const SHORT: usize = 512 << 10;
const PART: usize = 64 << 10;
const ROUNDS: usize = 300;
/// Before locks were asked for again, 23 of 4,729 answers given on the spot had bytes of two fillings.
const QUICK_ROUNDS: usize = 5_000;
