//! A session on one share.

use client::{ErrorKind, OpenOptions, blocking};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use smb::create::{AccessMask, CreateOptions};

use crate::arguments::{address, entry_dict, mapping, mark_link, opening, stat_dict};
use crate::errors::{self, Fault};
use crate::file::File;
use crate::region::Region;
use crate::runtime::{self, Kept, block};

/// A session on one share: `landfast.connect`.
#[pyclass(frozen, module = "landfast")]
#[derive(Debug)]
pub(crate) struct Client {
    client: Kept<blocking::Client>,
    /// The address, without the password.
    #[pyo3(get)]
    url: String,
}

#[pymethods]
impl Client {
    /// Connects to `smb://[USER[:PASSWORD]@]HOST[:PORT]/SHARE`. A user without a password gets that of LANDFAST_PASSWORD.
    #[new]
    #[pyo3(signature = (url, user = None, password = None))]
    fn new(
        py: Python<'_>,
        url: &str,
        user: Option<String>,
        password: Option<String>,
    ) -> PyResult<Self> {
        let (address, options) = address(url, user, password)?;
        let runtime = runtime::shared()?;
        let connected = py.detach(|| blocking::Client::connect_on(runtime, &address, &options));
        let url = address.to_string();
        let client = connected.map_err(|error| Fault::client(&url)(error).raise(py))?;
        Ok(Self { client: Kept::new(client), url })
    }

    /// Opens a file.
    #[pyo3(signature = (path, mode = "rb"))]
    fn open(&self, py: Python<'_>, path: &str, mode: &str) -> PyResult<File> {
        let options = opening(mode)?;
        let client = self.inner(py)?;
        let opened = async { client.open(path, &options).await.map_err(Fault::client(path)) };
        Ok(File::new(block(py, opened)?, path))
    }

    /// Maps `length` bytes at `offset` of a file that is that long.
    #[pyo3(signature = (path, offset = 0, length = None, *, durability = "storage", accept_emulated = false,
                        outstanding = 256, unconfirmed = 4 << 20, timeout = 30.0, same_host = true, provider = "soft"))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn map(
        &self,
        py: Python<'_>,
        path: &str,
        offset: u64,
        length: Option<u64>,
        durability: &str,
        accept_emulated: bool,
        outstanding: usize,
        unconfirmed: usize,
        timeout: f64,
        same_host: bool,
        provider: &str,
    ) -> PyResult<Region> {
        let (options, settings) = mapping(
            durability,
            accept_emulated,
            outstanding,
            unconfirmed,
            timeout,
            same_host,
            provider,
        )?;
        let end = self.end_of(py, path, offset, length)?;
        let client = self.client.with(py, |client| client.clone())?;
        let mapped = py.detach(|| client.map(path, &options, offset..end, settings));
        let region = mapped.map_err(|error| Fault::client(path)(error).raise(py))?;
        Ok(Region::new(region, path))
    }

    /// Size, type and times of a file or directory; without `follow` of a symbolic link itself, and the path is taken as it is
    /// spelled.
    #[pyo3(signature = (path, *, follow = true))]
    fn stat<'py>(&self, py: Python<'py>, path: &str, follow: bool) -> PyResult<Bound<'py, PyDict>> {
        let client = self.inner(py)?;
        let looking = async {
            let stat =
                if follow { client.stat(path).await } else { client.stat_itself(path).await };
            stat.map_err(Fault::client(path))
        };
        let stat = block(py, looking)?;
        let dict = stat_dict(py, &stat)?;
        mark_link(&dict, stat.attributes, follow)?;
        Ok(dict)
    }

    /// The entries of a directory; without `follow` with symbolic links as such, and the path is taken as it is spelled.
    #[pyo3(signature = (path = "", *, follow = true))]
    fn list<'py>(&self, py: Python<'py>, path: &str, follow: bool) -> PyResult<Bound<'py, PyList>> {
        let client = self.inner(py)?;
        let listing = async {
            let found =
                if follow { client.list(path).await } else { client.list_itself(path).await };
            found.map_err(Fault::client(path))
        };
        let list = PyList::empty(py);
        for entry in block(py, listing)? {
            let dict = entry_dict(py, &entry)?;
            mark_link(&dict, entry.attributes, follow)?;
            list.append(dict)?;
        }
        Ok(list)
    }

    /// The path as its names are spelled on the server.
    fn spelling(&self, py: Python<'_>, path: &str) -> PyResult<String> {
        let client = self.inner(py)?;
        block(py, async { client.spelling(path).await.map_err(Fault::client(path)) })
    }

    /// Which file of the server a path leads to, by whatever name or share; `None` where the server does not say.
    fn identity(&self, py: Python<'_>, path: &str) -> PyResult<Option<(u64, Vec<u8>)>> {
        let client = self.inner(py)?;
        let asked = async { client.identity(path).await.map_err(Fault::client(path)) };
        Ok(block(py, asked)?.map(|(volume, file)| (volume, file.to_vec())))
    }

    /// Raises what can be known beforehand of a rename that replaces the file of a path: it is a directory, or somebody has it open
    /// and lets nobody delete it. Nothing, where nothing is there. Of a symbolic link it is asked what it leads to.
    fn check_replaceable(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let client = self.inner(py)?;
        let options = OpenOptions {
            access: AccessMask::DELETE,
            options: CreateOptions::NON_DIRECTORY_FILE,
            ..OpenOptions::attributes()
        };
        let looking = async {
            match client.open(path, &options).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(file) => file.close().await,
            }
        };
        block(py, async { looking.await.map_err(Fault::client(path)) })
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let client = self.inner(py)?;
        block(py, async { client.create_directory(path).await.map_err(Fault::client(path)) })
    }

    /// Deletes a file, or an empty directory; without `follow` a symbolic link itself, and the path is taken as it is spelled.
    #[pyo3(signature = (path, *, follow = true))]
    fn remove(&self, py: Python<'_>, path: &str, follow: bool) -> PyResult<()> {
        let client = self.inner(py)?;
        let removing = async {
            let done =
                if follow { client.delete(path).await } else { client.delete_itself(path).await };
            done.map_err(Fault::client(path))
        };
        block(py, removing)
    }

    /// Gives a file or directory another path on the share; with `durable` it is found there after a crash, too.
    #[pyo3(signature = (source, target, *, replace = false, durable = false))]
    fn rename(
        &self,
        py: Python<'_>,
        source: &str,
        target: &str,
        replace: bool,
        durable: bool,
    ) -> PyResult<()> {
        let client = self.inner(py)?;
        let renaming = async {
            let renamed = match durable {
                true => client.rename_durably(source, target, replace).await,
                false => client.rename(source, target, replace).await,
            };
            renamed.map_err(Fault::client(source))
        };
        block(py, renaming)
    }

    /// Checks that the server answers.
    fn echo(&self, py: Python<'_>) -> PyResult<()> {
        let client = self.inner(py)?;
        block(py, async { client.echo().await.map_err(Fault::client(&self.url)) })
    }

    /// Ends the session. Its files and regions go on until they are closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let client = self.client.take(py)?;
        py.detach(|| drop(client));
        Ok(())
    }

    /// Whether its connection was lost: every call fails from now on, and those of its files too.
    #[getter]
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner(py)?.has_ended())
    }

    /// Whether the session was ended.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.client.is_taken(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<landfast.Client {}>", self.url)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyValueError::new_err("a session is not pickled: connect in the other process"))
    }
}

impl Client {
    fn inner(&self, py: Python<'_>) -> PyResult<client::Client> {
        self.client.with(py, |client| client.inner().clone())
    }

    /// Where a region ends; without a length, where its file does.
    fn end_of(
        &self,
        py: Python<'_>,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> PyResult<u64> {
        let Some(length) = length else {
            let client = self.inner(py)?;
            let stat = block(py, async { client.stat(path).await.map_err(Fault::client(path)) })?;
            return Ok(stat.len);
        };
        offset.checked_add(length).ok_or_else(errors::beyond)
    }
}
