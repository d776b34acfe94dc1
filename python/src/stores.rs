//! Striped stores and their regions.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyFileNotFoundError, PyPermissionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;
use store::meta::record::Class;
use store::{Allocation, Rights, StoreError, StoreKey, StoreOptions};

use crate::buffers::{Source, Target};
use crate::errors::{self, Fault};
use crate::runtime::Kept;

/// A client of a striped store: `landfast.Store(place)`.
#[pyclass(frozen, module = "landfast")]
#[derive(Debug)]
pub(crate) struct Store {
    store: Kept<store::Store>,
    #[pyo3(get)]
    place: String,
}

#[pymethods]
impl Store {
    /// Opens the store whose metadata is in a directory, or at etcd://HOST:PORT/NAME. Without `key_file` the key is the file `key`
    /// of the directory; an empty text is no key: then regions are mapped by tokens.
    #[new]
    #[pyo3(signature = (place, key_file = None))]
    fn new(py: Python<'_>, place: String, key_file: Option<String>) -> PyResult<Self> {
        let is_directory = !place.contains("://");
        if is_directory && !Path::new(&place).join("records").is_dir() {
            let why = "there is no store here: name the metadata's directory, which the first daemon makes";
            return Err(PyFileNotFoundError::new_err((ENOENT, why, place)));
        }
        let key = match key_file {
            Some(path) if path.is_empty() => None,
            Some(path) => Some(path.into()),
            None if is_directory => Some(Path::new(&place).join("key")),
            None => {
                let why =
                    "metadata in etcd have no key beside them: name key_file, or \"\" for none";
                return Err(PyValueError::new_err(why));
            }
        };
        let key = key.map(|path: std::path::PathBuf| StoreKey::read(&path)).transpose();
        let key = key.map_err(|error| PyPermissionError::new_err((EACCES, error.to_string())))?;
        let opened = py.detach(|| {
            let meta = store::meta::open(&place)?;
            store::Store::open(StoreOptions::new(meta, key))
        });
        let store = opened.map_err(|error: StoreError| Fault::store(&place)(error).raise(py))?;
        Ok(Self { store: Kept::new(store), place })
    }

    /// Makes a region of `size` zeros.
    #[pyo3(signature = (name, size, *, durability = "storage", copies = 1, unit = 1 << 20, width = 0, ephemeral = false))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn create(
        &self,
        py: Python<'_>,
        name: &str,
        size: u64,
        durability: &str,
        copies: u32,
        unit: u64,
        width: u32,
        ephemeral: bool,
    ) -> PyResult<()> {
        let class = match durability {
            "volatile" => Class::Volatile,
            "storage" => Class::Storage,
            "pmem" => Class::Pmem,
            _ => {
                let why = format!("durability {durability:?}: choose volatile, storage or pmem");
                return Err(PyValueError::new_err(why));
            }
        };
        let wanted = Allocation { unit, width, copies, ephemeral, ..Allocation::new(size, class) };
        self.with(py, name, |store| store.create(name, &wanted).map(drop))
    }

    /// Removes a region. Mappings of it end.
    fn free(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, name, |store| store.free(name))
    }

    /// Maps a region by the store's key, or by a token.
    #[pyo3(signature = (name, *, write = true, token = None))]
    fn map(
        &self,
        py: Python<'_>,
        name: &str,
        write: bool,
        token: Option<&str>,
    ) -> PyResult<StoreRegion> {
        let token = token.map(str::parse::<store::Token>).transpose();
        let token = token.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let rights = if write { Rights::READ | Rights::WRITE } else { Rights::READ };
        let region = self.with(py, name, |store| match token {
            Some(token) => store.map_by_token(name, token),
            None => store.map(name, rights),
        })?;
        let length = region.len();
        Ok(StoreRegion { held: Kept::new(Arc::new(region)), name: name.to_owned(), length })
    }

    /// Where the pieces of a region are, and which copies are in sync.
    fn info<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let record = self.with(py, name, |store| store.info(name))?;
        object(py, &record)
    }

    /// The regions, by name.
    fn regions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.with(py, "regions", store::Store::regions)?;
        object(py, &found)
    }

    /// The servers, by name.
    fn servers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.with(py, "servers", store::Store::servers)?;
        object(py, &found)
    }

    /// Fills the copies of a region that are missing; returns how many are missing still.
    fn rebuild(&self, py: Python<'_>, name: &str) -> PyResult<u32> {
        self.with(py, name, |store| store.rebuild(name).map(|done| done.missing))
    }

    /// A token for a region, for a program without the key.
    #[pyo3(signature = (name, *, write = false, seconds = 3600))]
    fn token(&self, py: Python<'_>, name: &str, write: bool, seconds: u64) -> PyResult<String> {
        let rights = if write { Rights::READ | Rights::WRITE } else { Rights::READ };
        let lifetime = Duration::from_secs(seconds);
        self.with(py, name, |store| store.token(name, rights, lifetime).map(|one| one.expose()))
    }

    /// Revokes all tokens of a region that were given out.
    fn revoke(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, name, |store| store.revoke(name))
    }

    /// Ends the client. Its regions go on until they are closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store.take(py)?;
        py.detach(|| drop(store));
        Ok(())
    }

    /// Whether the client was ended.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.store.is_taken(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<landfast.Store {}>", self.place)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyValueError::new_err("a store is not pickled: open it in the other process"))
    }
}

impl Store {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        object: &str,
        act: impl FnOnce(&store::Store) -> Result<T, StoreError> + Send,
    ) -> PyResult<T> {
        // Not under the lock: a call that waits for servers holds up no other one.
        let store = self.store.with(py, |store| store.clone())?;
        let done = py.detach(|| act(&store));
        done.map_err(|error| Fault::store(object)(error).raise(py))
    }
}

/// A mapped region of a striped store: `Store.map`.
#[pyclass(frozen, module = "landfast")]
#[derive(Debug)]
pub(crate) struct StoreRegion {
    held: Kept<Arc<store::Region>>,
    #[pyo3(get)]
    name: String,
    length: u64,
}

#[pymethods]
impl StoreRegion {
    /// `length` bytes at `offset`, of a copy in sync.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.check(offset, length)?;
        PyBytes::new_with(py, length, |out| self.with(py, |region| region.read(offset, out)))
    }

    /// Fills a writable buffer from `offset` on.
    fn readinto(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut target = Target::of(buffer)?;
        let len = target.len();
        self.with(py, |region| region.read(offset, target.bytes()))?;
        Ok(len)
    }

    /// Writes a buffer: visible to every client on return, at every copy in sync.
    fn write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = Source::of(data)?;
        self.with(py, |region| region.write(offset, source.bytes()))
    }

    /// Writes a buffer: durable in the region's class on return.
    fn write_durable(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = Source::of(data)?;
        self.with(py, |region| region.write_durable(offset, source.bytes()))
    }

    /// Makes durable what this client wrote to the range before; without a length, to the region's end.
    #[pyo3(signature = (offset = 0, length = None))]
    fn commit(&self, py: Python<'_>, offset: u64, length: Option<u64>) -> PyResult<()> {
        let length = length.unwrap_or_else(|| self.length.saturating_sub(offset));
        self.with(py, |region| region.commit(offset, length))
    }

    /// Fills several writable buffers at once: pairs of an offset and a buffer. The buffers must not overlap.
    fn read_many(&self, py: Python<'_>, reads: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<()> {
        let mut targets = Vec::with_capacity(reads.len());
        for (offset, buffer) in &reads {
            targets.push((*offset, Target::of(buffer)?));
        }
        let mut out: Vec<(u64, &mut [u8])> = Vec::with_capacity(targets.len());
        crate::buffers::check_apart(targets.iter().map(|(_, target)| target))?;
        for (offset, target) in &mut targets {
            out.push((*offset, target.bytes()));
        }
        self.with(py, |region| region.read_many(&mut out))
    }

    /// Writes several buffers at once, in no order among themselves: pairs of an offset and a buffer.
    fn write_many(&self, py: Python<'_>, writes: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<()> {
        let mut sources = Vec::with_capacity(writes.len());
        for (offset, data) in &writes {
            sources.push((*offset, Source::of(data)?));
        }
        let writes: Vec<(u64, &[u8])> =
            sources.iter().map(|(offset, source)| (*offset, source.bytes())).collect();
        self.with(py, |region| region.write_many(&writes))
    }

    /// Adds to the word of eight bytes at a multiple of 8, atomically; returns what it was.
    fn fetch_add(&self, py: Python<'_>, offset: u64, add: u64) -> PyResult<u64> {
        self.with(py, |region| region.fetch_add(offset, add))
    }

    /// Stores `swap` in the word at a multiple of 8 if it is `compare`, atomically; returns what it was. One copy only.
    fn compare_swap(&self, py: Python<'_>, offset: u64, compare: u64, swap: u64) -> PyResult<u64> {
        self.with(py, |region| region.compare_swap(offset, compare, swap))
    }

    /// Adds to a counter by which clients wake each other; returns its value.
    #[pyo3(signature = (channel, add = 1))]
    fn notify(&self, py: Python<'_>, channel: u32, add: u64) -> PyResult<u64> {
        self.with(py, |region| region.notify(channel, add))
    }

    /// Waits until a counter is above `seen`; returns its value, or raises TimeoutError.
    fn wait_above(&self, py: Python<'_>, channel: u32, seen: u64, timeout: f64) -> PyResult<u64> {
        let patience = Duration::try_from_secs_f64(timeout)
            .map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?;
        let deadline = Instant::now().checked_add(patience);
        loop {
            let left =
                deadline.map_or(SIGNALS, |end| end.saturating_duration_since(Instant::now()));
            let turn = left.min(SIGNALS);
            let region = self.held.with(py, |region| Arc::clone(region))?;
            match py.detach(|| region.wait_above(channel, seen, turn)) {
                Err(StoreError::Timeout) if turn < left => py.check_signals()?,
                other => return other.map_err(|error| Fault::store(&self.name)(error).raise(py)),
            }
        }
    }

    /// Gives the mapping back.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let region = self.held.take(py)?;
        py.detach(|| drop(region));
        Ok(())
    }

    /// Whether the mapping was given back.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.held.is_taken(py)
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<landfast.StoreRegion {}, {} bytes>", self.name, self.length)
    }
}

impl StoreRegion {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&store::Region) -> Result<T, StoreError> + Send,
    ) -> PyResult<T> {
        let region = self.held.with(py, |region| Arc::clone(region))?;
        let done = py.detach(|| act(&region));
        done.map_err(|error| Fault::store(&self.name)(error).raise(py))
    }

    /// Before memory is taken for an answer.
    fn check(&self, offset: u64, length: usize) -> PyResult<()> {
        let end = u64::try_from(length).ok().and_then(|length| offset.checked_add(length));
        if end.is_some_and(|end| end <= self.length) { Ok(()) } else { Err(errors::beyond()) }
    }
}

/// What the metadata say, as Python has it.
fn object<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).expect("records have a form in JSON");
    py.import("json")?.call_method1("loads", (text,))
}

/// How often a wait looks for signals, such as Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(100);
/// `errno` has the same numbers on every Linux.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
