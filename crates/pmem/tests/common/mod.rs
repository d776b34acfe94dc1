//! Files of each class this machine can offer.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs::File;

/// A file of `len` bytes on tmpfs, with no name.
pub(crate) fn volatile_file(len: u64) -> File {
    sized(tempfile::tempfile_in("/dev/shm").expect("/dev/shm takes files"), len)
}

/// A file of `len` bytes on the disk file system the build lives on.
pub(crate) fn storage_file(len: u64) -> File {
    sized(
        tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("the build directory takes files"),
        len,
    )
}

fn sized(file: File, len: u64) -> File {
    file.set_len(len).expect("a sparse file of any length");
    file
}
