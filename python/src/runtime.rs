//! The runtime that all clients of a process share, and what a fork does to it.
//!
//! A child of a fork has none of the threads, and shares the sockets. So a client, file or region that was opened before the
//! fork is refused in the child, and forgotten there instead of closed: its last words would go into the parent's stream.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::errors::{self, Fault};

/// Has `os.fork` count its children, and the end of the interpreter keep the runtime out of it.
pub(crate) fn watch(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let forked = wrap_pyfunction!(in_child, module)?;
    let arguments = PyDict::new(module.py());
    arguments.set_item("after_in_child", forked)?;
    module.py().import("os")?.call_method("register_at_fork", (), Some(&arguments))?;
    let ends = wrap_pyfunction!(at_exit, module)?;
    module.py().import("atexit")?.call_method1("register", (ends,)).map(drop)
}

/// Calls `act` in the interpreter from a thread of the runtime; none if the interpreter is ending. A thread that waits for the
/// interpreter, or is in it, while it ends would be ended by it in the middle of our frames, which ends the process.
pub(crate) fn attach<R>(act: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // No waiting: whoever closes the gate waits for those who are through it.
    let gate = gate().try_read().ok()?;
    if *gate == Gate::Closed { None } else { Python::try_attach(act) }
}

#[pyfunction]
fn at_exit(py: Python<'_>) {
    py.detach(|| *gate().write().unwrap_or_else(PoisonError::into_inner) = Gate::Closed);
}

/// Memory of a Python object in the hands of a task: it is given back in the interpreter, or never.
#[derive(Debug)]
pub(crate) struct Lent<T>(Option<T>);

impl<T> Lent<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// The memory.
    pub(crate) fn held(&mut self) -> &mut T {
        self.0.as_mut().expect("taken by the drop alone")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let mut value = self.0.take();
        if attach(|_| drop(value.take())).is_none() {
            std::mem::forget(value);
        }
    }
}

#[pyfunction]
fn in_child() {
    // From here on the child has a gate and a place for a runtime of its own: those of the parent may be held by threads that
    // the child does not have, for ever.
    let forks = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    let is_shared = usize::try_from(forks).is_ok_and(|forks| forks >= GENERATIONS);
    if is_shared && let Ok(mut slot) = RUNTIMES[generation()].try_lock() {
        std::mem::forget(slot.take());
    }
}

/// The runtime of this process.
pub(crate) fn shared() -> PyResult<Arc<Runtime>> {
    let mut slot = RUNTIMES[generation()].lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*slot {
        return Ok(Arc::clone(runtime));
    }
    let mut builder = Builder::new_multi_thread();
    let started = builder.worker_threads(1).thread_name("landfast-smb").enable_all().build();
    let runtime = Arc::new(started.map_err(|error| errors::host(&error))?);
    *slot = Some(Arc::clone(&runtime));
    Ok(runtime)
}

/// Waits for a call without the GIL, and lets signals of Python through meanwhile.
pub(crate) fn block<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = Result<T, Fault>> + Send,
) -> PyResult<T> {
    let runtime = shared()?;
    let mut work = std::pin::pin!(work);
    loop {
        let step = py.detach(|| {
            let turn = async { timeout(SIGNALS, work.as_mut()).await };
            runtime.block_on(turn)
        });
        match step {
            Ok(outcome) => return outcome.map_err(|fault| fault.raise(py)),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Something that must not be used, or closed, in a child of the process that opened it.
#[derive(Debug)]
pub(crate) struct Kept<T: Send> {
    value: Mutex<Option<ManuallyDrop<T>>>,
    forks: u64,
}

impl<T: Send> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        let forks = FORKS.load(Ordering::Relaxed);
        Self { value: Mutex::new(Some(ManuallyDrop::new(value))), forks }
    }

    fn is_of_parent(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Calls `act` with it. Waits without the GIL for another thread that uses it.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut T) -> R + Send,
    ) -> PyResult<R> {
        if self.is_of_parent() {
            return Err(errors::forked());
        }
        let done = py.detach(|| {
            let mut slot = self.value.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_deref_mut().map(act)
        });
        done.ok_or_else(errors::closed)
    }

    /// Takes it out; none if somebody has taken it before.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        if self.is_of_parent() {
            return Err(errors::forked());
        }
        let taken = py.detach(|| self.value.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(taken.map(ManuallyDrop::into_inner))
    }

    /// Whether it was taken out.
    pub(crate) fn is_taken(&self, py: Python<'_>) -> bool {
        // In a child of a fork nothing of the parent is open, and a thread that is not there may have the lock.
        self.is_of_parent()
            || py.detach(|| self.value.lock().unwrap_or_else(PoisonError::into_inner).is_none())
    }
}

impl<T: Send> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.is_of_parent() {
            return;
        }
        let slot = self.value.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(value) = slot.take() else { return };
        // Its end may wait for the runtime, whose thread may wait for the GIL.
        let mut value = Some(ManuallyDrop::into_inner(value));
        let end = |py: Python<'_>| py.detach(|| drop(value.take()));
        if Python::try_attach(end).is_none() {
            // The interpreter is ending, and the connection with the process.
            std::mem::forget(value);
        }
    }
}

/// Whether threads of the runtime may enter the interpreter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gate {
    Open,
    Closed,
}

/// The place of this process in the tables below: a child of a fork has the next one.
fn generation() -> usize {
    usize::try_from(FORKS.load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(GENERATIONS - 1)
}

fn gate() -> &'static RwLock<Gate> {
    &GATES[generation()]
}

/// Children of children that have a gate and a runtime of their own; those of a higher rank share the last place.
const GENERATIONS: usize = 16;
static GATES: [RwLock<Gate>; GENERATIONS] = [const { RwLock::new(Gate::Open) }; GENERATIONS];
static RUNTIMES: [Mutex<Option<Arc<Runtime>>>; GENERATIONS] =
    [const { Mutex::new(None) }; GENERATIONS];
/// How many forks lie between this process and the first that loaded the module.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// How often a call that waits looks for signals, such as Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(100);
