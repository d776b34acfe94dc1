//! A mapped region, driven by the calls of its owner.

use std::collections::VecDeque;

use client::{Finished, RegionError, Ticket};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::class_name;
use crate::buffers::{Source, Target};
use crate::errors::{self, Fault};
use crate::runtime::Kept;

/// A mapped region of a file: `Client.map`. Offsets count from the region's beginning.
#[pyclass(frozen, module = "landfast")]
#[derive(Debug)]
pub(crate) struct Region {
    held: Kept<Held>,
    #[pyo3(get)]
    path: String,
    length: u64,
}

/// Whether a commit of a region that travels so is carried out; elsewhere it would be refused, and break the region.
pub(crate) fn takes_commits(path: &client::Path) -> bool {
    let is_emulated = path.promise().is_some_and(|promise| promise.is_emulated);
    class_name(path) != Some("volatile") || is_emulated
}

/// The region, and how many bytes each submitted operation brings; none for a commit.
#[derive(Debug)]
struct Held {
    region: client::Region,
    submitted: VecDeque<Option<usize>>,
    /// Bytes were posted that no commit of the whole region followed.
    is_dirty: bool,
}

impl Held {
    /// Waits for what was submitted, and commits what was posted; where the class takes no commits the bytes are visible on
    /// return, and no more.
    fn settle(&mut self) -> Result<(), RegionError> {
        self.finish_all()?;
        if self.region.is_broken() && !self.region.lost().is_empty() {
            return Err(RegionError::Broken);
        }
        if takes_commits(self.region.path()) && self.is_dirty && !self.region.is_broken() {
            self.region.commit(0, self.region.len())?;
            self.is_dirty = false;
        }
        self.show()
    }

    /// Waits for what was submitted, and returns when what was posted is visible: a read comes after every write before it.
    fn show(&mut self) -> Result<(), RegionError> {
        self.finish_all()?;
        // The call that broke the region has raised, and an empty region has nothing to show.
        if self.is_dirty && !self.region.is_broken() && !self.region.is_empty() {
            self.region.read(0, &mut [0])?;
        }
        Ok(())
    }

    /// Waits for all that was submitted, and gives the first error: nobody will ask for the outcomes.
    fn finish_all(&mut self) -> Result<(), RegionError> {
        let mut outcome = Ok(());
        while let Some(room) = self.submitted.pop_front() {
            let finished = self.region.finish(&mut vec![0; room.unwrap_or(0)]);
            outcome = outcome.and(finished.map(drop));
        }
        outcome
    }

    /// The ticket of the oldest operation when it has ended, if it still is the one for which there is room.
    fn finish(&mut self, room: Option<usize>, out: &mut [u8]) -> Result<Option<u64>, RegionError> {
        if self.submitted.front() != Some(&room) {
            return Ok(None);
        }
        let finished = self.region.finish(out);
        self.submitted.pop_front();
        finished.map(|Finished { ticket, .. }| Some(ticket.number()))
    }
}

#[pymethods]
impl Region {
    /// Posts a write of a buffer and returns. The next commit that covers it makes it durable.
    fn write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = Source::of(data)?;
        self.with(py, |held| {
            held.is_dirty = true;
            held.region.write(offset, source.bytes())
        })
    }

    /// Returns when everything written before within the range is durable; without a length, to the region's end.
    #[pyo3(signature = (offset = 0, length = None))]
    fn commit(&self, py: Python<'_>, offset: u64, length: Option<u64>) -> PyResult<()> {
        let length = length.unwrap_or_else(|| self.length.saturating_sub(offset));
        let is_whole = offset == 0 && length == self.length;
        self.with(py, |held| {
            held.region.commit(offset, length)?;
            held.is_dirty &= !is_whole;
            Ok(())
        })
    }

    /// Writes a buffer and returns when it is durable: one round trip.
    fn write_commit(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = Source::of(data)?;
        self.with(py, |held| held.region.write_commit(offset, source.bytes()))
    }

    /// `length` bytes at `offset`.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.check(offset, length)?;
        PyBytes::new_with(py, length, |out| self.with(py, |held| held.region.read(offset, out)))
    }

    /// Fills a writable buffer from `offset` on.
    fn readinto(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut target = Target::of(buffer)?;
        let len = target.len();
        self.with(py, |held| held.region.read(offset, target.bytes()))?;
        Ok(len)
    }

    /// Stores an integer of eight bytes, little-endian, at a multiple of 8, only if every earlier commit succeeded. It is
    /// durable after a commit of its own.
    fn atomic_write(&self, py: Python<'_>, offset: u64, value: u64) -> PyResult<()> {
        self.with(py, |held| {
            held.is_dirty = true;
            held.region.atomic_write(offset, value)
        })
    }

    /// The CRC-32C of bytes of the region, computed by the server if it can.
    fn verify(&self, py: Python<'_>, offset: u64, length: u32) -> PyResult<u32> {
        self.with(py, |held| held.region.verify(offset, length))
    }

    /// Posts a write and its commit; `finish` says when the bytes are durable. They are when `close` returns without an error.
    fn submit_write_commit(
        &self,
        py: Python<'_>,
        offset: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let source = Source::of(data)?;
        self.submit(py, None, |held| {
            held.is_dirty = true;
            held.region.submit_write_commit(offset, source.bytes())
        })
    }

    /// Posts a commit.
    fn submit_commit(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<u64> {
        self.submit(py, None, |held| held.region.submit_commit(offset, length))
    }

    /// Posts a read of at most 1 MiB; `finish` brings the bytes.
    fn submit_read(&self, py: Python<'_>, offset: u64, length: u32) -> PyResult<u64> {
        let room = usize::try_from(length).unwrap_or(usize::MAX);
        self.submit(py, Some(room), |held| held.region.submit_read(offset, length))
    }

    /// Waits for the oldest submitted operation: its ticket, and the bytes of a read or None.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<(u64, Option<Bound<'py, PyBytes>>)> {
        loop {
            let room = self.with(py, |held| {
                held.submitted.front().copied().ok_or(RegionError::NothingOutstanding)
            })?;
            let mut ticket = None;
            let bytes = PyBytes::new_with(py, room.unwrap_or(0), |out| {
                ticket = self.with(py, |held| held.finish(room, out))?;
                Ok(())
            })?;
            // None: another thread has taken that operation.
            if let Some(ticket) = ticket {
                return Ok((ticket, room.is_some().then_some(bytes)));
            }
        }
    }

    /// Gives the region back if the server has recalled it, for a program that makes no other call for long.
    fn attend(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |held| held.region.attend())
    }

    /// How operations travel now, what a commit is worth, and why: a sentence.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |held| Ok(held.region.path().to_string()))
    }

    /// Whether the region is in push mode now.
    #[getter]
    fn is_push(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |held| Ok(matches!(held.region.path(), client::Path::Push { .. })))
    }

    /// What a commit survives: "pmem", "storage" or "volatile"; None where the server does not say. Commits fail
    /// where the class is "volatile" and not emulated, or below what `map` asked for.
    #[getter]
    fn durability(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        self.with(py, |held| Ok(class_name(held.region.path())))
    }

    /// Whether the server only emulates persistence: a commit then does not survive a loss of power.
    #[getter]
    fn is_emulated(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |held| {
            Ok(held.region.path().promise().is_some_and(|promise| promise.is_emulated))
        })
    }

    /// Whether the server has asked for the region back: the next call gives it back and goes on over SMB.
    #[getter]
    fn is_recalled(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |held| Ok(held.region.is_recalled()))
    }

    /// Whether an earlier failure broke the region.
    #[getter]
    fn is_broken(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |held| Ok(held.region.is_broken()))
    }

    /// Ranges that no commit had confirmed when the region broke, as (begin, end).
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        self.with(py, |held| {
            Ok(held.region.lost().iter().map(|range| (range.start, range.end)).collect())
        })
    }

    /// Submitted operations that `finish` has not returned.
    #[getter]
    fn outstanding(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |held| Ok(held.region.outstanding()))
    }

    /// Gives the region back: on return what was submitted has ended, what was written is visible, and the server has let go of
    /// the file. It commits nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let shown = if self.held.is_taken(py) { Ok(()) } else { self.with(py, Held::show) };
        let Some(held) = self.held.take(py)? else { return shown };
        let closed = py.detach(|| held.region.close());
        shown.and_then(|()| closed.map_err(|error| Fault::region(&self.path)(error).raise(py)))
    }

    /// Whether the region was given back.
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

    /// A block that ends well has committed what was written, or raises; one that an exception ends commits nothing.
    #[pyo3(signature = (kind = None, *_arguments))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _arguments: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_some() {
            // The exception of the block is the one to report.
            drop(self.close(py));
            return Ok(());
        }
        let settled = if self.held.is_taken(py) { Ok(()) } else { self.with(py, Held::settle) };
        let closed = self.close(py);
        settled.and(closed)
    }

    fn __repr__(&self) -> String {
        format!("<landfast.Region {}, {} bytes>", self.path, self.length)
    }
}

impl Region {
    pub(crate) fn new(region: client::Region, path: &str) -> Self {
        let length = region.len();
        let held = Held { region, submitted: VecDeque::new(), is_dirty: false };
        Self { held: Kept::new(held), path: path.to_owned(), length }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Held) -> Result<T, RegionError> + Send,
    ) -> PyResult<T> {
        let outcome = self.held.with(py, act)?;
        outcome.map_err(|error| Fault::region(&self.path)(error).raise(py))
    }

    fn submit(
        &self,
        py: Python<'_>,
        room: Option<usize>,
        post: impl FnOnce(&mut Held) -> Result<Ticket, RegionError> + Send,
    ) -> PyResult<u64> {
        self.with(py, |held| {
            let ticket = post(held)?;
            held.submitted.push_back(room);
            Ok(ticket.number())
        })
    }

    /// Before memory is taken for an answer.
    fn check(&self, offset: u64, length: usize) -> PyResult<()> {
        let end = u64::try_from(length).ok().and_then(|length| offset.checked_add(length));
        if end.is_some_and(|end| end <= self.length) { Ok(()) } else { Err(errors::beyond()) }
    }
}
