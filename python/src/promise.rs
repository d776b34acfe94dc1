//! A future of asyncio that a task of the runtime settles.
//!
//! ```text
//!   event loop: create_future() ---- await ----------------------------> result
//!   runtime:    spawn(work) ... done --- call_soon_threadsafe(settle) ----'
//! ```
//!
//! A future that its caller has cancelled is left alone; the work goes on to its end.

use pyo3::prelude::*;

use crate::errors::{self, Fault};
use crate::runtime;

/// Starts `work`, and gives the future that `make` of its outcome will settle.
pub(crate) fn promise<'py, T: Send + 'static>(
    py: Python<'py>,
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    make: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    promise_of(py, || work, make)
}

/// As [`promise`], of work that `begin` begins before the call returns: tasks of the runtime run in no order.
pub(crate) fn promise_of<'py, T: Send + 'static, W>(
    py: Python<'py>,
    begin: impl FnOnce() -> W,
    make: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    W: Future<Output = Result<T, Fault>> + Send + 'static,
{
    let runtime = runtime::shared()?;
    let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
    let future = event_loop.call_method0("create_future")?;
    let promise =
        Promise { event_loop: event_loop.unbind(), future: Some(future.clone().unbind()) };
    let work = begin();
    runtime.spawn(async move {
        let outcome = work.await;
        promise.keep(|py| match outcome {
            Ok(value) => make(py, value),
            Err(fault) => Err(fault.raise(py)),
        });
    });
    Ok(future)
}

/// A future that is not settled yet.
struct Promise {
    event_loop: Py<PyAny>,
    future: Option<Py<PyAny>>,
}

impl Promise {
    fn keep(mut self, outcome: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>) {
        // An interpreter that is ending awaits nothing.
        runtime::attach(|py| self.settle(py, outcome(py)));
    }

    fn settle(&mut self, py: Python<'_>, outcome: PyResult<Py<PyAny>>) {
        let Some(future) = self.future.take() else { return };
        let arguments = match outcome {
            Ok(value) => (future, value, py.None()),
            Err(error) => (future, py.None(), error.into_value(py).into_any()),
        };
        // A loop that was closed awaits nothing either.
        let settled = wrap_pyfunction!(settle, py).and_then(|settle| {
            let (future, value, error) = arguments;
            let arguments = (settle, future, value, error);
            self.event_loop.call_method1(py, "call_soon_threadsafe", arguments)
        });
        drop(settled);
    }
}

impl Drop for Promise {
    /// The task ended before its work: a panic.
    fn drop(&mut self) {
        if self.future.is_some() {
            runtime::attach(|py| self.settle(py, Err(errors::internal())));
        }
    }
}

/// Runs in the event loop.
#[pyfunction]
fn settle(
    future: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    error: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if future.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    if error.is_none() {
        future.call_method1("set_result", (value,)).map(drop)
    } else {
        future.call_method1("set_exception", (error,)).map(drop)
    }
}
