//! Listing a directory.
//!
//! The listing is as long as the server says: it has a bound in bytes and one in time, pages bring names, and a name
//! of the listing is one name.
//!
//! Spec: MS-SMB2 §3.2.4.17; MS-FSCC §2.1.5 (names).

use smb::info::{DirectoryEntry, FileInfoClass};
use smb::{
    Command, Field, FileId, Name, NtStatus, OutputResponse, ParseError, QueryDirectoryFlags,
    QueryDirectoryRequest,
};

use crate::error::ClientError;
use crate::tree::Tree;

/// All entries of an open directory, without `.` and `..`.
pub(crate) async fn list(
    tree: &Tree,
    file_id: FileId,
    bytes_max: usize,
) -> Result<Vec<DirectoryEntry>, ClientError> {
    let listing = pages(tree, file_id, Listing::new(bytes_max));
    let listed = tokio::time::timeout(tree.connection().call_timeout(), listing).await;
    listed.unwrap_or(Err(ClientError::PeerListingEndless))
}

async fn pages(
    tree: &Tree,
    file_id: FileId,
    mut listing: Listing,
) -> Result<Vec<DirectoryEntry>, ClientError> {
    let connection = tree.connection();
    let size = connection.io_size(tree.answer_max()).min(ANSWER_MAX);
    let payload = usize::try_from(size).expect("at most ANSWER_MAX");
    let mut flags = QueryDirectoryFlags::RESTART_SCANS;
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
            return Ok(listing.entries);
        }
        let output = response.parse(OutputResponse::parse)?.output;
        let page = response.parse(|_| DirectoryEntry::parse_list(CLASS, output))?;
        if page.is_empty() {
            return Ok(listing.entries);
        }
        response.parse(|_| page.iter().try_for_each(check_name))?;
        listing.add(page)?;
        flags = QueryDirectoryFlags::empty();
    }
}

/// The entries so far.
#[derive(Debug)]
struct Listing {
    entries: Vec<DirectoryEntry>,
    name_bytes: usize,
    bytes_max: usize,
    pages_without_names: u32,
}

impl Listing {
    fn new(bytes_max: usize) -> Self {
        Self { entries: Vec::new(), name_bytes: 0, bytes_max, pages_without_names: 0 }
    }

    fn add(&mut self, page: Vec<DirectoryEntry>) -> Result<(), ClientError> {
        let before = self.entries.len();
        let names = page.into_iter().filter(|entry| !matches!(&*entry.name, "." | ".."));
        for entry in names {
            self.name_bytes = self.name_bytes.saturating_add(entry.name.len());
            let held = (self.entries.len() + 1) * size_of::<DirectoryEntry>();
            if held.saturating_add(self.name_bytes) > self.bytes_max {
                return Err(ClientError::PeerListing { bytes_max: self.bytes_max });
            }
            self.entries.push(entry);
        }
        self.pages_without_names += u32::from(before == self.entries.len());
        match self.pages_without_names <= DOTS {
            true => Ok(()),
            false => Err(ClientError::PeerListingEndless),
        }
    }
}

/// A name that leads elsewhere is none: a program that joins it to a path would leave the directory.
fn check_name(entry: &DirectoryEntry) -> Result<(), ParseError> {
    let field = Field::Name;
    if entry.name.is_empty() {
        return Err(ParseError::PeerValue { field, value: 0 });
    }
    match entry.name.chars().find(|sign| matches!(sign, '/' | '\\' | '\0')) {
        None => Ok(()),
        Some(sign) => Err(ParseError::PeerValue { field, value: u64::from(u32::from(sign)) }),
    }
}

const CLASS: FileInfoClass = FileInfoClass::ID_FULL_DIRECTORY;
/// An answer of this size holds some thousand entries.
const ANSWER_MAX: u32 = 1024 * 1024;
/// Two names are in no listing, and may each have a page.
const DOTS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> DirectoryEntry {
        DirectoryEntry { name: Name::new(name).unwrap(), ..DirectoryEntry::default() }
    }

    #[test]
    fn a_listing_that_outgrows_its_bound_fails() {
        let room = 2 * (size_of::<DirectoryEntry>() + 1);
        let mut listing = Listing::new(room);
        listing.add(vec![entry("."), entry("a"), entry("b")]).unwrap();
        let refused = listing.add(vec![entry("c")]).unwrap_err();
        assert!(matches!(refused, ClientError::PeerListing { bytes_max } if bytes_max == room));
    }

    #[test]
    fn a_listing_whose_pages_bring_no_names_fails() {
        let mut listing = Listing::new(usize::MAX);
        listing.add(vec![entry(".")]).unwrap();
        listing.add(vec![entry("..")]).unwrap();
        let refused = listing.add(vec![entry(".")]).unwrap_err();
        assert!(matches!(refused, ClientError::PeerListingEndless), "{refused}");
    }

    #[test]
    fn a_name_that_leads_out_of_its_directory_is_refused() {
        for name in ["", "../x", "a\\b", "a\0"] {
            assert!(check_name(&entry(name)).is_err(), "{name:?}");
        }
        check_name(&entry("a:b \u{202e} ..")).unwrap();
    }
}
