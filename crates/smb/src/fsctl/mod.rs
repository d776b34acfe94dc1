//! Inputs and outputs of control codes that every 3.x peer knows. Our own are in [`crate::push`].
//!
//! Spec: MS-SMB2 §2.2.31, §2.2.32.

mod network_interface;
mod validate_negotiate;

pub use network_interface::{INTERFACES_MAX, InterfaceCapability, NetworkInterface};
pub use validate_negotiate::{ValidateNegotiateRequest, ValidateNegotiateResponse};
