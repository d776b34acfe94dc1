//! Byte-range locks, those who wait for them, and what is compared with them.

use smb::fsctl::{FileLevelTrim, FileRange};
use smb::{Command, ControlCode, FileId, LockElement, LockFlags, LockRequest, NtStatus};

use crate::pressure::Pressure;
use crate::support::{Wire, control};
use crate::{Attack, Siege};

/// As many locks of a file as there may be, and many ranges that are compared with them all the time.
pub(crate) fn ranges(siege: &Siege) -> Attack {
    let mut locker = siege.user(1);
    let theirs = locker.open("locked", |_| {}).id;
    let reached = fill(&mut locker, theirs);
    let attacks = [2, 3].map(|number| {
        let mut wire = siege.user(number);
        let id = wire.open("locked", |_| {}).id;
        let mut input = Vec::new();
        let ranges = vec![FileRange { offset: 0, length: 1 }; 4_000];
        FileLevelTrim { key: 0, ranges }.emit(&mut input);
        move || {
            let request = control(id, ControlCode::FILE_LEVEL_TRIM, &input);
            wire.ask(Command::IOCTL, |out| request.emit(out));
            // Refused for its last range: the others are taken, and given back.
            let mut locks: Vec<_> = (0..63).map(|at| exclusive(2 * at)).collect();
            locks.push(exclusive(FIRST));
            assert_eq!(lock(&mut wire, id, locks), NtStatus::INSUFFICIENT_RESOURCES);
        }
    });
    // The pressure ends first.
    let held = Box::new((Pressure::of(attacks), locker));
    Attack { at: "LOCKS_PER_FILE_MAX", limit: PER_FILE, reached, held }
}

/// As many locks as a user may have, in many files.
pub(crate) fn of_a_user(siege: &Siege) -> Attack {
    let mut wire = siege.user(1);
    let mut reached = 0;
    for file in 0..PER_USER / PER_FILE + 1 {
        let id = wire.open(&format!("locked{file}"), |_| {}).id;
        reached += fill(&mut wire, id);
    }
    Attack { at: "LOCKS_PER_USER_MAX", limit: PER_USER, reached, held: Box::new(wire) }
}

/// Requests that wait for a lock that comes and goes all the time.
pub(crate) fn waiting(siege: &Siege) -> Attack {
    let mut owner = siege.user(1);
    let id = owner.open("locked", |_| {}).id;
    // As many as are looked at by each that wakes, and the one that is waited for.
    let held = fill(&mut owner, id);
    let last = exclusive(FIRST + 2 * (PER_FILE as u64 - 1));
    let unlock = LockElement { flags: LockFlags::UNLOCK, ..last };
    // Who waits needs a place in the table to look.
    assert_eq!(lock(&mut owner, id, vec![unlock]), NtStatus::SUCCESS);
    let mut waiter = siege.user(2);
    let theirs = waiter.open("locked", |_| {}).id;
    let wanted = LockElement { flags: LockFlags::EXCLUSIVE, ..exclusive(FIRST) };
    for _ in 0..WAITING {
        let request = LockRequest { lock_sequence: 0, file_id: theirs, locks: vec![wanted] };
        let message = waiter.start(Command::LOCK, |out| request.emit(out));
        let (header, _) = waiter.receive();
        assert_eq!((header.message_id.0, header.status), (message, NtStatus::PENDING));
    }
    let before_last = LockElement { offset: last.offset - 2, ..last };
    let attack = move || {
        // Another than the one that is waited for: all who wait look again.
        let unlock = LockElement { flags: LockFlags::UNLOCK, ..before_last };
        assert_eq!(lock(&mut owner, id, vec![unlock]), NtStatus::SUCCESS);
        assert_eq!(lock(&mut owner, id, vec![before_last]), NtStatus::SUCCESS);
    };
    let pressure = Pressure::of([attack]);
    Attack {
        at: "LOCKS_PER_FILE_MAX",
        limit: PER_FILE,
        reached: held,
        held: Box::new((pressure, waiter)),
    }
}

// Locks until there are no more.
fn fill(wire: &mut Wire, id: FileId) -> usize {
    let mut count = 0;
    loop {
        let first = FIRST + 2 * count as u64;
        let locks = (0..64).map(|at| exclusive(first + 2 * at)).collect();
        match lock(wire, id, locks) {
            NtStatus::SUCCESS => count += 64,
            status => {
                assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES);
                return count;
            }
        }
    }
}

fn exclusive(offset: u64) -> LockElement {
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    LockElement { offset, length: 1, flags }
}

fn lock(wire: &mut Wire, file_id: FileId, locks: Vec<LockElement>) -> NtStatus {
    let request = LockRequest { lock_sequence: 0, file_id, locks };
    wire.ask(Command::LOCK, |out| request.emit(out)).0.status
}

/// Beyond what is trimmed.
const FIRST: u64 = 1 << 40;
const PER_FILE: usize = 16_384;
const PER_USER: usize = 131_072;
/// Requests that wait.
const WAITING: usize = 1_000;
