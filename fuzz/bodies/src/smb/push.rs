//! The messages of push mode: parse, emit, parse again.

use smb::push::{
    CommitRequest, CommitResponse, MapRequest, MapResponse, PushAccept, PushConnect, PushRequest,
    PushResponse, QueryRequest, QueryResponse, RecallRequest, RecallResponse, UnmapRequest,
    WriteUnderLease,
};

use super::stable_bytes;
use crate::Input;

/// The first byte chooses the message.
pub(crate) fn push(data: &[u8]) {
    let mut input = Input::new(data);
    let which = input.byte();
    let bytes = input.rest();
    match which % 14 {
        0 => stable_bytes!(CommitRequest, bytes),
        1 => stable_bytes!(CommitResponse, bytes),
        2 => stable_bytes!(MapRequest, bytes),
        3 => stable_bytes!(MapResponse, bytes),
        4 => stable_bytes!(PushAccept, bytes),
        5 => stable_bytes!(PushConnect, bytes),
        6 => stable_bytes!(PushRequest, bytes),
        7 => stable_bytes!(PushResponse, bytes),
        8 => stable_bytes!(QueryRequest, bytes),
        9 => stable_bytes!(QueryResponse, bytes),
        10 => stable_bytes!(RecallRequest, bytes),
        11 => stable_bytes!(RecallResponse, bytes),
        12 => stable_bytes!(UnmapRequest, bytes),
        _ => stable_bytes!(WriteUnderLease<'_>, bytes),
    }
}
