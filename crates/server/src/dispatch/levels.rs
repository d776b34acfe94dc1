//! What a client may cache, in the words of leases and of oplocks.

use smb::create::{LeaseState, OplockLevel};

use crate::state::caching::Caching;

/// The lease state that grants the same caching.
pub(crate) fn to_state(caching: Caching) -> LeaseState {
    LeaseState::from_bits_retain(caching.0)
}

/// The oplock level that grants the same caching.
pub(crate) fn to_level(caching: Caching) -> OplockLevel {
    let has = |bits: Caching| caching.contains(bits);
    match (has(Caching::READ), has(Caching::WRITE), has(Caching::HANDLE)) {
        (true, true, true) => OplockLevel::BATCH,
        (true, true, false) => OplockLevel::EXCLUSIVE,
        (true, false, _) => OplockLevel::II,
        (false, ..) => OplockLevel::NONE,
    }
}

/// The caching an oplock level means.
pub(crate) fn from_level(level: OplockLevel) -> Caching {
    match level {
        OplockLevel::BATCH => Caching::READ.union(Caching::WRITE).union(Caching::HANDLE),
        OplockLevel::EXCLUSIVE => Caching::READ.union(Caching::WRITE),
        OplockLevel::II => Caching::READ,
        _ => Caching::NONE,
    }
}
