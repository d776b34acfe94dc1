//! The formats of MPA's start-up and its frames: parse, emit, parse again.

use iwarp::mpa::{
    EnhancedRepr, FPDU_SIZE_MAX, Fpdu, FpduError, Profile, StartKind, StartRepr, crc32c,
};

use crate::Input;

/// The first byte chooses request or reply.
pub(crate) fn start_frame(data: &[u8]) {
    let mut input = Input::new(data);
    let due = if input.byte() & 1 == 0 { StartKind::Request } else { StartKind::Reply };
    let Ok(frame) = StartRepr::parse(due, input.rest()) else { return };
    let mut out = Vec::new();
    frame.emit(&mut out).expect("what was parsed is within limits");
    assert_eq!(StartRepr::parse(due, &out), Ok(frame));
}

/// What stands in front of the ULP's private data: the enhanced word, our profile.
pub(crate) fn private_data(data: &[u8]) {
    if let Some((word, rest)) = EnhancedRepr::parse(data) {
        let again = [&word.emit()[..], rest].concat();
        assert_eq!(EnhancedRepr::parse(&again), Some((word, rest)));
    }
    let Ok((Some(profile), ulp)) = Profile::parse(data) else { return };
    let mut out = Vec::new();
    if profile.emit(ulp, &mut out).is_ok() {
        assert_eq!(Profile::parse(&out), Ok((Some(profile), ulp)));
    }
}

/// The first byte says whether there is a CRC.
pub(crate) fn fpdu(data: &[u8]) {
    let mut input = Input::new(data);
    let crc = input.byte() & 1 != 0;
    let bytes = input.rest();
    match Fpdu::parse(bytes, crc) {
        Ok(fpdu) => {
            assert!(fpdu.size <= bytes.len() && fpdu.ulpdu.len() + 6 <= fpdu.size);
            let (covered, field) = bytes[..fpdu.size].split_at(fpdu.size - 4);
            assert!(!crc || crc32c(covered).to_le_bytes() == field);
        }
        Err(FpduError::Incomplete { missing }) => {
            assert!(missing > 0 && bytes.len() + missing <= FPDU_SIZE_MAX);
        }
        Err(FpduError::PeerCrc { computed, received }) => assert_ne!(computed, received),
        Err(other) => panic!("{other} is not an error of a frame"),
    }
}
