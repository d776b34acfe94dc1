//! What the handler does with each kind of fault, called as the kernel calls it; and with signals that are not its own.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr::NonNull;

use super::*;
use crate::mapping::Mapping;

const PAGES: usize = 20;

/// Watched memory of [`PAGES`] pages of ones. The faults are called, not met: the memory is there.
struct Watched {
    watch: Watch,
    mapping: Mapping,
    page: usize,
}

impl Watched {
    fn new() -> Self {
        let page = rustix::param::page_size();
        let mapping = Mapping::anonymous(PAGES * page).unwrap();
        mapping.window().store(0, &vec![1; PAGES * page]);
        let start = mapping.direct(0).start();
        // SAFETY: the mapping is ours, outlives the watch, and is only reached by its window.
        let watch = unsafe { Watch::new(start, PAGES * page) }.unwrap();
        Self { watch, mapping, page }
    }

    fn address(&self, page: usize) -> NonNull<u8> {
        // SAFETY: inside of the mapping.
        unsafe { self.mapping.direct(0).start().add(page * self.page) }
    }

    /// A fault in the middle of a page.
    fn fault(&self, page: usize, code: i32) -> bool {
        absorb(self.address(page).as_ptr().addr() + 100, code)
    }

    fn health(&self, page: usize) -> Result<(), MediumError> {
        self.watch.health(self.address(page), self.page)
    }

    /// The pages that the handler has replaced.
    fn replaced(&self) -> Vec<usize> {
        (0..PAGES).filter(|page| self.mapping.window().byte(page * self.page) == 0).collect()
    }
}

const LOST: Result<(), MediumError> = Err(MediumError::MediaIo(libc::EHWPOISON));

#[test]
#[cfg_attr(miri, ignore = "signal handlers")]
fn failed_memory_costs_its_page_and_no_other() {
    for code in [libc::BUS_MCEERR_AR, libc::BUS_MCEERR_AO] {
        let watched = Watched::new();
        assert!(watched.fault(2, code));
        assert_eq!(watched.replaced(), [2]);
        assert_eq!(
            (watched.health(1), watched.health(2), watched.health(3)),
            (Ok(()), LOST, Ok(()))
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "signal handlers")]
fn more_failed_memory_than_is_known_apart_fails_the_whole_mapping_as_a_device() {
    let watched = Watched::new();
    for page in 0..=FAILED_MAX {
        assert!(watched.fault(page, libc::BUS_MCEERR_AR));
    }
    assert_eq!(watched.health(PAGES - 1), Err(MediumError::MediaIo(libc::ENXIO)));
}

#[test]
#[cfg_attr(miri, ignore = "signal handlers")]
fn a_page_that_its_file_has_lost_takes_all_behind_it_at_once() {
    let watched = Watched::new();
    assert!(watched.fault(PAGES - 3, libc::BUS_ADRERR));
    assert_eq!(watched.replaced(), [PAGES - 3, PAGES - 2, PAGES - 1]);
    assert_eq!(watched.health(0), Err(MediumError::Truncated));
}

#[test]
#[cfg_attr(miri, ignore = "signal handlers")]
fn a_fault_elsewhere_is_not_absorbed_and_errno_stays_as_it_was() {
    let Watched { watch, mapping, .. } = Watched::new();
    drop(watch);
    let address = mapping.direct(0).start().as_ptr().addr();
    assert!(!absorb(address, libc::BUS_ADRERR), "the watch has ended");
    // No process has such an address: mmap fails, and the errno of the interrupted code is kept.
    let nowhere = 1 << 62;
    set_errno(77);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(77), "it is this thread's");
    assert!(!cover(nowhere + 8, nowhere, nowhere + 4096, true, |_, _| {}));
    assert_eq!(last_errno(), 77);
}

/// The environment variable that tells a child what was there before the handler of this module, and how SIGBUS comes.
const CHILD: &str = "LANDFAST_TEST_BUS_SIGNAL";
/// The exit codes of handlers that were there before, of either kind.
const OF_OLD_KIND: i32 = 41;
const WITH_DETAILS: i32 = 42;

extern "C" fn of_old_kind(_: i32) {
    // SAFETY: ends the process, as a handler may.
    unsafe { libc::_exit(OF_OLD_KIND) };
}

extern "C" fn with_details(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo where it was asked for one.
    let sent = unsafe { info.read() }.si_signo;
    let code = if sent == signal { WITH_DETAILS } else { 1 };
    // SAFETY: ends the process, as a handler may.
    unsafe { libc::_exit(code) };
}

#[test]
#[ignore = "is sent SIGBUS; the next test runs it as a program of its own and watches"]
fn child_that_is_sent_a_bus_error() {
    let Some(what) = std::env::var_os(CHILD) else { return };
    let (before, how) = what.to_str().and_then(|what| what.split_once(' ')).unwrap();
    // SAFETY: all zeroes is the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    match before {
        "default" => {}
        "ignored" => action.sa_sigaction = libc::SIG_IGN,
        "old" => action.sa_sigaction = of_old_kind as *const () as usize,
        _ => {
            action.sa_sigaction = with_details as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
        }
    }
    // SAFETY: a valid action of this child alone.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    install().unwrap();
    if how == "sent" {
        // SAFETY: takes any signal.
        unsafe { libc::raise(libc::SIGBUS) };
        return;
    }
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let how = crate::mapping::MapHow { writable: false, synchronous: false, unit: 4096 };
    let mapping = Mapping::of_file(&file, (0, 1), how).unwrap();
    // Nobody watches the address any more when the fault comes.
    SLOTS.iter().for_each(Slot::close);
    mapping.window().byte(0);
}

#[test]
#[cfg_attr(miri, ignore = "signal handlers")]
fn a_bus_error_that_is_not_ours_ends_as_it_would_without_us() {
    let run = |before: &str, how: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "guard::faults::child_that_is_sent_a_bus_error"]);
        let status = child.env(CHILD, format!("{before} {how}")).output().unwrap().status;
        (status.code(), status.signal())
    };
    let killed = (None, Some(libc::SIGBUS));
    assert_eq!(run("default", "sent"), killed);
    assert_eq!(run("default", "met"), killed);
    assert_eq!(run("ignored", "sent"), (Some(0), None), "ignoring what was sent works");
    assert_eq!(run("ignored", "met"), killed, "the kernel kills on an ignored fault");
    for how in ["sent", "met"] {
        assert_eq!(run("old", how), (Some(OF_OLD_KIND), None));
        assert_eq!(run("detailed", how), (Some(WITH_DETAILS), None));
    }
}
