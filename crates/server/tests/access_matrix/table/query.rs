//! QUERY_INFO of each class there is.
//!
//! Spec: MS-SMB2 §2.2.37 (which classes), §3.3.5.20.1 to §3.3.5.20.4 (rights); MS-FSCC §2.4, §2.5 (numbers).

use smb::Command;
use smb::create::AccessMask as A;
use smb::info::{InfoType, SecurityInformation};

use super::row;
use crate::row::{Needs, On, Row};
use crate::support;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (on, kinds) in [(On::File, FILE), (On::Stream, FILE), (On::Directory, FILE)] {
        for &(class, name, needs) in kinds {
            rows.push(query(InfoType::FILE, class, format!("{name} {on:?}"), on, needs));
        }
    }
    for class in 0..=u8::MAX {
        if !FILE.iter().chain(OPTIONAL_FILE).any(|known| known.0 == class) {
            let name = format!("file class {class}");
            rows.push(query(InfoType::FILE, class, name, On::File, Needs::Never).briefly());
        }
        if !FILE_SYSTEM.iter().any(|known| known.0 == class) {
            let name = format!("file system class {class}");
            let row = query(InfoType::FILE_SYSTEM, class, name, On::File, Needs::Never);
            rows.push(row.briefly());
        }
    }
    for &(class, name, needs) in OPTIONAL_FILE {
        let row = query(InfoType::FILE, class, name.to_owned(), On::File, needs);
        rows.push(row.optional());
    }
    for &(class, name, needs) in FILE_SYSTEM {
        rows.push(query(InfoType::FILE_SYSTEM, class, name.to_owned(), On::File, needs));
    }
    for on in [On::File, On::Directory] {
        for (name, part, needs) in SECURITY {
            let name = format!("QUERY_INFO security {name} {on:?}");
            rows.push(row(name, on, needs, Command::QUERY_INFO, move |asked, out| {
                let mut request = support::query(asked.id, InfoType::SECURITY, 0);
                request.additional = part;
                request.emit(out);
            }));
        }
    }
    // MS-SMB2 §3.3.5.20.4: a store without quotas refuses.
    let quota = query(InfoType::QUOTA, 0, "quota".to_owned(), On::File, READ_DATA);
    rows.push(quota.optional());
    for kind in [0, 5, 255] {
        let name = format!("info type {kind}");
        rows.push(query(InfoType(kind), 4, name, On::File, Needs::Never));
    }
    rows
}

fn query(kind: InfoType, class: u8, name: String, on: On, needs: Needs) -> Row {
    row(format!("QUERY_INFO {name}"), on, needs, Command::QUERY_INFO, move |asked, out| {
        support::query(asked.id, kind, class).emit(out);
    })
}

const READ_ATTRIBUTES: Needs = Needs::Any(A::READ_ATTRIBUTES);
const READ_EA: Needs = Needs::Any(A::READ_EA);
const READ_CONTROL: Needs = Needs::Any(A::READ_CONTROL);
const READ_DATA: Needs = Needs::Any(A::READ_DATA);

// What every store with files has.
const FILE: &[(u8, &str, Needs)] = &[
    (4, "FileBasicInformation", READ_ATTRIBUTES),
    (5, "FileStandardInformation", Needs::Nothing),
    (6, "FileInternalInformation", Needs::Nothing),
    (7, "FileEaInformation", Needs::Nothing),
    (8, "FileAccessInformation", Needs::Nothing),
    (14, "FilePositionInformation", Needs::Nothing),
    (15, "FileFullEaInformation", READ_EA),
    (16, "FileModeInformation", Needs::Nothing),
    (17, "FileAlignmentInformation", Needs::Nothing),
    (18, "FileAllInformation", READ_ATTRIBUTES),
    (22, "FileStreamInformation", Needs::Nothing),
    (34, "FileNetworkOpenInformation", READ_ATTRIBUTES),
    (35, "FileAttributeTagInformation", READ_ATTRIBUTES),
];

// What a store may lack.
const OPTIONAL_FILE: &[(u8, &str, Needs)] = &[
    (21, "FileAlternateNameInformation", Needs::Nothing),
    (23, "FilePipeInformation", READ_ATTRIBUTES),
    (24, "FilePipeLocalInformation", READ_ATTRIBUTES),
    (25, "FilePipeRemoteInformation", READ_ATTRIBUTES),
    (28, "FileCompressionInformation", Needs::Nothing),
    (48, "FileNormalizedNameInformation", Needs::Nothing),
    (59, "FileIdInformation", Needs::Nothing),
];

const FILE_SYSTEM: &[(u8, &str, Needs)] = &[
    (1, "FileFsVolumeInformation", Needs::Nothing),
    (3, "FileFsSizeInformation", Needs::Nothing),
    (4, "FileFsDeviceInformation", Needs::Nothing),
    (5, "FileFsAttributeInformation", Needs::Nothing),
    (6, "FileFsControlInformation", Needs::Nothing),
    (7, "FileFsFullSizeInformation", Needs::Nothing),
    (8, "FileFsObjectIdInformation", Needs::Nothing),
    (11, "FileFsSectorSizeInformation", Needs::Nothing),
];

// MS-SMB2 §3.3.5.20.3; the SACL takes ACCESS_SYSTEM_SECURITY, which nobody is granted.
const SECURITY: [(&str, SecurityInformation, Needs); 4] = [
    ("owner", SecurityInformation::OWNER, READ_CONTROL),
    ("group", SecurityInformation::GROUP, READ_CONTROL),
    ("DACL", SecurityInformation::DACL, READ_CONTROL),
    ("SACL", SecurityInformation::SACL, Needs::Never),
];
