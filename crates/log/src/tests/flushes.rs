//! A disk whose flush failed once: the system shows bytes that are not there, and says so no second time.

use std::sync::{Arc, Mutex};

use pmem::{DurabilityClass, MediumError};

use super::memory::{in_memory, open, parts, records};
use crate::store::{Store, StoreError, Worth};
use crate::{Archive, CreateOptions, DestageOptions, Destager, LogError, OpenOptions, TailLog};

/// What the system shows, and what is on the disk.
#[derive(Debug)]
struct Disk {
    shown: Vec<u8>,
    kept: Vec<u8>,
    dirty: Vec<(usize, usize)>,
    fails: bool,
}

impl Disk {
    fn of(len: usize) -> Arc<Mutex<Self>> {
        let (shown, kept) = (vec![0; len], vec![0; len]);
        Arc::new(Mutex::new(Self { shown, kept, dirty: Vec::new(), fails: false }))
    }

    fn lose_power(&mut self) {
        self.shown = self.kept.clone();
        self.dirty.clear();
    }
}

#[derive(Debug)]
struct OnDisk(Arc<Mutex<Disk>>);

impl OnDisk {
    fn flush(&self) -> Result<(), StoreError> {
        let mut disk = self.0.lock().unwrap();
        let dirty = std::mem::take(&mut disk.dirty);
        if std::mem::take(&mut disk.fails) {
            return Err(StoreError::new(MediumError::MediaIo(5)));
        }
        for (from, to) in dirty {
            let Disk { shown, kept, .. } = &mut *disk;
            kept[from..to].copy_from_slice(&shown[from..to]);
        }
        Ok(())
    }
}

impl Store for OnDisk {
    fn len(&self) -> u64 {
        u64::try_from(self.0.lock().unwrap().shown.len()).unwrap()
    }

    fn worth(&self) -> Worth {
        Worth { class: DurabilityClass::Storage, is_emulated: false, is_remote: false }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let from = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.0.lock().unwrap().shown[from..from + out.len()]);
        Ok(())
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (from, mut disk) = (usize::try_from(offset).unwrap(), self.0.lock().unwrap());
        disk.shown[from..from + bytes.len()].copy_from_slice(bytes);
        disk.dirty.push((from, from + bytes.len()));
        Ok(())
    }

    fn begin_commit(&mut self, _offset: u64, _len: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn end_commit(&mut self) -> Result<(), StoreError> {
        self.flush()
    }

    fn settle(&mut self, _offset: u64, _len: u64) -> Result<(), StoreError> {
        self.flush()
    }
}

#[test]
fn what_a_failed_flush_had_to_archive_is_written_again_by_the_next_program() {
    let (medium, disk) = (in_memory(1), Disk::of(8192 + (64 << 10)));
    let begin = |log: &Arc<TailLog>| {
        let store = Box::new(OnDisk(Arc::clone(&disk)));
        Destager::start(Arc::clone(log), store, DestageOptions::default()).unwrap()
    };
    let log = Arc::new(TailLog::create(parts(&medium), &CreateOptions::default()).unwrap());
    let destager = begin(&log);
    log.append_commit(b"settled").unwrap();
    destager.drain().unwrap();
    disk.lock().unwrap().fails = true;
    let kept = log.append_commit(b"acknowledged").unwrap();
    let failed = destager.drain().unwrap_err();
    assert!(matches!(failed, LogError::Destaging { .. }), "{failed}");
    drop((destager, log));
    // The next program, on a system that never lost its power.
    let log = Arc::new(open(&medium));
    let destager = begin(&log);
    destager.drain().unwrap();
    assert!(log.start_lsn() > kept, "the tail has forgotten the record");
    drop((destager, log));
    disk.lock().unwrap().lose_power();
    let mut archive = Archive::open(Box::new(OnDisk(Arc::clone(&disk))), None).unwrap();
    let start = archive.start();
    let found: Vec<_> = archive.replay(start).map(Result::unwrap).collect();
    assert_eq!(found[1], (kept, b"acknowledged".to_vec()));
}

#[test]
fn what_an_opening_found_is_on_the_disk_although_an_earlier_flush_failed() {
    let disk = Disk::of(8192 + 4096);
    let member = || -> Vec<Box<dyn Store>> { vec![Box::new(OnDisk(Arc::clone(&disk)))] };
    let log = TailLog::create(member(), &CreateOptions::default()).unwrap();
    log.append_commit(b"acknowledged").unwrap();
    disk.lock().unwrap().fails = true;
    log.append_commit(b"not acknowledged").unwrap_err();
    drop(log);
    let log = TailLog::open(member(), &OpenOptions::default()).unwrap();
    let found = records(&log);
    assert_eq!(found.len(), 2);
    log.append_commit(b"behind them").unwrap();
    drop(log);
    disk.lock().unwrap().lose_power();
    let log = TailLog::open(member(), &OpenOptions::default()).unwrap();
    assert_eq!(records(&log)[..2], found);
    assert_eq!(records(&log).len(), 3);
}
