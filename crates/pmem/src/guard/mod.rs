//! Turns a SIGBUS inside a mapping of this crate into an error of the access that raised it.
//!
//! ```text
//!  copy --fault--> kernel --SIGBUS--> handler: whose address?
//!   ^                                   | ours: note the fault, put zero pages there
//!   +------------- goes on -------------+
//!   then looks at the note -> Truncated | foreign: call the handler that was there before
//! ```
//!
//! If a file shrinks under a mapping, or memory fails, the kernel raises SIGBUS in the thread that
//! touches the page. By default SIGBUS kills the process, so one peer or one truncation could kill
//! the server. The handler is installed once per process, in front of any handler installed before.
//!
//! # Safety rules of this module
//!
//! The handler runs at any instruction of any thread that copies to or from a mapping. It only
//! reads atomics and makes raw system calls (mmap, sigaction), takes no lock, allocates nothing
//! and leaves `errno` as it was. The handler replaces only pages of a range that a caller handed to
//! [`Watch::new`].
//!
//! A fault takes from a mapping what it took from the file: after a truncation no access to the mapping can be relied
//! on, after a failure of memory only those that touch the pages that failed.
//!
//! The table is a fixed array. A slot is written under a version counter: the handler accepts a
//! slot only if the version was even and equal before and after the handler read the range.
//! The slot of the faulting access cannot change while the copy runs, because the copying thread
//! holds the mapping; a slot that does change is therefore never the slot of the fault.
//!
//! Spec: sigaction(2), signal-safety(7), mmap(2) "SIGBUS".
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::MediumError;

/// A mapped range whose faults are caught until this watch is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    slot: usize,
}

impl Watch {
    /// Watches `len` bytes at `start`, whole pages.
    ///
    /// # Safety
    ///
    /// The range must be one mapping that the caller owns and keeps until this watch is dropped, and
    /// no Rust reference into the range may exist: on a fault the handler replaces its pages.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Result<Self, WatchError> {
        install()?;
        let slot = SLOTS_FREE.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let start = start.as_ptr().addr();
        SLOTS[slot].open(start, start + len);
        SLOTS_USED.fetch_max(slot + 1, Ordering::Release);
        Ok(Self { slot })
    }

    /// The fault noted on the mapping that concerns the `len` bytes at `start`, if any. The thread that made an access
    /// asks after each access.
    #[inline]
    pub(crate) fn health(&self, start: NonNull<u8>, len: usize) -> Result<(), MediumError> {
        // The handler ran on this thread: the compiler alone could move the access past here.
        compiler_fence(Ordering::SeqCst);
        match SLOTS[self.slot].fault.load(Ordering::Relaxed) {
            HEALTHY => Ok(()),
            HARDWARE => SLOTS[self.slot].check(start.as_ptr().addr(), len),
            // Not EHWPOISON: that says that just these bytes are lost.
            BROKEN => Err(MediumError::MediaIo(libc::ENXIO)),
            _ => Err(MediumError::Truncated),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        SLOTS[self.slot].close();
        SLOTS_FREE.lock().unwrap_or_else(PoisonError::into_inner).recycled.push(self.slot);
    }
}

/// Why a mapping cannot be watched, and so must not be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WatchError {
    /// There are [`MAPPINGS_MAX`] mappings already.
    Exhausted,
    /// The signal handler could not be installed.
    Install(i32),
}

/// One watched range, or none while `version` is odd or the range is empty.
struct Slot {
    version: AtomicU32,
    fault: AtomicU8,
    start: AtomicUsize,
    end: AtomicUsize,
    /// The units of memory that failed: the first address of each, plus the place of its size in [`UNITS`] and one. As
    /// many are known apart; with one more the whole mapping counts as failed.
    failed: [AtomicUsize; FAILED_MAX],
}

impl Slot {
    const fn empty() -> Self {
        Self {
            version: AtomicU32::new(0),
            fault: AtomicU8::new(HEALTHY),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            failed: [const { AtomicUsize::new(0) }; FAILED_MAX],
        }
    }

    /// Only the owner of the slot may call this, until `close`.
    fn open(&self, start: usize, end: usize) {
        self.fault.store(HEALTHY, Ordering::Relaxed);
        self.failed.iter().for_each(|failed| failed.store(0, Ordering::Relaxed));
        self.change(start, end);
    }

    fn close(&self) {
        self.change(0, 0);
    }

    fn change(&self, start: usize, end: usize) {
        self.version.fetch_add(1, Ordering::Relaxed);
        // A thread that sees a new bound below also sees the odd version.
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn range(&self) -> Option<(usize, usize)> {
        let before = self.version.load(Ordering::Acquire);
        let range = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(range)
    }
}

impl Slot {
    /// Notes that the unit of this size that holds `address` has failed. Called by the handler.
    fn note_failed(&self, address: usize, size: usize, unit: usize) {
        let noted = (address & !(unit - 1)) | (size + 1);
        let is_noted = self.failed.iter().any(|place| {
            let taken = place.compare_exchange(0, noted, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok() || taken == Err(noted)
        });
        let fault = if is_noted { HARDWARE } else { BROKEN };
        // Nothing that was worse before gets better.
        self.fault.fetch_max(fault, Ordering::SeqCst);
    }

    /// Whether the bytes at `start` lie outside of all units that failed.
    #[cold]
    fn check(&self, start: usize, len: usize) -> Result<(), MediumError> {
        let noted = self.failed.iter().map(|place| place.load(Ordering::SeqCst));
        for unit in noted.take_while(|noted| *noted != 0) {
            let size = units().get((unit & SIZES) - 1).copied().unwrap_or(GIANT_PAGE);
            let first = unit & !SIZES;
            if start < first.saturating_add(size) && first < start.saturating_add(len) {
                return Err(MediumError::MediaIo(libc::EHWPOISON));
            }
        }
        Ok(())
    }
}

/// The free slots, for threads that map and unmap; the handler never reads this list.
struct FreeSlots {
    recycled: Vec<usize>,
    untouched: usize,
}

impl FreeSlots {
    fn take(&mut self) -> Result<usize, WatchError> {
        if let Some(slot) = self.recycled.pop() {
            return Ok(slot);
        }
        if self.untouched == MAPPINGS_MAX {
            return Err(WatchError::Exhausted);
        }
        self.untouched += 1;
        Ok(self.untouched - 1)
    }
}

/// Installs the handler of this module in front of the present handler, once.
fn install() -> Result<(), WatchError> {
    static OUTCOME: OnceLock<Result<(), WatchError>> = OnceLock::new();
    *OUTCOME.get_or_init(|| {
        PAGE_SIZE.store(rustix::param::page_size(), Ordering::Relaxed);
        // SAFETY: all zeroes is a valid sigaction: default action, no flags, empty mask.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null new action only asks for the present one.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) } != 0 {
            return Err(WatchError::Install(last_errno()));
        }
        // The previous handler is stored before the first signal can reach the new handler.
        let previous = PREVIOUS.get_or_init(|| previous);
        let mut ours = *previous;
        ours.sa_sigaction = on_bus_error as *const () as usize;
        // On the alternate stack where the thread has one, as Rust's own handler runs.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: `ours` is a valid action whose handler follows the rules above.
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(WatchError::Install(last_errno())),
        }
    })
}

/// The handler. See the rules of this module.
extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler, which ends after us.
    let details = unsafe { info.read() };
    let code = details.si_code;
    // SAFETY: a field of the siginfo; any bytes are a valid address for signals without one.
    let address = unsafe { details.si_addr() }.addr();
    // Codes above zero come from the kernel: a fault. Others come from kill(2) and the like.
    if code > 0 && absorb(address, code) {
        return;
    }
    pass_on(signal, code, info, context);
}

/// Notes a fault in one of our ranges and makes the address accessible again.
fn absorb(address: usize, code: i32) -> bool {
    let used = SLOTS_USED.load(Ordering::Acquire);
    for slot in &SLOTS[..used] {
        let Some((start, end)) = slot.range() else { continue };
        if !(start..end).contains(&address) {
            continue;
        }
        if code != libc::BUS_MCEERR_AR && code != libc::BUS_MCEERR_AO {
            slot.fault.fetch_max(TRUNCATED, Ordering::SeqCst);
            return cover(address, start, end, false, |_, _| {});
        }
        return cover(address, start, end, true, |size, unit| {
            slot.note_failed(address, size, unit)
        });
    }
    false
}

/// Maps zero pages over the fault. `note` learns, before there are such pages, which unit of memory they stand for, so
/// that nobody relies on them.
fn cover(
    address: usize,
    start: usize,
    end: usize,
    hardware: bool,
    note: impl Fn(usize, usize),
) -> bool {
    // A truncated file has no bytes behind the fault either, so the rest of the mapping is replaced
    // at once and a long copy faults once, not once per page. Failed memory replaces only its page.
    // The kernel does not split the huge pages of devdax: there the whole huge page is replaced.
    units().into_iter().enumerate().any(|(size, unit)| {
        note(size, unit);
        let first = (address & !(unit - 1)).max(start);
        let last = if hardware { (first + unit).min(end) } else { end };
        let errno = last_errno();
        let wanted = std::ptr::without_provenance_mut::<libc::c_void>(first);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: first..last lies in a mapping whose owner gave it to us for this (Watch::new).
        let got = unsafe { libc::mmap(wanted, last - first, protection, flags, -1, 0) };
        set_errno(errno);
        got != libc::MAP_FAILED
    })
}

/// Handles the signal as the process would without this module.
fn pass_on(signal: i32, code: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(previous) = PREVIOUS.get() else { return };
    match previous.sa_sigaction {
        // Ignoring works only for signals that were sent; the kernel kills on an ignored fault.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeroes is the default action.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: `default` is a valid action. A fault then happens again and kills.
            unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
            if code <= 0 {
                // SAFETY: raise() takes any signal; this one is blocked until we return.
                unsafe { libc::raise(signal) };
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the kernel would have called this very address with these arguments.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: as above, for a handler of the old kind.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

fn last_errno() -> i32 {
    // SAFETY: the address of this thread's errno, as libc gives it.
    unsafe { errno().read() }
}

fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { errno().write(value) };
}

fn errno() -> *mut i32 {
    // SAFETY: takes nothing and only returns an address.
    unsafe { libc::__errno_location() }
}

/// Mappings at once; the kernel allows 65,530 per process by default and each watched mapping takes two.
pub(crate) const MAPPINGS_MAX: usize = 16_384;

/// The sizes of what fails at once, smallest first. A unit of a larger size is noted beside that of a smaller one.
fn units() -> [usize; 3] {
    [PAGE_SIZE.load(Ordering::Relaxed), HUGE_PAGE, GIANT_PAGE]
}

/// Failed units of a mapping that are known apart: memory with more of them is of no use.
const FAILED_MAX: usize = 16;
/// The bits of an address of a page that are free for the size of a unit.
const SIZES: usize = 3;

const HEALTHY: u8 = 0;
/// Some units failed.
const HARDWARE: u8 = 1;
/// More units failed than are known apart.
const BROKEN: u8 = 2;
const TRUNCATED: u8 = 3;

const HUGE_PAGE: usize = 2 << 20;
const GIANT_PAGE: usize = 1 << 30;

static SLOTS: [Slot; MAPPINGS_MAX] = [const { Slot::empty() }; MAPPINGS_MAX];
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
static SLOTS_FREE: Mutex<FreeSlots> = Mutex::new(FreeSlots { recycled: Vec::new(), untouched: 0 });
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use rustix::mm::{MapFlags, ProtFlags};

    use super::*;

    /// The environment variable that the test sets in the child that must die.
    const CHILD: &str = "LANDFAST_TEST_BUS_ERROR";

    #[test]
    #[ignore = "dies of SIGBUS; the next test runs it as a program of its own and watches"]
    fn child_that_reads_a_lost_page_of_a_mapping_not_ours() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        install().unwrap();
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let (flags, null) = (MapFlags::SHARED, std::ptr::null_mut());
        // SAFETY: a new mapping at an address the kernel chooses disturbs nobody.
        let start = unsafe { rustix::mm::mmap(null, 4096, ProtFlags::READ, flags, &file, 0) };
        // SAFETY: mapped and readable, had the file a byte: the kernel raises SIGBUS here.
        unsafe { start.unwrap().cast::<u8>().read_volatile() };
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_fault_outside_watched_mappings_still_kills_the_process() {
        let name = "guard::tests::child_that_reads_a_lost_page_of_a_mapping_not_ours";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", name]).env(CHILD, "1");
        let output = child.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_slot_that_is_being_written_gives_no_range() {
        let slot = Slot::empty();
        slot.open(4096, 8192);
        assert_eq!(slot.range(), Some((4096, 8192)));
        slot.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(slot.range(), None, "somebody is writing the bounds");
        slot.version.fetch_add(1, Ordering::Relaxed);
        slot.close();
        assert_eq!(slot.range(), Some((0, 0)), "an empty range holds no address");
    }

    /// Notes failed memory at these addresses, as the handler does, of a mapping of so many pages; says of each page
    /// whether it is lost.
    fn lost_pages(pages: usize, failed: &[usize]) -> Vec<bool> {
        let page = rustix::param::page_size();
        PAGE_SIZE.store(page, Ordering::Relaxed);
        let slot = Slot::empty();
        let start = 1 << 40;
        slot.open(start, start + pages * page);
        failed.iter().for_each(|at| slot.note_failed(start + at * page + 7, 0, page));
        let fault = slot.fault.load(Ordering::SeqCst);
        let lost = MediumError::MediaIo(libc::EHWPOISON);
        let health = |at: usize| match fault {
            HEALTHY => Ok(()),
            HARDWARE => slot.check(start + at * page, page),
            _ => Err(lost),
        };
        (0..pages).map(|at| health(at) == Err(lost)).collect()
    }

    #[test]
    fn memory_that_fails_takes_no_other_memory_of_its_mapping_with_it() {
        assert_eq!(lost_pages(4, &[]), [false; 4]);
        assert_eq!(lost_pages(4, &[2]), [false, false, true, false]);
        assert_eq!(lost_pages(4, &[2, 2, 0]), [true, false, true, false], "noted once");
        let all: Vec<_> = (0..FAILED_MAX).collect();
        assert_eq!(lost_pages(20, &all).iter().filter(|lost| **lost).count(), FAILED_MAX);
        let more: Vec<_> = (0..=FAILED_MAX).collect();
        assert_eq!(lost_pages(20, &more), [true; 20], "too many to tell them apart");
    }

    #[test]
    fn a_range_that_touches_a_failed_huge_page_is_lost() {
        let slot = Slot::empty();
        let start = 1 << 40;
        slot.open(start, start + 4 * HUGE_PAGE);
        slot.note_failed(start + HUGE_PAGE + 5, 1, HUGE_PAGE);
        let is_lost = |at: usize, len: usize| slot.check(start + at, len).is_err();
        assert!(!is_lost(0, HUGE_PAGE) && is_lost(0, HUGE_PAGE + 1));
        assert!(is_lost(2 * HUGE_PAGE - 1, 1) && !is_lost(2 * HUGE_PAGE, HUGE_PAGE));
        slot.close();
        slot.open(start, start + 4 * HUGE_PAGE);
        assert!(!is_lost(HUGE_PAGE, 1), "a slot that is used again has no faults");
    }

    #[test]
    fn a_full_table_refuses_the_next_mapping() {
        let mut slots = FreeSlots { recycled: Vec::new(), untouched: MAPPINGS_MAX - 1 };
        assert_eq!(slots.take(), Ok(MAPPINGS_MAX - 1));
        assert_eq!(slots.take(), Err(WatchError::Exhausted));
        slots.recycled.push(7);
        assert_eq!(slots.take(), Ok(7));
    }
}
