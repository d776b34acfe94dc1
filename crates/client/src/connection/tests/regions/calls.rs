//! What each call asks of the server, and what becomes of the server's answers.

use std::task::Waker;

use pmem::DurabilityClass;
use remote::Promise;
use smb::push::{PushAccept, PushConnectionId};

use super::*;
use crate::error::ClientError;

fn status(error: Option<ClientError>) -> Option<NtStatus> {
    error.and_then(|error| error.status())
}

#[test]
fn a_region_is_mapped_as_it_was_asked_for_and_unmapped_once() {
    let (_runtime, site, mut control, _) = opened(|_| {});
    let recall = Arc::new(Recall::default());
    let invited = control.invite().unwrap();
    assert_eq!((invited.class, invited.is_emulated), (DurabilityClass::Storage, false));
    let mapping = control.map(CONNECTION, &recall).unwrap();
    assert_eq!(mapping.pieces.iter().map(|piece| piece.len).sum::<u64>(), 8192);
    let rights = Rights::READ | Rights::WRITE | Rights::FLUSH;
    let connection = CONNECTION;
    let asked = Asked::Map { file: 1, rights, connection, offset: 4096, len: 8192 };
    assert_eq!(site.next(), asked);
    control.unmap().unwrap();
    assert_eq!(site.next(), Asked::Unmap { file: 1, registration: 1, generation: 11 });
    control.unmap().unwrap();
    control.settle();
    control.unmap().unwrap();
    assert_eq!(site.so_far(), []);
}

#[test]
fn a_region_that_the_server_has_ended_is_unmapped() {
    let (_runtime, site, mut control, ..) = mapped(|_| {});
    site.refuses(NtStatus::NOT_FOUND, |asked| matches!(asked, Asked::Unmap { .. }));
    control.unmap().unwrap();
    control.unmap().unwrap();
    assert_eq!(site.so_far().len(), 1);
}

#[test]
fn an_unmapping_that_was_refused_is_asked_for_again() {
    let (_runtime, site, mut control, ..) = mapped(|_| {});
    let refused = NtStatus::INSUFFICIENT_RESOURCES;
    site.refuses(refused, |asked| matches!(asked, Asked::Unmap { .. }));
    assert_eq!(status(control.unmap().err()), Some(refused));
    site.refuses(refused, |_| false);
    control.unmap().unwrap();
    let unmap = Asked::Unmap { file: 1, registration: 1, generation: 11 };
    assert_eq!(site.so_far(), [unmap.clone(), unmap]);
}

#[test]
fn a_push_connection_has_the_number_of_an_answer_that_accepts_it() {
    let (_runtime, _site, control, ..) = opened(|_| {});
    let of = |status| {
        let mut reply = Vec::new();
        PushAccept { status, push_connection_id: PushConnectionId(9) }.emit(&mut reply);
        control.connection(&reply)
    };
    assert_eq!(of(NtStatus::SUCCESS), Some(9));
    assert_eq!(of(NtStatus::ACCESS_DENIED), None);
    assert_eq!(control.connection(b"no answer"), None);
}

#[test]
fn a_file_promises_what_the_server_said_and_a_caller_takes_what_it_asked_for() {
    let (_runtime, _site, control, ..) = opened(|manners| manners.durability = Durability::PMEM);
    let of = |class| Promise { class, is_emulated: false };
    assert_eq!(control.promise(), Some(of(DurabilityClass::Pmem)));
    assert!(control.takes(of(DurabilityClass::Pmem)));
    assert!(control.takes(of(DurabilityClass::Storage)));
    let emulated = Promise { is_emulated: true, ..of(DurabilityClass::Volatile) };
    assert!(!control.takes(emulated), "the caller accepts no emulation");
}

#[test]
fn a_commit_names_its_range_and_the_mapping() {
    let (_runtime, site, mut control, ..) = mapped(|_| {});
    control.commit(5000..5100).unwrap();
    let ranges = std::iter::once(5000..5100).collect();
    assert_eq!(site.so_far(), [Asked::Commit { file: 1, registration: 1, ranges }]);
}

#[test]
fn a_commit_behind_the_end_of_a_mapping_is_a_flush() {
    let (_runtime, site, mut control, ..) = mapped(|_| {});
    for ended in [NtStatus::NOT_FOUND, NtStatus::FILE_CLOSED] {
        site.refuses(ended, |asked| matches!(asked, Asked::Commit { .. }));
        control.commit(4096..8192).unwrap();
        assert_eq!(site.so_far()[1..], [Asked::Flush { file: 1 }], "{ended}");
    }
    control.unmap().unwrap();
    site.so_far();
    control.commit(4096..8192).unwrap();
    assert_eq!(site.so_far(), [Asked::Flush { file: 1 }]);
}

#[test]
fn a_commit_that_is_refused_is_no_flush_that_succeeds() {
    let (_runtime, site, mut control, ..) = mapped(|_| {});
    for refused in [NtStatus::NOT_SUPPORTED, NtStatus::ACCESS_DENIED] {
        site.refuses(refused, |asked| matches!(asked, Asked::Commit { .. }));
        assert_eq!(status(control.commit(4096..8192).err()), Some(refused));
        assert_eq!(site.so_far().len(), 1, "{refused}");
    }
}

#[test]
fn a_flush_is_the_servers_and_so_is_its_failure() {
    let (_runtime, site, mut control, ..) = opened(|_| {});
    control.flush().unwrap();
    assert_eq!(site.so_far(), [Asked::Flush { file: 1 }]);
    site.refuses(NtStatus::DISK_FULL, |_| true);
    assert_eq!(status(control.flush().err()), Some(NtStatus::DISK_FULL));
}

#[test]
fn bytes_beyond_the_end_of_a_file_that_was_cut_read_as_zero() {
    let (_runtime, site, mut control, ..) = opened(|_| {});
    let mut out = [0xff; 8];
    control.read(4100, &mut out).unwrap();
    assert_eq!(&out, b"found\0\0\0");
    assert_eq!(site.so_far(), [Asked::Read { file: 1, offset: 4100 }]);
}

#[test]
fn a_write_by_messages_is_the_servers() {
    let (_runtime, site, mut control, ..) = opened(|_| {});
    control.write(4200, b"written").unwrap();
    let data = b"written".to_vec();
    assert_eq!(site.so_far(), [Asked::Write { file: 1, offset: 4200, data }]);
    site.refuses(NtStatus::DISK_FULL, |_| true);
    assert_eq!(status(control.write(4200, b"refused").err()), Some(NtStatus::DISK_FULL));
}

#[test]
fn bytes_are_written_again_in_order_under_the_epoch_of_their_mapping() {
    let (_runtime, site, mut control, ..) = mapped(|manners| manners.lease = (5, whole()));
    assert!(control.may_replay());
    // More than one request carries here: 64 KiB.
    let bytes: Vec<u8> = (0..150_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    assert!(control.write_again(4096, &bytes).unwrap());
    let (mut at, mut requests) = (0, 0);
    for asked in site.so_far() {
        let Asked::WriteAgain { file: 1, offset, epoch: 5, data } = asked else {
            panic!("{asked:?}")
        };
        assert_eq!(offset, 4096 + u64::try_from(at).unwrap());
        assert!(data.len() + WriteUnderLease::OVERHEAD <= 1 << 16, "the server takes no more");
        assert_eq!(data, bytes[at..at + data.len()]);
        (at, requests) = (at + data.len(), requests + 1);
    }
    assert_eq!((at, requests), (bytes.len(), 3));
}

#[test]
fn nothing_is_written_again_behind_the_answer_that_the_lease_is_gone() {
    let (_runtime, site, mut control, ..) = mapped(|_| {});
    let gone = [NtStatus::INVALID_OPLOCK_PROTOCOL, NtStatus::INVALID_DEVICE_REQUEST];
    for status in gone {
        site.refuses(status, |asked| matches!(asked, Asked::WriteAgain { .. }));
        assert!(!control.write_again(4096, &[1; 100_000]).unwrap(), "{status}");
        assert_eq!(site.so_far().len(), 1, "{status}");
    }
    site.refuses(NtStatus::DISK_FULL, |_| true);
    let failed = control.write_again(4096, &[1; 100_000]);
    assert_eq!(status(failed.err()), Some(NtStatus::DISK_FULL));
    assert_eq!(site.so_far().len(), 1);
}

#[test]
fn nothing_is_written_again_under_a_lease_that_was_not_whole() {
    let part = LeaseState::READ | LeaseState::HANDLE;
    let (_runtime, site, mut control, ..) = mapped(|manners| manners.lease = (5, part));
    assert!(!control.may_replay());
    assert!(!control.write_again(4096, b"not sent").unwrap());
    assert_eq!(site.so_far(), []);
}

#[test]
fn another_token_comes_by_an_open_of_the_same_file_under_the_same_lease() {
    let (_runtime, site, mut control, key) = opened(|_| {});
    control.invite().unwrap();
    assert_eq!(site.so_far(), [], "the first token came with the first open");
    site.manners().lease = (2, whole());
    control.invite().unwrap();
    assert_eq!(site.next(), Asked::Open(CreateDisposition::OPEN, key));
    // The new open has the registration, and what it was told of the lease counts.
    control.map(CONNECTION, &Arc::new(Recall::default())).unwrap();
    assert!(matches!(site.next(), Asked::Map { file: 2, .. }));
    control.write_again(4096, b"again").unwrap();
    let data = b"again".to_vec();
    assert_eq!(site.next(), Asked::WriteAgain { file: 1, offset: 4096, epoch: 2, data });
    control.unmap().unwrap();
    assert!(matches!(site.next(), Asked::Unmap { file: 2, .. }));
    control.close().unwrap();
    assert_eq!(site.so_far(), [Asked::Close { file: 2 }, Asked::Close { file: 1 }]);
}

#[test]
fn a_region_is_closed_when_the_server_has_closed_its_file() {
    let (_runtime, site, mut control, ..) = opened(|_| {});
    control.close().unwrap();
    assert_eq!(site.so_far(), [Asked::Close { file: 1 }]);
    control.close().unwrap();
    drop(control);
    assert_eq!(site.so_far(), [], "once");
}

#[test]
fn a_close_that_fails_says_so_unless_the_file_was_closed_before() {
    for (refused, is_closed) in
        [(NtStatus::OBJECT_NAME_NOT_FOUND, true), (NtStatus::DISK_FULL, false)]
    {
        let (_runtime, site, mut control, ..) = opened(|_| {});
        site.refuses(refused, |asked| matches!(asked, Asked::Close { .. }));
        assert_eq!(control.close().is_ok(), is_closed, "{refused}");
    }
}

#[test]
fn the_files_of_a_lost_session_ended_with_it() {
    let (_runtime, site, mut control, ..) = opened(|_| {});
    site.ends();
    control.flush().unwrap_err();
    control.close().unwrap();
}

#[test]
fn a_region_that_is_dropped_asks_the_server_to_close_its_file() {
    let (_runtime, site, control, ..) = mapped(|_| {});
    drop(control);
    assert_eq!(site.next(), Asked::Close { file: 1 });
}

#[test]
fn a_region_that_is_dropped_is_closed_before_anything_that_its_owner_asks_for_next() {
    let runtime = runtime();
    let (site, client) = Site::start(&runtime);
    let (file, _) = open(&runtime, &site, &client);
    let handle = runtime.handle().clone();
    let mut control = FileControl::new(handle, client.clone(), "region", &pushing(), file, REGION);
    control.invite().unwrap();
    control.map(CONNECTION, &Arc::new(Recall::default())).unwrap();
    assert!(matches!(site.next(), Asked::Map { .. }));
    // Nothing that watches the region runs meanwhile: the runtime has one thread.
    let (blocks, is_blocked) = channel();
    let (goes_on, gate) = channel::<()>();
    runtime.spawn(async move {
        blocks.send(()).unwrap();
        let _ = gate.recv();
    });
    is_blocked.recv().unwrap();
    drop(control);
    let options = pushing();
    let mut opening = Box::pin(client.open("next", &options));
    let entered = runtime.enter();
    assert!(opening.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(entered);
    goes_on.send(()).unwrap();
    runtime.block_on(opening).unwrap();
    assert_eq!(site.next(), Asked::Close { file: 1 });
    assert!(matches!(site.next(), Asked::Open(..)));
}
