//! Listing a directory.
//!
//! Spec: MS-SMB2 §3.2.4.17.

use smb::info::{DirectoryEntry, FileInfoClass};
use smb::{
    Command, FileId, Name, NtStatus, OutputResponse, QueryDirectoryFlags, QueryDirectoryRequest,
};

use crate::error::ClientError;
use crate::tree::Tree;

/// All entries of an open directory, without `.` and `..`.
pub(crate) async fn list(tree: &Tree, file_id: FileId) -> Result<Vec<DirectoryEntry>, ClientError> {
    let connection = tree.connection();
    let size = connection.io_size(connection.negotiated().transact_size_max()).min(ANSWER_MAX);
    let payload = usize::try_from(size).expect("at most ANSWER_MAX");
    let mut flags = QueryDirectoryFlags::RESTART_SCANS;
    let mut entries = Vec::new();
    loop {
        let request = QueryDirectoryRequest {
            class: CLASS,
            flags,
            file_index: 0,
            file_id,
            pattern: Name::try_from("*")?,
            output_length_max: size,
        };
        let end = [NtStatus::NO_MORE_FILES];
        let response = tree
            .call_accepting(Command::QUERY_DIRECTORY, payload, &end, |out| request.emit(out))
            .await?;
        if response.header().status == NtStatus::NO_MORE_FILES {
            return Ok(entries);
        }
        let output = response.parse(OutputResponse::parse)?.output;
        let page = response.parse(|_| DirectoryEntry::parse_list(CLASS, output))?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page.into_iter().filter(|entry| !matches!(&*entry.name, "." | "..")));
        flags = QueryDirectoryFlags::empty();
    }
}

const CLASS: FileInfoClass = FileInfoClass::ID_FULL_DIRECTORY;
/// An answer of this size holds some thousand entries.
const ANSWER_MAX: u32 = 1024 * 1024;
