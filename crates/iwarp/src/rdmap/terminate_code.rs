//! The reason inside a Terminate: the layer, the type of error, the error.
//!
//! Spec: RFC 5040 §4.8 figure 9 (layer 0), RFC 5041 §7.2 (layer 1), RFC 5044 §8 and RFC 6581 §8
//! (layer 2).

use core::fmt;

/// The reason why a stream ends. Unknown values survive; `layer` and `etype` are four bits on the wire.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct TerminateCode {
    /// 0 RDMAP, 1 DDP, 2 the LLP, which is MPA here.
    pub layer: u8,
    /// Type of error within the layer.
    pub etype: u8,
    /// Error within the type.
    pub ecode: u8,
}

/// Declares a constant for each registered code and a list of all of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $layer:literal / $etype:literal / $ecode:literal;)*) => {
        impl TerminateCode {
            $($(#[$doc])* pub const $name: Self =
                Self { layer: $layer, etype: $etype, ecode: $ecode };)*

            /// Every code to which a specification gives a meaning.
            pub const REGISTERED: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

codes! {
    /// A local catastrophic error: the fault is on the side that sends the Terminate.
    RDMAP_LOCAL = 0x0 / 0x0 / 0x00;
    /// No such region.
    RDMAP_INVALID_STAG = 0x0 / 0x1 / 0x00;
    /// Outside the region.
    RDMAP_BOUNDS = 0x0 / 0x1 / 0x01;
    /// The region does not allow it.
    RDMAP_ACCESS = 0x0 / 0x1 / 0x02;
    /// The region belongs to another stream.
    RDMAP_NOT_THIS_STREAM = 0x0 / 0x1 / 0x03;
    /// Offset plus length passes 2^64.
    RDMAP_OFFSET_WRAP = 0x0 / 0x1 / 0x04;
    /// The region cannot be invalidated.
    RDMAP_CANNOT_INVALIDATE = 0x0 / 0x1 / 0x09;
    /// A protection error without a code.
    RDMAP_PROTECTION = 0x0 / 0x1 / 0xff;
    /// RDMAP version.
    RDMAP_VERSION = 0x0 / 0x2 / 0x05;
    /// The opcode is unknown, or not allowed now, on this queue or in this model.
    RDMAP_OPCODE = 0x0 / 0x2 / 0x06;
    /// Catastrophic, for this stream only.
    RDMAP_STREAM = 0x0 / 0x2 / 0x07;
    /// Catastrophic, for more than this stream.
    RDMAP_GLOBAL = 0x0 / 0x2 / 0x08;
    /// The region cannot be invalidated, as an operation error.
    RDMAP_OPERATION_CANNOT_INVALIDATE = 0x0 / 0x2 / 0x09;
    /// An operation error without a code.
    RDMAP_OPERATION = 0x0 / 0x2 / 0xff;
    /// A local catastrophic error of DDP, on the side that sends the Terminate.
    DDP_LOCAL = 0x1 / 0x0 / 0x00;
    /// Tagged: no such region. This end also sends the code when the region may not be written.
    TAGGED_INVALID_STAG = 0x1 / 0x1 / 0x00;
    /// Tagged: outside the region.
    TAGGED_BOUNDS = 0x1 / 0x1 / 0x01;
    /// Tagged: the region belongs to another stream.
    TAGGED_NOT_THIS_STREAM = 0x1 / 0x1 / 0x02;
    /// Tagged: offset plus length passes 2^64.
    TAGGED_OFFSET_WRAP = 0x1 / 0x1 / 0x03;
    /// Tagged: DDP version.
    TAGGED_VERSION = 0x1 / 0x1 / 0x04;
    /// Untagged: no such queue, or the wrong one.
    UNTAGGED_QUEUE = 0x1 / 0x2 / 0x01;
    /// Untagged: no buffer was posted for this message.
    UNTAGGED_NO_BUFFER = 0x1 / 0x2 / 0x02;
    /// Untagged: message sequence number.
    UNTAGGED_MSN = 0x1 / 0x2 / 0x03;
    /// Untagged: message offset.
    UNTAGGED_OFFSET = 0x1 / 0x2 / 0x04;
    /// Untagged: longer than the buffer.
    UNTAGGED_TOO_LONG = 0x1 / 0x2 / 0x05;
    /// Untagged: DDP version.
    UNTAGGED_VERSION = 0x1 / 0x2 / 0x06;
    /// The TCP connection was lost.
    MPA_LOST = 0x2 / 0x0 / 0x01;
    /// CRC mismatch.
    MPA_CRC = 0x2 / 0x0 / 0x02;
    /// Marker and length disagree; also a frame too short for its header.
    MPA_LENGTH = 0x2 / 0x0 / 0x03;
    /// Request or Reply cannot be used.
    MPA_STARTUP = 0x2 / 0x0 / 0x04;
    /// A local catastrophic error of MPA, on the side that sends the Terminate.
    MPA_LOCAL = 0x2 / 0x0 / 0x05;
    /// The peer's ORD exceeds our IRD.
    MPA_INSUFFICIENT_IRD = 0x2 / 0x0 / 0x06;
    /// Both ends have no ready-to-receive message in common.
    MPA_NO_COMMON_READY = 0x2 / 0x0 / 0x07;
}

impl TerminateCode {
    /// Whether a specification gives this code a meaning.
    pub fn is_registered(self) -> bool {
        // RFC 5040 figure 9: a local catastrophic error may carry any code.
        let local = self.layer == 0 && self.etype == 0;
        local || Self::REGISTERED.contains(&self)
    }
}

impl fmt::Debug for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TerminateCode({self})")
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer {:#x} type {:#x} code {:#04x}", self.layer, self.etype, self.ecode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_code_of_a_local_error_of_rdmap_is_registered_and_of_no_other_layer() {
        let code = |layer, etype| TerminateCode { layer, etype, ecode: 0x55 };
        assert!(code(0, 0).is_registered());
        for other in [code(1, 0), code(0, 1), code(2, 0)] {
            assert!(!other.is_registered(), "{other}");
        }
    }

    #[test]
    fn a_code_is_named_by_its_three_numbers() {
        let text = "layer 0x1 type 0x2 code 0x05";
        assert_eq!(TerminateCode::UNTAGGED_TOO_LONG.to_string(), text);
        let debug = format!("{:?}", TerminateCode::UNTAGGED_TOO_LONG);
        assert_eq!(debug, format!("TerminateCode({text})"));
    }
}
