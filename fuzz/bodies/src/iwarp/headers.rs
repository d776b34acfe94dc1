//! The headers of DDP and RDMAP: parse, emit, parse again.

use iwarp::ddp::{TaggedRepr, UntaggedRepr};
use iwarp::rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, AtomicWriteRequestRepr, FlushRequestRepr, ImmediateRepr,
    Opcode, OpcodeWidth, ReadRequestRepr, TerminateOrder, TerminateRepr, VerifyRequestRepr,
};

use crate::Input;

/// For a header of a fixed length that is the whole message.
macro_rules! stable {
    ($repr:ty, $data:expr) => {
        if let Ok(repr) = <$repr>::parse($data) {
            let mut out = [0; <$repr>::LEN];
            repr.emit(&mut out);
            assert_eq!(<$repr>::parse(&out), Ok(repr));
        }
    };
}

/// A segment's header with its payload behind it.
pub(crate) fn ddp(data: &[u8]) {
    if let Ok((repr, payload)) = TaggedRepr::parse(data) {
        let mut out = [0; TaggedRepr::LEN];
        repr.emit(&mut out);
        assert_eq!(TaggedRepr::parse(&[&out[..], payload].concat()), Ok((repr, payload)));
    }
    if let Ok((repr, payload)) = UntaggedRepr::parse(data) {
        let mut out = [0; UntaggedRepr::LEN];
        repr.emit(&mut out);
        assert_eq!(UntaggedRepr::parse(&[&out[..], payload].concat()), Ok((repr, payload)));
    }
}

/// The first byte chooses the operation, the rest is its message.
pub(crate) fn rdmap(data: &[u8]) {
    let mut input = Input::new(data);
    let which = input.byte();
    let control = input.byte();
    for width in [OpcodeWidth::Four, OpcodeWidth::Five] {
        if let Ok(opcode) = Opcode::parse(control, width) {
            assert_eq!(Opcode::parse(opcode.emit(), width), Ok(opcode));
        }
    }
    let message = input.rest();
    match which % 8 {
        0 => stable!(ReadRequestRepr, message),
        1 => stable!(AtomicRequestRepr, message),
        2 => stable!(AtomicResponseRepr, message),
        3 => stable!(AtomicWriteRequestRepr, message),
        4 => stable!(FlushRequestRepr, message),
        5 => stable!(ImmediateRepr, message),
        6 => verify(message),
        _ => terminate(message),
    }
}

fn verify(message: &[u8]) {
    let Ok(request) = VerifyRequestRepr::parse(message) else { return };
    let mut out = [0; VerifyRequestRepr::HEADER_LEN];
    request.emit(&mut out);
    let again = [&out[..], request.expected].concat();
    assert_eq!(VerifyRequestRepr::parse(&again), Ok(request));
}

fn terminate(message: &[u8]) {
    for order in [TerminateOrder::BeforeFirstFrame, TerminateOrder::InFullOperation] {
        let Some(terminate) = TerminateRepr::parse(message, order) else { continue };
        let mut out = [0; TerminateRepr::LEN_MAX];
        let len = terminate.emit(&mut out);
        // We write the RFC's order, which reads the same wherever the other has no meaning.
        let again = TerminateRepr::parse(&out[..len], order).expect("it has a control word");
        if again.code == terminate.code {
            assert_eq!(again.segment, terminate.segment);
            // A Read Request without the segment it came in has no place on the wire.
            assert!(terminate.segment.is_none() || again.read_request == terminate.read_request);
        }
    }
}
