//! QUERY_DIRECTORY: listing a directory, in as many requests as it takes.
//!
//! Spec: MS-SMB2 §3.3.5.18, MS-FSA §2.1.5.6.3.

use std::sync::{Arc, PoisonError};

use smb::fsctl::SYMLINK_TAG;
use smb::info::{
    DirectoryEntry, DirectoryWriter, FileAttributes, FileInfoClass, PosixEntry, ShortName,
};
use smb::{FileTime, Name, NtStatus, OutputResponse, QueryDirectoryFlags, QueryDirectoryRequest};

use super::call::Call;
use super::frame::Outcome;
use super::{malformed, posix};
use crate::access::{self, Look};
use crate::share::{Enumeration, InlineIo, Listed, Naming, Pattern, is_short, short_name};
use crate::state::Open;

/// What one request asks for.
struct Query {
    class: FileInfoClass,
    flags: QueryDirectoryFlags,
    pattern: Pattern,
    len_max: usize,
}

/// Lists on.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = QueryDirectoryRequest::parse(call.pdu()).map_err(malformed)?;
    let open = call.open(request.file_id)?;
    if !open.entry.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if request.output_length_max > call.link.transact_size_max() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.asker().check_charge(request.output_length_max)?;
    access::admit(&open, Look::List)?;
    let query = Query {
        class: request.class,
        flags: request.flags,
        pattern: Pattern::parse(&request.pattern).ok_or(NtStatus::OBJECT_NAME_INVALID)?,
        len_max: usize::try_from(request.output_length_max).expect("32 bits fit usize"),
    };
    // Longer lists take a while even where nothing waits for a disk.
    let is_short = request.output_length_max <= INLINE_LISTING_MAX;
    let inline = if is_short { open.entry.inline_io() } else { InlineIo::CachedReads };
    let entries = call.blocking(inline, move || list(&open, query)).await??;
    OutputResponse { output: &entries }.emit(out);
    Ok(NtStatus::SUCCESS)
}

fn list(open: &Arc<Open>, query: Query) -> Result<Vec<u8>, NtStatus> {
    let mut entries = Vec::new();
    let mut writer = DirectoryWriter::new(query.class, &entries, query.len_max)
        .ok_or(NtStatus::INVALID_INFO_CLASS)?;
    let share = open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?;
    let path = open.path();
    let is_posix = query.class == FileInfoClass::POSIX;
    if is_posix && path.naming() != Naming::Posix {
        return Err(NtStatus::INVALID_INFO_CLASS);
    }
    // Held while listing: two requests on one handle take turns, on their workers.
    let mut place = open.enumeration.lock().unwrap_or_else(PoisonError::into_inner);
    if query.flags.contains(QueryDirectoryFlags::REOPEN) {
        *place = None;
    }
    let cursor = match &mut *place {
        Some(cursor) => {
            if query.flags.contains(QueryDirectoryFlags::RESTART_SCANS) {
                cursor.restart(query.pattern);
            }
            cursor
        }
        None => place.insert(Enumeration::start(&open.entry, query.pattern)?),
    };
    while let Some(listed) = cursor.next(share, &open.entry, &path)? {
        let fits = if is_posix {
            to_posix_entry(&listed).map(|entry| writer.push_posix(&mut entries, &entry))
        } else {
            to_entry(&listed).map(|entry| writer.push(&mut entries, &entry))
        };
        let Some(fits) = fits else { continue };
        if !fits {
            cursor.put_back(listed);
            break;
        }
        if query.flags.contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY) {
            break;
        }
    }
    if !writer.is_empty() {
        return Ok(entries);
    }
    // MS-FSA §2.1.5.6.3: nothing ever matched, nothing is left, or not even one fits.
    Err(if cursor.is_holding() {
        NtStatus::INFO_LENGTH_MISMATCH
    } else if cursor.has_matched() {
        NtStatus::NO_MORE_FILES
    } else {
        NtStatus::NO_SUCH_FILE
    })
}

// Only where it differs: a name that is short has no other.
fn short(name: &str) -> ShortName {
    if matches!(name, "." | "..") || is_short(name) {
        return ShortName::default();
    }
    ShortName::new(&short_name(name)).unwrap_or_default()
}

fn to_posix_entry(listed: &Listed) -> Option<PosixEntry> {
    let name = Name::new(listed.name.as_str()).ok()?;
    Some(PosixEntry { info: posix::info(&listed.metadata), name })
}

fn to_entry(listed: &Listed) -> Option<DirectoryEntry> {
    let found = &listed.metadata;
    Some(DirectoryEntry {
        creation_time: FileTime(found.creation),
        last_access_time: FileTime(found.access),
        last_write_time: FileTime(found.write),
        change_time: FileTime(found.change),
        end_of_file: found.size,
        allocation_size: found.allocation,
        attributes: FileAttributes::from_bits_retain(found.attributes.0),
        file_id: found.key.inode,
        // MS-FSCC §2.4: where a class has no field for it, the tag stands here.
        ea_size: if found.posix.is_link { SYMLINK_TAG } else { listed.ea_size },
        reparse_tag: if found.posix.is_link { SYMLINK_TAG } else { 0 },
        short_name: short(&listed.name),
        name: Name::new(listed.name.as_str()).ok()?,
        ..DirectoryEntry::default()
    })
}

/// Bytes of a list that is made on the calling thread where memory lies behind everything: some
/// hundred entries, about a millisecond.
const INLINE_LISTING_MAX: u32 = 64 << 10;
