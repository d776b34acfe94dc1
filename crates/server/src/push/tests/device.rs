//! A device of persistent memory in a share of volatile memory: this one open is of class `pmem`.

use std::sync::Arc;

use pmem::Medium as _;
use pmem::crash::Recorder;
use smb::push::{Capabilities, CommitRequest, CommitResponse, Durability};
use smb::{Channel, Command, ControlCode, FlushRequest, NtStatus, WriteFlags, WriteRequest};

use super::PAGE;
use super::rig::Rig;

const LEN: u64 = 8 * PAGE;

#[tokio::test]
async fn a_device_is_mapped_with_class_pmem() {
    let recorder = Arc::new(Recorder::pmem(usize::try_from(LEN).unwrap()));
    let rig = Rig::with_device(Arc::clone(&recorder) as Arc<dyn pmem::Medium>);
    let open = rig.open("device", 1).await;
    let mapped = rig.map(open, PAGE, PAGE).await.unwrap();
    assert_eq!((mapped.durability, mapped.store_granularity), (Durability::PMEM, 64));
    assert!(!mapped.capabilities.contains(Capabilities::EMULATED_PERSISTENCE));
    rig.engine.place(8, b"pushed");
    let mut out = [0; 6];
    recorder.read(PAGE + 8, &mut out).unwrap();
    assert_eq!(out, *b"pushed");
    let (registration, generation) = (mapped.registration, mapped.generation);
    let request = CommitRequest { registration, generation, ranges: Vec::new() };
    let code = ControlCode::COMMIT_REMOTE_REGION;
    let output = rig.control(open, code, |out| request.emit(out), 64).await.unwrap();
    let committed = CommitResponse::parse(&output).unwrap();
    assert_eq!((committed.durability, committed.emulated), (Durability::PMEM, false));
    // A regular file of the same share keeps its class.
    let file = rig.open("file", 2).await;
    assert_eq!(rig.map(file, 0, PAGE).await.unwrap().durability, Durability::VOLATILE);
}

#[tokio::test]
async fn a_device_keeps_its_length_and_takes_writes_and_flushes() {
    let recorder = Arc::new(Recorder::pmem(usize::try_from(LEN).unwrap()));
    let rig = Rig::with_device(Arc::clone(&recorder) as Arc<dyn pmem::Medium>);
    let open = rig.open("device", 1).await;
    rig.map(open, 0, PAGE).await.unwrap();
    assert_eq!(rig.set_end(open, PAGE).await, Err(NtStatus::NOT_SUPPORTED));
    let emptied = rig.try_overwrite("device", 1).await;
    assert_eq!(emptied.map(drop), Err(NtStatus::NOT_SUPPORTED));
    assert_eq!(rig.registered(), 1, "nobody had to give anything back for that");
    let beyond = rig.map(open, LEN - PAGE, PAGE + 1).await;
    assert_eq!(beyond.map(drop), Err(NtStatus::INVALID_PARAMETER));
    let write = WriteRequest {
        offset: LEN - 7,
        file_id: open.id,
        channel: Channel::NONE,
        remaining_bytes: 0,
        flags: WriteFlags::WRITE_THROUGH,
        data: b"written",
        channel_info: &[],
    };
    rig.ask(Command::WRITE, |out| write.emit(out)).await.unwrap();
    let beyond = WriteRequest { offset: LEN - 6, ..write };
    let refused = rig.ask(Command::WRITE, |out| beyond.emit(out)).await;
    assert_eq!(refused.map(drop), Err(NtStatus::DISK_FULL));
    let flush = FlushRequest { file_id: open.id };
    rig.ask(Command::FLUSH, |out| flush.emit(out)).await.unwrap();
    let mut out = [0; 7];
    recorder.read(LEN - 7, &mut out).unwrap();
    assert_eq!(out, *b"written");
}

#[tokio::test]
async fn a_file_that_may_have_lost_bytes_is_mapped_no_more() {
    let recorder = Arc::new(Recorder::pmem(usize::try_from(LEN).unwrap()));
    let rig = Rig::with_device(recorder as Arc<dyn pmem::Medium>);
    for (key, name) in [(1, "device"), (2, "file")] {
        let open = rig.open(name, key).await;
        rig.map(open, 0, PAGE).await.unwrap();
        let found = rig.session().open(open.id.persistent, open.id.volatile).unwrap();
        found.node.poison(&found.entry);
        let flush = FlushRequest { file_id: open.id };
        if name == "device" {
            let flushed = rig.ask(Command::FLUSH, |out| flush.emit(out)).await;
            assert_eq!(flushed.map(drop), Err(NtStatus::DATA_ERROR));
        }
        // Its flushes of other bytes would succeed.
        let later = rig.map(open, PAGE, PAGE).await;
        assert_eq!(later.map(drop), Err(NtStatus::DATA_ERROR), "{name}");
    }
}
