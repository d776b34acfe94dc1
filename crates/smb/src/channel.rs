//! RDMA channel information of READ and WRITE: where in the client's memory the data is.
//!
//! ```text
//!  channel 0  none: data is in the message
//!  channel 1  SMB_DIRECT_BUFFER_DESCRIPTOR_V1 array
//!  channel 2  the same, and the answer invalidates the first token, error answers too
//!  channel 3  RDMA transform: descriptors behind a transform header (not read here)
//! ```
//!
//! Spec: MS-SMB2 §2.2.19 and §2.2.21; MS-SMBD §2.2.3.1.

use smbdirect::{DescriptorError, Descriptors};

use crate::open_set::open_set;

open_set! {
    /// How the data of a READ or WRITE travels.
    pub struct Channel(u32) {
        /// In the message.
        NONE = 0x0000_0000,
        /// By RDMA, through descriptors.
        RDMA_V1 = 0x0000_0001,
        /// By RDMA; answer with Send with Invalidate of the first token.
        RDMA_V1_INVALIDATE = 0x0000_0002,
        /// By RDMA, protected.
        RDMA_TRANSFORM = 0x0000_0003,
    }
}

/// The descriptors of a request whose channel has them; `None` for every other channel.
pub(crate) fn descriptors(
    channel: Channel,
    info: &[u8],
) -> Result<Option<Descriptors<'_>>, DescriptorError> {
    match channel {
        Channel::RDMA_V1 | Channel::RDMA_V1_INVALIDATE => Descriptors::parse(info).map(Some),
        _ => Ok(None),
    }
}
