//! Where an open that may make a file would make it.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The path under which an open for writing finds or makes the file of this name: links that lead to nothing yet are
/// followed, and what is there already keeps its name. Makes nothing.
///
/// # Errors
/// The name ends in a slash, as that of no file does, or links lead in a circle.
pub fn place_of_file(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        // Components of a path have no slash at their end, and the kernel sees it.
        if place.as_os_str().as_bytes().ends_with(b"/") {
            return Err(io::Error::from_raw_os_error(EISDIR));
        }
        match std::fs::read_link(&place) {
            Ok(target) if !place.try_exists().unwrap_or(true) => {
                place = place.parent().unwrap_or_else(|| Path::new("")).join(target);
            }
            _ => return Ok(place),
        }
    }
    Err(io::Error::from_raw_os_error(ELOOP))
}

// Linux's own bound.
const LINKS_MAX: usize = 40;
// The same on every architecture of Linux but for what MIPS and others call ELOOP, where the text alone differs.
const EISDIR: i32 = 21;
const ELOOP: i32 = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_to_nothing_yet_leads_to_where_the_file_would_be_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("below")).unwrap();
        std::fs::write(path("there"), "").unwrap();
        symlink("below/new", path("second")).unwrap();
        symlink(path("second"), path("first")).unwrap();
        symlink("there", path("found")).unwrap();
        symlink("round", path("round")).unwrap();
        for (name, place) in
            [("first", "below/new"), ("found", "found"), ("none", "none"), ("there", "there")]
        {
            assert_eq!(place_of_file(&path(name)).unwrap(), path(place), "{name}");
        }
        let slash = place_of_file(&path("new/")).unwrap_err();
        assert_eq!(slash.kind(), io::ErrorKind::IsADirectory);
        // The kernel says what is wrong with it.
        assert_eq!(place_of_file(&path("round")).unwrap(), path("round"));
    }
}
