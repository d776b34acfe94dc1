//! What a volume does for those who use it: requests, threads, growth, damage and repair.

#[cfg(test)]
mod damage;
#[cfg(test)]
#[path = "../support/hooked.rs"]
mod hooked;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod threads;

#[cfg(test)]
mod fixture {
    use std::sync::Arc;

    use pmem::{Medium, OpenOptions, anonymous_with};
    use volume::{Access, Format, LayoutVersion, Volume, create};

    pub(crate) const EMULATED: OpenOptions = OpenOptions { emulate_persistence: true };

    /// Sectors of 512, few lanes.
    pub(crate) const SMALL: Format = Format {
        sector: 512,
        lanes: 4,
        version: LayoutVersion::V1_1,
        uuid: [9; 16],
        parent_uuid: [0; 16],
    };

    pub(crate) fn medium(len: u64) -> Arc<dyn Medium> {
        anonymous_with(len, EMULATED).unwrap()
    }

    /// A medium with a new volume.
    pub(crate) fn made(len: u64, format: Format) -> Arc<dyn Medium> {
        let medium = medium(len);
        create(&medium, format).unwrap();
        medium
    }

    pub(crate) fn open(medium: &Arc<dyn Medium>) -> Volume {
        Volume::open(Arc::clone(medium), Access::ReadWrite).unwrap()
    }
}
