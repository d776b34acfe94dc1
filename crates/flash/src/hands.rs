//! Batches where io_uring is refused, as in many containers: threads that carry out transfers side by side.
//!
//! The threads start with the first batch, and end with the last user of them.

use std::fs::File;
use std::io;
use std::mem;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::device::{Device, Transfer};

/// See the module.
#[derive(Debug)]
pub(crate) struct Hands {
    jobs: Mutex<Sender<Job>>,
}

#[derive(Debug)]
struct Job {
    index: usize,
    transfer: Transfer,
    device: Arc<dyn Device>,
    done: Sender<(usize, Transfer)>,
}

impl Hands {
    pub(crate) fn new() -> io::Result<Self> {
        let (jobs, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..THREADS {
            let waiting = Arc::clone(&waiting);
            thread::Builder::new().name("flash-hand".to_owned()).spawn(move || work(&waiting))?;
        }
        Ok(Self { jobs: Mutex::new(jobs) })
    }

    /// Carries out a batch on a device whose `read` and `write` are plain calls.
    pub(crate) fn run(&self, device: &Arc<dyn Device>, batch: &mut [Transfer]) {
        let (done, results) = channel();
        let mut sent = 0;
        for (index, place) in batch.iter_mut().enumerate() {
            // The transfer travels to a thread and back: no thread has memory that is not its own.
            let Ok(empty) = Transfer::empty() else {
                place.carry_out(&**device);
                continue;
            };
            let transfer = mem::replace(place, empty);
            let job = Job { index, transfer, device: Arc::clone(device), done: done.clone() };
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            if jobs.send(job).is_ok() {
                sent += 1;
            }
        }
        drop(done);
        for (index, transfer) in results.iter().take(sent) {
            if let Some(place) = batch.get_mut(index) {
                *place = transfer;
            }
        }
    }
}

fn work(waiting: &Mutex<Receiver<Job>>) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { index, mut transfer, device, done }) = job else { return };
        transfer.carry_out(&*device);
        let _ = done.send((index, transfer));
    }
}

/// A file as the threads see it.
#[derive(Debug)]
pub(crate) struct PlainCalls(pub(crate) Arc<File>);

impl Device for PlainCalls {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(&*self.0, out, offset)?)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&*self.0, bytes, offset)?)
    }

    // The threads read and write, and nothing else.
    fn persist(&self) -> Result<(), pmem::MediumError> {
        Err(pmem::MediumError::MediaIo(libc::ENOSYS))
    }

    fn is_poisoned(&self) -> bool {
        false
    }

    fn poison(&self) {}
}

/// As many transfers are under way at once: the depth that a small flash drive needs for its full speed.
const THREADS: usize = 8;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_batch_by_threads_gives_every_transfer_its_own_bytes() {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        let bytes: Vec<u8> = (0..20_u8).flat_map(|page| [page; 4096]).collect();
        file.write_all(&bytes).unwrap();
        let device: Arc<dyn Device> = Arc::new(PlainCalls(Arc::new(file)));
        let hands = Hands::new().unwrap();
        let mut batch: Vec<_> = (0..20).map(|_| Transfer::new().unwrap()).collect();
        for (page, transfer) in (0..).zip(&mut batch) {
            transfer.set(page * 4096, 4096, false);
        }
        hands.run(&device, &mut batch);
        for (page, transfer) in (0..).zip(&mut batch) {
            assert_eq!(*transfer.result.as_ref().unwrap(), 4096);
            assert!(transfer.bytes().iter().all(|byte| *byte == page));
        }
    }
}
