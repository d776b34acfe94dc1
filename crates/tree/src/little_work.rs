//! How much work a request makes on an open file, or on one that was found: see [`super::inline`].

use std::os::fd::AsFd as _;

use rustix::fs::FileType;

use super::binding::Binding;
use super::entry::Entry;
use super::inline::{InlineIo, is_much, occupied};
use super::limits::EA_NAMES_INLINE_MAX;
use super::lookup::Found;
use super::xattr;

impl Entry {
    /// The inline work of moving the end of file to `size`: bytes that are cut off are freed page by page.
    pub fn inline_to_resize(&self, size: u64) -> InlineIo {
        let is_cut = self.data_size().map_or(true, |now| size < now);
        self.inline_io().unless(is_cut && is_much(self.occupied()))
    }

    /// The same for [`Entry::set_allocation`].
    pub fn inline_to_allocate(&self, allocation: u64) -> InlineIo {
        self.inline_io().unless(is_much(allocation.max(self.occupied())))
    }

    /// The same for setting extended attributes with so many bytes of names together.
    pub fn inline_to_set_attributes(&self, names: usize) -> InlineIo {
        self.inline_io().unless(names > EA_NAMES_INLINE_MAX || self.has_many_attributes())
    }

    /// Whether it is much work to read all its extended attributes.
    pub fn has_many_attributes(&self) -> bool {
        xattr::names_len(self.facts_fd()) > EA_NAMES_INLINE_MAX
    }

    /// Whether it is a stream or may have streams: there may be many, each of any length.
    pub fn has_streams(&self) -> bool {
        self.is_stream() || !matches!(Binding::of(self.facts_fd()), Ok(None))
    }

    /// A regular file: existing links do not affect giving it a name.
    pub fn is_plain(&self) -> bool {
        let kind =
            rustix::fs::fstat(self.as_fd()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        kind == Ok(FileType::RegularFile) && !self.is_link()
    }
}

impl Found {
    /// Whether it is as empty as a new object.
    pub fn is_as_new(&self) -> bool {
        self.is_directory || self.stat.stx_size == 0
    }

    /// Whether emptying it is much work: of its bytes, its streams, its extended attributes.
    pub fn is_much_to_empty(&self) -> bool {
        let file = self.anchor.as_fd();
        is_much(occupied(file))
            || xattr::names_len(file) > EA_NAMES_INLINE_MAX
            || !matches!(Binding::of(file), Ok(None))
    }
}
