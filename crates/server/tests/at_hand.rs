//! What the kernel has in memory of a disk is answered while the threads for what may wait are all taken.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::sync::mpsc;

use smb::create::{AccessMask, CreateDisposition};
use smb::info::{FileInfoClass, InfoType, SecurityInformation};
use smb::{CloseRequest, Command, NtStatus, QueryInfoRequest};
use support::Fixture;

#[test]
fn a_look_at_a_file_that_was_open_before_waits_for_no_thread() {
    // One thread for what may wait, and below it is taken.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let fixture = Fixture::start_on(runtime, |_| {});
    let mut wire = fixture.client(1);
    let made = wire.open("seen", |_| {});
    assert_eq!((made.status, wire.write(made.id, b"x")), (NtStatus::SUCCESS, NtStatus::SUCCESS));
    let close = |file_id| CloseRequest { query_attributes: true, file_id };
    assert_eq!(
        wire.ask(Command::CLOSE, |out| close(made.id).emit(out)).0.status,
        NtStatus::SUCCESS
    );

    let (release, wait) = mpsc::channel::<()>();
    let (busy, is_busy) = mpsc::channel();
    let taker = fixture.runtime.spawn_blocking(move || {
        busy.send(()).unwrap();
        let _ = wait.recv();
    });
    is_busy.recv().unwrap();
    let opened = wire.open("seen", |request| {
        request.desired_access = AccessMask::FILE_GENERIC_READ;
        request.disposition = CreateDisposition::OPEN;
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let request = QueryInfoRequest {
        info_type: InfoType::FILE,
        class: FileInfoClass::ALL.0,
        output_length_max: 4096,
        additional: SecurityInformation::empty(),
        flags: 0,
        file_id: opened.id,
        input: &[],
    };
    let (header, _) = wire.ask(Command::QUERY_INFO, |out| request.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    let (header, _) = wire.ask(Command::CLOSE, |out| close(opened.id).emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert!(!taker.is_finished(), "all of that while it was taken");
    drop(release);
    fixture.runtime.block_on(taker).unwrap();
}
