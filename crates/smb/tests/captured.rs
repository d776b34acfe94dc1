//! What cifs.ko, ksmbd, smbclient and smbd really send.

#![cfg(test)]

mod support;

use smb::create::{CreateRequestContext, OplockLevel};
use smb::fsctl::{
    NetworkInterface, ReparsePoint, ValidateNegotiateRequest, ValidateNegotiateResponse,
};
use smb::info::security::{Ace, Dacl, SecurityDescriptor};
use smb::info::{All, DirectoryEntry, FileInfoClass, SecurityInformation};
use smb::negotiate::{Dialect, NegotiateContext};
use smb::smb1::Smb1Negotiate;
use smb::{Channel, Command, ControlCode, Header, NtStatus, Protocol, compound};
use support::{Body, captured_pdus, emit, frames, parse};

const CIFS: &str = include_str!("fixtures/cifs-ksmbd.hex");
const POSIX: &str = include_str!("fixtures/cifs-posix.hex");
const SAMBA: &str = include_str!("fixtures/smbclient-samba.hex");

#[test]
fn every_captured_message_parses_and_means_the_same_when_we_send_it() {
    let pdus = captured_pdus();
    assert!(pdus.len() > 250, "{}", pdus.len());
    for pdu in &pdus {
        let (header, body) = parse(pdu).unwrap();
        let emitted = emit(&header, &body);
        assert_eq!(parse(&emitted).unwrap(), (header, body));
    }
}

#[test]
fn emitted_messages_equal_those_of_linux_and_samba_byte_for_byte() {
    for pdu in &captured_pdus() {
        let (header, body) = parse(pdu).unwrap();
        let mut emitted = emit(&header, &body);
        if let Some(free) = free_byte(&header, &body) {
            emitted[free] = pdu[free];
        }
        // Samba pads the last PDU of some frames to 8; nothing but zeros may be missing.
        let common = emitted.len().min(pdu.len());
        assert_eq!(emitted[..common], pdu[..common], "{}", header.command);
        let rest = pdu[common..].iter().chain(&emitted[common..]);
        assert!(rest.into_iter().all(|&byte| byte == 0), "{}", header.command);
    }
}

/// A byte without meaning that each sender fills as it likes.
fn free_byte(header: &Header, body: &Body<'_>) -> Option<usize> {
    match body {
        // Where the client would like the data to lie in the answer.
        Body::ReadRequest(_) => Some(66),
        // Offsets of buffers that are empty.
        Body::IoctlRequest(_) => Some(100),
        Body::QueryInfoRequest(request) if request.input.is_empty() => Some(72),
        // The one byte of ErrorData when there is none.
        Body::Error(_) if header.status == NtStatus::PENDING => Some(72),
        _ => None,
    }
}

#[test]
fn a_truncated_message_is_refused_or_has_lost_nothing() {
    for pdu in &captured_pdus() {
        let whole = parse(pdu).unwrap();
        for len in 0..pdu.len() {
            if let Ok(cut) = parse(&pdu[..len]) {
                assert_eq!(cut, whole, "{len} of {}", pdu.len());
            }
        }
    }
}

#[test]
fn cifs_ko_offers_the_posix_extensions_and_reads_through_a_descriptor() {
    let frames: Vec<_> = frames(CIFS).collect();
    let Body::NegotiateRequest(negotiate) = parse(&frames[0]).unwrap().1 else { panic!() };
    assert_eq!(negotiate.dialects, [Dialect::SMB_3_1_1]);
    let posix = NegotiateContext::Posix(NegotiateContext::POSIX_VERSION);
    assert!(negotiate.contexts.contains(&posix), "{:?}", negotiate.contexts);
    let mut through = 0;
    for frame in &frames {
        if let (_, Body::ReadRequest(read)) = parse(frame).unwrap()
            && let Some(descriptors) = read.descriptors().unwrap()
        {
            assert_eq!(read.channel, Channel::RDMA_V1_INVALIDATE);
            assert_eq!(descriptors.total_length(), u64::from(read.length));
            through += 1;
        }
    }
    assert!(through > 0);
}

#[test]
fn modes_owners_and_links_captured_from_linux_are_read() {
    let (mut modes, mut set, mut owners, mut links) = (vec![], vec![], vec![], vec![]);
    for frame in frames(POSIX) {
        for step in compound::walk(&frame) {
            let pdu = &frame[step.unwrap().0];
            match parse(pdu).unwrap().1 {
                Body::CreateRequest(create) => {
                    modes.extend(create.contexts.iter().filter_map(|context| match context {
                        CreateRequestContext::Posix { mode } => Some(*mode),
                        _ => None,
                    }))
                }
                Body::SetInfoRequest(request) => {
                    let given = SecurityDescriptor::parse(request.buffer).unwrap();
                    if request.additional.contains(SecurityInformation::DACL) {
                        let Dacl::Aces(aces) = given.dacl else { panic!("an access list") };
                        let Ace::Basic { sid, .. } = &aces[0] else { panic!("a plain entry") };
                        set.extend(sid.to_unix_mode());
                    } else {
                        let owner = given.owner.and_then(|sid| sid.to_unix_user());
                        owners.extend(owner.zip(given.group.and_then(|sid| sid.to_unix_group())));
                    }
                }
                Body::IoctlRequest(request) => {
                    assert_eq!(request.code, ControlCode::SET_REPARSE_POINT);
                    let Ok(ReparsePoint::Symlink(link)) = ReparsePoint::parse(request.input) else {
                        panic!("a link")
                    };
                    links.push((link.substitute.to_string(), link.relative));
                }
                _ => {}
            }
        }
    }
    // A mode with stat's kind of file; all ones, or nothing, where there is none.
    assert_eq!(modes, [0o100_644, 0xffff, 0xffff, 0]);
    assert_eq!((set, owners), (vec![0o640], vec![(1234, 5678)]));
    assert_eq!(links, [("plain".to_owned(), true), ("etc/passwd".to_owned(), false)]);
}

#[test]
fn smbclient_negotiates_through_smb1_if_it_may() {
    let smb1 = frames(SAMBA).find(|frame| Protocol::of(frame) == Ok(Protocol::Smb1)).unwrap();
    let both = Smb1Negotiate { offers_2_002: true, offers_2_wildcard: true };
    assert_eq!(Smb1Negotiate::parse(&smb1), Ok(both));
}

#[test]
fn samba_lists_a_directory_and_reports_everything_of_a_file() {
    let mut class = None;
    let (mut names, mut alls) = (Vec::new(), 0);
    for pdu in &captured_pdus() {
        match parse(pdu).unwrap() {
            (_, Body::QueryDirectoryRequest(request)) => class = Some(request.class),
            (_, Body::QueryInfoRequest(request)) => class = Some(FileInfoClass(request.class)),
            (header, Body::Output(response)) if header.command == Command::QUERY_DIRECTORY => {
                let entries = DirectoryEntry::parse_list(class.unwrap(), response.output).unwrap();
                names.extend(entries.into_iter().map(|entry| entry.name.into_string()));
            }
            (header, Body::Output(response))
                if header.command == Command::QUERY_INFO && class == Some(FileInfoClass::ALL) =>
            {
                let all = All::parse(response.output).unwrap();
                let mut out = Vec::new();
                all.emit(&mut out);
                assert_eq!(out, response.output);
                alls += 1;
            }
            _ => {}
        }
    }
    assert!(names.iter().any(|name| name == "x.txt"), "{names:?}");
    assert!(alls > 0);
}

#[test]
fn leases_and_control_codes_of_the_captures_are_known() {
    let mut leases = 0;
    for pdu in &captured_pdus() {
        match parse(pdu).unwrap().1 {
            Body::CreateRequest(create) => {
                let lease = |context: &_| matches!(context, CreateRequestContext::Lease(_));
                let has = create.contexts.iter().any(lease);
                assert_eq!(create.oplock_level == OplockLevel::LEASE, has);
                let known = |context: &_| !matches!(context, CreateRequestContext::Unknown { .. });
                assert!(create.contexts.iter().all(known), "{:?}", create.contexts);
                leases += usize::from(has);
            }
            Body::IoctlRequest(ioctl) => assert!(ioctl.code.name().is_some(), "{}", ioctl.code),
            _ => {}
        }
    }
    assert!(leases > 0);
    assert_eq!(ControlCode::VALIDATE_NEGOTIATE_INFO.name(), Some("VALIDATE_NEGOTIATE_INFO"));
}

#[test]
fn control_payloads_of_the_captures_parse_and_are_sent_the_same() {
    let (mut requests, mut responses, mut interfaces) = (0, 0, 0);
    for pdu in &captured_pdus() {
        let mut out = Vec::new();
        match parse(pdu).unwrap().1 {
            Body::IoctlRequest(ioctl) if ioctl.code == ControlCode::VALIDATE_NEGOTIATE_INFO => {
                ValidateNegotiateRequest::parse(ioctl.input).unwrap().emit(&mut out);
                assert_eq!(out, ioctl.input);
                requests += 1;
            }
            Body::IoctlResponse(ioctl) if ioctl.code == ControlCode::VALIDATE_NEGOTIATE_INFO => {
                ValidateNegotiateResponse::parse(ioctl.output).unwrap().emit(&mut out);
                assert_eq!(out, ioctl.output);
                responses += 1;
            }
            Body::IoctlResponse(ioctl)
                if ioctl.code == ControlCode::QUERY_NETWORK_INTERFACE_INFO =>
            {
                let list = NetworkInterface::parse_list(ioctl.output).unwrap();
                interfaces += list.len();
                NetworkInterface::emit_list(&list, &mut out);
                // ksmbd fills in a port and a scope, which mean nothing here.
                assert_eq!(NetworkInterface::parse_list(&out).unwrap(), list);
            }
            _ => {}
        }
    }
    assert!(requests > 0 && requests == responses && interfaces == 2);
}
