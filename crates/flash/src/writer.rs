//! The threads of a pool: one writes dirty pages back and brings files to their end, one reads ahead. Both end with the pool.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::pool::{Pool, PoolError};
use crate::registry;

impl Pool {
    /// A pool that takes at most `budget` bytes, and the threads that read ahead and write back.
    ///
    /// # Errors
    ///
    /// The budget is too small or too large, or the process can have no more memory or threads.
    pub fn new(budget: u64) -> Result<Arc<Self>, PoolError> {
        let pool = Arc::new(Self::without_threads(budget)?);
        start(&pool, "flash-writer", |pool| &pool.writer, write)?;
        start(&pool, "flash-reader", |pool| &pool.ahead.bell, read_ahead)?;
        Ok(pool)
    }
}

fn start(
    pool: &Arc<Pool>,
    name: &str,
    bell: fn(&Pool) -> &Bell,
    run: fn(&Weak<Pool>),
) -> Result<(), PoolError> {
    let weak = Arc::downgrade(pool);
    let builder = thread::Builder::new().name(name.to_owned());
    let handle = builder.spawn(move || run(&weak)).map_err(|_| PoolError::MediaThread)?;
    bell(pool).belongs_to(handle.thread());
    Ok(())
}

fn read_ahead(pool: &Weak<Pool>) {
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let asked: Vec<(u32, u64)> = pool.ahead.take().collect();
        for (file, page) in &asked {
            if let Some(file) = pool.file(*file) {
                file.read_ahead(*page);
            }
        }
        drop(pool);
        if asked.is_empty() {
            thread::park();
        }
    }
}

fn write(pool: &Weak<Pool>) {
    let mut dirty_since = None;
    loop {
        let Some(pool) = pool.upgrade() else { return };
        registry::retire_unused(&pool);
        let is_late = pool.dirty() > pool.dirty_start();
        let is_due = dirty_since.is_some_and(|since: Instant| since.elapsed() >= AGE);
        if pool.writer.take_urgent() || is_late || is_due {
            write_back(&pool);
            dirty_since = None;
        }
        let (dirty, is_late) = (pool.dirty(), pool.dirty() > pool.dirty_start());
        // Not held while it sleeps: the last other holder ends this thread.
        drop(pool);
        if is_late {
            continue;
        }
        if dirty == 0 {
            dirty_since = None;
            thread::park();
        } else {
            let since = *dirty_since.get_or_insert_with(Instant::now);
            thread::park_timeout(AGE.saturating_sub(since.elapsed()));
        }
    }
}

fn write_back(pool: &Pool) {
    for file in pool.files() {
        file.write_back_old();
    }
}

/// Bytes that nobody commits reach their file within about this time.
const AGE: Duration = Duration::from_secs(1);
