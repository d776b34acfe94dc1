//! CREATE: opening and creating files, with contexts for everything later dialects added.
//!
//! Spec: MS-SMB2 §2.2.13 and §2.2.14.

mod access;
mod chain;
mod durable;
mod lease;
mod options;
mod request;
mod request_context;
mod response;
mod response_context;

pub use access::{AccessMask, OplockLevel, ShareAccess};
pub use chain::CONTEXTS_MAX;
pub use durable::{DurableReconnectV2, DurableRequestV2};
pub use lease::{Lease, LeaseKey, LeaseState, LeaseVersion};
pub use options::{CreateAction, CreateDisposition, CreateOptions, ImpersonationLevel};
pub use request::CreateRequest;
pub use request_context::{CreateRequestContext, POSIX_NAME};
pub use response::CreateResponse;
pub use response_context::{CreateResponseContext, PosixResponse};
