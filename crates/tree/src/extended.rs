//! Extended attributes of clients: xattrs of the `user` namespace, except those of this server and
//! names that clients cannot use.
//!
//! Names are compared ignoring case and stored as they were first given. The file system limits their size:
//! about 4 KiB together on ext4, 64 KiB each on XFS and tmpfs; the server limits their number and size too
//! ([`super::limits`]), because many requests read all of them.
//!
//! Spec: MS-FSCC §2.4.15 (FileFullEaInformation), MS-FSA §2.1.5.15.5; xattr(7).

use std::collections::HashMap;
use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::entry::Entry;
use super::error::ShareError;
use super::inode::proc_name;
use super::limits::{EA_BYTES_PER_FILE_MAX, EAS_PER_FILE_MAX};
use super::rights::MaySet;
use super::xattr::{RACE_RETRIES_MAX, list_of, read_list};

/// One extended attribute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ExtendedAttribute {
    /// Its name, ASCII, at most [`EA_NAME_MAX`] bytes.
    pub name: Vec<u8>,
    /// Its value, at most 64 KiB; an empty value removes the attribute.
    pub value: Vec<u8>,
}

impl ExtendedAttribute {
    /// Bytes of extended attributes with these lengths of name and value, in the count of
    /// FileEaInformation: the length field of the old list and a head of five bytes for each
    /// attribute.
    pub fn size_of(lengths: impl ExactSizeIterator<Item = (usize, usize)>) -> u32 {
        if lengths.len() == 0 {
            return 0;
        }
        let sum: usize = lengths.map(|(name, value)| 5 + name + value).sum();
        u32::try_from(4 + sum).unwrap_or(u32::MAX)
    }
}

impl Entry {
    /// The names of all extended attributes, in their order.
    pub fn extended_names(&self) -> Result<Vec<String>, ShareError> {
        let mut names = own_names(&proc_name(self.facts_fd()))?;
        names.sort_unstable();
        Ok(names)
    }

    /// The value of an extended attribute; empty if there is none.
    pub fn extended_value(&self, name: &str) -> Result<Vec<u8>, ShareError> {
        let path = proc_name(self.facts_fd());
        let xattr = format!("{NAMESPACE}{name}");
        // Another program may set the attribute between the query of its length and the read.
        for _ in 0..RACE_RETRIES_MAX {
            let len = match rustix::fs::getxattr_query(&path, &xattr) {
                Err(Errno::NODATA) => return Ok(Vec::new()),
                len => len.map_err(from_xattr)?,
            };
            let mut value = vec![0; len];
            match rustix::fs::getxattr(&path, &xattr, &mut value) {
                Ok(read) if read <= len => {
                    value.truncate(read.min(EA_VALUE_MAX));
                    return Ok(value);
                }
                Ok(_) | Err(Errno::RANGE | Errno::NODATA) => {}
                Err(errno) => return Err(from_xattr(errno)),
            }
        }
        Ok(Vec::new())
    }

    /// Bytes of all extended attributes, in the count of [`ExtendedAttribute::size_of`].
    pub fn extended_size(&self) -> Result<u32, ShareError> {
        let path = proc_name(self.facts_fd());
        let lengths: Vec<_> =
            own_names(&path)?.iter().map(|name| (name.len(), value_len(&path, name))).collect();
        Ok(ExtendedAttribute::size_of(lengths.into_iter()))
    }

    /// Gives the file these extended attributes and no others. Returns those that it had.
    ///
    /// # Errors
    ///
    /// Then it has those that it had.
    pub(super) fn exchange_extended_attributes(
        &self,
        leave: impl MaySet,
        list: &[ExtendedAttribute],
    ) -> Result<Vec<ExtendedAttribute>, ShareError> {
        list.iter().try_for_each(|attribute| check_name(&attribute.name).map(drop))?;
        let mut before = Vec::new();
        for name in self.extended_names()? {
            match self.extended_value(&name) {
                Ok(value) => before.push(ExtendedAttribute { name: name.into_bytes(), value }),
                // Of a file that the server may only write. It can be overwritten, and this cannot be given back.
                Err(ShareError::AccessDenied) => {}
                Err(error) => return Err(error),
            }
        }
        let cleared = self.clear_extended_attributes();
        let exchanged = cleared.and_then(|()| self.set_extended_attributes(leave, list));
        if exchanged.is_err() {
            // The caller learns of the first failure.
            let _ = self.restore_extended_attributes(&before);
        }
        exchanged.map(|()| before)
    }

    /// Gives the file the extended attributes that it had before.
    pub(super) fn restore_extended_attributes(
        &self,
        before: &[ExtendedAttribute],
    ) -> Result<(), ShareError> {
        self.clear_extended_attributes()?;
        let path = proc_name(self.facts_fd());
        for ExtendedAttribute { name, value } in before {
            let name = [NAMESPACE.as_bytes(), name].concat();
            rustix::fs::setxattr(&path, &name[..], value, XattrFlags::empty())
                .map_err(from_xattr)?;
        }
        Ok(())
    }

    fn clear_extended_attributes(&self) -> Result<(), ShareError> {
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
    pub fn set_extended_attributes(
        &self,
        _leave: impl MaySet,
        list: &[ExtendedAttribute],
    ) -> Result<(), ShareError> {
        if self.is_device() && !list.is_empty() {
            return Err(ShareError::EasUnsupported);
        }
        if list.is_empty() {
            return Ok(());
        }
        let path = proc_name(self.facts_fd());
        let mut there = There::read(&path)?;
        for attribute in list {
            let name = check_name(&attribute.name)?;
            let key = name.to_ascii_uppercase();
            let before = there.attributes.get(&key);
            let xattr = format!("{NAMESPACE}{}", before.map_or(name, |(name, _)| name));
            let outcome = match (attribute.value.len(), before.is_some()) {
                (0, false) => Ok(()),
                (0, true) => {
                    there.forget(&key);
                    match rustix::fs::removexattr(&path, xattr) {
                        Err(Errno::NODATA) => Ok(()),
                        other => other,
                    }
                }
                (len, _) => {
                    there.note(key, name, len)?;
                    rustix::fs::setxattr(&path, xattr, &attribute.value, XattrFlags::empty())
                }
            };
            outcome.map_err(from_xattr)?;
        }
        Ok(())
    }
}

/// The extended attributes of a file while a request sets some.
struct There {
    /// By their names in the form in which they are compared: the spelling, and the length of the
    /// value.
    attributes: HashMap<String, (String, usize)>,
    bytes: usize,
}

impl There {
    fn read(path: &str) -> Result<Self, ShareError> {
        let mut there = Self { attributes: HashMap::new(), bytes: 0 };
        for name in own_names(path)? {
            let len = value_len(path, &name);
            there.bytes += name.len() + len;
            there.attributes.insert(name.to_ascii_uppercase(), (name, len));
        }
        Ok(there)
    }

    fn forget(&mut self, key: &str) {
        if let Some((name, len)) = self.attributes.remove(key) {
            self.bytes = self.bytes.saturating_sub(name.len() + len);
        }
    }

    // Attributes that local programs have set stay, however large; a client cannot add to them.
    fn note(&mut self, key: String, name: &str, len: usize) -> Result<(), ShareError> {
        let before = self.attributes.get(&key).map_or(0, |(name, len)| name.len() + len);
        let bytes = self.bytes - before.min(self.bytes) + name.len() + len;
        let is_new = before == 0;
        if is_new && self.attributes.len() >= EAS_PER_FILE_MAX
            || bytes > self.bytes && bytes > EA_BYTES_PER_FILE_MAX
        {
            return Err(ShareError::EaTooLarge);
        }
        self.bytes = bytes;
        self.attributes.entry(key).or_insert_with(|| (name.to_owned(), len)).1 = len;
        Ok(())
    }
}

/// Bytes of all extended attributes of an entry of an open directory, as
/// [`ExtendedAttribute::size_of`] counts them, and how many there are.
pub(super) fn size_at(directory: impl AsFd, name: &str) -> (u32, usize) {
    let path = format!("{}/{name}", proc_name(directory));
    let sized = |own: &String| {
        let len = rustix::fs::lgetxattr_query(&path, format!("{NAMESPACE}{own}"));
        (own.len(), len.unwrap_or(0))
    };
    // Not through a link, which may lead out of the share.
    let list = read_list(
        || rustix::fs::llistxattr_query(&path),
        |list| rustix::fs::llistxattr(&path, list),
    );
    let names = own_names_in(&list.unwrap_or_default());
    (ExtendedAttribute::size_of(names.iter().map(sized)), names.len())
}

/// Whether a name is allowed for an extended attribute.
fn check_name(name: &[u8]) -> Result<&str, ShareError> {
    let forbidden = |byte: &u8| !(0x20..0x7f).contains(byte) || b"\\/:*?\"<>|,+=[];".contains(byte);
    if name.is_empty() || name.len() > EA_NAME_MAX || name.iter().any(forbidden) {
        return Err(ShareError::PeerEaName);
    }
    let name = std::str::from_utf8(name).map_err(|_| ShareError::PeerEaName)?;
    if is_ours(name) { Err(ShareError::PeerEaName) } else { Ok(name) }
}

// Attributes that this server keeps for itself are neither shown nor set.
fn is_ours(name: &str) -> bool {
    let prefix = name.get(..OWN.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(OWN))
}

fn own_names(path: &str) -> Result<Vec<String>, ShareError> {
    match list_of(path) {
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        list => Ok(own_names_in(&list?)),
    }
}

// 0 for an attribute that was removed meanwhile.
fn value_len(path: &str, name: &str) -> usize {
    rustix::fs::getxattr_query(path, format!("{NAMESPACE}{name}")).unwrap_or(0)
}

fn own_names_in(list: &[u8]) -> Vec<String> {
    let names = list.split(|byte| *byte == 0).filter_map(|name| {
        let name = std::str::from_utf8(name).ok()?.strip_prefix(NAMESPACE)?;
        check_name(name.as_bytes()).ok().map(str::to_owned)
    });
    names.collect()
}

fn from_xattr(errno: Errno) -> ShareError {
    match errno {
        Errno::NODATA => ShareError::NotFound,
        Errno::NOSPC | Errno::TOOBIG | Errno::RANGE => ShareError::EaTooLarge,
        Errno::OPNOTSUPP => ShareError::EasUnsupported,
        other => other.into(),
    }
}

/// Bytes of a name: the rest of Linux's 255 behind its namespace.
pub const EA_NAME_MAX: usize = 250;
// A length of 16 bits.
const EA_VALUE_MAX: usize = 65_535;
const NAMESPACE: &str = "user.";
const OWN: &str = "landfast.";
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_invalid_attribute_names_are_refused() {
        for name in ["", "a/b", "landfast.dos", "LANDFAST.streams", "a\u{7f}", "a=b"] {
            assert_eq!(check_name(name.as_bytes()), Err(ShareError::PeerEaName), "{name}");
        }
        assert_eq!(check_name(b"EAONE"), Ok("EAONE"));
    }
}
