//! `rdma::soft`, as far as the sources that are compiled here know it.

#[path = "../../../rdma/src/soft/done.rs"]
pub(crate) mod done;
