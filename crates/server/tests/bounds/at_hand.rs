//! What the kernel has in memory of a disk is answered while the threads for what may wait are all taken.

use smb::NtStatus;
use smb::create::{AccessMask, CreateDisposition};
use smb::info::FileInfoClass;

use crate::support::Fixture;

#[test]
fn a_look_at_a_file_that_was_open_before_waits_for_no_thread() {
    let fixture = Fixture::start_with_one_thread();
    let mut wire = fixture.client(1);
    let made = wire.open("seen", |_| {});
    assert_eq!((made.status, wire.write(made.id, b"x")), (NtStatus::SUCCESS, NtStatus::SUCCESS));
    assert_eq!(wire.close(made.id), NtStatus::SUCCESS);

    let taken = fixture.take_thread();
    let opened = wire.open("seen", |request| {
        request.desired_access = AccessMask::FILE_GENERIC_READ;
        request.disposition = CreateDisposition::OPEN;
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let (status, _) = wire.query(opened.id, FileInfoClass::ALL);
    assert_eq!(status, NtStatus::SUCCESS);
    assert_eq!(wire.close(opened.id), NtStatus::SUCCESS);
    assert!(!taken.work.is_finished(), "all of that while it was taken");
}
