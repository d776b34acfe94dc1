//! The Terminate header: the last message of a stream, with the reason.
//!
//! ```text
//!  0          1          2       3       4                  6            20 or 24
//!  +-----+----+----------+-------+-------+------------------+-------------+--------------+
//!  |layer|type| code     |MDR..  | 0     | segment length   | DDP header  | Read Request |
//!  +-----+----+----------+-------+-------+------------------+-------------+--------------+
//!                                          present with D      present with D   with R
//! ```
//!
//! siw on little-endian hosts swaps the halves of the first byte and counts M, D, R from the
//! other end of the third. We send the RFC's order and read both.
//!
//! Spec: RFC 5040 §4.8. Big-endian.

use super::{ReadRequestRepr, TerminateCode};
use crate::ddp::{TaggedRepr, UntaggedRepr, is_tagged};

/// A Terminate message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TerminateRepr {
    /// The reason.
    pub code: TerminateCode,
    /// The offending segment. From a peer this field is for the log only: siw fills it wrongly.
    pub segment: Option<TerminatedSegment>,
    /// The offending Read Request, reduced by the part of the answer that was already sent.
    pub read_request: Option<ReadRequestRepr>,
}

/// The echo of an offending segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TerminatedSegment {
    /// Length of the DDP segment, header included.
    pub length: u16,
    header: [u8; UntaggedRepr::LEN],
}

impl TerminatedSegment {
    /// Remembers the header of `ulpdu`, unless that is too short to have one.
    pub fn of(ulpdu: &[u8]) -> Option<Self> {
        let length = u16::try_from(ulpdu.len()).ok()?;
        let header_len = header_len(*ulpdu.first()?);
        let mut header = [0; UntaggedRepr::LEN];
        header.get_mut(..header_len)?.copy_from_slice(ulpdu.get(..header_len)?);
        Some(Self { length, header })
    }

    /// The offending DDP header: 14 bytes of a tagged one, 18 of an untagged one.
    pub fn header(&self) -> &[u8] {
        &self.header[..header_len(self.header[0])]
    }
}

/// The bit order that a sender may have used for the control word of a Terminate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TerminateOrder {
    /// The Terminate is the peer's first frame, so layer 2 codes of the start-up are likely.
    BeforeFirstFrame,
    /// The peer sent frames before the Terminate.
    InFullOperation,
}

impl TerminateRepr {
    /// The most bytes a Terminate takes.
    pub const LEN_MAX: usize = CONTROL_LEN + LENGTH_LEN + UntaggedRepr::LEN + ReadRequestRepr::LEN;

    /// Reads a whole message, in the RFC's order or in siw's. Headers that are announced but cut
    /// short are left out: a Terminate ends the stream whatever its content.
    ///
    /// Returns `None` if the message is shorter than a control word.
    pub fn parse(message: &[u8], order: TerminateOrder) -> Option<Self> {
        let (control, rest) = message.split_first_chunk::<CONTROL_LEN>()?;
        let (code, headers) = read_control(*control, order);
        let segment = headers.ddp.then(|| read_segment(rest)).flatten();
        let after = segment.map_or(rest, |segment| &rest[LENGTH_LEN + segment.header().len()..]);
        let read_request = if headers.rdmap {
            after.get(..ReadRequestRepr::LEN).and_then(|bytes| ReadRequestRepr::parse(bytes).ok())
        } else {
            None
        };
        Some(Self { code, segment, read_request })
    }

    /// The inverse of [`TerminateRepr::parse`]; returns how many bytes it took. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN_MAX]) -> usize {
        let mut headers = 0;
        let mut len = CONTROL_LEN;
        if let Some(segment) = &self.segment {
            headers |= LENGTH_VALID | DDP_INCLUDED;
            out[len..len + LENGTH_LEN].copy_from_slice(&segment.length.to_be_bytes());
            len += LENGTH_LEN;
            out[len..len + segment.header().len()].copy_from_slice(segment.header());
            len += segment.header().len();
        }
        if let Some(request) = &self.read_request {
            headers |= RDMAP_INCLUDED;
            let mut bytes = [0; ReadRequestRepr::LEN];
            request.emit(&mut bytes);
            out[len..len + bytes.len()].copy_from_slice(&bytes);
            len += bytes.len();
        }
        let code = self.code;
        out[..CONTROL_LEN].copy_from_slice(&[
            (code.layer << 4) | (code.etype & 0x0f),
            code.ecode,
            headers,
            0,
        ]);
        len
    }
}

/// The headers that follow the control word.
struct Headers {
    ddp: bool,
    rdmap: bool,
}

/// Tells the two orders apart by the position of the header bits, and without header bits by the
/// reading that has a meaning.
fn read_control(control: [u8; CONTROL_LEN], order: TerminateOrder) -> (TerminateCode, Headers) {
    let [first, ecode, bits, _] = control;
    let rfc = TerminateCode { layer: first >> 4, etype: first & 0x0f, ecode };
    let siw = TerminateCode { layer: first & 0x0f, etype: first >> 4, ecode };
    let rfc_headers = Headers { ddp: bits & DDP_INCLUDED != 0, rdmap: bits & RDMAP_INCLUDED != 0 };
    if bits & RFC_BITS != 0 {
        return (rfc, rfc_headers);
    }
    if bits & SIW_BITS != 0 {
        let headers = Headers { ddp: bits & SIW_DDP != 0, rdmap: bits & SIW_RDMAP != 0 };
        return (siw, headers);
    }
    // Bytes `20 05` to `20 07` have a meaning both ways: start-up trouble in the RFC's order, a
    // remote operation error in siw's. Start-up is over once a frame has arrived.
    let clash = rfc.layer == 2 && rfc.etype == 0 && (5..=7).contains(&ecode);
    let swap = if clash { order == TerminateOrder::InFullOperation } else { !rfc.is_registered() };
    (if swap { siw } else { rfc }, rfc_headers)
}

fn read_segment(bytes: &[u8]) -> Option<TerminatedSegment> {
    let (length, header) = bytes.split_first_chunk::<LENGTH_LEN>()?;
    let segment = TerminatedSegment::of(header.get(..header_len(*header.first()?))?)?;
    Some(TerminatedSegment { length: u16::from_be_bytes(*length), ..segment })
}

fn header_len(control: u8) -> usize {
    if is_tagged(control) { TaggedRepr::LEN } else { UntaggedRepr::LEN }
}

const CONTROL_LEN: usize = 4;
const LENGTH_LEN: usize = 2;
// RFC 5040 §4.8 figure 8: the header control bits, first bits of the third byte.
const LENGTH_VALID: u8 = 0x80;
const DDP_INCLUDED: u8 = 0x40;
const RDMAP_INCLUDED: u8 = 0x20;
const RFC_BITS: u8 = LENGTH_VALID | DDP_INCLUDED | RDMAP_INCLUDED;
// The same three as siw's little-endian bit fields put them.
const SIW_DDP: u8 = 0x02;
const SIW_RDMAP: u8 = 0x04;
const SIW_BITS: u8 = 0x07;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::Stag;

    fn parse(control: [u8; 4], order: TerminateOrder) -> TerminateCode {
        TerminateRepr::parse(&control, order).unwrap().code
    }

    #[test]
    fn a_terminate_with_every_header_parses_as_it_was_emitted() {
        let read = ReadRequestRepr {
            sink_stag: Stag(1),
            sink_offset: 2,
            size: 3,
            source_stag: Stag(4),
            source_offset: 5,
        };
        let mut ulpdu = [0_u8; 46];
        ulpdu[..2].copy_from_slice(&[0x41, 0x41]);
        let repr = TerminateRepr {
            code: TerminateCode::RDMAP_BOUNDS,
            segment: TerminatedSegment::of(&ulpdu),
            read_request: Some(read),
        };
        let mut out = [0; TerminateRepr::LEN_MAX];
        let len = repr.emit(&mut out);
        assert_eq!(len, 52);
        assert_eq!(out[..7], [0x01, 0x01, 0xe0, 0, 0, 46, 0x41]);
        let order = TerminateOrder::InFullOperation;
        assert_eq!(TerminateRepr::parse(&out[..len], order), Some(repr));
    }

    #[test]
    fn a_tagged_echo_takes_fourteen_bytes() {
        let ulpdu = [0xc1; 20];
        let segment = TerminatedSegment::of(&ulpdu).unwrap();
        assert_eq!((segment.length, segment.header().len()), (20, 14));
        assert_eq!(TerminatedSegment::of(&ulpdu[..13]), None);
    }

    #[test]
    fn a_terminate_in_the_bit_order_of_siw_is_understood() {
        let order = TerminateOrder::InFullOperation;
        // Seen from siw 6.12: unknown STag on a Write, with M and D at the other end.
        assert_eq!(parse([0x11, 0x00, 0x03, 0], order), TerminateCode::TAGGED_INVALID_STAG);
        // Seen from siw 6.12: wrong MSN, 1/2/3 swapped to 0x21.
        assert_eq!(parse([0x21, 0x03, 0x03, 0], order), TerminateCode::UNTAGGED_MSN);
        // Without header bits 0x21 has no meaning in the RFC's order, so the order is siw's.
        assert_eq!(parse([0x21, 0x03, 0, 0], order), TerminateCode::UNTAGGED_MSN);
        // Seen from siw 6.12: a frame shorter than its header.
        assert_eq!(parse([0x02, 0x03, 0, 0], order), TerminateCode::MPA_LENGTH);
    }

    #[test]
    fn an_ambiguous_terminate_is_read_by_whether_frames_came_before() {
        let bytes = [0x20, 0x06, 0, 0];
        let before = parse(bytes, TerminateOrder::BeforeFirstFrame);
        assert_eq!(before, TerminateCode::MPA_INSUFFICIENT_IRD);
        let after = parse(bytes, TerminateOrder::InFullOperation);
        assert_eq!(after, TerminateCode::RDMAP_OPCODE);
    }

    #[test]
    fn cut_headers_of_a_terminate_are_left_out_without_a_panic() {
        let full = [0x01, 0x00, 0xe0, 0, 0, 46, 0x41, 0x41, 0, 0];
        for len in 0..full.len() {
            let order = TerminateOrder::InFullOperation;
            let parsed = TerminateRepr::parse(&full[..len], order);
            assert_eq!(parsed.is_some(), len >= 4);
            assert!(parsed.is_none_or(|repr| repr.segment.is_none()));
        }
    }

    #[test]
    fn each_header_of_a_terminate_has_its_bit_in_either_order() {
        let mut read = [0; ReadRequestRepr::LEN];
        let (sink_stag, source_stag) = (Stag(1), Stag(4));
        ReadRequestRepr { sink_stag, sink_offset: 2, size: 3, source_stag, source_offset: 5 }
            .emit(&mut read);
        let order = TerminateOrder::InFullOperation;
        // RFC 5040 §4.8: M says that the length counts, D that the DDP header is there, R the Read Request.
        for (bits, ddp, rdmap) in [
            (LENGTH_VALID, false, false),
            (DDP_INCLUDED, true, false),
            (RDMAP_INCLUDED, false, true),
            (0x01, false, false),
            (SIW_DDP, true, false),
            (SIW_RDMAP, false, true),
        ] {
            let mut message = vec![0x11, 0, bits, 0];
            if ddp {
                message.extend([0, 46]);
                message.extend([0x41; UntaggedRepr::LEN]);
            }
            message.extend(read);
            let parsed = TerminateRepr::parse(&message, order).unwrap();
            let found = (parsed.segment.is_some(), parsed.read_request.is_some());
            assert_eq!(found, (ddp, rdmap), "bits {bits:#04x}");
        }
    }

    #[test]
    fn only_the_codes_that_mean_two_things_are_read_by_what_came_before() {
        let order = TerminateOrder::InFullOperation;
        // 2/0/2 means nothing as 0/2/2, and 1/2/5 nothing as 2/1/5.
        assert_eq!(parse([0x20, 0x02, 0, 0], order), TerminateCode::MPA_CRC);
        assert_eq!(parse([0x12, 0x05, 0, 0], order), TerminateCode::UNTAGGED_TOO_LONG);
        assert_eq!(parse([0x20, 0x04, 0, 0], order), TerminateCode::MPA_STARTUP);
    }
}
