//! A client that knows the extensions, and what it says of files.

use std::path::PathBuf;

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponseContext, PosixResponse,
};
use smb::info::{FileInfoClass, InfoType, PosixInfo, SecurityInformation};
use smb::negotiate::{NegotiateContext, NegotiateResponse};
use smb::{Command, FileId, NtStatus, OutputResponse, QueryInfoRequest, SetInfoRequest};

use crate::support::{self, Fixture, Opened, Wire};

/// A client that knows the extensions, in the share.
pub(crate) fn client(fixture: &Fixture, number: u8) -> Wire {
    let mut wire = fixture.dial();
    let version = NegotiateContext::Posix(NegotiateContext::POSIX_VERSION);
    let (_, pdu) = wire.negotiate_with(number, vec![version.clone()]);
    assert!(NegotiateResponse::parse(&pdu).unwrap().contexts.contains(&version));
    wire.log_on();
    wire.enter("data");
    wire
}

pub(crate) const NO_MODE: u32 = 0xffff;

pub(crate) fn open_as(
    wire: &mut Wire,
    name: &str,
    mode: u32,
    change: impl FnOnce(&mut CreateRequest<'_>),
) -> Opened {
    wire.open(name, |open| {
        open.contexts.push(CreateRequestContext::Posix { mode });
        open.desired_access |=
            AccessMask::READ_CONTROL | AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER;
        change(open);
    })
}

pub(crate) fn open(wire: &mut Wire, name: &str) -> Opened {
    open_as(wire, name, NO_MODE, |open| open.disposition = CreateDisposition::OPEN)
}

pub(crate) fn make(wire: &mut Wire, name: &str, mode: u32) -> FileId {
    let made = open_as(wire, name, mode, |open| open.disposition = CreateDisposition::CREATE);
    assert_eq!(made.status, NtStatus::SUCCESS, "{name}");
    made.id
}

pub(crate) fn facts(opened: &Opened) -> PosixResponse {
    let response = opened.response();
    let found = response.contexts.iter().find_map(|context| match context {
        CreateResponseContext::Posix(facts) => Some(facts.clone()),
        _ => None,
    });
    found.expect("the answer speaks of POSIX")
}

pub(crate) fn close(wire: &mut Wire, file_id: FileId) {
    assert_eq!(wire.close(file_id), NtStatus::SUCCESS);
}

pub(crate) fn unlink(wire: &mut Wire, name: &str) {
    let opened = open_as(wire, name, NO_MODE, |open| {
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::DELETE_ON_CLOSE | CreateOptions::OPEN_REPARSE_POINT;
    });
    assert_eq!(opened.status, NtStatus::SUCCESS, "{name}");
    close(wire, opened.id);
}

pub(crate) fn query(
    wire: &mut Wire,
    file_id: FileId,
    info_type: InfoType,
    class: u8,
    additional: SecurityInformation,
) -> Result<Vec<u8>, NtStatus> {
    let request = QueryInfoRequest { additional, ..support::query(file_id, info_type, class) };
    let (header, pdu) = wire.ask(Command::QUERY_INFO, |out| request.emit(out));
    match header.status {
        NtStatus::SUCCESS => Ok(OutputResponse::parse(&pdu).unwrap().output.to_vec()),
        status => Err(status),
    }
}

pub(crate) fn info(wire: &mut Wire, file_id: FileId) -> PosixInfo {
    let none = SecurityInformation::empty();
    let bytes = query(wire, file_id, InfoType::FILE, FileInfoClass::POSIX.0, none).unwrap();
    PosixInfo::parse(&bytes).unwrap()
}

pub(crate) fn set(
    wire: &mut Wire,
    file_id: FileId,
    (info_type, class): (InfoType, FileInfoClass),
    additional: SecurityInformation,
    buffer: &[u8],
) -> NtStatus {
    let request = SetInfoRequest { info_type, class: class.0, additional, file_id, buffer };
    wire.ask(Command::SET_INFO, |out| request.emit(out)).0.status
}

pub(crate) fn on_disk(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.dir.path().join(name)
}
