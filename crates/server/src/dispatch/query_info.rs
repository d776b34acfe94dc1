//! QUERY_INFO: what is known of a file, its file system, its security.
//!
//! Spec: MS-SMB2 §3.3.5.20, MS-FSCC §2.4 and §2.5.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb::info::security::{Ace, Control, Dacl, SecurityDescriptor, Sid};
use smb::info::{
    self, FileAttributes, FileInfoClass, FsAttributes, FsInfoClass, InfoType, SecurityInformation,
};
use smb::negotiate::Dialect;
use smb::{
    ErrorContext, ErrorResponse, FileTime, Guid, Name, NtStatus, OutputResponse, QueryInfoRequest,
};
use tree::{InlineIo, Metadata, Share, short_name};

use super::call::Call;
use super::frame::{Outcome, malformed};
use super::{extended, posix};
use crate::access::{self, Look};
use crate::state::Open;
use crate::status::OrStatus as _;

/// An answer before it is cut to what the client takes.
struct Answer {
    bytes: Vec<u8>,
    /// Bytes without which the answer means nothing.
    fixed: usize,
    status: NtStatus,
}

impl Answer {
    fn whole(bytes: Vec<u8>) -> Self {
        let fixed = bytes.len();
        Self { bytes, fixed, status: NtStatus::SUCCESS }
    }
}

/// Answers.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = QueryInfoRequest::parse(call.pdu()).map_err(malformed)?;
    let (kind, class, parts) = (request.info_type, request.class, request.additional);
    let len_max = request.output_length_max;
    let (file_id, flags, input) = (request.file_id, request.flags, request.input.to_vec());
    let is_ea_query = kind == InfoType::FILE && FileInfoClass(class) == FileInfoClass::FULL_EA;
    if len_max > call.link.transact_size_max() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.asker().check_charge(len_max)?;
    // MS-SMB2 §3.3.5.20.1: a name is normalised for 3.1.1 only.
    let is_new = call.link.dialect() >= Dialect::SMB_3_1_1;
    if kind == InfoType::FILE && FileInfoClass(class) == FileInfoClass::NORMALIZED_NAME && !is_new {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let knows_posix = call.link.agreed.get().is_some_and(|agreed| agreed.posix);
    let open = call.open(file_id)?;
    let server = call.core.identity.guid;
    let is_known = kind == InfoType::FILE && is_known_of_open_files(FileInfoClass(class));
    let is_at_hand = is_known && open.is_at_hand();
    let inline = if is_at_hand { InlineIo::Everything } else { open.entry.inline_io() };
    let inline = match FileInfoClass(class) {
        FileInfoClass::EA | FileInfoClass::ALL | FileInfoClass::FULL_EA => {
            inline.unless(open.entry.has_many_attributes())
        }
        FileInfoClass::STREAM => inline.unless(open.entry.has_streams()),
        _ => inline,
    };
    let wanted = extended::Wanted::parse(if is_ea_query { &input } else { &[] }, flags)?;
    let work = move || match kind {
        InfoType::FILE if is_ea_query => attributes(&open, &wanted, flags, len_max),
        InfoType::FILE => file(&open, FileInfoClass(class)),
        InfoType::FILE_SYSTEM => file_system(&open, FsInfoClass(class), server),
        InfoType::SECURITY => security(&open, parts, knows_posix),
        InfoType::QUOTA => Err(NtStatus::NOT_SUPPORTED),
        _ => Err(NtStatus::INVALID_PARAMETER),
    };
    let Answer { bytes, fixed, status } = call.blocking(inline, work).await??;
    let len_max = usize::try_from(len_max).expect("32 bits fit usize");
    if bytes.len() <= len_max {
        OutputResponse { output: &bytes }.emit(out);
        return Ok(status);
    }
    if kind == InfoType::SECURITY {
        say_how_long(bytes.len(), call.link.dialect(), out);
        return Ok(NtStatus::BUFFER_TOO_SMALL);
    }
    if len_max < fixed {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    // MS-SMB2 §3.3.5.20.1: as much of the name as fits.
    OutputResponse { output: &bytes[..len_max] }.emit(out);
    Ok(NtStatus::BUFFER_OVERFLOW)
}

// MS-SMB2 §3.3.5.20.3: a descriptor comes whole or not at all, and who has no room for it is told what it
// takes. Clients ask with no room first.
fn say_how_long(len: usize, dialect: Dialect, out: &mut Vec<u8>) {
    let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    let body = match dialect {
        Dialect::SMB_3_1_1 => ErrorResponse::Contexts(vec![ErrorContext { id: 0, data: &len }]),
        _ => ErrorResponse::Plain(&len),
    };
    body.emit(out);
}

// What inodes and their first xattrs say.
fn is_known_of_open_files(class: FileInfoClass) -> bool {
    [
        FileInfoClass::BASIC,
        FileInfoClass::STANDARD,
        FileInfoClass::INTERNAL,
        FileInfoClass::EA,
        FileInfoClass::ACCESS,
        FileInfoClass::POSITION,
        FileInfoClass::MODE,
        FileInfoClass::ALIGNMENT,
        FileInfoClass::ALL,
        FileInfoClass::NETWORK_OPEN,
        FileInfoClass::ATTRIBUTE_TAG,
        FileInfoClass::COMPRESSION,
        FileInfoClass::ID,
        FileInfoClass::POSIX,
    ]
    .contains(&class)
}

fn file(open: &Arc<Open>, class: FileInfoClass) -> Result<Answer, NtStatus> {
    crate::push::settle_times(&open.node);
    let found = open.entry.metadata().or_status()?;
    access::admit(open, look(class))?;
    let mut bytes = Vec::new();
    let mut fixed = None;
    match class {
        FileInfoClass::BASIC => basic(&found).emit(&mut bytes),
        FileInfoClass::STANDARD => standard(open, &found).emit(&mut bytes),
        FileInfoClass::INTERNAL => internal(open, &found).emit(&mut bytes),
        FileInfoClass::EA => ea(open)?.emit(&mut bytes),
        FileInfoClass::ACCESS => info::Access { access: open.access }.emit(&mut bytes),
        FileInfoClass::POSITION => position(open).emit(&mut bytes),
        FileInfoClass::MODE => info::Mode { mode: open.mode() }.emit(&mut bytes),
        FileInfoClass::ALIGNMENT => info::Alignment { alignment: 0 }.emit(&mut bytes),
        FileInfoClass::ALL => {
            all(open, &found)?.emit(&mut bytes);
            fixed = Some(info::All::FIXED_LEN.next_multiple_of(8).min(bytes.len()));
        }
        FileInfoClass::NETWORK_OPEN => network_open(&found).emit(&mut bytes),
        FileInfoClass::ATTRIBUTE_TAG => {
            let attributes = FileAttributes::from_bits_retain(found.attributes.0);
            let reparse_tag = posix::facts(&found).reparse_tag;
            info::AttributeTag { attributes, reparse_tag }.emit(&mut bytes);
        }
        FileInfoClass::STREAM => {
            streams(open, &mut bytes)?;
            fixed = Some(32.min(bytes.len()));
        }
        FileInfoClass::POSIX if posix::is_posix(open) => {
            posix::info(file_id(open, &found), &found).emit(&mut bytes)
        }
        FileInfoClass::COMPRESSION => {
            let none = info::Compression {
                compressed_size: found.size,
                format: 0,
                unit_shift: 0,
                chunk_shift: 0,
                cluster_shift: 0,
            };
            none.emit(&mut bytes);
        }
        FileInfoClass::ID => {
            let mut wide = [0; 16];
            wide[..8].copy_from_slice(&file_id(open, &found).to_le_bytes());
            info::Id { volume_id: found.key.device, file_id: wide }.emit(&mut bytes);
        }
        FileInfoClass::NORMALIZED_NAME => {
            info::FileName { name: wire_name(&name_of(open))? }.emit(&mut bytes);
            fixed = Some(4);
        }
        FileInfoClass::ALTERNATE_NAME => {
            let path = open.path();
            if path.is_root() {
                return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
            }
            info::FileName { name: wire_name(&short_name(path.leaf()))? }.emit(&mut bytes);
            // The structure as C pads it, here and below: what clients and other servers count with.
            fixed = Some(8.min(bytes.len()));
        }
        FileInfoClass::REPARSE_POINT | FileInfoClass::OBJECT_ID | FileInfoClass::QUOTA => {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    let fixed = fixed.unwrap_or(bytes.len());
    Ok(Answer { bytes, fixed, status: NtStatus::SUCCESS })
}

// MS-SMB2 §3.3.5.20.1.
fn look(class: FileInfoClass) -> Look {
    match class {
        FileInfoClass::BASIC
        | FileInfoClass::ALL
        | FileInfoClass::NETWORK_OPEN
        | FileInfoClass::ATTRIBUTE_TAG
        | FileInfoClass::POSIX => Look::Attributes,
        FileInfoClass::FULL_EA => Look::ExtendedAttributes,
        _ => Look::Facts,
    }
}

// FileFullEaInformation, from where the handle stands.
fn attributes(
    open: &Open,
    wanted: &extended::Wanted,
    flags: u32,
    len_max: u32,
) -> Result<Answer, NtStatus> {
    access::admit(open, Look::ExtendedAttributes)?;
    let there = open.entry.extended_names().or_status()?;
    let value = |name: &str| open.entry.extended_value(name);
    let restarts =
        flags & extended::RESTART_SCAN != 0 || !wanted.names.is_empty() || !wanted.single;
    let from = if restarts { 0 } else { open.marks.extended.load(Ordering::Relaxed) };
    let room = usize::try_from(len_max).expect("32 bits fit usize");
    let listed = extended::list(&there, value, wanted, from, room)?;
    open.marks.extended.store(from + listed.count, Ordering::Relaxed);
    let mut answer = Answer::whole(listed.bytes);
    if listed.is_cut {
        answer.status = NtStatus::BUFFER_OVERFLOW;
    }
    Ok(answer)
}

fn basic(found: &Metadata) -> info::Basic {
    info::Basic {
        creation_time: FileTime(found.creation),
        last_access_time: FileTime(found.access),
        last_write_time: FileTime(found.write),
        change_time: FileTime(found.change),
        attributes: FileAttributes::from_bits_retain(found.attributes.0),
    }
}

fn standard(open: &Open, found: &Metadata) -> info::Standard {
    let delete_pending = {
        let state = open.node.lock();
        state.record(open.serial).is_some_and(|record| state.is_record_to_go(record))
    };
    info::Standard {
        allocation_size: found.allocation,
        end_of_file: found.size,
        // MS-FSA §2.1.5.11.27: a name about to go does not count. A directory has one name, whatever Linux counts.
        links: if found.is_directory { 1 } else { found.links }
            .saturating_sub(u32::from(delete_pending)),
        delete_pending,
        directory: found.is_directory,
    }
}

fn internal(open: &Open, found: &Metadata) -> info::Internal {
    info::Internal { file_id: file_id(open, found) }
}

fn file_id(open: &Open, found: &Metadata) -> u64 {
    open.tree.share().map_or(found.key.inode, |share| share.file_id(found.key))
}

fn ea(open: &Open) -> Result<info::Ea, NtStatus> {
    Ok(info::Ea { ea_size: open.entry.extended_size().or_status()? })
}

fn position(open: &Open) -> info::Position {
    info::Position { position: open.marks.position.load(Ordering::Relaxed) }
}

// Where the file is, with its stream, without a leading backslash.
fn name_of(open: &Open) -> String {
    let path = open.path().to_wire();
    let share = open.tree.share().filter(|_| open.entry.is_stream());
    match share.and_then(|share| share.stream_name(&open.entry)) {
        Some(stream) => format!("{path}:{stream}"),
        None => path,
    }
}

fn network_open(found: &Metadata) -> info::NetworkOpen {
    info::NetworkOpen {
        creation_time: FileTime(found.creation),
        last_access_time: FileTime(found.access),
        last_write_time: FileTime(found.write),
        change_time: FileTime(found.change),
        allocation_size: found.allocation,
        end_of_file: found.size,
        attributes: FileAttributes::from_bits_retain(found.attributes.0),
    }
}

fn all(open: &Open, found: &Metadata) -> Result<info::All, NtStatus> {
    Ok(info::All {
        basic: basic(found),
        standard: standard(open, found),
        internal: internal(open, found),
        ea: ea(open)?,
        access: info::Access { access: open.access },
        position: position(open),
        mode: info::Mode { mode: open.mode() },
        alignment: info::Alignment { alignment: 0 },
        name: info::FileName { name: wire_name(&format!("\\{}", name_of(open)))? },
    })
}

// A directory has no unnamed stream, and an empty list is an empty answer.
fn streams(open: &Open, out: &mut Vec<u8>) -> Result<(), NtStatus> {
    let mut list = Vec::new();
    if let Some((size, allocation_size)) = open.entry.unnamed_stream().or_status()? {
        let name = Name::new("::$DATA").expect("seven characters");
        list.push(info::Stream { size, allocation_size, name });
    }
    let share: &Share = open.tree.share().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    for stream in share.streams(&open.entry).or_status()? {
        let name = wire_name(&format!(":{}:$DATA", stream.name))?;
        list.push(info::Stream { size: stream.size, allocation_size: stream.allocation, name });
    }
    info::Stream::emit_list(&list, out);
    Ok(())
}

fn file_system(open: &Open, class: FsInfoClass, server: Guid) -> Result<Answer, NtStatus> {
    access::admit(open, Look::Volume)?;
    let share: &Share = open.tree.share().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let mut bytes = Vec::new();
    let mut fixed = None;
    match class {
        FsInfoClass::VOLUME => {
            let label = wire_name(share.name())?;
            let serial = volume_serial(share);
            info::FsVolume { creation_time: FileTime::ZERO, serial, label }.emit(&mut bytes);
            // The structure as C pads it: what clients and other servers count with.
            fixed = Some(24.min(bytes.len()));
        }
        FsInfoClass::SIZE => {
            let size = share.volume_size(&open.entry).or_status()?;
            let answer = info::FsSize {
                total_units: size.total_units,
                available_units: size.available_units,
                sectors_per_unit: size.unit_bytes / SECTOR,
                bytes_per_sector: SECTOR,
            };
            answer.emit(&mut bytes);
        }
        FsInfoClass::FULL_SIZE => {
            let size = share.volume_size(&open.entry).or_status()?;
            let answer = info::FsFullSize {
                total_units: size.total_units,
                caller_available_units: size.available_units,
                available_units: size.free_units,
                sectors_per_unit: size.unit_bytes / SECTOR,
                bytes_per_sector: SECTOR,
            };
            answer.emit(&mut bytes);
        }
        FsInfoClass::DEVICE => {
            // MS-FSCC §2.5, FileFsDeviceInformation: FILE_DEVICE_DISK, FILE_DEVICE_IS_MOUNTED, and read-only if so.
            let characteristics = 0x20 | if share.is_read_only() { 0x02 } else { 0 };
            info::FsDevice { device_type: 7, characteristics }.emit(&mut bytes);
        }
        FsInfoClass::ATTRIBUTE => {
            let attributes = FsAttributes::from_bits_retain(share.volume_attributes(&open.entry).0);
            // Clients switch features off for names they do not know.
            let name = wire_name("NTFS")?;
            info::FsAttribute { attributes, name_units_max: 255, name }.emit(&mut bytes);
            fixed = Some(16.min(bytes.len()));
        }
        FsInfoClass::SECTOR_SIZE => {
            let sector = SECTOR;
            let answer = info::FsSectorSize {
                logical: sector,
                physical_for_atomicity: sector,
                physical_for_performance: 4096,
                effective_for_atomicity: sector,
                // Aligned, on a device that takes trim.
                flags: 0x0b,
                sector_alignment_offset: 0,
                partition_alignment_offset: 0,
            };
            answer.emit(&mut bytes);
        }
        // No quotas: nothing is tracked, nothing enforced.
        FsInfoClass::CONTROL => NO_QUOTAS.emit(&mut bytes),
        FsInfoClass::POSIX if posix::is_posix(open) => {
            posix::file_system(share, &open.entry).or_status()?.emit(&mut bytes);
        }
        FsInfoClass::OBJECT_ID => info::FsObjectId { object_id: server }.emit(&mut bytes),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    let fixed = fixed.unwrap_or(bytes.len());
    Ok(Answer { bytes, fixed, status: NtStatus::SUCCESS })
}

fn volume_serial(share: &Share) -> u32 {
    let key = share.root_key();
    let mixed = key.device ^ key.inode.rotate_left(17) ^ (key.device >> 32);
    let [a, b, c, d, ..] = mixed.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

// Access lists come later; until then every file says what is true: everyone who reached the
// share may do everything the share allows.
fn security(
    open: &Open,
    parts: SecurityInformation,
    knows_posix: bool,
) -> Result<Answer, NtStatus> {
    access::admit(open, Look::Security(parts))?;
    if knows_posix {
        return Ok(Answer::whole(posix::descriptor(open, parts)?));
    }
    let wants = |part| parts.contains(part);
    let everyone = Ace::allow(open.tree.rights.mask(), Sid::everyone());
    let dacl =
        if wants(SecurityInformation::DACL) { Dacl::Aces(vec![everyone]) } else { Dacl::Absent };
    let descriptor = SecurityDescriptor {
        control: Control::empty(),
        owner: wants(SecurityInformation::OWNER).then(|| Sid::unix_user(0)),
        group: wants(SecurityInformation::GROUP).then(|| Sid::unix_group(0)),
        dacl,
    };
    let mut bytes = Vec::new();
    descriptor.emit(&mut bytes);
    Ok(Answer::whole(bytes))
}

fn wire_name(text: &str) -> Result<Name, NtStatus> {
    Name::new(text).map_err(|_| NtStatus::OBJECT_NAME_INVALID)
}

const SECTOR: u32 = 512;
const NO_QUOTAS: info::FsControl = info::FsControl {
    start_filtering: 0,
    filtering_threshold: 0,
    stop_filtering: 0,
    default_quota_threshold: u64::MAX,
    default_quota_limit: u64::MAX,
    flags: 0,
};
