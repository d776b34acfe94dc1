//! The algorithm identifiers that negotiate contexts list, whether we can do them or not;
//! [`crate::crypto`] has the ones we can.
//!
//! Spec: MS-SMB2 §2.2.3.1.1 to §2.2.3.1.7.

use crate::open_set::open_set;

open_set! {
    /// Hash of the preauthentication integrity value.
    pub struct HashId(u16) {
        /// The only one defined.
        SHA_512 = 0x0001,
    }
}

open_set! {
    /// Cipher of transform headers.
    pub struct CipherId(u16) {
        /// In a response: none in common.
        NONE = 0x0000,
        /// AES-128-CCM, the only one of 3.0 and 3.0.2.
        AES_128_CCM = 0x0001,
        /// AES-128-GCM.
        AES_128_GCM = 0x0002,
        /// AES-256-CCM.
        AES_256_CCM = 0x0003,
        /// AES-256-GCM.
        AES_256_GCM = 0x0004,
    }
}

open_set! {
    /// Signing algorithm.
    pub struct SigningId(u16) {
        /// HMAC-SHA256, the one of 2.x.
        HMAC_SHA256 = 0x0000,
        /// AES-128-CMAC, the one of 3.x without a signing context.
        AES_CMAC = 0x0001,
        /// AES-128-GMAC.
        AES_GMAC = 0x0002,
    }
}

open_set! {
    /// Compression algorithm.
    pub struct CompressionId(u16) {
        /// None.
        NONE = 0x0000,
        /// LZNT1.
        LZNT1 = 0x0001,
        /// LZ77.
        LZ77 = 0x0002,
        /// LZ77 with Huffman coding.
        LZ77_HUFFMAN = 0x0003,
        /// Runs of one byte.
        PATTERN_V1 = 0x0004,
        /// LZ4.
        LZ4 = 0x0005,
    }
}

open_set! {
    /// Protection of server-driven RDMA.
    pub struct RdmaTransformId(u16) {
        /// None.
        NONE = 0x0000,
        /// Encryption.
        ENCRYPTION = 0x0001,
        /// Signing.
        SIGNING = 0x0002,
    }
}
