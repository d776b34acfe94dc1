//! Extended attributes of clients: xattrs of the `user` namespace, ours and names not theirs aside.
//!
//! Names are compared ignoring case and kept as they were first given. The file system limits what
//! fits: about 4 KiB together on ext4, 64 KiB each on XFS and tmpfs.
//!
//! Spec: MS-FSCC §2.4.15 (FileFullEaInformation), MS-FSA §2.1.5.15.5; xattr(7).

use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::access::MaySet;

use super::attributes::proc_name;
use super::entry::Entry;
use super::error::ShareError;

/// One extended attribute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ExtendedAttribute {
    /// Its name, ASCII, at most [`EA_NAME_MAX`] bytes.
    pub name: Vec<u8>,
    /// Its value, at most 64 KiB; none removes the attribute.
    pub value: Vec<u8>,
}

impl ExtendedAttribute {
    /// Bytes of extended attributes with these lengths of name and value, as FileEaInformation counts
    /// them: the length field of the old list and, for each, a head of five bytes.
    pub fn size_of(lengths: impl ExactSizeIterator<Item = (usize, usize)>) -> u32 {
        if lengths.len() == 0 {
            return 0;
        }
        let sum: usize = lengths.map(|(name, value)| 5 + name + value).sum();
        u32::try_from(4 + sum).unwrap_or(u32::MAX)
    }
}

impl Entry {
    /// All extended attributes, in the order of their names.
    pub fn extended_attributes(&self) -> Result<Vec<ExtendedAttribute>, ShareError> {
        let path = proc_name(self.facts_fd());
        let mut names = own_names(&path)?;
        names.sort_unstable();
        let mut list = Vec::new();
        for name in names {
            match value(&path, &name) {
                Ok(value) => list.push(ExtendedAttribute { name: name.into_bytes(), value }),
                // Removed meanwhile.
                Err(ShareError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(list)
    }

    /// Removes all extended attributes.
    pub(crate) fn clear_extended_attributes(&self, _leave: MaySet) -> Result<(), ShareError> {
        let path = proc_name(self.facts_fd());
        for name in own_names(&path)? {
            match rustix::fs::removexattr(&path, format!("{NAMESPACE}{name}")) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(from_xattr(errno)),
            }
        }
        Ok(())
    }

    /// Sets and removes extended attributes, one after the other.
    pub(crate) fn set_extended_attributes(
        &self,
        _leave: MaySet,
        list: &[ExtendedAttribute],
    ) -> Result<(), ShareError> {
        if self.device().is_some() && !list.is_empty() {
            return Err(ShareError::EasUnsupported);
        }
        let path = proc_name(self.facts_fd());
        for attribute in list {
            let name = check_name(&attribute.name)?;
            let there = own_names(&path)?.into_iter().find(|own| own.eq_ignore_ascii_case(name));
            let name = format!("{NAMESPACE}{}", there.as_deref().unwrap_or(name));
            let outcome = if !attribute.value.is_empty() {
                rustix::fs::setxattr(&path, name, &attribute.value, XattrFlags::empty())
            } else if there.is_some() {
                rustix::fs::removexattr(&path, name)
            } else {
                Ok(())
            };
            outcome.map_err(from_xattr)?;
        }
        Ok(())
    }
}

/// Bytes of all extended attributes of an entry of an open directory, as
/// [`ExtendedAttribute::size_of`] counts them.
pub(super) fn size_at(directory: impl AsFd, name: &str) -> u32 {
    let path = format!("{}/{name}", proc_name(directory));
    let sized = |own: &String| {
        let len = rustix::fs::lgetxattr_query(&path, format!("{NAMESPACE}{own}"));
        (own.len(), len.unwrap_or(0))
    };
    // Not through a link, which may lead out of the share.
    let mut list = vec![0; XATTR_LIST_MAX];
    let len = rustix::fs::llistxattr(&path, &mut list).unwrap_or(0);
    let names = own_names_in(&list[..len]);
    ExtendedAttribute::size_of(names.iter().map(sized))
}

/// Whether an extended attribute may be called so.
fn check_name(name: &[u8]) -> Result<&str, ShareError> {
    let forbidden = |byte: &u8| !(0x20..0x7f).contains(byte) || b"\\/:*?\"<>|,+=[];".contains(byte);
    if name.is_empty() || name.len() > EA_NAME_MAX || name.iter().any(forbidden) {
        return Err(ShareError::PeerEaName);
    }
    let name = std::str::from_utf8(name).map_err(|_| ShareError::PeerEaName)?;
    if is_ours(name) { Err(ShareError::PeerEaName) } else { Ok(name) }
}

// What this server keeps for itself is neither shown nor set.
fn is_ours(name: &str) -> bool {
    let prefix = name.get(..OWN.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(OWN))
}

fn own_names(path: &str) -> Result<Vec<String>, ShareError> {
    let mut bytes = vec![0; XATTR_LIST_MAX];
    let len = match rustix::fs::listxattr(path, &mut bytes) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    Ok(own_names_in(&bytes[..len]))
}

fn own_names_in(list: &[u8]) -> Vec<String> {
    let names = list.split(|byte| *byte == 0).filter_map(|name| {
        let name = std::str::from_utf8(name).ok()?.strip_prefix(NAMESPACE)?;
        check_name(name.as_bytes()).ok().map(str::to_owned)
    });
    names.collect()
}

fn value(path: &str, name: &str) -> Result<Vec<u8>, ShareError> {
    let mut bytes = vec![0; XATTR_VALUE_MAX];
    let name = format!("{NAMESPACE}{name}");
    let len = rustix::fs::getxattr(path, name, &mut bytes).map_err(from_xattr)?;
    bytes.truncate(len.min(EA_VALUE_MAX));
    Ok(bytes)
}

fn from_xattr(errno: Errno) -> ShareError {
    match errno {
        Errno::NODATA => ShareError::NotFound,
        Errno::NOSPC | Errno::TOOBIG | Errno::RANGE => ShareError::EaTooLarge,
        Errno::OPNOTSUPP => ShareError::EasUnsupported,
        other => other.into(),
    }
}

/// Bytes of a name: what Linux leaves of 255 behind its namespace.
pub const EA_NAME_MAX: usize = 250;
// A length of 16 bits.
const EA_VALUE_MAX: usize = 65_535;
const NAMESPACE: &str = "user.";
const OWN: &str = "landfast.";
// XATTR_LIST_MAX and XATTR_SIZE_MAX of Linux.
const XATTR_LIST_MAX: usize = 65_536;
const XATTR_VALUE_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_ours_or_nobodys_are_refused() {
        for name in ["", "a/b", "landfast.dos", "LANDFAST.streams", "a\u{7f}", "a=b"] {
            assert_eq!(check_name(name.as_bytes()), Err(ShareError::PeerEaName), "{name}");
        }
        assert_eq!(check_name(b"EAONE"), Ok("EAONE"));
    }
}
