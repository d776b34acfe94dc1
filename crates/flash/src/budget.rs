//! The budget of a server, whose memory is taken when the first file needs it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::pool::{Pool, PoolError};

/// A [`Pool`] that is made by its first user: a server that serves no file in flash pays nothing for it.
#[derive(Debug)]
pub struct Budget {
    bytes: u64,
    pool: Mutex<Option<Arc<Pool>>>,
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, pool: Mutex::new(None) })
    }

    /// An eighth of the memory that this process may use.
    pub fn of_machine() -> Arc<Self> {
        let info = rustix::system::sysinfo();
        let memory = u64::from(info.mem_unit).saturating_mul(info.totalram);
        // A container's limit; without one the file says "max".
        let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max");
        let limit = limit.ok().and_then(|text| text.trim().parse::<u64>().ok());
        let bytes = memory.min(limit.unwrap_or(u64::MAX)) / 8;
        Self::new(bytes.max(SMALLEST))
    }

    /// The budget in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pool, which the first call makes.
    ///
    /// # Errors
    ///
    /// As [`Pool::new`].
    pub fn pool(&self) -> Result<Arc<Pool>, PoolError> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let fresh = Pool::new(self.bytes)?;
        *pool = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    /// The pool, if a file has needed it.
    pub fn made(&self) -> Option<Arc<Pool>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where the memory of the machine cannot be told.
const SMALLEST: u64 = 16 << 20;
