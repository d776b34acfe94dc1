//! `rdma::interface`, as far as the sources that are compiled here know it.

mod doorbell;
mod error;
#[path = "../../../rdma/src/interface/waker.rs"]
mod waker;

pub(crate) use waker::WakeReceiver;
pub use waker::Waker;
