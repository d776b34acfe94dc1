//! The first two messages of a connection, and both ends of that exchange.
//!
//! ```text
//!   initiator                                         acceptor
//!      |  NegotiateRequest: sizes, credits wanted        |
//!      |------------------------------------------------>| posts receive buffers
//!      |  NegotiateResponse: sizes, first credits        |
//!      |<------------------------------------------------|
//!      |  DataTransfer: first credits the other way      |
//!      |------------------------------------------------>|
//! ```
//!
//! Spec: MS-SMBD §2.2.1, §2.2.2, §3.1.5.2, §3.1.5.3, §3.1.5.6, §3.1.5.7.

mod acceptor;
mod agreement;
mod initiator;
mod request;
mod response;

use std::time::Duration;

pub use acceptor::Acceptor;
pub use agreement::Agreement;
pub use initiator::Initiator;
pub use request::{NegotiateRequest, Offer};
pub use response::{NegotiateResponse, Status};

/// The only version of the protocol there is.
pub const VERSION: u16 = 0x0100;
/// Time that either side waits for its half of the exchange (MS-SMBD §3.1.7.1).
pub const NEGOTIATE_TIMEOUT: Duration = Duration::from_secs(120);
