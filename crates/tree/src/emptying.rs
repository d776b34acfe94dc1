//! Emptying a file for a client that overwrites it: all or nothing.
//!
//! With its bytes the file loses its streams, and it gets the attributes and the reserved blocks that the client asks
//! for. The steps that may fail come first, and each is taken back where a later one fails:
//!
//! ```text
//!  extended attributes exchanged --> attributes set --> blocks reserved beside the old bytes
//!                                                         |
//!                         streams removed, bytes removed <+   only the medium can fail from here on
//! ```
//!
//! Rejected: bytes first, as they are the most work. A name or a size that the file system refuses would then leave an
//! empty file behind a CREATE that failed.
//!
//! Spec: MS-FSA §2.1.5.1.2.

use super::Share;
use super::attributes::DosAttributes;
use super::entry::{BasicChange, Entry};
use super::error::ShareError;
use super::extended::ExtendedAttribute;
use super::rights::MaySet;

/// What a file has once it is overwritten.
#[derive(Clone, Copy, Debug)]
pub struct Anew<'a> {
    /// Its DOS attributes.
    pub attributes: DosAttributes,
    /// All extended attributes.
    pub extended: &'a [ExtendedAttribute],
    /// Bytes to reserve blocks for.
    pub allocation: Option<u64>,
}

impl Share {
    /// Empties a file that no other request changes meanwhile. May block.
    ///
    /// # Errors
    ///
    /// Then the file is as it was, unless the medium failed.
    pub fn begin_anew(
        &self,
        leave: impl MaySet,
        entry: &Entry,
        anew: Anew<'_>,
    ) -> Result<(), ShareError> {
        // Streams that cannot be read for the moment would be left to the new content.
        self.has_streams(entry.as_fd())?;
        let attributes = |attributes| {
            let change = BasicChange { attributes: Some(attributes), ..BasicChange::default() };
            entry.set_basic(leave, change)
        };
        let before = entry.metadata()?.attributes;
        let extended = entry.exchange_extended_attributes(leave, anew.extended)?;
        let emptied = attributes(anew.attributes)
            .and_then(|()| entry.reserve_beside(anew.allocation))
            .and_then(|()| self.clear_streams(leave, entry))
            .and_then(|()| entry.cut(anew.allocation));
        if emptied.is_err() {
            // The client learns of the first failure.
            let _ = attributes(before);
            let _ = entry.restore_extended_attributes(&extended);
        }
        emptied
    }
}

impl Entry {
    /// Empties a stream that no other request changes meanwhile, and reserves blocks for so many bytes.
    ///
    /// # Errors
    ///
    /// Then the stream is as it was, unless the medium failed.
    pub fn empty(&self, allocation: Option<u64>) -> Result<(), ShareError> {
        self.reserve_beside(allocation)?;
        self.cut(allocation)
    }

    // Shows that there is room for the blocks while the file still has its bytes.
    fn reserve_beside(&self, allocation: Option<u64>) -> Result<(), ShareError> {
        let Some(allocation) = allocation else { return Ok(()) };
        let size = self.data_size()?;
        self.reserve(0, allocation).inspect_err(|_| {
            // fallocate(2) keeps what it took before it failed.
            let _ = self.set_size(size);
        })
    }

    fn cut(&self, allocation: Option<u64>) -> Result<(), ShareError> {
        self.set_size(0)?;
        if let Some(allocation) = allocation {
            // The blocks were there a moment ago. Where another program takes them in between the file is empty as the
            // client asked, and its next writes may find the disk full.
            let _ = self.reserve(0, allocation);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::given::{MayAdd, MaySet};
    use crate::{ShareConfig, SharePath};

    fn attribute(name: &[u8], value: &[u8]) -> ExtendedAttribute {
        ExtendedAttribute { name: name.to_vec(), value: value.to_vec() }
    }

    #[test]
    fn a_file_that_cannot_be_overwritten_keeps_everything() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let path = SharePath::parse("f").unwrap();
        let entry = share.create_file(MayAdd::TEST, &path, DosAttributes::HIDDEN).unwrap();
        entry.write_at(b"precious", 0).unwrap();
        let old = [attribute(b"OLD", b"value")];
        entry.set_extended_attributes(MaySet::TEST, &old).unwrap();
        let before = entry.metadata().unwrap();
        let fits = [attribute(b"NEW", b"value")];
        let (refused, long) = ([attribute(b"NEW", b"v"), attribute(b"a*b", b"v")], vec![7; 60_000]);
        let long = [attribute(b"NEW", b"v"), attribute(b"LONG", &long)];
        let anew = |extended, allocation| Anew {
            attributes: DosAttributes::ARCHIVE,
            extended,
            allocation,
        };
        for anew in [anew(&refused[..], None), anew(&long, None), anew(&fits, Some(1 << 50))] {
            if share.begin_anew(MaySet::TEST, &entry, anew).is_ok() {
                // A file system that holds as much is no place for this case.
                assert_eq!(anew.extended, &long[..]);
                return;
            }
            let mut bytes = Vec::new();
            entry.read_at(&mut bytes, 100, 0).unwrap();
            assert_eq!(bytes, b"precious");
            assert_eq!(entry.extended_names().unwrap(), ["OLD"]);
            assert_eq!(entry.extended_value("OLD").unwrap(), b"value");
            assert_eq!(entry.metadata().unwrap().attributes, before.attributes);
        }
        share.begin_anew(MaySet::TEST, &entry, anew(&fits, Some(1 << 20))).unwrap();
        let after = entry.metadata().unwrap();
        assert_eq!((after.size, after.attributes), (0, DosAttributes::ARCHIVE));
        assert!(after.allocation >= 1 << 20, "reserved");
        assert_eq!(entry.extended_names().unwrap(), ["NEW"]);
    }
}
