//! Payloads of control codes, and the two forms of a symbolic link.

use smb::SymlinkError;
use smb::fsctl::{
    CopyChunkRequest, CopyChunkResponse, DuplicateExtents, FileLevelTrim, FileRange,
    NetworkInterface, ReparsePoint, ResumeKey, SetSparse, ValidateNegotiateRequest,
    ValidateNegotiateResponse, ZeroData,
};

use super::stable_bytes;
use crate::Input;

/// The first byte chooses the payload.
pub(crate) fn fsctl(data: &[u8]) {
    let mut input = Input::new(data);
    let which = input.byte();
    let bytes = input.rest();
    match which % 16 {
        0 => stable_bytes!(ValidateNegotiateRequest, bytes),
        1 => stable_bytes!(ValidateNegotiateResponse, bytes),
        2 => stable_bytes!(SymlinkError, bytes),
        3 => interfaces(bytes),
        4 => stable_bytes!(CopyChunkRequest, bytes),
        5 => stable_bytes!(CopyChunkResponse, bytes),
        6 => stable_bytes!(DuplicateExtents, bytes),
        7 => drop(DuplicateExtents::parse_ex(bytes)),
        8 => stable_bytes!(FileLevelTrim, bytes),
        9 => stable_bytes!(FileRange, bytes),
        10 => stable_bytes!(ZeroData, bytes),
        11 => stable_bytes!(ResumeKey, bytes),
        12 => ranges(bytes),
        13 => reparse(bytes),
        _ => sparse(bytes),
    }
}

fn ranges(bytes: &[u8]) {
    let Ok(list) = FileRange::parse_list(bytes) else { return };
    let mut again = Vec::new();
    list.iter().for_each(|range| range.emit(&mut again));
    assert_eq!(again, bytes);
}

fn reparse(bytes: &[u8]) {
    let Ok(ReparsePoint::Symlink(link)) = ReparsePoint::parse(bytes) else { return };
    let mut again = Vec::new();
    link.emit(&mut again);
    assert_eq!(ReparsePoint::parse(&again), Ok(ReparsePoint::Symlink(link)));
}

fn sparse(bytes: &[u8]) {
    let set = SetSparse::parse(bytes);
    let mut again = Vec::new();
    set.emit(&mut again);
    assert_eq!(SetSparse::parse(&again), set);
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
