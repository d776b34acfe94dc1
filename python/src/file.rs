//! An open file.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::{ClientError, RangeLock};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tokio::sync::oneshot;

use crate::arguments::stat_dict;
use crate::behind;
use crate::buffers::{Source, Target};
use crate::errors::{self, Fault};
use crate::runtime::{self, Kept, block};

/// An open file, read and written by offset. `Client.open` makes it; `landfast.open` has the forms of Python's files.
#[pyclass(frozen, module = "landfast")]
#[derive(Debug)]
pub(crate) struct File {
    file: Kept<Arc<client::File>>,
    #[pyo3(get)]
    path: String,
}

#[pymethods]
impl File {
    /// Up to `length` bytes at `offset`: fewer only at the end of the file.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.inner(py)?;
        let mut got = 0;
        let bytes = PyBytes::new_with(py, length, |out| {
            let read = async { file.read_at(offset, out).await.map_err(Fault::client(&self.path)) };
            got = block(py, read)?;
            Ok(())
        })?;
        if got == length { Ok(bytes) } else { Ok(PyBytes::new(py, &bytes.as_bytes()[..got])) }
    }

    /// Reads into a writable buffer, and gives the number of bytes.
    fn readinto_at(
        &self,
        py: Python<'_>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let (file, mut target) = (self.inner(py)?, Target::of(buffer)?);
        let out = target.bytes();
        block(py, async { file.read_at(offset, out).await.map_err(Fault::client(&self.path)) })
    }

    /// Writes all bytes of a buffer at `offset`. Nothing is durable before `flush`.
    fn write_at(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (file, source) = (self.inner(py)?, Source::of(data)?);
        let bytes = source.bytes();
        let written =
            async { file.write_at(offset, bytes).await.map_err(Fault::client(&self.path)) };
        block(py, written)?;
        Ok(bytes.len())
    }

    /// Writes all bytes of a buffer at the end of the file, and gives the offset where they are. Of several programs that append
    /// so, none writes where another does: each locks a byte far behind the file meanwhile. What a signal's handler raises
    /// (Ctrl-C) ends the wait for the lock; an append that writes ends first, and the exception comes behind its return.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.append_all(py, data).map(|(at, _)| at)
    }

    /// Returns when every write that was answered before is durable, in the class of the server's medium.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.inner(py)?;
        block(py, async { file.flush().await.map_err(Fault::client(&self.path)) })
    }

    /// Size, type and times now.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let file = self.inner(py)?;
        let stat = block(py, async { file.stat().await.map_err(Fault::client(&self.path)) })?;
        stat_dict(py, &stat)
    }

    /// The length now.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        let file = self.inner(py)?;
        let stat = block(py, async { file.stat().await.map_err(Fault::client(&self.path)) })?;
        Ok(stat.len)
    }

    /// Makes the file shorter, or longer by zeros.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let file = self.inner(py)?;
        block(py, async { file.set_len(size).await.map_err(Fault::client(&self.path)) })
    }

    /// Closes the file. It makes nothing durable.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(file) = self.file.take(py)? else { return Ok(()) };
        // While another call uses the file, the last of them closes it.
        let Some(file) = Arc::into_inner(file) else { return Ok(()) };
        block(py, async { file.close().await.map_err(Fault::client(&self.path)) })
    }

    /// Whether the file was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.file.is_taken(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<landfast.File {}>", self.path)
    }
}

/// Appends, in a task of its own: a request that was sent takes effect although its caller has gone, so whoever drops it in the
/// middle would leave a lock that nobody gives back, or give back the lock before the write that it guards has ended.
async fn append(
    file: Arc<client::File>,
    bytes: Vec<u8>,
    (has_begun, outcome): (Arc<OnceLock<bool>>, Outcome),
) {
    let mut pause = APPEND_PAUSE_MIN;
    loop {
        match file.lock(APPEND_LOCK, RangeLock::Exclusive).await {
            Ok(true) => break,
            Ok(false) if outcome.is_closed() => return,
            Ok(false) => tokio::time::sleep(pause).await,
            Err(error) => return drop(outcome.send(Err(error))),
        }
        pause = (pause * 2).min(APPEND_PAUSE_MAX);
    }
    // Whoever stopped waiting for the lock will write the bytes again, or never.
    let writes = has_begun.set(true).is_ok();
    let written = if writes { write_at_end(&file, &bytes).await } else { Ok(0) };
    let unlocked = file.lock(APPEND_LOCK, RangeLock::Unlock).await;
    // Before the caller goes on: the last that holds the file closes it.
    drop(file);
    let _ = outcome.send(written.and_then(|end| unlocked.map(|_| end)));
}

async fn write_at_end(file: &client::File, bytes: &[u8]) -> Result<u64, ClientError> {
    let end = file.stat().await?.len;
    file.write_at(end, bytes).await?;
    Ok(end)
}

/// Tells the caller of an append, if there still is one.
type Outcome = oneshot::Sender<Result<u64, ClientError>>;

/// The byte that stands for the end of a file: no file is that long, and every server can lock it.
const APPEND_LOCK: Range<u64> = 0x7fff_ffff_ffff_fffe..0x7fff_ffff_ffff_ffff;
const APPEND_PAUSE_MIN: Duration = Duration::from_millis(1);
const APPEND_PAUSE_MAX: Duration = Duration::from_millis(16);

impl File {
    pub(crate) fn new(file: client::File, path: &str) -> Self {
        Self { file: Kept::new(Arc::new(file)), path: path.to_owned() }
    }

    fn inner(&self, py: Python<'_>) -> PyResult<Arc<client::File>> {
        self.file.with(py, |file| Arc::clone(file))
    }

    /// Where the bytes are, and how many.
    fn append_all(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<(u64, usize)> {
        let (file, source) = (self.inner(py)?, Source::of(data)?);
        // Copied: a caller that a signal takes away takes its buffer along, and the append goes on without them.
        let bytes = source.bytes().to_vec();
        let len = bytes.len();
        let runtime = runtime::shared()?;
        let (outcome, mut answer) = oneshot::channel();
        let has_begun = Arc::new(OnceLock::new());
        runtime.spawn(append(file, bytes, (Arc::clone(&has_begun), outcome)));
        let (appended, raised) = match block(py, async { Ok((&mut answer).await.ok()) }) {
            Ok(appended) => (appended, None),
            // The first to say decides whether it writes.
            Err(raised) if has_begun.set(false).is_ok() => return Err(raised),
            // What other signals raise meanwhile is Python's to keep.
            Err(raised) => (py.detach(|| answer.blocking_recv().ok()), Some(raised)),
        };
        let appended = appended.ok_or_else(errors::internal);
        let appended = appended
            .and_then(|ended| ended.map_err(|error| Fault::client(&self.path)(error).raise(py)));
        match (appended, raised) {
            (Ok(at), Some(raised)) => behind::raise(py, raised).map(|()| (at, len)),
            (Err(failed), Some(raised)) => {
                raised.set_context(py, Some(failed));
                Err(raised)
            }
            (appended, None) => appended.map(|at| (at, len)),
        }
    }
}

/// `write` of `landfast.raw.RawFile`. No frame of Python lies between an append and Python's buffer: an exception that came
/// there would leave the buffer full of what is in the file already, and its close would write that once more.
#[pyfunction]
pub(crate) fn write_raw(raw: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = raw.py();
    let appends = raw.call_method0("_begin_write")?.extract::<bool>()?;
    let file = raw.getattr("_file")?.cast_into::<File>()?;
    let written = if appends {
        file.get().append_all(py, data)
    } else {
        let at = raw.getattr("_position")?.extract()?;
        file.get().write_at(py, at, data).map(|written| (at, written))
    };
    // A sync of another thread may have begun before this was sent.
    raw.setattr("_is_dirty", true)?;
    let (at, written) = written?;
    let written_to = u64::try_from(written).map_or(u64::MAX, |written| at.saturating_add(written));
    raw.setattr("_position", written_to)?;
    Ok(written)
}
