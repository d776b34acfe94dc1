//! Panics: a bug ends only the connection or task that met it; panics are counted, and no client waits
//! for ever.
//!
//! The program's panic hook prints the panic's message and place. This module does the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use crate::service::Core;
use crate::state::Link;

impl Core {
    /// Counts a panic that was caught.
    pub(crate) fn note_panic(&self, place: &'static str) {
        self.counters.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(place, "a bug: this panicked, and is given up");
    }
}

/// Held by a task that owes a connection an answer: if the task panics the connection ends, because its
/// client would wait for ever.
#[derive(Debug)]
pub(crate) struct Owed(Arc<Link>);

impl Owed {
    pub(crate) fn over(link: &Arc<Link>) -> Self {
        Self(Arc::clone(link))
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.core.note_panic("a request");
            self.0.close();
        }
    }
}

/// Runs work that must go on as long as the server, again after a panic.
pub(crate) fn keep_going<F>(
    core: &Arc<Core>,
    place: &'static str,
    work: impl Fn() -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = core.runtime.clone();
    let core = Arc::downgrade(core);
    runtime.clone().spawn(async move {
        while let Err(ended) = runtime.spawn(work()).await
            && ended.is_panic()
            && let Some(core) = core.upgrade()
        {
            core.note_panic(place);
        }
    });
}
