//! QUERY_INFO: what is known of a file, its file system, its security.
//!
//! Spec: MS-SMB2 §3.3.5.20, MS-FSCC §2.4 and §2.5.

use std::sync::Arc;

use smb::create::AccessMask;
use smb::info::security::{Ace, Control, Dacl, SecurityDescriptor, Sid};
use smb::info::{
    self, FileAttributes, FileInfoClass, FsAttributes, FsInfoClass, InfoType, SecurityInformation,
};
use smb::{FileTime, Guid, Name, NtStatus, OutputResponse, QueryInfoRequest};

use super::call::Call;
use super::frame::Outcome;
use super::malformed;
use crate::limits::TRANSACT_SIZE_MAX;
use crate::share::{Metadata, Share};
use crate::state::Open;

/// An answer before it is cut to what the client takes.
struct Answer {
    bytes: Vec<u8>,
    /// Bytes without which the answer means nothing.
    fixed: usize,
}

/// Answers.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = QueryInfoRequest::parse(call.pdu()).map_err(malformed)?;
    let (kind, class, parts) = (request.info_type, request.class, request.additional);
    let len_max = request.output_length_max;
    let file_id = request.file_id;
    if len_max > TRANSACT_SIZE_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.asker().check_charge(len_max)?;
    let open = call.open(file_id)?;
    let server = call.link.core.guid;
    let inline = open.entry.inline_io();
    let work = move || match kind {
        InfoType::FILE => file(&open, FileInfoClass(class)),
        InfoType::FILE_SYSTEM => file_system(&open, FsInfoClass(class), server),
        InfoType::SECURITY => security(&open, parts),
        InfoType::QUOTA => Err(NtStatus::NOT_SUPPORTED),
        _ => Err(NtStatus::INVALID_PARAMETER),
    };
    let Answer { bytes, fixed } = call.blocking(inline, work).await??;
    let len_max = usize::try_from(len_max).expect("32 bits fit usize");
    if bytes.len() <= len_max {
        OutputResponse { output: &bytes }.emit(out);
        return Ok(NtStatus::SUCCESS);
    }
    if kind == InfoType::SECURITY {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    if len_max < fixed {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    // MS-SMB2 §3.3.5.20.1: as much of the name as fits.
    OutputResponse { output: &bytes[..len_max] }.emit(out);
    Ok(NtStatus::BUFFER_OVERFLOW)
}

fn file(open: &Arc<Open>, class: FileInfoClass) -> Result<Answer, NtStatus> {
    crate::push::settle_times(&open.node);
    let found = open.entry.metadata()?;
    let reads_attributes = open.may(AccessMask::READ_ATTRIBUTES);
    let guarded = [
        FileInfoClass::BASIC,
        FileInfoClass::ALL,
        FileInfoClass::NETWORK_OPEN,
        FileInfoClass::ATTRIBUTE_TAG,
    ];
    if guarded.contains(&class) && !reads_attributes {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let mut bytes = Vec::new();
    let mut fixed = None;
    match class {
        FileInfoClass::BASIC => basic(&found).emit(&mut bytes),
        FileInfoClass::STANDARD => standard(open, &found).emit(&mut bytes),
        FileInfoClass::INTERNAL => internal(&found).emit(&mut bytes),
        FileInfoClass::EA => info::Ea { ea_size: 0 }.emit(&mut bytes),
        FileInfoClass::ACCESS => info::Access { access: open.access }.emit(&mut bytes),
        FileInfoClass::POSITION => info::Position { position: 0 }.emit(&mut bytes),
        FileInfoClass::MODE => info::Mode { mode: open.mode }.emit(&mut bytes),
        FileInfoClass::ALIGNMENT => info::Alignment { alignment: 0 }.emit(&mut bytes),
        FileInfoClass::ALL => {
            all(open, &found)?.emit(&mut bytes);
            fixed = Some(info::All::FIXED_LEN);
        }
        FileInfoClass::NETWORK_OPEN => network_open(&found).emit(&mut bytes),
        FileInfoClass::ATTRIBUTE_TAG => {
            let attributes = FileAttributes::from_bits_retain(found.attributes.0);
            info::AttributeTag { attributes, reparse_tag: 0 }.emit(&mut bytes);
        }
        FileInfoClass::STREAM => {
            streams(&found, &mut bytes);
            fixed = Some(24.min(bytes.len()));
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
            let mut file_id = [0; 16];
            file_id[..8].copy_from_slice(&found.key.inode.to_le_bytes());
            info::Id { volume_id: found.key.device, file_id }.emit(&mut bytes);
        }
        FileInfoClass::NORMALIZED_NAME => {
            info::FileName { name: wire_name(&open.path().to_wire())? }.emit(&mut bytes);
            fixed = Some(4);
        }
        FileInfoClass::ALTERNATE_NAME => return Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        FileInfoClass::FULL_EA => return Err(NtStatus::NO_EAS_ON_FILE),
        FileInfoClass::REPARSE_POINT | FileInfoClass::OBJECT_ID | FileInfoClass::QUOTA => {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    let fixed = fixed.unwrap_or(bytes.len());
    Ok(Answer { bytes, fixed })
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
        state.delete_pending
    };
    info::Standard {
        allocation_size: found.allocation,
        end_of_file: found.size,
        // MS-FSA §2.1.5.11.27: a name about to go does not count.
        links: found.links.saturating_sub(u32::from(delete_pending)),
        delete_pending,
        directory: found.is_directory,
    }
}

fn internal(found: &Metadata) -> info::Internal {
    info::Internal { file_id: found.key.inode }
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
        internal: internal(found),
        ea: info::Ea { ea_size: 0 },
        access: info::Access { access: open.access },
        position: info::Position { position: 0 },
        mode: info::Mode { mode: open.mode },
        alignment: info::Alignment { alignment: 0 },
        name: info::FileName { name: wire_name(&format!("\\{}", open.path().to_wire()))? },
    })
}

// A directory has no unnamed stream, and an empty list is an empty answer.
fn streams(found: &Metadata, out: &mut Vec<u8>) {
    if found.is_directory {
        return;
    }
    let name = Name::new("::$DATA").expect("seven characters");
    let only = info::Stream { size: found.size, allocation_size: found.allocation, name };
    info::Stream::emit_list(&[only], out);
}

fn file_system(open: &Open, class: FsInfoClass, server: Guid) -> Result<Answer, NtStatus> {
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
            let size = share.volume_size()?;
            let answer = info::FsSize {
                total_units: size.total_units,
                available_units: size.available_units,
                sectors_per_unit: size.unit_bytes / SECTOR,
                bytes_per_sector: SECTOR,
            };
            answer.emit(&mut bytes);
        }
        FsInfoClass::FULL_SIZE => {
            let size = share.volume_size()?;
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
            let attributes = FsAttributes::from_bits_retain(share.volume_attributes().0);
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
        FsInfoClass::OBJECT_ID => info::FsObjectId { object_id: server }.emit(&mut bytes),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    let fixed = fixed.unwrap_or(bytes.len());
    Ok(Answer { bytes, fixed })
}

fn volume_serial(share: &Share) -> u32 {
    let key = share.root_key();
    let mixed = key.device ^ key.inode.rotate_left(17) ^ (key.device >> 32);
    let [a, b, c, d, ..] = mixed.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

// Access lists come later; until then every file says what is true: everyone who reached the
// share may do everything the share allows.
fn security(open: &Open, parts: SecurityInformation) -> Result<Answer, NtStatus> {
    if !open.may(AccessMask::READ_CONTROL) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if parts.contains(SecurityInformation::SACL) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let wants = |part| parts.contains(part);
    let everyone = Ace::allow(open.tree.maximal_access, Sid::everyone());
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
    let fixed = bytes.len();
    Ok(Answer { bytes, fixed })
}

fn wire_name(text: &str) -> Result<Name, NtStatus> {
    Name::new(text).map_err(|_| NtStatus::OBJECT_NAME_INVALID)
}

const SECTOR: u32 = 512;
