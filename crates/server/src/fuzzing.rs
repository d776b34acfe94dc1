//! Doors for the fuzz targets (`fuzz/bodies`) to what has no other: no part of the API.

pub use crate::transport::direct::first_look;
