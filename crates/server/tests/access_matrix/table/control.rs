//! IOCTL: each file system control there is.
//!
//! A control code says in two of its bits which access of the open it takes: 1 is FILE_READ_DATA, 2 is
//! FILE_WRITE_DATA, 0 is any open. MS-FSCC §2.3 has the codes, MS-FSA §2.1.5.10 what takes other rights than those.

use smb::Command;
use smb::ControlCode;
use smb::create::AccessMask as A;
use smb::{FileId, IoctlRequest};

use super::{READS, WRITES, row};
use crate::disk::{Change, STREAMS};
use crate::row::{Asked, Needs, On, Partner, Row};
use crate::support;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for on in [On::File, On::Stream, On::Posix] {
        rows.extend(ranges(on));
    }
    rows.extend(copies());
    let plain = |name: &str, on, needs, code, input: &[u8]| {
        let input = input.to_vec();
        control(name, on, needs, code, move |_| input.clone())
    };
    for on in [On::File, On::Directory, On::Stream] {
        rows.push(plain("SRV_REQUEST_RESUME_KEY", on, Needs::Nothing, 0x0014_0078, b""));
        rows.push(plain("GET_COMPRESSION", on, Needs::Nothing, 0x0009_003c, b"").optional());
        // COMPRESSION_FORMAT_NONE, of which nothing comes. The code asks for both rights; smbd for one.
        let both = Needs::All(A::READ_DATA | A::WRITE_DATA);
        let set = plain("SET_COMPRESSION none", on, both, 0x0009_c040, b"\0\0").optional();
        rows.push(set.lax(A::WRITE_DATA));
    }
    // A file that has none.
    rows.push(plain("GET_REPARSE_POINT", On::File, Needs::Never, 0x0009_00a8, b""));
    rows.push(plain("DELETE_REPARSE_POINT", On::File, Needs::Never, 0x0009_00ac, SYMLINK_HEAD));
    // Only a file opened by the rules of POSIX becomes a link here.
    let link = plain("SET_REPARSE_POINT", On::File, REPARSES, 0x0009_00a4, SYMLINK_HEAD);
    rows.push(Row { needs: Needs::Never, ..link });
    for &(code, name) in CODES {
        rows.push(plain(name, On::File, by_code(code), code, &[0; 64]).optional());
        rows.push(plain(name, On::Directory, by_code(code), code, &[0; 64]).optional());
    }
    for &(code, name) in NEVER {
        rows.push(plain(name, On::File, Needs::Never, code, &[0; 64]));
    }
    // docs/push-mode.md: an open that asked for no push has nothing to map, and nobody else's regions.
    for code in [
        ControlCode::MAP_REMOTE_REGION,
        ControlCode::UNMAP_REMOTE_REGION,
        ControlCode::COMMIT_REMOTE_REGION,
        ControlCode::WAIT_REGION_RECALL,
        ControlCode::WRITE_UNDER_LEASE,
    ] {
        rows.push(plain(&format!("push {:#x}", code.0), On::File, Needs::Never, code.0, &[1; 64]));
    }
    // MS-SMB2 §3.3.5.15.8: no control codes but those of file systems.
    let not_fsctl = row("IOCTL no FSCTL", On::File, Needs::Never, Command::IOCTL, |asked, out| {
        let request = support::control(asked.id, ControlCode(0x0009_80c8), &ZERO);
        IoctlRequest { is_fsctl: false, ..request }.emit(out);
    });
    rows.push(not_fsctl);
    rows
}

fn by_code(code: u32) -> Needs {
    match code >> 14 & 3 {
        0 => Needs::Nothing,
        1 => READS,
        2 => WRITES,
        _ => Needs::All(A::READ_DATA | A::WRITE_DATA),
    }
}

pub(super) fn control(
    name: &str,
    on: On,
    needs: Needs,
    code: u32,
    input: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static,
) -> Row {
    row(format!("IOCTL {name} {on:?}"), on, needs, Command::IOCTL, move |asked, out| {
        support::control(asked.id, ControlCode(code), &input(asked)).emit(out);
    })
}

fn ranges(on: On) -> Vec<Row> {
    let bytes = match on {
        On::Stream => [Change::Contents(STREAMS)],
        _ => [Change::Contents("f")],
    };
    let said = [Change::Facts("f"), Change::Contents(STREAMS)];
    let plain = |name, needs, code, input: &[u8]| {
        let input = input.to_vec();
        control(name, on, needs, code, move |_| input.clone())
    };
    let rows = vec![
        // MS-FSA §2.1.5.10.38. smbtorture (smb2.ioctl.sparse_perms) has seen Windows take FILE_APPEND_DATA too.
        plain("SET_SPARSE", Needs::Any(A::WRITE_DATA | A::WRITE_ATTRIBUTES), 0x0009_00c4, b"\x01")
            .lax(A::APPEND_DATA)
            .may_change(&said),
        plain("SET_ZERO_DATA", WRITES, 0x0009_80c8, &ZERO).changes(&bytes),
        plain("QUERY_ALLOCATED_RANGES", READS, 0x0009_40cf, &RANGE),
        // Key, number of ranges, one range: MS-FSCC §2.3.13.
        plain("FILE_LEVEL_TRIM", WRITES, 0x0009_8208, &TRIM).optional().may_change(&bytes),
    ];
    // A store need not keep streams as it keeps files.
    let optional = |row: Row| if on == On::Stream { row.optional() } else { row };
    rows.into_iter().map(optional).collect()
}

fn copies() -> Vec<Row> {
    // SourceKey, count, reserved, then source offset, target offset, length, reserved: MS-SMB2 §2.2.31.1.
    let input = |asked: &Asked| {
        let mut input = asked.key.to_vec();
        input.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        input.extend_from_slice(&[0; 16]);
        input.extend_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0]);
        input
    };
    let mut rows = Vec::new();
    // MS-SMB2 §3.3.5.15.6: the target of SRV_COPYCHUNK is read as well.
    let both = Needs::All(A::READ_DATA | A::WRITE_DATA);
    for (code, name, needs, lax) in [
        (0x0014_40f2, "SRV_COPYCHUNK", both, A::empty()),
        (0x0014_80f2, "SRV_COPYCHUNK_WRITE", WRITES, A::APPEND_DATA),
    ] {
        let to = control(&format!("{name} to"), On::File, needs, code, input);
        rows.push(to.lax(lax).partner(Partner::Source).changes(&[Change::Contents("f")]));
        // The control goes to the target, and the open of the cell is the source.
        let name = format!("IOCTL {name} from");
        let from = row(name, On::File, READS, Command::IOCTL, move |asked, out| {
            support::control(asked.other, ControlCode(code), &input(asked)).emit(out);
        });
        // Who executes reads, as with READ.
        let from = from.lax(A::EXECUTE).partner(Partner::Target);
        rows.push(from.changes(&[Change::Contents("v")]));
    }
    // A key of nobody's.
    rows.push(control(
        "SRV_COPYCHUNK unknown",
        On::File,
        Needs::Never,
        0x0014_40f2,
        move |asked| input(&Asked { key: [0x5a; 24], ..*asked }),
    ));
    // MS-FSCC §2.3.7: source FileId, source offset, target offset, count.
    for (code, name, head) in [
        (0x0009_8344, "DUPLICATE_EXTENTS_TO_FILE", 0),
        (0x0009_83e8, "DUPLICATE_EXTENTS_TO_FILE_EX", 8),
    ] {
        let duplicate = control(name, On::File, WRITES, code, move |asked| {
            let FileId { persistent, volatile } = asked.other;
            let mut input = vec![0; head];
            if head > 0 {
                input[0] = 48;
            }
            for word in [persistent, volatile, 0, 0, 4096] {
                input.extend_from_slice(&word.to_le_bytes());
            }
            input.extend(vec![0; head]);
            input
        });
        let duplicate = duplicate.optional().partner(Partner::Source);
        rows.push(duplicate.may_change(&[Change::Contents("f")]));
    }
    rows
}

const REPARSES: Needs = Needs::Any(A::WRITE_DATA.union(A::WRITE_ATTRIBUTES));
// IO_REPARSE_TAG_SYMLINK without data.
const SYMLINK_HEAD: &[u8] = &[0x0c, 0, 0, 0xa0, 0, 0, 0, 0];
// From 0 to 8.
const ZERO: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
// From 0 on, 4096 bytes.
const RANGE: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0];
const TRIM: [u8; 24] = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0];

/// What a store may or may not do. None of it changes what a look at the disk sees.
const CODES: &[(u32, &str)] = &[
    (0x0009_0028, "IS_VOLUME_MOUNTED"),
    (0x0009_002c, "IS_PATHNAME_VALID"),
    (0x0009_0058, "QUERY_FAT_BPB"),
    (0x0009_0060, "FILESYSTEM_GET_STATISTICS"),
    (0x0009_0064, "GET_NTFS_VOLUME_DATA"),
    (0x0009_008f, "FIND_FILES_BY_SID"),
    (0x0009_009c, "GET_OBJECT_ID"),
    (0x0009_00c0, "CREATE_OR_GET_OBJECT_ID"),
    (0x0009_00eb, "READ_FILE_USN_DATA"),
    (0x0009_0138, "QUERY_SPARING_INFO"),
    (0x0009_013c, "QUERY_ON_DISK_VOLUME_INFO"),
    (0x0009_027c, "GET_INTEGRITY_INFORMATION"),
    (0x0009_0284, "QUERY_FILE_REGIONS"),
    (0x0009_02d8, "GET_REFS_VOLUME_DATA"),
    (0x0009_03d4, "QUERY_REFS_VOLUME_COUNTER_INFO"),
    (0x0009_4264, "OFFLOAD_READ"),
    (0x0014_00e8, "LMR_GET_LINK_TRACKING_INFORMATION"),
    (0x0014_4064, "SRV_ENUMERATE_SNAPSHOTS"),
    (0x0014_41bb, "SRV_READ_HASH"),
    (0x0014_01d4, "LMR_REQUEST_RESILIENCY"),
];

/// What takes a privilege that nobody has, changes what no store here keeps, or is about no file.
const NEVER: &[(u32, &str)] = &[
    (0x0006_0194, "DFS_GET_REFERRALS"),
    (0x0006_01b0, "DFS_GET_REFERRALS_EX"),
    (0x0009_0000, "REQUEST_OPLOCK_LEVEL_1"),
    (0x0009_0018, "LOCK_VOLUME"),
    (0x0009_0020, "DISMOUNT_VOLUME"),
    (0x0009_0098, "SET_OBJECT_ID"),
    (0x0009_00a0, "DELETE_OBJECT_ID"),
    (0x0009_00bc, "SET_OBJECT_ID_EXTENDED"),
    (0x0009_00d7, "SET_ENCRYPTION"),
    (0x0009_00df, "WRITE_RAW_ENCRYPTED"),
    (0x0009_00e3, "READ_RAW_ENCRYPTED"),
    (0x0009_00ef, "WRITE_USN_CLOSE_RECORD"),
    (0x0009_00fc, "MARK_HANDLE"),
    (0x0009_0100, "SIS_COPYFILE"),
    (0x0009_0117, "RECALL_FILE"),
    (0x0009_0194, "SET_ZERO_ON_DEALLOCATION"),
    (0x0009_01b4, "SET_SHORT_NAME_BEHAVIOR"),
    (0x0009_0240, "REQUEST_OPLOCK"),
    (0x0009_0380, "SET_INTEGRITY_INFORMATION_EX"),
    (0x0009_0440, "REFS_STREAM_SNAPSHOT_MANAGEMENT"),
    (0x0009_8134, "SET_DEFECT_MANAGEMENT"),
    (0x0009_8268, "OFFLOAD_WRITE"),
    (0x0009_83ac, "GHOST_FILE_EXTENTS"),
    (0x0009_c280, "SET_INTEGRITY_INFORMATION"),
    (0x0011_0018, "PIPE_WAIT"),
    (0x0011_400c, "PIPE_PEEK"),
    (0x0011_c017, "PIPE_TRANSCEIVE"),
    (0x0014_00ec, "LMR_SET_LINK_TRACKING_INFORMATION"),
    (0x0000_0000, "0"),
    (0xffff_ffff, "all ones"),
    (0x0009_fffc, "of no meaning"),
];
