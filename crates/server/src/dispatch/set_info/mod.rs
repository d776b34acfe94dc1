//! SET_INFO: times, attributes, sizes, names, and the wish to delete.
//!
//! What changes a file's shape or its names first takes back what others cache of it, and ends
//! the push regions others have mapped.
//!
//! Spec: MS-SMB2 §3.3.5.21, MS-FSA §2.1.5.15.

mod given;
mod handles;
mod rename;
mod stream;
mod target;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb::info::{self, DispositionFlags, FileInfoClass, InfoType};
use smb::push::RecallReason;
use smb::{FileTime, NtStatus, SetInfoRequest, SetInfoResponse};
use tracing::warn;
use tree::{BasicChange, DosAttributes, InlineIo, MayWait, Naming, Share, SharePath};

use super::call::Call;
use super::frame::{Outcome, malformed};
use super::{extended, posix};
use crate::access::deletion::Doomed;
use crate::access::{self, Look, MayRemove, Remove, Set, Write};
use crate::push::Region;
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::node::{NodeState, OpenRecord};
use crate::state::range::LockRange;
use crate::state::wish_notes;
use crate::status::{OrStatus as _, status_of_log};

/// Changes metadata.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = SetInfoRequest::parse(call.pdu()).map_err(malformed)?;
    let (kind, class) = (request.info_type, FileInfoClass(request.class));
    let (file_id, parts, buffer) = (request.file_id, request.additional, request.buffer.to_vec());
    let len = u32::try_from(buffer.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    call.asker().check_charge(len)?;
    let open = call.open(file_id)?;
    match kind {
        InfoType::FILE => file(call, &open, class, &buffer).await?,
        // MS-FSCC §2.5: labels and quotas are not kept.
        InfoType::FILE_SYSTEM | InfoType::QUOTA => return Err(NtStatus::NOT_SUPPORTED),
        InfoType::SECURITY if call.link.agreed.get().is_some_and(|agreed| agreed.posix) => {
            posix::set_security(call, &open, parts, &buffer).await?;
        }
        InfoType::SECURITY => return Err(NtStatus::NOT_SUPPORTED),
        _ => return Err(NtStatus::INVALID_PARAMETER),
    }
    SetInfoResponse.emit(out);
    Ok(NtStatus::SUCCESS)
}

async fn file(
    call: &Call,
    open: &Arc<Open>,
    class: FileInfoClass,
    buffer: &[u8],
) -> Result<(), NtStatus> {
    match class {
        FileInfoClass::BASIC => {
            let basic = info::Basic::parse(buffer).map_err(short)?;
            set_basic(call, open, &basic).await
        }
        FileInfoClass::END_OF_FILE => {
            let size = info::EndOfFile::parse(buffer).map_err(short)?.end_of_file;
            resize(call, open, Resize::End(size)).await
        }
        FileInfoClass::ALLOCATION => {
            let size = info::Allocation::parse(buffer).map_err(short)?.allocation_size;
            resize(call, open, Resize::Allocation(size)).await
        }
        FileInfoClass::DISPOSITION => {
            let delete = info::Disposition::parse(buffer).map_err(short)?.delete;
            set_disposition(call, open, delete).await
        }
        FileInfoClass::DISPOSITION_EX => {
            let flags = info::DispositionEx::parse(buffer).map_err(short)?.flags;
            set_disposition(call, open, flags.contains(DispositionFlags::DELETE)).await
        }
        FileInfoClass::RENAME => {
            let new = info::Rename::parse(buffer).map_err(short)?;
            rename::rename(call, open, &new).await
        }
        FileInfoClass::RENAME_EX => {
            let new = info::Rename::parse_ex(buffer).map_err(short)?;
            rename::rename(call, open, &new).await
        }
        FileInfoClass::LINK => {
            let new = info::Rename::parse(buffer).map_err(short)?;
            rename::link(call, open, &new).await
        }
        FileInfoClass::POSITION => {
            access::admit(open, Look::Handle)?;
            let position = info::Position::parse(buffer).map_err(short)?.position;
            if position > i64::MAX.unsigned_abs() {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            open.marks.position.store(position, Ordering::Relaxed);
            Ok(())
        }
        FileInfoClass::MODE => {
            access::admit(open, Look::Handle)?;
            set_mode(open, buffer)
        }
        FileInfoClass::VALID_DATA_LENGTH => Err(NtStatus::PRIVILEGE_NOT_HELD),
        FileInfoClass::FULL_EA => set_attributes(call, open, buffer).await,
        FileInfoClass::SHORT_NAME => Err(NtStatus::NOT_SUPPORTED),
        _ => Err(NtStatus::INVALID_INFO_CLASS),
    }
}

async fn set_basic(call: &Call, open: &Arc<Open>, basic: &info::Basic) -> Result<(), NtStatus> {
    let leave = access::admit(open, Set::Basic)?;
    let attributes = DosAttributes(basic.attributes.bits());
    // MS-FSA §2.1.5.15.2: a file is no directory, and a directory is not temporary.
    let is_directory = open.entry.is_directory();
    if (!is_directory && attributes.contains(DosAttributes::DIRECTORY))
        || (is_directory && attributes.contains(DosAttributes::TEMPORARY))
    {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let change = BasicChange {
        creation: time(basic.creation_time)?,
        access: time(basic.last_access_time)?,
        write: time(basic.last_write_time)?,
        change: time(basic.change_time)?,
        attributes: (attributes.0 != 0).then_some(attributes),
        keeps_write: keeps_write(open, basic.last_write_time),
    };
    let entry = Arc::clone(&open.entry);
    let (inline, node) = (entry.inline_io(), Arc::clone(&open.node));
    let work = move || {
        if change.write.is_some() {
            crate::push::forget_times(&node);
        }
        entry.set_basic(leave, change)
    };
    call.changing(open, inline, work).await?.or_status()
}

// MS-FSA §2.1.5.15.9: what a handle may change about itself. Writing through is a promise, the rest advice.
fn set_mode(open: &Open, buffer: &[u8]) -> Result<(), NtStatus> {
    const SETTABLE: u32 = 0x0000_0036;
    let mode = info::Mode::parse(buffer).map_err(short)?.mode;
    if mode & !SETTABLE != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    open.set_mode(SETTABLE, mode);
    Ok(())
}

async fn set_attributes(call: &Call, open: &Arc<Open>, list: &[u8]) -> Result<(), NtStatus> {
    let leave = access::admit(open, Set::ExtendedAttributes)?;
    let list = extended::parse(list)?;
    let entry = Arc::clone(&open.entry);
    let (names, list) = (extended::names(&list), extended::own(&list));
    let work = move || entry.set_extended_attributes(leave, &list);
    call.changing(open, open.entry.inline_to_set_attributes(names), work).await?.or_status()
}

// MS-FSA §2.1.5.15.2: a handle that has set the time of last write, or frozen it, does not move it by its own changes.
// Programs on a POSIX mount expect a write to move it.
fn keeps_write(open: &Open, wire: FileTime) -> Option<bool> {
    match wire {
        _ if open.path().naming() == Naming::Posix => None,
        FileTime::ZERO => None,
        FileTime::THAW => Some(false),
        _ => Some(true),
    }
}

// MS-FSCC §2.4, FileBasicInformation: 0 leaves a time alone, -1 and -2 switch its automatic update
// off and on. The kernel updates times by itself: the switches of the other times are taken and have no effect.
fn time(wire: FileTime) -> Result<Option<u64>, NtStatus> {
    match wire {
        FileTime::ZERO | FileTime::FREEZE | FileTime::THAW => Ok(None),
        FileTime(ticks) if ticks > i64::MAX.unsigned_abs() => Err(NtStatus::INVALID_PARAMETER),
        FileTime(ticks) => Ok(Some(ticks)),
    }
}

#[derive(Clone, Copy)]
enum Resize {
    End(u64),
    Allocation(u64),
}

async fn resize(call: &Call, open: &Arc<Open>, resize: Resize) -> Result<(), NtStatus> {
    if open.entry.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    access::admit(open, Write::Resize)?;
    if !open.entry.is_resizable() {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let (Resize::End(size) | Resize::Allocation(size)) = resize;
    if size > i64::MAX.unsigned_abs() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let admitted = call.begin_change(open, LockRange::from(size)).await?;
    // Until the file has its new size nothing is mapped that the recall below would miss.
    let resizing = open.node.begin_resize();
    // The client's own region on this very handle is its own to give back first; others are
    // recalled. docs/push-mode.md, "Recall".
    let is_cut = |region: &Region| region.end > size;
    let is_own = |region: &Region| region.open_serial == open.serial;
    if Region::all_of(&open.node).iter().any(|region| is_cut(region) && is_own(region)) {
        return Err(NtStatus::USER_MAPPED_FILE);
    }
    call.recall(&open.node, RecallReason::TRUNCATION, is_cut).await?;
    let entry = Arc::clone(&open.entry);
    let inline = match resize {
        Resize::End(size) => entry.inline_to_resize(size),
        Resize::Allocation(size) => entry.inline_to_allocate(size),
    };
    let work = move || {
        let _resizing = resizing;
        match resize {
            Resize::End(size) => entry.set_size(size),
            Resize::Allocation(size) => entry.set_allocation(size),
        }
    };
    call.changing_bytes(open, admitted, inline, work).await?.or_status()
}

async fn set_disposition(call: &Call, open: &Arc<Open>, delete: bool) -> Result<(), NtStatus> {
    let leave = access::admit(open, Remove::Delete)?;
    let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
    if delete {
        // Its directory is looked for by name.
        let inline = share.inline_by_name(&[&open.path()]);
        let (named, files) = (Arc::clone(open), Arc::clone(&call.core.files));
        // `None`: whoever renames it would have to be waited for.
        let check = move |may_wait: bool| -> Option<Result<(), NtStatus>> {
            let now = |state: &NodeState| Some((Arc::clone(&share), state.path_of(named.serial)?));
            let held = match may_wait {
                true => named.node.hold_name(now),
                false => named.node.try_hold_name(now)?,
            };
            let Some((path, _held)) = held else { return Some(Err(NtStatus::FILE_CLOSED)) };
            Some(may_go(&files.shares(), &share, &named, &path, leave))
        };
        let checked = match inline {
            InlineIo::Everything => check(false),
            _ => None,
        };
        match checked {
            Some(checked) => checked?,
            None => {
                let check = move || check(true).expect("it waits");
                call.blocking(InlineIo::CachedReads, check).await??;
            }
        }
        call.yield_caching(&open.node, open.owner, Intent::Unlink).await?;
        let in_the_way = |region: &Region| region.owner != open.owner;
        call.recall(&open.node, RecallReason::UNLINK, in_the_way).await?;
    }
    let wished = Arc::clone(open);
    let work = move |may_wait| change_wish(&wished, delete.then_some(leave), may_wait);
    // Who makes something in a directory is waited for.
    let is_much = open.entry.is_directory() || open.node.lock().opens.iter().any(is_noted);
    let inline = InlineIo::Everything.unless(is_much);
    match call.somewhere(inline, work.clone()).await? {
        // Opened meanwhile through a share that keeps a log.
        Err(NtStatus::RETRY) => call.somewhere(InlineIo::CachedReads, work).await??,
        changed => changed?,
    }
    if delete {
        // Behind the wish: from then on nothing is opened by the name, nor a stream. The answers are not waited for: the name
        // goes with the last of them.
        open.node.begin_breaks(open.owner, Intent::Unlink);
        handles::ask(call, &open.node, open.owner).await?;
    }
    Ok(())
}

// Whether a file may go by the name that it has, and keeps meanwhile.
fn may_go(
    shares: &[Arc<Share>],
    share: &Arc<Share>,
    open: &Open,
    path: &SharePath,
    leave: MayRemove,
) -> Result<(), NtStatus> {
    let entry = &open.entry;
    let doomed = Doomed {
        path,
        key: entry.key(),
        is_read_only: entry.metadata().or_status()?.attributes.contains(DosAttributes::READONLY),
        is_device: entry.is_device(),
        is_stream: entry.is_stream(),
    };
    doomed.check(shares, share, leave)?;
    if entry.is_directory() && !share.is_empty_directory(entry).or_status()? {
        return Err(NtStatus::DIRECTORY_NOT_EMPTY);
    }
    Ok(())
}

fn change_wish(
    open: &Open,
    wish: Option<MayRemove>,
    may_wait: Option<MayWait>,
) -> Result<(), NtStatus> {
    match wish {
        Some(leave) => ask_to_go(open, leave, may_wait, || stays_empty(open)),
        None => {
            take_back(open)?;
            note_wishes(open, may_wait)
        }
    }
}

// A wish that cannot be noted, or of a directory that does not stay empty, is taken back; what other handles ask for at
// the same time is not.
fn ask_to_go(
    open: &Open,
    leave: MayRemove,
    may_wait: Option<MayWait>,
    stays_empty: impl FnOnce() -> Result<bool, NtStatus>,
) -> Result<(), NtStatus> {
    let on_close = {
        let mut state = open.node.lock();
        // Closed meanwhile: the wish would be nobody's.
        if open.is_closed() {
            return Err(NtStatus::FILE_CLOSED);
        }
        // Its name is another inode's now, which goes by a handle of its own.
        if open.entry.has_become_link() {
            return Err(NtStatus::CANNOT_DELETE);
        }
        let record = state.record_mut(open.serial).ok_or(NtStatus::FILE_CLOSED)?;
        let on_close = record.delete_on_close;
        // By the rules of POSIX the name goes with this open, whoever else has the file open.
        let goes = on_close.is_some() || record.path.naming() == Naming::Posix;
        record.delete_on_close = goes.then_some(leave);
        state.ask_to_go(open.serial, leave);
        on_close
    };
    let asked = match stays_empty() {
        Ok(true) => note_wishes(open, may_wait),
        Ok(false) => Err(NtStatus::DIRECTORY_NOT_EMPTY),
        Err(status) => Err(status),
    };
    {
        let mut state = open.node.lock();
        match asked {
            Ok(()) => state.grant_wish(open.serial),
            Err(_) => {
                state.refuse_wish(open.serial);
                if let Some(record) = state.record_mut(open.serial) {
                    record.delete_on_close = on_close;
                }
            }
        }
    }
    if asked.is_err() {
        // A log that could be written may say that the file is to go: a crash would carry out what was refused.
        let _ = note_wishes(open, may_wait);
    }
    asked
}

fn take_back(open: &Open) -> Result<(), NtStatus> {
    let mut state = open.node.lock();
    if open.is_closed() {
        return Err(NtStatus::FILE_CLOSED);
    }
    let record = state.record_mut(open.serial).ok_or(NtStatus::FILE_CLOSED)?;
    record.delete_on_close = None;
    state.take_wish_back(open.serial);
    Ok(())
}

fn is_noted(record: &OpenRecord) -> bool {
    record.share.keeps_journal()
}

// `RETRY`: a log has to learn of it, and this thread may not wait for that.
fn note_wishes(open: &Open, may_wait: Option<MayWait>) -> Result<(), NtStatus> {
    let Some(may_wait) = may_wait else {
        let is_noted = open.node.lock().opens.iter().any(is_noted);
        return if is_noted { Err(NtStatus::RETRY) } else { Ok(()) };
    };
    wish_notes::write_durably(&open.node, may_wait).map_err(|error| {
        warn!(serial = open.serial.0, %error, "a wish to delete could not be noted");
        status_of_log(&error)
    })
}

// Whether nothing lies in a directory that is to go, and nothing will: who makes something in it has asked before the
// wish was spoken, and is waited for here, or is refused. May block.
fn stays_empty(open: &Open) -> Result<bool, NtStatus> {
    let Some(share) = open.tree.share().filter(|_| open.entry.is_directory()) else {
        return Ok(true);
    };
    open.node.makings.finish_in(share, &open.path(), open.node.key());
    share.is_empty_directory(&open.entry).or_status()
}

// MS-SMB2 §3.3.5.21.1: a structure that is too short is a length mismatch.
fn short(error: smb::ParseError) -> NtStatus {
    match error {
        smb::ParseError::PeerTruncated { .. } => NtStatus::INFO_LENGTH_MISMATCH,
        other => other.status(),
    }
}

#[cfg(test)]
mod tests;
