//! Entry points for the fuzz targets (`fuzz/bodies`) to code that has no other: no part of the API.

use crate::attributes;
use crate::binding::Binding;
use crate::journal::{records, replay};
use crate::mounted_part::MountedPart;

/// Parses a log of persistent opens, and writes the parsed opens again: returns their number, and
/// whether both logs are the same.
pub fn log_of_opens(bytes: &[u8]) -> (usize, bool) {
    let live = replay(bytes);
    let again = replay(&records(live.values()));
    (live.len(), live == again)
}

/// Parses the xattrs of a file, and of a directory of streams; returns whether they would be written again as they are.
pub fn xattrs(attributes: &[u8], binding: &[u8], is_directory: bool) -> bool {
    attributes::is_kept(attributes, is_directory)
        && Binding::is_kept(binding)
        && MountedPart::is_kept(binding)
}
