//! Runs of other people's clients and dissectors against a running server.

pub(crate) mod capture;
pub(crate) mod fpdus;
pub(crate) mod fuse;
pub(crate) mod glance;
pub(crate) mod go;
pub(crate) mod kerberos;
pub(crate) mod nbd;
pub(crate) mod pike;
pub(crate) mod python;
pub(crate) mod report;
pub(crate) mod samples;
pub(crate) mod smbclient;
