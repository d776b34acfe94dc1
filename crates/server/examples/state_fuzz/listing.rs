//! The names in a directory.

use smb::create::{AccessMask, CreateDisposition, CreateOptions};
use smb::info::FileInfoClass;
use smb::{Command, Name, NtStatus, OutputResponse, QueryDirectoryFlags, QueryDirectoryRequest};

use crate::support::Wire;

/// All names in a directory but the two dots.
pub(crate) fn names(wire: &mut Wire, directory: &str) -> Vec<String> {
    let opened = wire.open(directory, |open| {
        open.desired_access = AccessMask::FILE_GENERIC_READ;
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::DIRECTORY_FILE;
    });
    if opened.status != NtStatus::SUCCESS {
        return vec![opened.status.to_string()];
    }
    let mut names = Vec::new();
    loop {
        let request = QueryDirectoryRequest {
            class: FileInfoClass::NAMES,
            flags: QueryDirectoryFlags::empty(),
            file_index: 0,
            file_id: opened.id,
            pattern: Name::new("*").unwrap(),
            output_length_max: 65_536,
        };
        let (header, pdu) = wire.ask(Command::QUERY_DIRECTORY, |out| request.emit(out));
        if header.status != NtStatus::SUCCESS {
            break;
        }
        let response = OutputResponse::parse(&pdu).expect("a listing");
        append(response.output, &mut names);
    }
    wire.close(opened.id);
    names.retain(|name| name != "." && name != "..");
    names
}

// MS-FSCC §2.4: FileNamesInformation.
fn append(mut entries: &[u8], names: &mut Vec<String>) {
    let word = |bytes: &[u8], at: usize| -> usize {
        let bytes: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        u32::from_le_bytes(bytes).try_into().unwrap()
    };
    while entries.len() >= 12 {
        let (next, length) = (word(entries, 0), word(entries, 8));
        let units = entries[12..12 + length].chunks_exact(2);
        let units: Vec<u16> = units.map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        names.push(String::from_utf16_lossy(&units));
        if next == 0 {
            break;
        }
        entries = &entries[next..];
    }
}
