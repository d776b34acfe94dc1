//! Whatever can be said survives being sent; whatever arrives cannot make a parser panic.

#![cfg(test)]

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, CreateResponseContext, DurableReconnectV2, DurableRequestV2,
    ImpersonationLevel, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel, ShareAccess,
};
use smb::fsctl::{ReparsePoint, SymlinkReparse};
use smb::info::security::{Ace, AceKind, Control, Dacl, SecurityDescriptor, Sid};
use smb::info::{
    DirectoryEntry, EaNames, FileAttributes, FullEa, PosixEntry, PosixInfo, Rename, RenameFlags,
    ShortName, Stream,
};
use smb::negotiate::{
    Capabilities, CipherId, CompressionId, Dialect, HashId, NegotiateContext, NegotiateRequest,
    RdmaTransformId, SecurityMode, SigningId,
};
use smb::{
    BreakAck, BreakNotification, Channel, Command, ErrorContext, ErrorResponse, FileId, FileTime,
    Guid, Header, LeaseBreakAck, LeaseBreakNotification, LockElement, LockFlags, LockRequest, Name,
    NtStatus, OplockBreak, TransformHeader, WriteFlags, WriteRequest, compound,
};
use support::{captured_pdus, emit, parse, request};

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Zäß𝄞 .]{0,40}".prop_map(|text| Name::new(text).unwrap())
}

fn file_id() -> impl Strategy<Value = FileId> {
    any::<(u64, u64)>().prop_map(|(persistent, volatile)| FileId { persistent, volatile })
}

fn lease() -> impl Strategy<Value = Lease> {
    let version = prop_oneof![
        Just(LeaseVersion::V1),
        (any::<Option<[u8; 16]>>(), any::<u16>())
            .prop_map(|(parent, epoch)| LeaseVersion::V2 { parent: parent.map(LeaseKey), epoch }),
    ];
    (any::<[u8; 16]>(), any::<u32>(), any::<bool>(), version).prop_map(
        |(key, state, break_in_progress, version)| Lease {
            key: LeaseKey(key),
            state: LeaseState::from_bits_retain(state),
            break_in_progress,
            version,
        },
    )
}

fn context() -> impl Strategy<Value = CreateRequestContext<'static>> {
    use CreateRequestContext as Context;
    prop_oneof![
        lease().prop_map(Context::Lease),
        Just(Context::Durable),
        file_id().prop_map(Context::DurableReconnect),
        (any::<u32>(), any::<bool>(), any::<[u8; 16]>()).prop_map(
            |(timeout_ms, persistent, id)| {
                Context::DurableV2(DurableRequestV2 {
                    timeout_ms,
                    persistent,
                    create_guid: Guid(id),
                })
            }
        ),
        (file_id(), any::<[u8; 16]>(), any::<bool>()).prop_map(|(file_id, id, persistent)| {
            let create_guid = Guid(id);
            Context::DurableReconnectV2(DurableReconnectV2 { file_id, create_guid, persistent })
        }),
        any::<Option<u64>>().prop_map(|time| Context::MaximalAccess(time.map(FileTime))),
        Just(Context::QueryOnDiskId),
        any::<u64>().prop_map(Context::AllocationSize),
        any::<u64>().prop_map(|time| Context::Timewarp(FileTime(time))),
        any::<[u8; 16]>().prop_map(|id| Context::AppInstanceId(Guid(id))),
        any::<(u64, u64)>().prop_map(|(high, low)| Context::AppInstanceVersion { high, low }),
        any::<u32>().prop_map(|mode| Context::Posix { mode }),
        Just(Context::SecurityDescriptor(b"any bytes")),
        Just(Context::ExtendedAttributes(b"")),
        Just(Context::Unknown { name: b"Late", data: b"unknown contexts survive" }),
        Just(Context::Unknown { name: b"a name of 17 byte", data: b"" }),
    ]
}

proptest! {
    #[test]
    fn create_requests(
        name in name(),
        access in any::<u32>(),
        options in any::<u32>(),
        contexts in vec(context(), 0..6),
    ) {
        let create = CreateRequest {
            oplock_level: OplockLevel::LEASE,
            impersonation: ImpersonationLevel::IMPERSONATION,
            desired_access: AccessMask::from_bits_retain(access),
            attributes: FileAttributes::NORMAL,
            share_access: ShareAccess::READ,
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::from_bits_retain(options),
            name,
            contexts,
        };
        let mut pdu = request(Command::CREATE);
        create.emit(&mut pdu);
        prop_assert_eq!(CreateRequest::parse(&pdu), Ok(create));
    }

    #[test]
    fn posix_listings(names in vec(name(), 1..5), inode in any::<u64>(), mode in any::<u32>(), id in any::<u32>()) {
        let entry = |name| PosixEntry {
            info: PosixInfo {
                creation_time: FileTime(inode),
                last_access_time: FileTime(1),
                last_write_time: FileTime(2),
                change_time: FileTime(3),
                end_of_file: inode,
                allocation_size: 9,
                attributes: FileAttributes::from_bits_retain(mode),
                inode,
                device: id,
                facts: smb::create::PosixResponse {
                    links: id,
                    reparse_tag: mode,
                    mode,
                    owner: Sid::unix_user(id),
                    group: Sid::unix_mode(id),
                },
            },
            name,
        };
        let list: Vec<_> = names.into_iter().map(entry).collect();
        let mut out = Vec::new();
        let class = smb::info::FileInfoClass::POSIX;
        let mut writer = smb::info::DirectoryWriter::new(class, &out, 1 << 20).unwrap();
        prop_assert!(list.iter().all(|entry| writer.push_posix(&mut out, entry)));
        prop_assert_eq!(PosixEntry::parse_list(&out), Ok(list));
    }

    #[test]
    fn symbolic_links(substitute in name(), print in name(), relative in any::<bool>()) {
        let link = SymlinkReparse { relative, substitute, print };
        let mut out = Vec::new();
        link.emit(&mut out);
        prop_assert_eq!(ReparsePoint::parse(&out), Ok(ReparsePoint::Symlink(link)));
    }

    #[test]
    fn negotiate_requests(guid in any::<[u8; 16]>(), salt in vec(any::<u8>(), 0..40), name in name()) {
        let negotiate = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::LEASING | Capabilities::LARGE_MTU,
            client_guid: Guid(guid),
            dialects: vec![Dialect::SMB_3_0, Dialect(0x0999), Dialect::SMB_3_1_1],
            contexts: vec![
                NegotiateContext::PreauthIntegrity { hashes: vec![HashId::SHA_512], salt: &salt },
                NegotiateContext::Encryption(vec![CipherId::AES_128_GCM, CipherId(77)]),
                NegotiateContext::Compression { flags: 1, algorithms: vec![CompressionId::LZ4] },
                NegotiateContext::Netname(name),
                NegotiateContext::Transport(1),
                NegotiateContext::RdmaTransform(vec![RdmaTransformId::SIGNING]),
                NegotiateContext::Signing(vec![SigningId::AES_GMAC, SigningId::AES_CMAC]),
                NegotiateContext::Posix(NegotiateContext::POSIX_VERSION),
                NegotiateContext::Unknown { kind: 0x4c46, data: b"unknown contexts survive" },
            ],
        };
        let mut pdu = request(Command::NEGOTIATE);
        negotiate.emit(&mut pdu);
        prop_assert_eq!(NegotiateRequest::parse(&pdu), Ok(negotiate));
    }

    #[test]
    fn broken_captured_messages_never_panic_and_parsed_ones_are_emitted_alike(
        pick in any::<proptest::sample::Index>(),
        breaks in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let pdus = captured_pdus();
        let mut pdu = pick.get(&pdus).clone();
        for (at, value) in breaks {
            let at = at.index(pdu.len());
            pdu[at] = value;
        }
        if let Ok((header, body)) = parse(&pdu) {
            let emitted = emit(&header, &body);
            prop_assert_eq!(parse(&emitted).unwrap(), (header, body));
        }
        let _ = compound::walk(&pdu).count();
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), class in any::<u8>()) {
        for command in 0..0x14 {
            for flags in [0, 1] {
                let mut pdu = request(Command(command));
                pdu[16] = flags;
                pdu.extend_from_slice(&bytes);
                let _ = parse(&pdu);
            }
        }
        let _ = DirectoryEntry::parse_list(smb::info::FileInfoClass(class), &bytes);
        // No list gives more bytes than it has.
        let attributes = FullEa::parse_list(&bytes).unwrap_or_default();
        let given = |ea: &FullEa<'_>| ea.name.len() + ea.value.len();
        prop_assert!(attributes.iter().map(given).sum::<usize>() <= bytes.len());
        let names = EaNames::parse(&bytes).map(|names| names.0).unwrap_or_default();
        prop_assert!(names.iter().map(|name| name.len()).sum::<usize>() <= bytes.len());
        let _ = Stream::parse_list(&bytes);
        let _ = SecurityDescriptor::parse(&bytes);
        let _ = TransformHeader::parse(&bytes);
        let _ = smb::smb1::Smb1Negotiate::parse(&bytes);
    }

    #[test]
    fn security_descriptors(uid in any::<u32>(), masks in vec(any::<u32>(), 0..5)) {
        let ace = |mask| Ace::Basic {
            kind: AceKind::DENIED,
            flags: 3,
            mask: AccessMask::from_bits_retain(mask),
            sid: Sid::unix_group(uid),
        };
        let opaque = Ace::Opaque { kind: AceKind(9), flags: 0, body: vec![1, 2, 3, 4] };
        let aces = masks.into_iter().map(ace).chain([opaque]).collect();
        for dacl in [Dacl::Absent, Dacl::Null, Dacl::Aces(aces)] {
            let mut control = Control::SELF_RELATIVE | Control::DACL_PROTECTED;
            control.set(Control::DACL_PRESENT, dacl != Dacl::Absent);
            let group = Some(Sid::everyone());
            let sd = SecurityDescriptor { control, owner: Some(Sid::unix_user(uid)), group, dacl };
            let mut out = Vec::new();
            sd.emit(&mut out);
            prop_assert_eq!(SecurityDescriptor::parse(&out), Ok(sd));
        }
    }

    #[test]
    fn renames_streams_and_attributes(name in name(), flags in 0u32..0x80, size in any::<u64>()) {
        let rename = Rename { flags: RenameFlags::from_bits_retain(flags), name: name.clone() };
        let mut out = Vec::new();
        rename.emit_ex(&mut out);
        prop_assert_eq!(Rename::parse_ex(&out), Ok(rename));
        let rename = Rename { flags: RenameFlags::REPLACE_IF_EXISTS, name: name.clone() };
        let mut out = Vec::new();
        rename.emit(&mut out);
        prop_assert_eq!(Rename::parse(&out), Ok(rename));

        let streams = vec![Stream { size, allocation_size: size, name }; 3];
        let mut out = Vec::new();
        Stream::emit_list(&streams, &mut out);
        prop_assert_eq!(Stream::parse_list(&out), Ok(streams));

        let list = [
            FullEa { flags: 0, name: b"user.one", value: b"1" },
            FullEa { flags: 0x80, name: b"TWO", value: b"" },
        ];
        let mut out = Vec::new();
        FullEa::emit_list(&list, &mut out);
        prop_assert_eq!(FullEa::parse_list(&out).unwrap(), list);
    }
}

#[test]
fn create_responses_with_every_context() {
    let pdus = captured_pdus();
    let header = |pdu: &Vec<u8>| Header::parse(pdu).unwrap();
    let response = pdus
        .iter()
        .filter(|pdu| header(pdu).command == Command::CREATE && header(pdu).status.is_success())
        .find_map(|pdu| CreateResponse::parse(pdu).ok())
        .unwrap();
    let sid = Sid::new(5, &[21, 1, 2, 3, 500]).unwrap();
    let response = CreateResponse {
        contexts: vec![
            CreateResponseContext::Lease(Lease {
                key: LeaseKey([3; 16]),
                state: LeaseState::READ | LeaseState::HANDLE,
                break_in_progress: true,
                version: LeaseVersion::V2 { parent: None, epoch: 9 },
            }),
            CreateResponseContext::Durable,
            CreateResponseContext::DurableV2 { timeout_ms: 60_000, persistent: true },
            CreateResponseContext::MaximalAccess {
                status: NtStatus::SUCCESS,
                access: AccessMask::FILE_ALL,
            },
            CreateResponseContext::OnDiskId { file_id: 5, volume_id: 6 },
            CreateResponseContext::Posix(smb::create::PosixResponse {
                links: 1,
                reparse_tag: 0,
                mode: 0o644,
                owner: sid.clone(),
                group: sid,
            }),
            CreateResponseContext::Unknown { name: b"Late", data: b"unknown contexts survive" },
        ],
        ..response
    };
    let mut pdu = request(Command::CREATE);
    response.emit(&mut pdu);
    assert_eq!(CreateResponse::parse(&pdu).unwrap(), response);
}

#[test]
fn locks_breaks_and_errors() {
    let locks = LockRequest {
        lock_sequence: 0x21,
        file_id: FileId { persistent: 1, volatile: 2 },
        locks: vec![
            LockElement { offset: 0, length: u64::MAX, flags: LockFlags::SHARED },
            LockElement { offset: 9, length: 1, flags: LockFlags::UNLOCK },
        ],
    };
    let mut pdu = request(Command::LOCK);
    locks.emit(&mut pdu);
    assert_eq!(LockRequest::parse(&pdu).unwrap(), locks);
    for len in 0..pdu.len() {
        assert!(LockRequest::parse(&pdu[..len]).is_err(), "{len}");
    }

    let lease_key = LeaseKey([7; 16]);
    let (read, all) = (LeaseState::READ, LeaseState::all());
    let oplock = OplockBreak { level: OplockLevel::II, file_id: FileId::RELATED };
    let ack = LeaseBreakAck { lease_key, state: read };
    let lease =
        LeaseBreakNotification { epoch: 3, ack_required: true, lease_key, current: all, new: read };
    let after = |emit: &dyn Fn(&mut Vec<u8>)| {
        let mut pdu = request(Command::OPLOCK_BREAK);
        emit(&mut pdu);
        pdu
    };
    let pdu = after(&|out| oplock.emit(out));
    assert_eq!(BreakAck::parse(&pdu), Ok(BreakAck::Oplock(oplock)));
    assert_eq!(BreakNotification::parse(&pdu), Ok(BreakNotification::Oplock(oplock)));
    assert_eq!(BreakAck::parse(&after(&|out| ack.emit(out))), Ok(BreakAck::Lease(ack)));
    let pdu = after(&|out| lease.emit(out));
    assert_eq!(BreakNotification::parse(&pdu), Ok(BreakNotification::Lease(lease)));
    BreakAck::parse(&pdu).unwrap_err();

    let contexts = vec![ErrorContext { id: 0, data: b"123" }, ErrorContext { id: 5, data: b"" }];
    let error = ErrorResponse::Contexts(contexts);
    let mut pdu = request(Command::CREATE);
    error.emit(&mut pdu);
    assert_eq!(ErrorResponse::parse(&pdu).unwrap(), error);
}

#[test]
fn a_write_through_descriptors_carries_them_where_the_data_would_be() {
    let info: Vec<u8> = (0..32).collect();
    let write = WriteRequest {
        offset: 4096,
        file_id: FileId { persistent: 1, volatile: 2 },
        channel: Channel::RDMA_V1,
        remaining_bytes: 65_536,
        flags: WriteFlags::WRITE_THROUGH,
        data: &[],
        channel_info: &info,
    };
    let mut pdu = request(Command::WRITE);
    write.emit(&mut pdu);
    assert_eq!(pdu[112..], info);
    assert_eq!(WriteRequest::parse(&pdu).unwrap(), write);
    assert_eq!(write.descriptors().unwrap().unwrap().len(), 2);
    let partial = WriteRequest { channel_info: &info[..31], ..write };
    partial.descriptors().unwrap_err();
}

#[test]
fn short_names_have_twelve_characters() {
    assert!(ShortName::new("FILENAME.EXT").is_some());
    assert!(ShortName::new("FILENAME.TEXT").is_none());
}
