//! The doors for bytes that others made, for the fuzz targets.

use std::sync::Arc;

use pmem::{Medium, OpenOptions, anonymous_with};

use crate::archive::Archive;
use crate::destager::Work;
use crate::format::label::LABEL_LEN;
use crate::format::{HEADER_LEN, Header, Label, crc32c};
use crate::store::{LocalStore, Store};
use crate::{CreateOptions, TailLog};

/// A label and a header: what parses, emitted, parses to the same.
pub fn labels(bytes: &[u8]) {
    let mut label = [0; LABEL_LEN];
    let len = bytes.len().min(LABEL_LEN);
    label[..len].copy_from_slice(&bytes[..len]);
    // The right checksum, or few inputs would come further.
    label[12..16].fill(0);
    let crc = crc32c(&[&label]);
    label[12..16].copy_from_slice(&crc.to_le_bytes());
    if let Ok(label) = Label::parse(&label) {
        assert_eq!(Label::parse(&label.emit()), Ok(label));
    }
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return };
    if let Some((header, _)) = Header::parse(header) {
        let again = Header::parse(&header.emit(&[1; 16], b"payload"));
        assert_eq!(again.map(|(header, _)| header), Some(header));
    }
}

/// A small log and its archive with some bytes changed, each by three bytes of the input: its place, and its new value. A
/// last byte that is odd gives labels their right checksums. The log opens or is refused; what it then appends is there if
/// it opens again.
pub fn damaged(bytes: &[u8]) {
    let emulated = OpenOptions { emulate_persistence: true };
    let Ok(medium) = anonymous_with(LEN, emulated) else { return };
    let Ok(disk) = anonymous_with(LEN, emulated) else { return };
    let log =
        TailLog::create(store(&medium), &CreateOptions::default()).expect("memory takes a log");
    for number in 0..12 {
        log.append_commit(&[number; 200]).expect("there is room");
    }
    let mut work = Work::begin(&log, one(&disk)).expect("memory takes an archive");
    work.round(&log, false).expect("the archive has room");
    drop((work, log));
    for change in bytes.as_chunks::<3>().0 {
        let at = u64::from(u16::from_le_bytes([change[0], change[1]]));
        let medium = if at < LEN { &medium } else { &disk };
        medium.place(at % LEN, &change[2..]).expect("memory takes a byte");
    }
    if bytes.last().is_some_and(|byte| byte % 2 == 1) {
        for (medium, slot) in [(&medium, 0), (&medium, 4096), (&disk, 0), (&disk, 4096)] {
            mend(&**medium, slot);
        }
    }
    if let Ok(mut archive) = Archive::open(one(&disk), None) {
        let start = archive.start();
        archive.replay(start).for_each(drop);
    }
    let Ok(log) = TailLog::open(store(&medium), &crate::OpenOptions::default()) else { return };
    if let Ok(records) = log.replay(log.start_lsn()) {
        records.for_each(drop);
    }
    if let Ok(mut work) = Work::begin(&log, one(&disk)) {
        let _ = work.round(&log, true);
    }
    let Ok(lsn) = log.append_commit(b"the next record") else { return };
    drop(log);
    let log = TailLog::open(store(&medium), &crate::OpenOptions::default())
        .expect("a log that took a record opens");
    let mut last = log.replay(lsn).expect("a durable record is kept");
    assert_eq!(last.next().and_then(Result::ok), Some((lsn, b"the next record".to_vec())));
}

fn one(medium: &Arc<dyn Medium>) -> Box<dyn Store> {
    Box::new(LocalStore::of_medium(Arc::clone(medium)))
}

fn store(medium: &Arc<dyn Medium>) -> Vec<Box<dyn Store>> {
    vec![one(medium)]
}

fn mend(medium: &dyn Medium, slot: u64) {
    let mut label = [0; LABEL_LEN];
    medium.read(slot, &mut label).expect("inside of the medium");
    label[12..16].fill(0);
    let crc = crc32c(&[&label]);
    medium.place(slot + 12, &crc.to_le_bytes()).expect("inside of the medium");
}

/// Labels and a ring of 8 KiB.
const LEN: u64 = 4 * 4096;
