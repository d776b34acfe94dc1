//! Captured conversations, and any message as one value so that tests can treat all alike.

#![allow(dead_code, reason = "each test file uses its part")]

use smb::create::{CreateRequest, CreateResponse};
use smb::{
    BreakAck, BreakNotification, ChangeNotifyRequest, CloseRequest, CloseResponse, Command, Empty,
    ErrorResponse, FlushRequest, Header, HeaderFlags, IoctlRequest, IoctlResponse, LockRequest,
    MessageId, NegotiateRequest, NegotiateResponse, NtStatus, OutputResponse, ParseError, Protocol,
    QueryDirectoryRequest, QueryInfoRequest, ReadRequest, ReadResponse, SessionSetupRequest,
    SessionSetupResponse, SetInfoRequest, SetInfoResponse, TreeConnectRequest, TreeConnectResponse,
    WriteRequest, WriteResponse, compound,
};

/// Every PDU of every captured conversation.
pub(crate) fn captured_pdus() -> Vec<Vec<u8>> {
    let conversations = [
        include_str!("../fixtures/cifs-ksmbd.hex"),
        include_str!("../fixtures/smbclient-samba.hex"),
    ];
    let frames = conversations.into_iter().flat_map(frames);
    let smb2 = frames.filter(|frame| Protocol::of(frame) == Ok(Protocol::Smb2));
    smb2.flat_map(|frame| {
        let ranges: Vec<_> = compound::walk(&frame).map(|step| step.unwrap().0).collect();
        ranges.into_iter().map(|range| frame[range].to_vec()).collect::<Vec<_>>()
    })
    .collect()
}

/// The frames of a fixture.
pub(crate) fn frames(fixture: &str) -> impl Iterator<Item = Vec<u8>> {
    let lines = fixture.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| unhex(line.get(2..).unwrap()))
}

fn unhex(text: &str) -> Vec<u8> {
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    pairs
        .iter()
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

macro_rules! messages {
    ($($variant:ident($kind:ty),)*) => {
        /// Any body.
        #[derive(Debug, PartialEq)]
        pub(crate) enum Body<'a> {
            $($variant($kind),)*
        }

        impl Body<'_> {
            /// Appends it behind a header.
            pub(crate) fn emit(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(body) => body.emit(out),)*
                }
            }
        }
    };
}

messages! {
    Empty(Empty),
    Error(ErrorResponse<'a>),
    NegotiateRequest(NegotiateRequest<'a>),
    NegotiateResponse(NegotiateResponse<'a>),
    SessionSetupRequest(SessionSetupRequest<'a>),
    SessionSetupResponse(SessionSetupResponse<'a>),
    TreeConnectRequest(TreeConnectRequest),
    TreeConnectResponse(TreeConnectResponse),
    CreateRequest(CreateRequest<'a>),
    CreateResponse(CreateResponse<'a>),
    CloseRequest(CloseRequest),
    CloseResponse(CloseResponse),
    FlushRequest(FlushRequest),
    ReadRequest(ReadRequest<'a>),
    ReadResponse(ReadResponse<'a>),
    WriteRequest(WriteRequest<'a>),
    WriteResponse(WriteResponse),
    LockRequest(LockRequest),
    IoctlRequest(IoctlRequest<'a>),
    IoctlResponse(IoctlResponse<'a>),
    QueryDirectoryRequest(QueryDirectoryRequest),
    ChangeNotifyRequest(ChangeNotifyRequest),
    QueryInfoRequest(QueryInfoRequest<'a>),
    Output(OutputResponse<'a>),
    SetInfoRequest(SetInfoRequest<'a>),
    SetInfoResponse(SetInfoResponse),
    OplockBreak(smb::OplockBreak),
    LeaseBreak(smb::LeaseBreakNotification),
    LeaseBreakAck(smb::LeaseBreakAck),
}

/// A header and its body.
pub(crate) fn parse(pdu: &[u8]) -> Result<(Header, Body<'_>), ParseError> {
    let header = Header::parse(pdu)?;
    let body = if header.flags.contains(HeaderFlags::RESPONSE) {
        parse_response(&header, pdu)?
    } else {
        parse_request(&header, pdu)?
    };
    Ok((header, body))
}

/// The bytes of a header and its body.
pub(crate) fn emit(header: &Header, body: &Body<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&mut out);
    body.emit(&mut out);
    out
}

/// A request header to put in front of a body.
pub(crate) fn request(command: Command) -> Vec<u8> {
    let mut out = Vec::new();
    Header::request(command, MessageId(7)).emit(&mut out);
    out
}

fn parse_request<'a>(header: &Header, pdu: &'a [u8]) -> Result<Body<'a>, ParseError> {
    Ok(match header.command {
        Command::NEGOTIATE => Body::NegotiateRequest(NegotiateRequest::parse(pdu)?),
        Command::SESSION_SETUP => Body::SessionSetupRequest(SessionSetupRequest::parse(pdu)?),
        Command::TREE_CONNECT => Body::TreeConnectRequest(TreeConnectRequest::parse(pdu)?),
        Command::CREATE => Body::CreateRequest(CreateRequest::parse(pdu)?),
        Command::CLOSE => Body::CloseRequest(CloseRequest::parse(pdu)?),
        Command::FLUSH => Body::FlushRequest(FlushRequest::parse(pdu)?),
        Command::READ => Body::ReadRequest(ReadRequest::parse(pdu)?),
        Command::WRITE => Body::WriteRequest(WriteRequest::parse(pdu)?),
        Command::LOCK => Body::LockRequest(LockRequest::parse(pdu)?),
        Command::IOCTL => Body::IoctlRequest(IoctlRequest::parse(pdu)?),
        Command::QUERY_DIRECTORY => Body::QueryDirectoryRequest(QueryDirectoryRequest::parse(pdu)?),
        Command::CHANGE_NOTIFY => Body::ChangeNotifyRequest(ChangeNotifyRequest::parse(pdu)?),
        Command::QUERY_INFO => Body::QueryInfoRequest(QueryInfoRequest::parse(pdu)?),
        Command::SET_INFO => Body::SetInfoRequest(SetInfoRequest::parse(pdu)?),
        Command::OPLOCK_BREAK => match BreakAck::parse(pdu)? {
            BreakAck::Oplock(ack) => Body::OplockBreak(ack),
            BreakAck::Lease(ack) => Body::LeaseBreakAck(ack),
        },
        _ => Body::Empty(Empty::parse(pdu)?),
    })
}

fn parse_response<'a>(header: &Header, pdu: &'a [u8]) -> Result<Body<'a>, ParseError> {
    let more = NtStatus::MORE_PROCESSING_REQUIRED;
    let pending = header.status == NtStatus::PENDING;
    if pending || !header.status.is_success() && header.status != more {
        return ErrorResponse::parse(pdu).map(Body::Error);
    }
    Ok(match header.command {
        Command::NEGOTIATE => Body::NegotiateResponse(NegotiateResponse::parse(pdu)?),
        Command::SESSION_SETUP => Body::SessionSetupResponse(SessionSetupResponse::parse(pdu)?),
        Command::TREE_CONNECT => Body::TreeConnectResponse(TreeConnectResponse::parse(pdu)?),
        Command::CREATE => Body::CreateResponse(CreateResponse::parse(pdu)?),
        Command::CLOSE => Body::CloseResponse(CloseResponse::parse(pdu)?),
        Command::READ => Body::ReadResponse(ReadResponse::parse(pdu)?),
        Command::WRITE => Body::WriteResponse(WriteResponse::parse(pdu)?),
        Command::IOCTL => Body::IoctlResponse(IoctlResponse::parse(pdu)?),
        Command::QUERY_DIRECTORY | Command::CHANGE_NOTIFY | Command::QUERY_INFO => {
            Body::Output(OutputResponse::parse(pdu)?)
        }
        Command::SET_INFO => Body::SetInfoResponse(SetInfoResponse::parse(pdu)?),
        Command::OPLOCK_BREAK => match BreakNotification::parse(pdu)? {
            BreakNotification::Oplock(notification) => Body::OplockBreak(notification),
            BreakNotification::Lease(notification) => Body::LeaseBreak(notification),
        },
        _ => Body::Empty(Empty::parse(pdu)?),
    })
}
