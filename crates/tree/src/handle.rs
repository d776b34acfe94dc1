//! The descriptor of an open file. The last drop frees the pages of a file that has no name any more, which
//! takes long for a large file: a blocking thread does that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::inline;

/// See the module.
#[derive(Debug)]
pub(super) struct Handle(Option<OwnedFd>);

impl Handle {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(fd) = self.0.take() else { return };
        if gives_back_much(&fd)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // While the runtime shuts down, the file is closed there.
            drop(runtime.spawn_blocking(move || drop(fd)));
        }
    }
}

fn gives_back_much(fd: &OwnedFd) -> bool {
    let stat = rustix::fs::fstat(fd);
    stat.is_ok_and(|stat| stat.st_nlink == 0 && inline::is_much(inline::bytes_of(&stat)))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;

    use super::*;

    // Whether a file of this length is closed directly when its handle is dropped.
    fn is_closed_at_once(len: usize, has_name: bool) -> bool {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("f");
        fs::write(&path, vec![1; len]).unwrap();
        let file = File::open(&path).unwrap();
        let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        let handle = Handle::new(file.into());
        if !has_name {
            fs::remove_file(&path).unwrap();
        }
        drop(handle);
        // The number may have been reused by now.
        let leads_there =
            |to: std::path::PathBuf| to.to_string_lossy().contains(&*path.to_string_lossy());
        !fs::read_link(descriptor).is_ok_and(leads_there)
    }

    #[test]
    fn a_blocking_thread_frees_the_pages_of_an_unnamed_file() {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let runtime = threads.worker_threads(1).max_blocking_threads(1).build().unwrap();
        let (release, wait) = mpsc::channel::<()>();
        let taken = runtime.spawn_blocking(move || wait.recv().is_err());
        let _inside = runtime.enter();
        assert!(is_closed_at_once(4 << 20, true), "its name keeps them");
        assert!(is_closed_at_once(4 << 10, false), "they are few");
        assert!(!is_closed_at_once(4 << 20, false));
        drop(release);
        assert!(runtime.block_on(taken).unwrap());
    }
}
