//! The Landfast file server.

pub mod share;
