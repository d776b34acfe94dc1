//! Panics: a bug ends only the connection or task that met it; panics are counted, and no client waits
//! for ever.
//!
//! The program's panic hook prints the panic's message and place. This module does the rest.

use std::sync::Arc;
use std::thread;

use tokio::runtime::Handle;

use crate::connections::{Connections, Link};

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
            self.0.note_panic("a request");
            self.0.close();
        }
    }
}

/// Runs work that must go on as long as the server, again after a panic.
pub(crate) fn keep_going<F>(
    (runtime, connections): (&Handle, &Arc<Connections>),
    place: &'static str,
    work: impl Fn() -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime.clone();
    let connections = Arc::downgrade(connections);
    runtime.clone().spawn(async move {
        while let Err(ended) = runtime.spawn(work()).await
            && ended.is_panic()
            && let Some(connections) = connections.upgrade()
        {
            connections.counters.note_panic(place);
        }
    });
}
