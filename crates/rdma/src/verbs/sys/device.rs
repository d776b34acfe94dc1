//! Devices, what they can do, and their protection domains.

use std::ffi::CStr;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::ptr::NonNull;

use super::library::{Functions, functions};
use super::{abi, last_error};
use crate::interface::EngineError;

/// A device that librdmacm has opened. It stays open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) struct Device {
    context: NonNull<abi::Context>,
}

// SAFETY: a context is used from any thread; the libraries lock it.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What a device can do, as far as it matters here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) struct Features {
    /// Frames travel over TCP; otherwise this is InfiniBand or RoCE.
    pub(in crate::verbs) is_iwarp: bool,
    /// Work requests a queue takes.
    pub(in crate::verbs) depth_max: u32,
    /// Reads, atomics and flushes that a queue pair answers at once.
    pub(in crate::verbs) responder_max: u8,
    /// Reads, atomics and flushes that a queue pair may have open with its peer.
    pub(in crate::verbs) initiator_max: u8,
    /// The device has flushes for visibility and for persistence, and the library can ask for them.
    pub(in crate::verbs) flush: bool,
    /// The device has atomic writes, and the library can ask for them.
    pub(in crate::verbs) atomic_write: bool,
    /// Memory that is not pinned can be registered for writes and reads of the peer.
    pub(in crate::verbs) on_demand: bool,
}

impl Device {
    pub(super) fn new(context: NonNull<abi::Context>) -> Self {
        Self { context }
    }

    /// Its name, such as `rxe0`.
    pub(in crate::verbs) fn name(self) -> String {
        let name = self.described().name.as_ptr();
        // SAFETY: the library ends the name with a zero.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    fn described(&self) -> &abi::Device {
        // SAFETY: contexts stay open.
        let device = unsafe { self.context.as_ref() }.device;
        // SAFETY: a context's device stays with it, and does not change.
        unsafe { &*device }
    }

    /// What it can do.
    pub(in crate::verbs) fn features(self) -> Result<Features, EngineError> {
        let plain = self.query()?;
        let (flags, on_demand) = self.query_extended().unwrap_or((0, false));
        let extended = super::cm::loaded().qp_to_qp_ex.is_some();
        let number = |value: i32| u8::try_from(value.clamp(0, 255)).expect("clamped");
        let flush = abi::CAP_FLUSH_GLOBAL | abi::CAP_FLUSH_PERSISTENT;
        Ok(Features {
            is_iwarp: self.described().transport_type == abi::TRANSPORT_IWARP,
            depth_max: u32::try_from(plain.max_qp_wr.min(plain.max_cqe)).unwrap_or(0),
            responder_max: number(plain.max_qp_rd_atom),
            initiator_max: number(plain.max_qp_init_rd_atom),
            flush: extended && flags & flush == flush,
            atomic_write: extended && flags & abi::CAP_ATOMIC_WRITE != 0,
            on_demand,
        })
    }

    fn query(self) -> Result<abi::DeviceAttr, EngineError> {
        let mut attributes = MaybeUninit::<abi::DeviceAttr>::zeroed();
        // SAFETY: the context is open; the library fills the structure.
        let outcome = unsafe {
            (super::cm::loaded().query_device)(self.context.as_ptr(), attributes.as_mut_ptr())
        };
        super::direct("ibv_query_device", outcome)?;
        // SAFETY: filled, and all zeros would be good as well.
        Ok(unsafe { attributes.assume_init() })
    }

    /// Extended capability flags, and whether on-demand paging serves writes and reads.
    fn query_extended(self) -> Option<(u64, bool)> {
        let context = self.context.as_ptr();
        // SAFETY: the context is open.
        if unsafe { (*context).abi_compat } != usize::MAX {
            return None;
        }
        let front = offset_of!(abi::VerbsContext, context);
        // SAFETY: the mark says that this context is the last field of a VerbsContext.
        let verbs = unsafe { context.byte_sub(front) }.cast::<abi::VerbsContext>();
        // SAFETY: the two last fields are there in every version.
        let filled = unsafe { (*verbs).size };
        let needed =
            size_of::<abi::VerbsContext>() - offset_of!(abi::VerbsContext, query_device_ex);
        if filled < needed {
            return None;
        }
        // SAFETY: the library has filled so much of the structure.
        let query = unsafe { (*verbs).query_device_ex }?;
        let mut attributes = MaybeUninit::<abi::DeviceAttrEx>::zeroed();
        let (input, len) = (0_u32, size_of::<abi::DeviceAttrEx>());
        // SAFETY: the function is that of this context, and writes no more than `len` bytes.
        let outcome = unsafe { query(context, &raw const input, attributes.as_mut_ptr(), len) };
        if outcome != 0 {
            return None;
        }
        // SAFETY: all zeros, or what the library put there; integers either way.
        let attributes = unsafe { attributes.assume_init() };
        let [reliable, ..] = attributes.odp_transports;
        let on_demand = attributes.odp_general & abi::ODP_SUPPORT != 0
            && reliable & abi::ODP_WRITE_AND_READ == abi::ODP_WRITE_AND_READ;
        Some((attributes.device_cap_flags_ex, on_demand))
    }

    pub(super) fn context(self) -> *mut abi::Context {
        self.context.as_ptr()
    }
}

/// A protection domain: keys of one are worth nothing in another.
#[derive(Debug)]
pub(in crate::verbs) struct Domain {
    raw: NonNull<abi::Pd>,
}

// SAFETY: used from any thread; the libraries lock it.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(in crate::verbs) fn new(device: Device) -> Result<Self, EngineError> {
        // SAFETY: the context is open.
        let raw = unsafe { (super::cm::loaded().alloc_pd)(device.context()) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_alloc_pd"))?;
        Ok(Self { raw })
    }

    pub(super) fn raw(&self) -> *mut abi::Pd {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: what was made in the domain held it alive, so it is empty. If memory had to be leaked the
        // driver refuses, and the domain is leaked as well.
        let _ = unsafe { (super::cm::loaded().dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Whether the machine has any device: the errors of librdmacm do not say.
pub(super) fn check_any(functions: &Functions) -> Result<(), EngineError> {
    let mut count = 0;
    // SAFETY: the library writes how many devices there are.
    let list = unsafe { (functions.get_device_list)(&raw mut count) };
    if !list.is_null() {
        // SAFETY: handed out a moment ago, given back once.
        unsafe { (functions.free_device_list)(list) };
    }
    if count == 0 { Err(EngineError::HostNoDevice) } else { Ok(()) }
}

/// Whether this machine has the libraries and a device.
pub(in crate::verbs) fn check() -> Result<(), EngineError> {
    check_any(functions()?)
}
