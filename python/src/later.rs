//! The forms for asyncio: each call gives a future of the running event loop.
//!
//! Nothing here waits: the runtime of [`runtime`](crate::runtime) carries out the calls, and a thread of its own drives each
//! region. A future that is cancelled cancels nothing that was handed over.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::RegionError;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3::{IntoPyObjectExt, PyClass};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::arguments::{address, entry_dict, mapping, opening, stat_dict};
use crate::buffers::{Source, Target};
use crate::errors::{self, Fault};
use crate::promise::{promise, promise_of};
use crate::region::takes_commits;
use crate::runtime::{Kept, Lent};

/// A session on one share: `await landfast.aio.connect(url)`.
#[pyclass(frozen, module = "landfast.aio")]
#[derive(Debug)]
pub(crate) struct AsyncClient {
    client: Kept<client::Client>,
    #[pyo3(get)]
    url: String,
}

#[pymethods]
impl AsyncClient {
    /// See `Client`.
    #[staticmethod]
    #[pyo3(signature = (url, user = None, password = None))]
    fn connect<'py>(
        py: Python<'py>,
        url: &str,
        user: Option<String>,
        password: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (address, options) = address(url, user, password)?;
        let url = address.to_string();
        let named = url.clone();
        let connecting = async move {
            client::Client::connect(&address, &options).await.map_err(Fault::client(&named))
        };
        promise(py, connecting, move |py, client| {
            object(py, Self { client: Kept::new(client), url })
        })
    }

    /// See `Client.open`.
    #[pyo3(signature = (path, mode = "rb"))]
    fn open<'py>(&self, py: Python<'py>, path: String, mode: &str) -> PyResult<Bound<'py, PyAny>> {
        let options = opening(mode)?;
        let client = self.inner(py)?;
        let named = path.clone();
        let opening =
            async move { client.open(&path, &options).await.map_err(Fault::client(&path)) };
        promise(py, opening, move |py, file| object(py, AsyncFile::new(file, named)))
    }

    /// See `Client.map`.
    #[pyo3(signature = (path, offset = 0, length = None, *, durability = "storage", accept_emulated = false,
                        outstanding = 256, unconfirmed = 4 << 20, timeout = 30.0, same_host = true, provider = "soft"))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn map<'py>(
        &self,
        py: Python<'py>,
        path: String,
        offset: u64,
        length: Option<u64>,
        durability: &str,
        accept_emulated: bool,
        outstanding: usize,
        unconfirmed: usize,
        timeout: f64,
        same_host: bool,
        provider: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (options, settings) = mapping(
            durability,
            accept_emulated,
            outstanding,
            unconfirmed,
            timeout,
            same_host,
            provider,
        )?;
        let end = match length {
            Some(length) => Some(offset.checked_add(length).ok_or_else(errors::beyond)?),
            None => None,
        };
        let client = self.inner(py)?;
        let named = path.clone();
        let work = async move {
            let end = match end {
                Some(end) => end,
                None => client.stat(&path).await.map_err(Fault::client(&path))?.len,
            };
            client.map(&path, &options, offset..end, settings).await.map_err(Fault::client(&path))
        };
        promise(py, work, move |py, region| object(py, AsyncRegion::new(region, named)))
    }

    /// See `Client.stat`.
    fn stat<'py>(&self, py: Python<'py>, path: String) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner(py)?;
        let work = async move { client.stat(&path).await.map_err(Fault::client(&path)) };
        promise(py, work, |py, stat| Ok(stat_dict(py, &stat)?.into_any().unbind()))
    }

    /// See `Client.list`.
    #[pyo3(signature = (path = String::new()))]
    fn list<'py>(&self, py: Python<'py>, path: String) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner(py)?;
        let work = async move { client.list(&path).await.map_err(Fault::client(&path)) };
        promise(py, work, |py, found| {
            let list = PyList::empty(py);
            for entry in found {
                list.append(entry_dict(py, &entry)?)?;
            }
            Ok(list.into_any().unbind())
        })
    }

    /// See `Client.mkdir`.
    fn mkdir<'py>(&self, py: Python<'py>, path: String) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner(py)?;
        let work =
            async move { client.create_directory(&path).await.map_err(Fault::client(&path)) };
        promise(py, work, nothing)
    }

    /// See `Client.remove`.
    fn remove<'py>(&self, py: Python<'py>, path: String) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner(py)?;
        let work = async move { client.delete(&path).await.map_err(Fault::client(&path)) };
        promise(py, work, nothing)
    }

    /// See `Client.rename`.
    #[pyo3(signature = (source, target, *, replace = false, durable = false))]
    fn rename<'py>(
        &self,
        py: Python<'py>,
        source: String,
        target: String,
        replace: bool,
        durable: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.inner(py)?;
        let work = async move {
            let renamed = match durable {
                true => client.rename_durably(&source, &target, replace).await,
                false => client.rename(&source, &target, replace).await,
            };
            renamed.map_err(Fault::client(&source))
        };
        promise(py, work, nothing)
    }

    /// Ends the session. Its files and regions go on until they are closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.client.take(py)?);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<landfast.aio.Client {}>", self.url)
    }
}

impl AsyncClient {
    fn inner(&self, py: Python<'_>) -> PyResult<client::Client> {
        self.client.with(py, |client| client.clone())
    }
}

/// An open file. Calls that are under way at a time have no order: await a write before the flush that is to cover it.
#[pyclass(frozen, module = "landfast.aio")]
#[derive(Debug)]
pub(crate) struct AsyncFile {
    file: Kept<Arc<client::File>>,
    calls: Arc<RwLock<()>>,
    #[pyo3(get)]
    path: String,
}

#[pymethods]
impl AsyncFile {
    /// See `File.read_at`.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (file, path) = self.inner(py)?;
        // As the form that waits does: a length that no memory can hold is an error of this call.
        let mut bytes: Vec<u8> = Vec::new();
        let room = bytes.try_reserve_exact(length);
        room.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        let work = async move {
            bytes.resize(length, 0);
            let got = file.read_at(offset, &mut bytes).await.map_err(Fault::client(&path))?;
            bytes.truncate(got);
            Ok(bytes)
        };
        promise(py, work, |py, bytes| Ok(PyBytes::new(py, &bytes).into_any().unbind()))
    }

    /// See `File.readinto_at`. The buffer is in use until the future is done, cancelled or not.
    fn readinto_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ((file, path), target) = (self.inner(py)?, Target::of(buffer)?);
        let mut target = Lent::new(target);
        let work = async move {
            let read = file.read_at(offset, target.held().bytes()).await;
            // Given back before the caller goes on.
            drop(target);
            read.map_err(Fault::client(&path))
        };
        promise(py, work, |py, got| got.into_py_any(py))
    }

    /// See `File.write_at`. The buffer is in use until the future is done, cancelled or not.
    fn write_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ((file, path), source) = (self.inner(py)?, Source::of(data)?);
        let len = source.bytes().len();
        let mut source = Lent::new(source);
        let work = async move {
            let written = file.write_at(offset, source.held().bytes()).await;
            // Given back before the caller goes on.
            drop(source);
            written.map_err(Fault::client(&path))
        };
        promise(py, work, move |py, ()| object_of(py, len))
    }

    /// See `File.flush`.
    fn flush<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (file, path) = self.inner(py)?;
        let work = async move { file.flush().await.map_err(Fault::client(&path)) };
        promise(py, work, nothing)
    }

    /// See `File.size`.
    fn size<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (file, path) = self.inner(py)?;
        let work = async move { file.stat().await.map_err(Fault::client(&path)) };
        promise(py, work, |py, stat| object_of(py, stat.len))
    }

    /// See `File.truncate`.
    fn truncate<'py>(&self, py: Python<'py>, size: u64) -> PyResult<Bound<'py, PyAny>> {
        let (file, path) = self.inner(py)?;
        let work = async move { file.set_len(size).await.map_err(Fault::client(&path)) };
        promise(py, work, nothing)
    }

    /// See `File.close`. It waits for the calls that were made before it.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let file = self.file.take(py)?;
        let (path, calls) = (self.path.clone(), Arc::clone(&self.calls));
        let work = async move {
            // None comes any more.
            let _ended = calls.write().await;
            match file.and_then(Arc::into_inner) {
                Some(file) => file.close().await.map_err(Fault::client(&path)),
                None => Ok(()),
            }
        };
        promise(py, work, nothing)
    }
}

impl AsyncFile {
    fn new(file: client::File, path: String) -> Self {
        Self { file: Kept::new(Arc::new(file)), calls: Arc::default(), path }
    }

    fn inner(&self, py: Python<'_>) -> PyResult<(Used, String)> {
        let file = self.file.with(py, |file| Arc::clone(file))?;
        // Only a close excludes calls, and it has taken the file.
        let call = Arc::clone(&self.calls).try_read_owned().map_err(|_| errors::closed())?;
        Ok((Used { file, _call: call }, self.path.clone()))
    }
}

/// A file in the hands of a call, which lets go of the file before it says so.
#[derive(Debug)]
struct Used {
    file: Arc<client::File>,
    _call: OwnedRwLockReadGuard<()>,
}

impl Deref for Used {
    type Target = client::File;

    fn deref(&self) -> &client::File {
        &self.file
    }
}

/// A mapped region that tasks share. Its calls are carried out in the order in which they were made, awaited or not. A read
/// sees every write before it, and may see some that were made behind it and before it was done.
#[pyclass(frozen, module = "landfast.aio")]
#[derive(Debug)]
pub(crate) struct AsyncRegion {
    region: Kept<client::AsyncRegion>,
    /// Bytes were handed over that nothing has shown since.
    is_dirty: AtomicBool,
    #[pyo3(get)]
    path: String,
    length: u64,
}

#[pymethods]
impl AsyncRegion {
    /// See `Region.write`. The bytes are copied by the call.
    fn write<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = Source::of(data)?.bytes().to_vec();
        let region = self.changing(py)?;
        self.promise(py, || region.write(offset, bytes), nothing)
    }

    /// See `Region.commit`.
    #[pyo3(signature = (offset = 0, length = None))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let length = length.unwrap_or_else(|| self.length.saturating_sub(offset));
        let region = self.inner(py)?;
        self.promise(py, || region.commit(offset, length), nothing)
    }

    /// See `Region.write_commit`. The bytes are copied by the call.
    fn write_commit<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = Source::of(data)?.bytes().to_vec();
        let region = self.changing(py)?;
        self.promise(py, || region.write_commit(offset, bytes), nothing)
    }

    /// See `Region.read`.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let region = self.inner(py)?;
        self.promise(
            py,
            || region.read(offset, length),
            |py, bytes| Ok(PyBytes::new(py, &bytes).into_any().unbind()),
        )
    }

    /// See `Region.atomic_write`.
    fn atomic_write<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        value: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let region = self.changing(py)?;
        self.promise(py, || region.atomic_write(offset, value), nothing)
    }

    /// See `Region.verify`.
    fn verify<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let region = self.inner(py)?;
        // A named function is of one lifetime of the interpreter.
        let made = |py: Python<'_>, crc| object_of(py, crc);
        self.promise(py, || region.verify(offset, length), made)
    }

    /// See `Region.state`.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let region = self.inner(py)?;
        self.promise(py, || region.path(), |py, path| object_of(py, path.to_string()))
    }

    /// See `Region.lost`.
    fn lost<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let region = self.inner(py)?;
        self.promise(
            py,
            || region.lost(),
            |py, lost| {
                let ranges: Vec<_> = lost.iter().map(|range| (range.start, range.end)).collect();
                object_of(py, ranges)
            },
        )
    }

    /// Gives the region back when the calls that were made have ended: what was written is visible then, and the server has let
    /// go of the file. It commits nothing.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (region, is_dirty) = (self.region.take(py)?, self.is_dirty.load(Ordering::Relaxed));
        let work = async move {
            let Some(region) = region else { return Ok(()) };
            let shown = if is_dirty { show(&region).await } else { Ok(()) };
            let closed = region.close().await;
            shown.and(closed)
        };
        self.promise(py, || work, nothing)
    }

    fn __aenter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let (py, region) = (slf.py(), slf.unbind().into_any());
        promise(py, std::future::ready(Ok(())), move |_, ()| Ok(region))
    }

    /// A block that ends well has committed what was written, or raises; one that an exception ends commits nothing.
    #[pyo3(signature = (kind = None, *_arguments))]
    fn __aexit__<'py>(
        &self,
        py: Python<'py>,
        kind: Option<&Bound<'_, PyAny>>,
        _arguments: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ends_well = kind.is_none();
        let (region, is_dirty) = (self.region.take(py)?, self.is_dirty.load(Ordering::Relaxed));
        let work = async move {
            let Some(region) = region else { return Ok(()) };
            let settled = match (is_dirty, ends_well) {
                (false, _) => Ok(()),
                (true, false) => show(&region).await,
                (true, true) => settle(&region).await,
            };
            let closed = region.close().await;
            // The exception of a block is the one to report.
            if ends_well { settled.and(closed) } else { Ok(()) }
        };
        self.promise(py, || work, nothing)
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }
}

impl AsyncRegion {
    fn new(region: client::AsyncRegion, path: String) -> Self {
        let length = region.len();
        Self { region: Kept::new(region), is_dirty: AtomicBool::new(false), path, length }
    }

    fn inner(&self, py: Python<'_>) -> PyResult<client::AsyncRegion> {
        self.region.with(py, |region| region.clone())
    }

    /// The region, for a call that changes bytes.
    fn changing(&self, py: Python<'_>) -> PyResult<client::AsyncRegion> {
        let region = self.inner(py)?;
        self.is_dirty.store(true, Ordering::Relaxed);
        Ok(region)
    }

    /// Hands a request over, by `ask`, before it returns: later calls come behind it.
    fn promise<'py, T: Send + 'static, W>(
        &self,
        py: Python<'py>,
        ask: impl FnOnce() -> W,
        make: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        W: Future<Output = Result<T, RegionError>> + Send + 'static,
    {
        let fault = Fault::region(&self.path);
        let ask = || {
            let answer = ask();
            async move { answer.await.map_err(fault) }
        };
        promise_of(py, ask, make)
    }
}

/// Returns when what was written before is visible: a read comes after every write before it. Where the region broke, and no
/// call of it said so, what may be lost is an error.
async fn show(region: &client::AsyncRegion) -> Result<(), RegionError> {
    let shown = if region.is_empty() { Ok(()) } else { region.read(0, 1).await.map(drop) };
    match shown {
        Err(RegionError::Broken) if region.lost().await?.is_empty() => Ok(()),
        other => other,
    }
}

/// Commits what was written, or says that it may be lost, also where the task caught the error that broke the region; where the
/// class takes no commits the bytes are visible on return, and no more.
async fn settle(region: &client::AsyncRegion) -> Result<(), RegionError> {
    let settled = match takes_commits(&region.path().await?) {
        true => region.commit(0, region.len()).await,
        false => show(region).await,
    };
    match region.lost().await?.is_empty() {
        false => settled.and(Err(RegionError::Broken)),
        true if matches!(settled, Err(RegionError::Broken)) => Ok(()),
        true => settled,
    }
}

fn nothing(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

fn object<T: PyClass + Into<PyClassInitializer<T>>>(
    py: Python<'_>,
    value: T,
) -> PyResult<Py<PyAny>> {
    Ok(Py::new(py, value)?.into_any())
}

fn object_of<'py, T>(py: Python<'py>, value: T) -> PyResult<Py<PyAny>>
where
    T: IntoPyObjectExt<'py>,
{
    value.into_py_any(py)
}
