//! Each command's request and response: parse, emit, parse again.

use smb::{
    BreakAck, BreakNotification, ChangeNotifyRequest, CloseRequest, CloseResponse, Command,
    CreateRequest, CreateResponse, Empty, ErrorResponse, FlushRequest, Header, HeaderFlags,
    IoctlRequest, IoctlResponse, LockRequest, NegotiateRequest, NegotiateResponse, OutputResponse,
    QueryDirectoryRequest, QueryInfoRequest, ReadRequest, ReadResponse, SessionSetupRequest,
    SessionSetupResponse, SetInfoRequest, SetInfoResponse, TreeConnectRequest, TreeConnectResponse,
    WriteRequest, WriteResponse,
};

use super::stable_pdu;

/// The target for NEGOTIATE, whose contexts deserve their own.
pub(crate) fn negotiate(data: &[u8]) {
    if Header::parse(data).is_ok() {
        stable_pdu!(NegotiateRequest<'_>, data);
        stable_pdu!(NegotiateResponse<'_>, data);
    }
}

/// The target for CREATE, likewise.
pub(crate) fn create(data: &[u8]) {
    if Header::parse(data).is_ok() {
        stable_pdu!(CreateRequest<'_>, data);
        stable_pdu!(CreateResponse<'_>, data);
    }
}

/// Takes a PDU for what its header says.
pub(crate) fn any(header: &Header, pdu: &[u8]) {
    if header.flags.contains(HeaderFlags::RESPONSE) {
        response(header.command, pdu);
    } else {
        request(header.command, pdu);
    }
}

fn request(command: Command, pdu: &[u8]) {
    match command {
        Command::NEGOTIATE => stable_pdu!(NegotiateRequest<'_>, pdu),
        Command::SESSION_SETUP => stable_pdu!(SessionSetupRequest<'_>, pdu),
        Command::TREE_CONNECT => tree_connect(pdu),
        Command::CREATE => stable_pdu!(CreateRequest<'_>, pdu),
        Command::CLOSE => stable_pdu!(CloseRequest, pdu),
        Command::FLUSH => stable_pdu!(FlushRequest, pdu),
        Command::READ => stable_pdu!(ReadRequest<'_>, pdu),
        Command::WRITE => stable_pdu!(WriteRequest<'_>, pdu),
        Command::LOCK => stable_pdu!(LockRequest, pdu),
        Command::IOCTL => stable_pdu!(IoctlRequest<'_>, pdu),
        Command::QUERY_DIRECTORY => stable_pdu!(QueryDirectoryRequest, pdu),
        Command::CHANGE_NOTIFY => stable_pdu!(ChangeNotifyRequest, pdu),
        Command::QUERY_INFO => stable_pdu!(QueryInfoRequest<'_>, pdu),
        Command::SET_INFO => stable_pdu!(SetInfoRequest<'_>, pdu),
        Command::OPLOCK_BREAK => drop(BreakAck::parse(pdu)),
        // LOGOFF, TREE_DISCONNECT, ECHO, CANCEL, and what nobody knows.
        _ => stable_pdu!(Empty, pdu),
    }
}

fn tree_connect(pdu: &[u8]) {
    let Ok(request) = TreeConnectRequest::parse(pdu) else { return };
    let mut again = pdu[..Header::LEN].to_vec();
    request.emit(&mut again);
    // The extension is read over and never written, so its flag does not survive.
    let without = TreeConnectRequest { flags: request.flags & !4, ..request };
    assert_eq!(TreeConnectRequest::parse(&again), Ok(without));
}

fn response(command: Command, pdu: &[u8]) {
    stable_pdu!(ErrorResponse<'_>, pdu);
    match command {
        Command::NEGOTIATE => stable_pdu!(NegotiateResponse<'_>, pdu),
        Command::SESSION_SETUP => stable_pdu!(SessionSetupResponse<'_>, pdu),
        Command::TREE_CONNECT => stable_pdu!(TreeConnectResponse, pdu),
        Command::CREATE => stable_pdu!(CreateResponse<'_>, pdu),
        Command::CLOSE => stable_pdu!(CloseResponse, pdu),
        Command::READ => stable_pdu!(ReadResponse<'_>, pdu),
        Command::WRITE => stable_pdu!(WriteResponse, pdu),
        Command::IOCTL => stable_pdu!(IoctlResponse<'_>, pdu),
        Command::QUERY_DIRECTORY | Command::QUERY_INFO | Command::CHANGE_NOTIFY => {
            stable_pdu!(OutputResponse<'_>, pdu);
        }
        Command::SET_INFO => stable_pdu!(SetInfoResponse, pdu),
        Command::OPLOCK_BREAK => drop(BreakNotification::parse(pdu)),
        _ => stable_pdu!(Empty, pdu),
    }
}
