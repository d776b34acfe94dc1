//! QUERY_DIRECTORY: listing a directory, in as many requests as it takes.
//!
//! A request looks at the names of a directory in turns: between two of them others have the thread. So one
//! that matches nothing in a large directory is in nobody's way for long.
//!
//! Spec: MS-SMB2 §3.3.5.18, MS-FSA §2.1.5.6.3.

use std::sync::Arc;

use smb::fsctl::SYMLINK_TAG;
use smb::info::{
    DirectoryEntry, DirectoryWriter, FileAttributes, FileInfoClass, PosixEntry, ShortName,
};
use smb::{FileTime, Name, NtStatus, OutputResponse, QueryDirectoryFlags, QueryDirectoryRequest};
use tree::{
    Enumeration, InlineIo, Listed, Looks, Naming, Next, Pattern, Reach, Share, is_short, short_name,
};

use super::call::Call;
use super::frame::{Outcome, malformed};
use super::posix;
use crate::access::{self, Look};
use crate::limits::{LOOKS_INLINE_MAX, LOOKS_PER_TURN_MAX, PATTERN_CHARS_INLINE_MAX};
use crate::state::open::Listing;
use crate::state::{Account, Open, Resource};
use crate::status::OrStatus as _;

/// Where one request begins.
struct Query {
    flags: QueryDirectoryFlags,
    pattern: Pattern,
}

/// What one request has listed so far.
struct List {
    /// Until it has begun.
    query: Option<Query>,
    class: FileInfoClass,
    is_single: bool,
    entries: Vec<u8>,
    writer: DirectoryWriter,
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
    let mut list = List {
        query: Some(Query {
            pattern: Pattern::parse(&request.pattern).ok_or(NtStatus::OBJECT_NAME_INVALID)?,
            flags: request.flags,
        }),
        class: request.class,
        is_single: request.flags.contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY),
        entries: Vec::new(),
        writer: DirectoryWriter::new(request.class, &[], len_max(request.output_length_max))
            .ok_or(NtStatus::INVALID_INFO_CLASS)?,
    };
    // Requests on one handle take turns, and who waits for one occupies no thread.
    let mut place = call.wait_for_work(Arc::clone(&open.enumeration).lock_owned()).await?;
    // Longer lists take a while even where nothing waits for a disk.
    let is_short = request.output_length_max <= INLINE_LISTING_MAX
        && request.pattern.as_str().len() <= PATTERN_CHARS_INLINE_MAX;
    let mut inline = if is_short { open.entry.inline_io() } else { InlineIo::CachedReads };
    loop {
        let looks = match inline {
            InlineIo::Everything => Looks { left: LOOKS_INLINE_MAX, reach: Reach::TopFileSystem },
            _ => Looks { left: LOOKS_PER_TURN_MAX, reach: Reach::Everywhere },
        };
        let (of, account) = (Arc::clone(&open), Arc::clone(&call.session().account));
        // Names in memory are looked at as fast as a core can: a thread for each request would leave no core to others.
        let _scan = match inline {
            InlineIo::Everything => None,
            _ => Some(call.scan().await?),
        };
        let work = move || {
            let turn = list.turn(&of, &mut place, &account, looks);
            (list, place, turn)
        };
        let turn;
        (list, place, turn) = call.blocking(inline, work).await?;
        if turn? {
            break;
        }
        // A scan that nobody waits for any more ends here.
        if call.session().is_closed() || call.link.is_gone() {
            return Err(NtStatus::CANCELLED);
        }
        inline = InlineIo::CachedReads;
    }
    OutputResponse { output: &list.entries }.emit(out);
    Ok(NtStatus::SUCCESS)
}

impl List {
    // Lists on, looking at so many names; whether that was all.
    fn turn(
        &mut self,
        open: &Arc<Open>,
        place: &mut Option<Listing>,
        account: &Arc<Account>,
        mut looks: Looks,
    ) -> Result<bool, NtStatus> {
        let share = open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?;
        let path = open.path();
        let is_posix = self.class == FileInfoClass::POSIX;
        if is_posix && path.naming() != Naming::Posix {
            return Err(NtStatus::INVALID_INFO_CLASS);
        }
        if let Some(query) = self.query.take() {
            begin(place, query, open, account)?;
        }
        let Some(Listing { cursor, .. }) = place else { return Err(NtStatus::NO_MORE_FILES) };
        loop {
            let listed = match cursor.next(share, &open.entry, &path, &mut looks).or_status()? {
                Next::Found(listed) => listed,
                Next::Paused => return Ok(false),
                Next::End => break,
            };
            let (writer, entries) = (&mut self.writer, &mut self.entries);
            let fits = if is_posix {
                to_posix_entry(share, &listed).map(|entry| writer.push_posix(entries, &entry))
            } else {
                to_entry(share, &listed).map(|entry| writer.push(entries, &entry))
            };
            let Some(fits) = fits else { continue };
            if !fits {
                cursor.put_back(listed);
                break;
            }
            if self.is_single {
                break;
            }
        }
        cursor.pause();
        if !self.writer.is_empty() {
            return Ok(true);
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
}

// Goes on where the handle stands, or begins anew.
fn begin(
    place: &mut Option<Listing>,
    query: Query,
    open: &Open,
    account: &Arc<Account>,
) -> Result<(), NtStatus> {
    if query.flags.contains(QueryDirectoryFlags::REOPEN) {
        *place = None;
    }
    match place {
        Some(Listing { cursor, .. }) => {
            if query.flags.contains(QueryDirectoryFlags::RESTART_SCANS) {
                cursor.restart(query.pattern);
            }
        }
        None => {
            let held = account.try_take(Resource::Opens, 1);
            let held = held.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
            let cursor = Enumeration::start(&open.entry, query.pattern).or_status()?;
            *place = Some(Listing { cursor, _place: held });
        }
    }
    Ok(())
}

fn len_max(asked: u32) -> usize {
    usize::try_from(asked).expect("32 bits fit usize")
}

// Only where it differs: a name that is short has no other.
fn short(name: &str) -> ShortName {
    if matches!(name, "." | "..") || is_short(name) {
        return ShortName::default();
    }
    ShortName::new(&short_name(name)).unwrap_or_default()
}

fn to_posix_entry(share: &Share, listed: &Listed) -> Option<PosixEntry> {
    let name = Name::new(listed.name.as_str()).ok()?;
    Some(PosixEntry {
        info: posix::info(share.file_id(listed.metadata.key), &listed.metadata),
        name,
    })
}

fn to_entry(share: &Share, listed: &Listed) -> Option<DirectoryEntry> {
    let found = &listed.metadata;
    Some(DirectoryEntry {
        creation_time: FileTime(found.creation),
        last_access_time: FileTime(found.access),
        last_write_time: FileTime(found.write),
        change_time: FileTime(found.change),
        end_of_file: found.size,
        allocation_size: found.allocation,
        attributes: FileAttributes::from_bits_retain(found.attributes.0),
        file_id: share.file_id(found.key),
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
