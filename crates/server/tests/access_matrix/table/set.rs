//! SET_INFO of each class there is: times, sizes, names, attributes, deletion.
//!
//! Spec: MS-SMB2 §2.2.39 (which classes), §3.3.5.21.1 to §3.3.5.21.4 (rights); MS-FSA §2.1.5.15; MS-FSCC §2.4.

use smb::Command;
use smb::create::AccessMask as A;
use smb::info::{InfoType, SecurityInformation};

use super::{DELETES, WRITES, row, utf16};
use crate::disk::{Change, STREAMS};
use crate::row::{Needs, On, Row};
use crate::support;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for on in [On::File, On::Stream, On::ReadOnly, On::Posix, On::Directory] {
        rows.extend(facts(on));
        rows.extend(sizes(on));
    }
    rows.extend(deletions());
    rows.extend(names());
    rows.extend(of_streams());
    rows.extend(unknown());
    rows
}

pub(super) fn set(
    name: impl Into<String>,
    on: On,
    needs: Needs,
    class: u8,
    buffer: Vec<u8>,
) -> Row {
    set_of(InfoType::FILE, name, on, needs, class, buffer)
}

fn set_of(
    info_type: InfoType,
    name: impl Into<String>,
    on: On,
    needs: Needs,
    class: u8,
    buffer: Vec<u8>,
) -> Row {
    let name = format!("SET_INFO {} {on:?}", name.into());
    row(name, on, needs, Command::SET_INFO, move |asked, out| {
        let mut request = support::set(asked.id, smb::info::FileInfoClass(class), &buffer);
        request.info_type = info_type;
        request.emit(out);
    })
}

// The file whose attributes change with those of an open.
fn base(on: On) -> &'static str {
    if on == On::Stream { "f" } else { on.path() }
}

fn facts(on: On) -> Vec<Row> {
    let said = [Change::Facts(base(on))];
    // FileBasicInformation: creation, access, write, change, attributes.
    let basic = |write: u64, attributes: u32| {
        let times = [0, 0, write, 0].map(u64::to_le_bytes).concat();
        [&times[..], &attributes.to_le_bytes(), &[0; 4]].concat()
    };
    let writes_attributes = Needs::Any(A::WRITE_ATTRIBUTES);
    let attributes = if on == On::ReadOnly { 0x20 } else { 0x02 };
    let stream_time = [Change::Contents(STREAMS)];
    let mut rows = vec![
        set("FileBasicInformation write time", on, writes_attributes, 4, basic(TIME, 0))
            .changes(if on == On::Stream { &[] } else { &said })
            .may_change(&stream_time),
        set("FileBasicInformation attributes", on, writes_attributes, 4, basic(0, attributes))
            .changes(&said),
        // What is kept of a handle alone.
        set("FilePositionInformation", on, Needs::Nothing, 14, vec![8, 0, 0, 0, 0, 0, 0, 0]),
        set("FileModeInformation", on, Needs::Nothing, 16, vec![4, 0, 0, 0]),
    ];
    // Next, flags, two lengths, name, value: MS-FSCC §2.4.15.
    let ea = b"\0\0\0\0\0\x03\x02\0NEW\0ea".to_vec();
    let full_ea = set("FileFullEaInformation", on, Needs::Any(A::WRITE_EA), 15, ea);
    rows.push(full_ea.changes(&said));
    rows
}

fn sizes(on: On) -> Vec<Row> {
    let grown = match on {
        On::Stream => [Change::Contents(STREAMS)],
        other => [Change::Contents(other.path())],
    };
    let size = |bytes: u64| bytes.to_le_bytes().to_vec();
    let rows = vec![
        set("FileEndOfFileInformation cut", on, WRITES, 20, size(3)).changes(&grown),
        set("FileEndOfFileInformation grow", on, WRITES, 20, size(9000)).changes(&grown),
        set("FileAllocationInformation cut", on, WRITES, 19, size(0)).changes(&grown),
        // It takes a privilege that nobody has: MS-FSA §2.1.5.15.15.
        set("FileValidDataLengthInformation", on, Needs::Never, 39, size(4)),
    ];
    if on != On::Directory {
        return rows;
    }
    // A directory has no size to set.
    let never = |row: Row| Row { needs: Needs::Never, changes: Vec::new(), ..row };
    rows.into_iter().map(never).collect()
}

fn deletions() -> Vec<Row> {
    let mut rows = Vec::new();
    for (class, name, buffer) in [
        (13, "FileDispositionInformation", vec![1]),
        (64, "FileDispositionInformationEx", vec![1, 0, 0, 0]),
    ] {
        for on in [On::File, On::Directory, On::Posix] {
            let row = set(name, on, DELETES, class, buffer.clone());
            let gone = Change::Gone(on.path());
            rows.push(optional_ex(class, row).changes(&[gone]).may_change(&[STREAMS_CHANGE]));
        }
        let row = set(name, On::Stream, DELETES, class, buffer.clone());
        rows.push(optional_ex(class, row).changes(&[STREAMS_CHANGE]));
        // MS-FSA §2.1.5.15.3: a read-only file stays, and the root does.
        rows.push(set(name, On::ReadOnly, Needs::Never, class, buffer.clone()));
        rows.push(set(name, On::Root, Needs::Never, class, buffer));
    }
    // FILE_DISPOSITION_DELETE and IGNORE_READONLY_ATTRIBUTE.
    let ignores = set("FileDispositionInformationEx regardless", On::ReadOnly, DELETES, 64, {
        vec![0x11, 0, 0, 0]
    });
    rows.push(ignores.optional().changes(&[Change::Gone("r")]));
    rows
}

fn optional_ex(class: u8, row: Row) -> Row {
    if class >= 64 { row.optional() } else { row }
}

/// FileRenameInformation type 2 and FileLinkInformation type 2, with a flag in place of the byte that says
/// whether to replace.
pub(super) fn new_name(flags: u32, name: &str) -> Vec<u8> {
    let name = utf16(name);
    let len = u32::try_from(name.len()).unwrap().to_le_bytes();
    let mut buffer = [&flags.to_le_bytes()[..], &[0; 12], &len, &name].concat();
    buffer.resize(buffer.len().max(24), 0);
    buffer
}

fn names() -> Vec<Row> {
    use Change::{Contents, Facts, Gone, New};
    let mut rows = Vec::new();
    for on in [On::File, On::ReadOnly, On::Posix, On::Directory] {
        let path = on.path();
        for (class, kind) in [(10, "FileRenameInformation"), (65, "FileRenameInformationEx")] {
            let moved = set(kind, on, DELETES, class, new_name(0, "new"));
            rows.push(optional_ex(class, moved.adds()).changes(&[Gone(path), New("new")]));
            // Where it is taken.
            let taken = set(format!("{kind} taken"), on, Needs::Never, class, new_name(0, "v"));
            rows.push(taken);
            if on != On::Directory {
                let over = set(format!("{kind} over"), on, DELETES, class, new_name(1, "v"));
                rows.push(optional_ex(class, over.adds()).changes(&[Gone(path), Contents("v")]));
            }
        }
        if on == On::Directory {
            rows.push(set("FileLinkInformation", on, Needs::Never, 11, new_name(0, "new")));
            continue;
        }
        // MS-FSA §2.1.5.15.6: the open as it is, and FILE_ADD_FILE in the directory of the new name. That
        // smbd and others want FILE_WRITE_ATTRIBUTES of the file as well is theirs.
        let linked = set("FileLinkInformation", on, Needs::Nothing, 11, new_name(0, "new"));
        rows.push(linked.adds().changes(&[New("new"), Facts(path)]));
        let over = set("FileLinkInformation over", on, Needs::Nothing, 11, new_name(1, "v"));
        rows.push(over.adds().changes(&[Contents("v"), Facts(path)]));
        rows.push(set("FileLinkInformation taken", on, Needs::Never, 11, new_name(0, "v")));
        let ex = set("FileLinkInformationEx", on, Needs::Nothing, 72, new_name(0, "new"));
        rows.push(ex.adds().optional().changes(&[New("new"), Facts(path)]));
    }
    // MS-FSA §2.1.5.15.11 and §2.1.5.15.6: nothing takes the place of a read-only file or a directory.
    for (victim, class, kind) in
        [("r", 10, "rename"), ("r", 11, "link"), ("d", 10, "rename"), ("d", 11, "link")]
    {
        let name = format!("{kind} over {victim}");
        rows.push(set(name, On::File, Needs::Never, class, new_name(1, victim)));
    }
    // Nothing leaves the share, and the root stays where it is.
    for to in ["..\\outside", "t\\..\\..\\outside"] {
        rows.push(set(format!("rename to {to}"), On::File, Needs::Never, 10, new_name(1, to)));
        rows.push(set(format!("link to {to}"), On::File, Needs::Never, 11, new_name(1, to)));
    }
    rows.push(set("rename", On::Root, Needs::Never, 10, new_name(0, "new")));
    // MS-SMB2 §3.3.5.21.1: DELETE; and a store without short names refuses it.
    let short = set("FileShortNameInformation", On::File, DELETES, 40, short_name());
    rows.push(short.optional().changes(&[Facts("f")]));
    rows
}

fn of_streams() -> Vec<Row> {
    vec![
        set("rename", On::Stream, DELETES, 10, new_name(0, ":n")).changes(&[STREAMS_CHANGE]),
        // It takes the place of the file's own bytes: which some stores do and others do not.
        set("rename to ::$DATA", On::Stream, DELETES, 10, new_name(1, "::$DATA"))
            .adds()
            .optional()
            .changes(&[Change::Contents("f")])
            .may_change(&[STREAMS_CHANGE]),
        set("rename to a file", On::Stream, Needs::Never, 10, new_name(0, "new")),
        set("FileLinkInformation", On::Stream, Needs::Never, 11, new_name(0, "new")),
        set("rename to :n", On::File, Needs::Never, 10, new_name(0, ":n")),
    ]
}

fn unknown() -> Vec<Row> {
    let mut rows = Vec::new();
    let pipe =
        set("FilePipeInformation", On::File, Needs::Any(A::WRITE_ATTRIBUTES), 23, vec![0; 8]);
    rows.push(pipe.optional());
    for class in 0..=u8::MAX {
        if !SETTABLE.contains(&class) {
            let name = format!("file class {class}");
            rows.push(set(name, On::File, Needs::Never, class, vec![0; 64]).briefly());
        }
    }
    // MS-SMB2 §3.3.5.21.2: control and object id take FILE_WRITE_DATA, and a store may lack both.
    for class in 0..=u8::MAX {
        let name = format!("file system class {class}");
        let row = set_of(InfoType::FILE_SYSTEM, name, On::File, Needs::Never, class, vec![0; 64]);
        let is_known = matches!(class, 6 | 8);
        rows.push(if is_known { Row { needs: WRITES, ..row }.optional() } else { row.briefly() });
    }
    rows.push(set_of(InfoType::QUOTA, "quota", On::File, WRITES, 0, vec![0; 64]).optional());
    // MS-SMB2 §3.3.5.21.3. A store that keeps no descriptors refuses them.
    for (part, name, needs) in [
        (SecurityInformation::OWNER, "owner", A::WRITE_OWNER),
        (SecurityInformation::GROUP, "group", A::WRITE_OWNER),
        (SecurityInformation::DACL, "DACL", A::WRITE_DAC),
        (SecurityInformation::SACL, "SACL", A::ACCESS_SYSTEM_SECURITY),
    ] {
        let name = format!("SET_INFO security {name} File");
        let row = row(name, On::File, Needs::Any(needs), Command::SET_INFO, move |asked, out| {
            let mut request = support::set(asked.id, smb::info::FileInfoClass(0), DESCRIPTOR);
            request.info_type = InfoType::SECURITY;
            request.additional = part;
            request.emit(out);
        });
        rows.push(row.optional().may_change(&[Change::Facts("f")]));
    }
    rows
}

fn short_name() -> Vec<u8> {
    let name = utf16("SHORT.TXT");
    [&u32::try_from(name.len()).unwrap().to_le_bytes()[..], &name].concat()
}

// Those of MS-SMB2 §2.2.39, and the three that Windows added: deletion, rename and link with flags.
const SETTABLE: [u8; 15] = [4, 10, 11, 13, 14, 15, 16, 19, 20, 23, 39, 40, 64, 65, 72];
const STREAMS_CHANGE: Change<'static> = Change::Contents(STREAMS);
// 2 January 2020.
const TIME: u64 = 132_223_968_000_000_000;
// MS-DTYP §2.4.6: revision 1, self-relative, with a DACL; owner, group; one entry, everyone and everything.
const DESCRIPTOR: &[u8] = b"\x01\0\x04\x80\x14\0\0\0\x20\0\0\0\0\0\0\0\x2c\0\0\0\
    \x01\x01\0\0\0\0\0\x01\0\0\0\0\
    \x01\x01\0\0\0\0\0\x01\0\0\0\0\
    \x02\0\x1c\0\x01\0\0\0\0\0\x14\0\xff\x01\x1f\0\x01\x01\0\0\0\0\0\x01\0\0\0\0";
