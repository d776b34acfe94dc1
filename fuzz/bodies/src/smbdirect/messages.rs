//! The formats of SMB Direct: parse, emit, parse again.

use smbdirect::{BufferDescriptor, DataTransfer, Descriptors, NegotiateRequest, NegotiateResponse};

use crate::Input;

pub(crate) fn negotiate_request(data: &[u8]) {
    let Ok(request) = NegotiateRequest::parse(data) else { return };
    let mut out = [0; NegotiateRequest::LEN];
    request.emit(&mut out);
    assert_eq!(NegotiateRequest::parse(&out), Ok(request));
}

pub(crate) fn negotiate_response(data: &[u8]) {
    let Ok(response) = NegotiateResponse::parse(data) else { return };
    let mut out = [0; NegotiateResponse::LEN];
    response.emit(&mut out);
    assert_eq!(NegotiateResponse::parse(&out), Ok(response));
}

pub(crate) fn data_transfer(data: &[u8]) {
    let Ok((header, payload)) = DataTransfer::parse(data) else { return };
    let len = u32::try_from(payload.len()).expect("no longer than the input");
    let mut head = [0xff; DataTransfer::PAYLOAD_OFFSET];
    let head_len = header.emit(len, &mut head);
    let message = [&head[..head_len], payload].concat();
    assert_eq!(message.len() as u64, DataTransfer::message_len(len));
    assert_eq!(DataTransfer::parse(&message), Ok((header, payload)));
}

/// A position and a length, then descriptors.
pub(crate) fn descriptors(data: &[u8]) {
    let mut input = Input::new(data);
    let (position, length) = (input.u64(), input.u64());
    let bytes = input.rest();
    let Ok(descriptors) = Descriptors::parse(bytes) else { return };
    let mut again = Vec::new();
    for descriptor in descriptors.iter() {
        let mut out = [0; BufferDescriptor::LEN];
        descriptor.emit(&mut out);
        again.extend_from_slice(&out);
    }
    assert_eq!(again, bytes);
    let total = descriptors.total_length();
    let Ok(pieces) = descriptors.pieces(position, length) else {
        assert!(position.checked_add(length).is_none_or(|end| end > total));
        return;
    };
    let mut next = position;
    for piece in pieces {
        assert_eq!(piece.position, next);
        assert!(piece.length > 0);
        let within = |d: &BufferDescriptor| {
            let end = d.offset.checked_add(u64::from(d.length)).expect("parse saw to it");
            let piece_end = piece.offset.checked_add(u64::from(piece.length));
            d.token == piece.token
                && d.offset <= piece.offset
                && piece_end.is_some_and(|piece_end| piece_end <= end)
        };
        assert!(descriptors.iter().any(|descriptor| within(&descriptor)));
        next += u64::from(piece.length);
    }
    assert_eq!(next, position + length);
}
