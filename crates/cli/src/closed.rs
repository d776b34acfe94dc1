//! Detects that the program was started without standard input, output or error (`<&-`, `>&-` of a shell).
//!
//! The standard library opens /dev/null in their place before `main`, so that no file gets their numbers: from then on
//! every read finds an end, and every write seems to succeed. Afterwards the program cannot tell why /dev/null is open.
//!
//! # Safety rules of this module
//!
//! `look` runs before `main`, in the only thread, where the standard library promises nothing: it asks for the
//! metadata of four paths and sets three atomics, for which the library needs no state of its own, and cannot panic.
#![allow(unsafe_code)]

use std::fs::{canonicalize, read_link, symlink_metadata};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard input was closed.
pub(crate) fn is_input_closed() -> bool {
    CLOSED[0].load(Ordering::Relaxed)
}

/// Whether standard output was closed.
pub(crate) fn is_output_closed() -> bool {
    CLOSED[1].load(Ordering::Relaxed)
}

/// Whether a path (`/dev/stdin`, `/dev/fd/0`, `/proc/self/fd/0`, a link to one of them) stands for one of the three that was
/// closed.
pub(crate) fn is_closed(path: &Path) -> bool {
    descriptor(path).and_then(|fd| CLOSED.get(fd)).is_some_and(|it| it.load(Ordering::Relaxed))
}

/// The number of the descriptor that a path names.
fn descriptor(path: &Path) -> Option<usize> {
    let ours = Path::new("/proc").join(std::process::id().to_string());
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = canonicalize(directory.unwrap_or_else(|| Path::new("."))).ok()?;
        if directory.starts_with(&ours) && directory.ends_with("fd") {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = directory.join(read_link(&path).ok()?);
    }
    None
}

extern "C" fn look() {
    if symlink_metadata("/proc/self/fd").is_ok() {
        for (closed, path) in CLOSED.iter().zip(PATHS) {
            closed.store(symlink_metadata(path).is_err(), Ordering::Relaxed);
        }
    }
}

static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
const PATHS: [&str; 3] = ["/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"];
// As many as the kernel follows.
const LINKS_MAX: usize = 40;
// SAFETY: the section holds addresses of such functions, which the loader calls before `main`.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;
