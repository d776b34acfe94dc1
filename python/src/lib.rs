//! The native part of the Python package `landfast`.
//!
//! ```text
//!   package/landfast/__init__.py, aio.py, fs.py      Python
//!   _landfast: Client, File, Region                  this crate: calls that wait release the GIL
//!              Store, StoreRegion                  striped stores
//!              AsyncClient, AsyncFile, AsyncRegion   futures of the caller's event loop
//! ```
//!
//! - [`runtime`]: one runtime for the process; what was opened before a fork is refused after it.
//! - [`buffers`]: memory of Python objects, without a copy.
//! - [`behind`]: exceptions that wait until a call has returned.
//! - [`promise`]: a future of asyncio that a task of the runtime settles.

mod arguments;
mod behind;
mod buffers;
mod client;
mod errors;
mod file;
mod later;
mod promise;
mod region;
mod runtime;
mod stores;

use pyo3::prelude::*;

/// The native part of the package `landfast`.
#[pymodule]
mod _landfast {
    use super::*;

    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::errors::{LandfastError, RegionBroken};
    #[pymodule_export]
    use super::file::{File, write_raw};
    #[pymodule_export]
    use super::later::{AsyncClient, AsyncFile, AsyncRegion};
    #[pymodule_export]
    use super::region::Region;
    #[pymodule_export]
    use super::stores::{Store, StoreRegion};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        runtime::watch(module)
    }
}
