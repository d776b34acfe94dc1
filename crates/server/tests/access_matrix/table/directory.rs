//! What is asked of directories: listings, notifications, and what only files have.
//!
//! Spec: MS-SMB2 §3.3.5.18, §3.3.5.19; MS-FSCC §2.4 (classes of listings).

use smb::create::AccessMask as A;
use smb::info::FileInfoClass;
use smb::{
    ChangeNotifyRequest, Command, FlushRequest, LockElement, LockFlags, LockRequest, Name,
    QueryDirectoryFlags, QueryDirectoryRequest,
};

use super::{READS, row};
use crate::row::{Needs, On, Row};
use crate::support;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for class in 0..=u8::MAX {
        let is_listing = LISTINGS.contains(&class);
        let is_newer = NEWER_LISTINGS.contains(&class);
        let needs = if is_listing || is_newer { READS } else { Needs::Never };
        let listing = list(format!("QUERY_DIRECTORY {class} Root"), On::Root, needs, class);
        rows.push(match (is_listing, is_newer) {
            (true, _) => listing,
            (false, true) => listing.optional(),
            (false, false) => listing.briefly(),
        });
    }
    rows.push(list("QUERY_DIRECTORY File".to_owned(), On::File, Needs::Never, 37));
    // Where nothing is watched it is refused; else it waits, and ends with the open.
    let watch =
        row("CHANGE_NOTIFY Directory", On::Directory, READS, Command::CHANGE_NOTIFY, notify);
    rows.push(watch.optional());
    rows.push(row("CHANGE_NOTIFY File", On::File, Needs::Never, Command::CHANGE_NOTIFY, notify));
    rows.push(row("READ Directory", On::Directory, Needs::Never, Command::READ, |asked, out| {
        support::read(asked.id, 0, 8).emit(out);
    }));
    rows.push(row("WRITE Directory", On::Directory, Needs::Never, Command::WRITE, |asked, out| {
        support::write(asked.id, 0, b"x").emit(out);
    }));
    // MS-SMB2 §3.3.5.11: FILE_ADD_FILE or FILE_ADD_SUBDIRECTORY, which are the bits of writing and appending.
    let adds = Needs::Any(A::WRITE_DATA | A::APPEND_DATA);
    rows.push(row("FLUSH Directory", On::Directory, adds, Command::FLUSH, |asked, out| {
        FlushRequest { file_id: asked.id }.emit(out);
    }));
    rows.push(row("LOCK Directory", On::Directory, Needs::Never, Command::LOCK, |asked, out| {
        let flags = LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY;
        let locks = vec![LockElement { offset: 0, length: 8, flags }];
        LockRequest { lock_sequence: 0, file_id: asked.id, locks }.emit(out);
    }));
    rows
}

fn list(name: String, on: On, needs: Needs, class: u8) -> Row {
    row(name, on, needs, Command::QUERY_DIRECTORY, move |asked, out| {
        let request = QueryDirectoryRequest {
            class: FileInfoClass(class),
            flags: QueryDirectoryFlags::RESTART_SCANS,
            file_index: 0,
            file_id: asked.id,
            pattern: Name::new("*").unwrap(),
            output_length_max: 8192,
        };
        request.emit(out);
    })
}

fn notify(asked: &crate::row::Asked, out: &mut Vec<u8>) {
    let request = ChangeNotifyRequest {
        watch_tree: false,
        output_length_max: 4096,
        file_id: asked.id,
        completion_filter: 0x17,
    };
    request.emit(out);
}

// MS-SMB2 §2.2.33: all that it has.
const LISTINGS: [u8; 6] = [1, 2, 3, 12, 37, 38];
// FileIdExtd.., FileId64Extd.., FileIdAllExtd.., and that of the POSIX extensions.
const NEWER_LISTINGS: [u8; 7] = [60, 63, 78, 79, 80, 81, 100];
