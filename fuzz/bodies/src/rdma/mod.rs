//! Byte streams of the RDMA provider.

pub(crate) mod shm;
