//! Memory that a device may reach.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use pmem::Medium;

use super::abi;
use super::cm::loaded;
use super::device::Domain;
use crate::interface::Access;

/// A registered range of a medium. The device reaches it until this is dropped.
#[derive(Debug)]
pub(in crate::verbs) struct Memory {
    raw: NonNull<abi::Mr>,
    /// The address that both ends use for the first byte.
    address: u64,
    keys: (u32, u32),
    /// Dropped after the registration.
    kept: Option<Kept>,
}

// Fields are there to be dropped late.
#[derive(Debug)]
struct Kept {
    _medium: Arc<dyn Medium>,
    _domain: Arc<Domain>,
}

// SAFETY: a registration is used from any thread.
unsafe impl Send for Memory {}

/// How to register.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Wish {
    /// What device and peer may do.
    pub(in crate::verbs) access: Access,
    /// The peer may flush.
    pub(in crate::verbs) flush: Option<FlushAccess>,
    /// The device does not pin the pages, but fetches them when it reaches them.
    pub(in crate::verbs) on_demand: bool,
    /// The address that both ends use for the first byte; `None`: its address in this process.
    pub(in crate::verbs) named: Option<u64>,
    /// The device takes the answers to reads as writes of the peer: it speaks iWARP.
    pub(in crate::verbs) is_iwarp: bool,
}

/// The kinds of flush that a peer may ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) enum FlushAccess {
    Visibility,
    Persistence,
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) enum Refusal {
    /// The medium is not memory of this process: nothing a device could reach.
    NotMemory,
    /// The host refused; the number is its `errno`.
    Host(i32),
}

impl Memory {
    /// Registers a range, which must lie inside the medium. Pins its pages unless the wish is for
    /// on-demand paging: the cost grows with the length.
    pub(in crate::verbs) fn register(
        domain: &Arc<Domain>,
        medium: &Arc<dyn Medium>,
        range: &Range<u64>,
        wish: Wish,
    ) -> Result<Self, Refusal> {
        let memory = medium.direct().ok_or(Refusal::NotMemory)?;
        // The memory may begin within the medium.
        let place = |offset: u64| usize::try_from(offset).ok()?.checked_sub(memory.offset());
        let start = place(range.start).ok_or(Refusal::NotMemory)?;
        let whole = place(range.end).ok_or(Refusal::NotMemory)?;
        if start >= whole || whole > memory.len() {
            return Err(Refusal::NotMemory);
        }
        let len = whole - start;
        // SAFETY: start < memory.len().
        let first = unsafe { memory.start().add(start) };
        let address = wish
            .named
            .unwrap_or_else(|| u64::try_from(first.addr().get()).expect("addresses have 64 bits"));
        let (raw, pd, flags) = (first.as_ptr().cast(), domain.raw(), flags(wish));
        // SAFETY: the range is mapped as long as the medium is, which is kept below; the medium
        // reckons with others that write there at any time.
        let made = unsafe { (loaded().reg_mr_iova2)(pd, raw, len, address, flags) };
        let errno = || std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        let made = NonNull::new(made).ok_or_else(|| Refusal::Host(errno()))?;
        // SAFETY: handed out by the library.
        let inner = unsafe { made.as_ref() };
        let kept = Kept { _medium: Arc::clone(medium), _domain: Arc::clone(domain) };
        Ok(Self { raw: made, address, keys: (inner.lkey, inner.rkey), kept: Some(kept) })
    }

    /// The address that both ends use for the first byte, in work requests.
    pub(in crate::verbs) fn address(&self) -> u64 {
        self.address
    }

    pub(in crate::verbs) fn lkey(&self) -> u32 {
        self.keys.0
    }

    pub(in crate::verbs) fn rkey(&self) -> u32 {
        self.keys.1
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: ours, and given back once.
        let outcome = unsafe { (loaded().dereg_mr)(self.raw.as_ptr()) };
        if outcome != 0 {
            // The device may still write there, so the mapping must never be reused.
            tracing::error!(errno = outcome, "the device does not let go of memory; leaked");
            std::mem::forget(self.kept.take());
        }
    }
}

fn flags(wish: Wish) -> u32 {
    // RFC 5040 §5.4: the sink of an RDMA Read is a tagged buffer, which the peer's answer names. Linux
    // registers such sinks with remote write, too.
    let is_sink = wish.is_iwarp && wish.access.contains(Access::READ_SINK);
    let remote_write = is_sink || wish.access.contains(Access::REMOTE_WRITE);
    let flush = match wish.flush {
        None => 0,
        Some(FlushAccess::Visibility) => abi::ACCESS_FLUSH_GLOBAL,
        Some(FlushAccess::Persistence) => abi::ACCESS_FLUSH_GLOBAL | abi::ACCESS_FLUSH_PERSISTENT,
    };
    // The peer may write only where the device may (ibv_reg_mr(3)).
    let local = wish.access.intersects(Access::LOCAL_WRITE) || remote_write;
    let bits = [
        (local, abi::ACCESS_LOCAL_WRITE),
        (remote_write, abi::ACCESS_REMOTE_WRITE),
        (wish.access.contains(Access::REMOTE_READ), abi::ACCESS_REMOTE_READ),
        (wish.on_demand, abi::ACCESS_ON_DEMAND),
    ];
    bits.iter().filter(|(wanted, _)| *wanted).fold(flush, |flags, (_, bit)| flags | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_become_the_flags_of_the_manual() {
        let wish =
            |access, flush| Wish { access, flush, on_demand: false, named: None, is_iwarp: false };
        assert_eq!(flags(wish(Access::empty(), None)), 0);
        assert_eq!(flags(wish(Access::REMOTE_READ, None)), 0b100);
        assert_eq!(flags(wish(Access::REMOTE_WRITE, None)), 0b011, "local write comes with it");
        let narrow = Access::REMOTE_ATOMIC | Access::REMOTE_ATOMIC_WRITE | Access::REMOTE_VERIFY;
        assert_eq!(flags(wish(narrow, None)), 0, "no device allows just that");
        let all = wish(Access::PUSH, Some(FlushAccess::Persistence));
        assert_eq!(flags(all), 0b11_0000_0111);
        assert_eq!(flags(Wish { on_demand: true, ..wish(Access::LOCAL_WRITE, None) }), 0b100_0001);
    }

    #[test]
    fn only_sinks_of_reads_let_the_peer_write_on_an_iwarp_adapter() {
        let flags_of = |access, is_iwarp| {
            flags(Wish { access, flush: None, on_demand: false, named: None, is_iwarp })
        };
        assert_eq!(flags_of(Access::READ_SINK, true), 0b011);
        assert_eq!(flags_of(Access::LOCAL_WRITE, true), 0b011);
        assert_eq!(flags_of(Access::RECEIVE, true), 0b001);
        assert_eq!(flags_of(Access::READ_SINK, false), 0b001);
    }
}
