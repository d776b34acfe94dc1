//! The thread that writes dirty pages back, and brings files to their end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::pool::Pool;
use crate::registry;

/// How the thread is woken.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: OnceLock<Thread>,
    /// Somebody waits for a frame.
    is_wanted: AtomicBool,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { thread: OnceLock::new(), is_wanted: AtomicBool::new(false) }
    }

    pub(crate) fn start(pool: &Arc<Pool>) -> io::Result<()> {
        let weak = Arc::downgrade(pool);
        let builder = thread::Builder::new().name("flash-writer".to_owned());
        let handle = builder.spawn(move || run(&weak))?;
        let _ = pool.writer.thread.set(handle.thread().clone());
        Ok(())
    }

    /// Wakes the thread. Waits for nothing.
    pub(crate) fn ring(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Writer {
    /// Wakes the thread to write what is dirty, whether it is old or not.
    pub(crate) fn ring_now(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.ring();
    }
}

fn run(pool: &Weak<Pool>) {
    let mut is_due = false;
    loop {
        let Some(pool) = pool.upgrade() else { return };
        registry::retire_unused(&pool);
        let is_late = pool.dirty() > pool.dirty_start();
        if pool.writer.is_wanted.swap(false, Ordering::AcqRel) || is_late || is_due {
            write_back(&pool);
        }
        is_due = false;
        let (dirty, is_late) = (pool.dirty(), pool.dirty() > pool.dirty_start());
        // Not held while it sleeps: the last other holder ends this thread.
        drop(pool);
        if is_late {
            continue;
        }
        if dirty == 0 {
            thread::park();
        } else {
            thread::park_timeout(AGE);
            is_due = true;
        }
    }
}

fn write_back(pool: &Pool) {
    for file in pool.files() {
        // Whoever asks for these bytes to be durable learns of a failure: the file remembers it.
        let _ = file.write_back(0..u64::MAX);
    }
}

/// Bytes that nobody commits reach their file within about this time.
const AGE: Duration = Duration::from_secs(1);
