//! Payloads of control codes, and the error data of a symbolic link.

use smb::SymlinkError;
use smb::fsctl::{NetworkInterface, ValidateNegotiateRequest, ValidateNegotiateResponse};

use super::stable_bytes;
use crate::Input;

/// The first byte chooses the payload.
pub(crate) fn fsctl(data: &[u8]) {
    let mut input = Input::new(data);
    let which = input.byte();
    let bytes = input.rest();
    match which % 4 {
        0 => stable_bytes!(ValidateNegotiateRequest, bytes),
        1 => stable_bytes!(ValidateNegotiateResponse, bytes),
        2 => stable_bytes!(SymlinkError, bytes),
        _ => interfaces(bytes),
    }
}

fn interfaces(bytes: &[u8]) {
    let Ok(list) = NetworkInterface::parse_list(bytes) else { return };
    if list.is_empty() {
        return;
    }
    let mut again = Vec::new();
    NetworkInterface::emit_list(&list, &mut again);
    assert_eq!(NetworkInterface::parse_list(&again), Ok(list));
}
