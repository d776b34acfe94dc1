//! The Landfast file server.
