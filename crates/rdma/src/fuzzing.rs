//! Entry points for the fuzz targets (`fuzz/bodies`) to code that has no other: no part of the API.

pub use crate::soft::AttackedShm;
