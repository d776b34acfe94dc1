//! A body that another crate brings: a volume whose sectors are atomic, which is never mapped.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pmem::DurabilityClass;
use smb::create::{CreateDisposition, CreateRequestContext, CreateResponse, CreateResponseContext};
use smb::push::{PushResponse, Refusal};
use smb::{
    Channel, Command, FlushRequest, NtStatus, ReadFlags, ReadRequest, ReadResponse, WriteFlags,
    WriteRequest,
};
use tree::{Body, Flushes, InlineIo, MapRefusal, Mappable, ShareError};

use super::rig::{Opened, Rig};
use super::{Arc, PAGE};

/// Sectors in memory; a WRITE has to wait.
#[derive(Debug)]
struct Volume {
    bytes: Mutex<Vec<u8>>,
    flushes: AtomicUsize,
}

impl Body for Volume {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn inline_io(&self) -> InlineIo {
        InlineIo::CachedReads
    }

    fn size(&self) -> Result<u64, ShareError> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn try_read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        self.read_at(out, len, offset)
    }

    fn read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        let bytes = self.bytes.lock().unwrap();
        let start = usize::try_from(offset).unwrap().min(bytes.len());
        let len = len.min(bytes.len() - start);
        out.extend_from_slice(&bytes[start..start + len]);
        Ok(len)
    }

    fn try_write_at(&self, _bytes: &[u8], _offset: u64) -> Result<(), ShareError> {
        Err(ShareError::WouldBlock)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        let start = usize::try_from(offset).unwrap();
        let mut all = self.bytes.lock().unwrap();
        let room = all.get_mut(start..start + bytes.len()).ok_or(ShareError::DiskFull)?;
        room.copy_from_slice(bytes);
        Ok(())
    }

    fn persist(&self, _flushes: &dyn Flushes) -> Result<(), ShareError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn poison(&self, _flushes: &dyn Flushes) {}

    fn mappable(&self) -> Result<&dyn Mappable, MapRefusal> {
        Err(MapRefusal::SectorAtomic)
    }
}

#[tokio::test]
async fn a_volume_is_read_written_and_flushed_by_messages_and_never_mapped() {
    let bytes = Mutex::new(vec![0; 4 * usize::try_from(PAGE).unwrap()]);
    let volume = Arc::new(Volume { bytes, flushes: AtomicUsize::new(0) });
    let rig = Rig::with_body(Arc::clone(&volume) as Arc<dyn Body>);
    let context = CreateRequestContext::QueryOnDiskId;
    let pdu = rig.create("device", 1, CreateDisposition::OPEN, context).await.unwrap();
    let response = CreateResponse::parse(&pdu).unwrap();
    let is_push = |context: &CreateResponseContext<'_>| match context {
        CreateResponseContext::Push(answer) => Some(answer.clone()),
        _ => None,
    };
    let answer = response.contexts.iter().find_map(is_push);
    let Some(PushResponse::Refused(refused)) = answer else { panic!("{answer:?}") };
    assert_eq!(refused.reason, Refusal::SHARE_NOT_CAPABLE);
    assert_eq!(response.end_of_file, 4 * PAGE);
    let file_id = response.file_id;
    let write = WriteRequest {
        offset: PAGE,
        file_id,
        channel: Channel::NONE,
        remaining_bytes: 0,
        flags: WriteFlags::empty(),
        data: b"a sector",
        channel_info: &[],
    };
    rig.ask(Command::WRITE, |out| write.emit(out)).await.unwrap();
    assert_eq!(volume.flushes.load(Ordering::Relaxed), 0);
    rig.ask(Command::FLUSH, |out| FlushRequest { file_id }.emit(out)).await.unwrap();
    assert_eq!(volume.flushes.load(Ordering::Relaxed), 1);
    let read = ReadRequest {
        flags: ReadFlags::empty(),
        length: 8,
        offset: PAGE,
        file_id,
        minimum_count: 0,
        channel: Channel::NONE,
        remaining_bytes: 0,
        channel_info: &[],
    };
    let pdu = rig.ask(Command::READ, |out| read.emit(out)).await.unwrap();
    assert_eq!(ReadResponse::parse(&pdu).unwrap().data, b"a sector");
    let connection = smb::push::PushConnectionId(0);
    let open = Opened { id: file_id, connection };
    assert_eq!(rig.set_end(open, PAGE).await, Err(NtStatus::NOT_SUPPORTED));
    assert_eq!(rig.map(open, 0, PAGE).await.map(drop), Err(NtStatus::NOT_SUPPORTED));
}
