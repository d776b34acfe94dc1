//! What programs in other languages use: the C library, the engine for fio, the Python package.

pub(crate) mod c;
pub(crate) mod fio;
pub(crate) mod install;
pub(crate) mod python;
