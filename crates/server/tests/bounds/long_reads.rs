//! Answers so long that they are sent while they are read.

use server::{ShareConfig, SigningPolicy};
use smb::create::{AccessMask, CreateDisposition};
use smb::{Command, Empty, FileId, NtStatus, ReadResponse};

use crate::support::{Fixture, Wire, read};

/// The file's length: not a round one.
const LEN: usize = 9 * MIB + 123;
const MIB: usize = 1 << 20;

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at / 251).to_le_bytes()[0] ^ (at % 253).to_le_bytes()[0]).collect()
}

// A READ that pays for its length; its message id.
fn start_read(wire: &mut Wire, file: FileId, (offset, len): (usize, usize), minimum: u32) -> u64 {
    let id = wire.next_id;
    let charge = len.div_ceil(64 * 1024).max(1);
    let mut request = read(file, offset as u64, u32::try_from(len).unwrap());
    request.minimum_count = minimum;
    let mut pdu = wire.pdu(Command::READ, |out| request.emit(out));
    pdu[6..8].copy_from_slice(&u16::try_from(charge).unwrap().to_le_bytes());
    wire.next_id += charge as u64 - 1;
    wire.sign(&mut pdu);
    wire.send_frame(&pdu);
    id
}

fn reads_are_whole(directory: &str, signs: bool) {
    let shared = tempfile::tempdir_in(directory).unwrap();
    let content = content();
    std::fs::write(shared.path().join("long"), &content).unwrap();
    let fixture = Fixture::start_with(|config| {
        config.shares = vec![ShareConfig::new("data", shared.path())];
        config.signing = SigningPolicy::WhenAsked;
    });
    let mut wire = fixture.client(1);
    wire.signs = signs;
    let file = wire.open("long", |request| {
        request.desired_access = AccessMask::FILE_GENERIC_READ;
        request.disposition = CreateDisposition::OPEN;
    });
    assert_eq!(file.status, NtStatus::SUCCESS);
    // Credits for the longest READ and what travels with it.
    for _ in 0..16 {
        wire.ask(Command::ECHO, |out| Empty.emit(out));
    }
    let places = [
        (0, MIB),
        (1, MIB),
        (MIB - 1, 2 * MIB + 1),
        (0, 8 * MIB),
        (LEN - MIB, MIB),
        (LEN - MIB, 2 * MIB),
        (LEN - 5 * MIB, 8 * MIB),
        (LEN - 1, MIB),
        (7, MIB - 1),
    ];
    for place in places {
        // What is asked behind it is answered behind it, unless the long one has to wait for the disk.
        let long = start_read(&mut wire, file.id, place, 0);
        let short = start_read(&mut wire, file.id, (100, 10), 0);
        let echo = wire.start(Command::ECHO, |out| Empty.emit(out));
        for (id, (offset, len)) in [(long, place), (short, (100, 10))] {
            let (header, pdu) = wire.answer_to(id);
            assert_eq!(header.status, NtStatus::SUCCESS);
            let data = ReadResponse::parse(&pdu).unwrap().data;
            let expected = &content[offset..LEN.min(offset + len)];
            assert!(data == expected, "{len} bytes at {offset} on {directory}, signed: {signs}");
        }
        assert_eq!(wire.answer_to(echo).0.status, NtStatus::SUCCESS);
    }
    for (place, minimum) in
        [((LEN, MIB), 0), ((LEN + MIB, MIB), 0), ((LEN - MIB, 2 * MIB), 1 << 21)]
    {
        let id = start_read(&mut wire, file.id, place, minimum);
        assert_eq!(wire.answer_to(id).0.status, NtStatus::END_OF_FILE);
    }
}

#[test]
fn long_reads_from_memory_and_from_a_disk_are_whole_signed_or_not() {
    for directory in ["/dev/shm", "/var/tmp"] {
        for signs in [false, true] {
            reads_are_whole(directory, signs);
        }
    }
}
