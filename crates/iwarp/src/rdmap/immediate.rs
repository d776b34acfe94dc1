//! Immediate Data: eight bytes for the next receive, without a buffer.
//!
//! Spec: RFC 7306 §6.

use super::RdmapError;

/// The payload of an Immediate Data message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImmediateRepr {
    /// The eight bytes, read as a big-endian number.
    pub data: u64,
}

impl ImmediateRepr {
    /// Bytes the message takes on the wire.
    pub const LEN: usize = 8;

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// Any length but [`ImmediateRepr::LEN`] is refused.
    pub fn parse(message: &[u8]) -> Result<Self, RdmapError> {
        // RFC 7306 §6.2: exactly eight octets.
        let bytes = message
            .try_into()
            .map_err(|_| RdmapError::PeerLength { need: Self::LEN, got: message.len() })?;
        Ok(Self { data: u64::from_be_bytes(bytes) })
    }

    /// The inverse of [`ImmediateRepr::parse`]. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        *out = self.data.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_immediate_of_other_than_eight_bytes_is_refused() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8];
        let repr = ImmediateRepr { data: 0x0001_0203_0405_0607 };
        assert_eq!(ImmediateRepr::parse(&bytes[..8]), Ok(repr));
        let mut out = [0xff; 8];
        repr.emit(&mut out);
        assert_eq!(out, bytes[..8]);
        for got in [0, 7, 9] {
            let refused = RdmapError::PeerLength { need: 8, got };
            assert_eq!(ImmediateRepr::parse(&bytes[..got]), Err(refused));
        }
    }
}
