//! The xattr by which a file names its streams.
//!
//! ```text
//!  xattr user.landfast.streams
//!  0        4   8        16      32
//!  +--------+---+--------+-------+
//!  | version| 0 | inode  | id    |   version 1; inode: the file's own; id: random
//!  +--------+---+--------+-------+
//! ```
//!
//! The xattr moves with the file, whatever the file's name; a copy of a file that copied its xattrs too has
//! another inode, and so none of the streams.

use std::hash::{Hash, Hasher};
use std::os::fd::AsFd;

use basics::Random;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::error::ShareError;
use super::inode::identify;
use super::inode::proc_name;
use super::xattr::lacks;

/// The place of the streams of one file, as its xattr names it.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Binding {
    inode: u64,
    id: [u8; 16],
}

impl Binding {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let inode = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let id = bytes.get(16..32)?.try_into().ok()?;
        let is_ours = bytes.len() == BINDING_LEN && bytes[..4] == VERSION.to_le_bytes();
        is_ours.then_some(Self { inode, id })
    }

    fn emit(self) -> [u8; BINDING_LEN] {
        let mut out = [0; BINDING_LEN];
        out[..4].copy_from_slice(&VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.inode.to_le_bytes());
        out[16..].copy_from_slice(&self.id);
        out
    }

    /// Whether a parsed value of the xattr would be written again as it is: for the fuzz targets.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn is_kept(value: &[u8]) -> bool {
        // Four bytes are reserved.
        let masked = |value: &[u8]| [&value[..4], &[0; 4], &value[8..]].concat();
        Self::parse(value).is_none_or(|binding| {
            let found = Self::of_directory(&binding.directory());
            binding.emit()[..] == masked(value) && found == Some(binding)
        })
    }

    /// A new binding for a file that gets its first stream.
    pub(super) fn new(file: impl AsFd, random: &Random) -> Result<Self, ShareError> {
        let mut id = [0; 16];
        random.fill(&mut id).map_err(|_| ShareError::HandlesExhausted)?;
        let (key, _) = identify(file)?;
        Ok(Self { inode: key.inode, id })
    }

    /// Writes the binding to the file.
    pub(super) fn set(self, file: impl AsFd, flags: XattrFlags) -> Result<(), Errno> {
        rustix::fs::setxattr(proc_name(&file), BINDING, &self.emit(), flags)
    }

    /// The content of the xattr of an inode, if it names this inode.
    ///
    /// # Errors
    ///
    /// The xattr cannot be read, or no server of this version has written it: the file may have streams.
    pub(super) fn of(file: impl AsFd) -> Result<Option<Self>, ShareError> {
        let Some(binding) = Self::named_by(&file)? else { return Ok(None) };
        Ok(binding.is_of(file)?.then_some(binding))
    }

    /// Whether the binding names this inode.
    pub(super) fn is_of(self, file: impl AsFd) -> Result<bool, ShareError> {
        Ok(identify(file)?.0.inode == self.inode)
    }

    /// The content of the xattr, whichever inode it names: a file that was restored from a backup has that of the file before.
    ///
    /// # Errors
    ///
    /// As [`Binding::of`].
    pub(super) fn named_by(file: impl AsFd) -> Result<Option<Self>, ShareError> {
        let mut bytes = [0; BINDING_LEN + 1];
        let path = proc_name(&file);
        let len = match rustix::fs::getxattr(&path, BINDING, &mut bytes) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(Errno::ACCESS) if lacks(&path, BINDING) => return Ok(None),
            read => read?,
        };
        Self::parse(&bytes[..len]).map(Some).ok_or(ShareError::MediaIo(Errno::BADMSG))
    }

    /// The same for a file that may be about to be removed. A sweep removes the streams of an
    /// unreadable binding.
    pub(super) fn to_bury(file: impl AsFd) -> Option<Self> {
        Self::of(file).ok().flatten()
    }

    /// The binding of whatever file owns the streams in this directory.
    pub(super) fn of_directory(name: &str) -> Option<Self> {
        let id = u128::from_str_radix(name, 16).ok()?.to_be_bytes();
        let binding = Self { inode: 0, id };
        (binding.directory() == name).then_some(binding)
    }

    pub(super) fn directory(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.id))
    }
}

// The id alone names the place of the streams.
impl PartialEq for Binding {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Hash for Binding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

pub(super) const BINDING: &str = "user.landfast.streams";
pub(super) const BINDING_LEN: usize = 32;
const VERSION: u32 = 1;

/// The file's xattr says that the streams in directory 7 are those of `inode`.
#[cfg(test)]
pub(super) fn bind_to(file: &std::path::Path, inode: u64) {
    let binding = Binding { inode, id: 7_u128.to_be_bytes() };
    rustix::fs::setxattr(file, BINDING, &binding.emit(), XattrFlags::empty()).unwrap();
}

/// The kernel returns the file's xattr with an error: no buffer of this server is large enough.
#[cfg(test)]
pub(super) fn set_unreadable(file: &std::path::Path) {
    rustix::fs::setxattr(file, BINDING, &[0; 64], XattrFlags::empty()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binding_has_the_bytes_of_its_map() {
        let binding = Binding { inode: 0x0102, id: [7; 16] };
        let mut golden = vec![1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        golden.extend_from_slice(&[7; 16]);
        assert_eq!(binding.emit(), golden[..]);
        assert_eq!(Binding::parse(&golden), Some(binding));
        assert_eq!(Binding::parse(&golden[..31]), None);
        assert_eq!(binding.directory(), "07070707070707070707070707070707");
    }
}
