//! Files with secrets: always new, and only for their owner.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Makes a file that only its owner may read, to be written and renamed to its final name. A file of this
/// name, left by a power failure, is removed first: a user who has made it, has it open, or has made it a
/// link to another file, does not get the secret.
///
/// # Errors
/// The host refuses, or another process has made a file of this name meanwhile.
pub fn create_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_secret_is_never_written_to_an_existing_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, theirs) = (dir.path().join("new"), dir.path().join("theirs"));
        fs::write(&theirs, "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        create_anew(&path).unwrap().write_all(b"secret").unwrap();
        assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let held = File::open(&path).unwrap();
        create_anew(&path).unwrap().write_all(b"another secret").unwrap();
        assert_eq!(held.metadata().unwrap().size(), 6, "whoever has the old file open");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
