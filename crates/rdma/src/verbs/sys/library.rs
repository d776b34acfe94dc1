//! libibverbs and librdmacm, opened when they are first needed.
//!
//! A machine need not have the libraries: without them the provider returns an error that says what
//! to install. Open libraries stay open, because they keep threads and files of their own.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

use super::abi;
use crate::interface::EngineError;

/// The functions that are called by name.
pub(super) struct Functions {
    pub(super) get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut abi::Device,
    pub(super) free_device_list: unsafe extern "C" fn(*mut *mut abi::Device),
    pub(super) query_device: unsafe extern "C" fn(*mut abi::Context, *mut abi::DeviceAttr) -> c_int,
    pub(super) alloc_pd: unsafe extern "C" fn(*mut abi::Context) -> *mut abi::Pd,
    pub(super) dealloc_pd: unsafe extern "C" fn(*mut abi::Pd) -> c_int,
    pub(super) reg_mr_iova2:
        unsafe extern "C" fn(*mut abi::Pd, *mut c_void, usize, u64, c_uint) -> *mut abi::Mr,
    pub(super) dereg_mr: unsafe extern "C" fn(*mut abi::Mr) -> c_int,
    pub(super) create_comp_channel:
        unsafe extern "C" fn(*mut abi::Context) -> *mut abi::CompChannel,
    pub(super) destroy_comp_channel: unsafe extern "C" fn(*mut abi::CompChannel) -> c_int,
    pub(super) create_cq: unsafe extern "C" fn(
        *mut abi::Context,
        c_int,
        *mut c_void,
        *mut abi::CompChannel,
        c_int,
    ) -> *mut abi::Cq,
    pub(super) destroy_cq: unsafe extern "C" fn(*mut abi::Cq) -> c_int,
    pub(super) get_cq_event:
        unsafe extern "C" fn(*mut abi::CompChannel, *mut *mut abi::Cq, *mut *mut c_void) -> c_int,
    pub(super) ack_cq_events: unsafe extern "C" fn(*mut abi::Cq, c_uint),
    pub(super) get_async_event:
        unsafe extern "C" fn(*mut abi::Context, *mut abi::AsyncEvent) -> c_int,
    pub(super) ack_async_event: unsafe extern "C" fn(*mut abi::AsyncEvent),
    /// Since rdma-core 24; absent means that no queue pair has extended operations.
    pub(super) qp_to_qp_ex: Option<unsafe extern "C" fn(*mut abi::Qp) -> *mut abi::QpEx>,

    pub(super) create_event_channel: unsafe extern "C" fn() -> *mut abi::EventChannel,
    pub(super) destroy_event_channel: unsafe extern "C" fn(*mut abi::EventChannel),
    pub(super) create_id: unsafe extern "C" fn(
        *mut abi::EventChannel,
        *mut *mut abi::CmId,
        *mut c_void,
        c_int,
    ) -> c_int,
    pub(super) destroy_id: unsafe extern "C" fn(*mut abi::CmId) -> c_int,
    pub(super) bind_addr: unsafe extern "C" fn(*mut abi::CmId, *mut libc::sockaddr) -> c_int,
    pub(super) listen: unsafe extern "C" fn(*mut abi::CmId, c_int) -> c_int,
    pub(super) resolve_addr: unsafe extern "C" fn(
        *mut abi::CmId,
        *mut libc::sockaddr,
        *mut libc::sockaddr,
        c_int,
    ) -> c_int,
    pub(super) resolve_route: unsafe extern "C" fn(*mut abi::CmId, c_int) -> c_int,
    pub(super) create_qp_ex: unsafe extern "C" fn(*mut abi::CmId, *mut abi::QpInitAttrEx) -> c_int,
    pub(super) destroy_qp: unsafe extern "C" fn(*mut abi::CmId),
    pub(super) connect: unsafe extern "C" fn(*mut abi::CmId, *mut abi::ConnParam) -> c_int,
    pub(super) accept: unsafe extern "C" fn(*mut abi::CmId, *mut abi::ConnParam) -> c_int,
    pub(super) reject: unsafe extern "C" fn(*mut abi::CmId, *const c_void, u8) -> c_int,
    pub(super) disconnect: unsafe extern "C" fn(*mut abi::CmId) -> c_int,
    pub(super) get_cm_event:
        unsafe extern "C" fn(*mut abi::EventChannel, *mut *mut abi::CmEvent) -> c_int,
    pub(super) ack_cm_event: unsafe extern "C" fn(*mut abi::CmEvent) -> c_int,
    pub(super) migrate_id: unsafe extern "C" fn(*mut abi::CmId, *mut abi::EventChannel) -> c_int,
}

/// The libraries, if this machine has them.
pub(super) fn functions() -> Result<&'static Functions, EngineError> {
    static FUNCTIONS: OnceLock<Result<Functions, EngineError>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| open(VERBS_NAME, CM_NAME)).as_ref().map_err(|error| *error)
}

fn open(verbs: &'static str, cm: &'static str) -> Result<Functions, EngineError> {
    let (verbs, cm) = (Opened::open(verbs)?, Opened::open(cm)?);
    Ok(Functions {
        get_device_list: verbs.function(c"ibv_get_device_list")?,
        free_device_list: verbs.function(c"ibv_free_device_list")?,
        query_device: verbs.function(c"ibv_query_device")?,
        alloc_pd: verbs.function(c"ibv_alloc_pd")?,
        dealloc_pd: verbs.function(c"ibv_dealloc_pd")?,
        reg_mr_iova2: verbs.function(c"ibv_reg_mr_iova2")?,
        dereg_mr: verbs.function(c"ibv_dereg_mr")?,
        create_comp_channel: verbs.function(c"ibv_create_comp_channel")?,
        destroy_comp_channel: verbs.function(c"ibv_destroy_comp_channel")?,
        create_cq: verbs.function(c"ibv_create_cq")?,
        destroy_cq: verbs.function(c"ibv_destroy_cq")?,
        get_cq_event: verbs.function(c"ibv_get_cq_event")?,
        ack_cq_events: verbs.function(c"ibv_ack_cq_events")?,
        get_async_event: verbs.function(c"ibv_get_async_event")?,
        ack_async_event: verbs.function(c"ibv_ack_async_event")?,
        qp_to_qp_ex: verbs.function(c"ibv_qp_to_qp_ex").ok(),
        create_event_channel: cm.function(c"rdma_create_event_channel")?,
        destroy_event_channel: cm.function(c"rdma_destroy_event_channel")?,
        create_id: cm.function(c"rdma_create_id")?,
        destroy_id: cm.function(c"rdma_destroy_id")?,
        bind_addr: cm.function(c"rdma_bind_addr")?,
        listen: cm.function(c"rdma_listen")?,
        resolve_addr: cm.function(c"rdma_resolve_addr")?,
        resolve_route: cm.function(c"rdma_resolve_route")?,
        create_qp_ex: cm.function(c"rdma_create_qp_ex")?,
        destroy_qp: cm.function(c"rdma_destroy_qp")?,
        connect: cm.function(c"rdma_connect")?,
        accept: cm.function(c"rdma_accept")?,
        reject: cm.function(c"rdma_reject")?,
        disconnect: cm.function(c"rdma_disconnect")?,
        get_cm_event: cm.function(c"rdma_get_cm_event")?,
        ack_cm_event: cm.function(c"rdma_ack_cm_event")?,
        migrate_id: cm.function(c"rdma_migrate_id")?,
    })
}

/// A library that is never closed.
struct Opened {
    name: &'static str,
    library: std::mem::ManuallyDrop<Library>,
}

impl Opened {
    fn open(name: &'static str) -> Result<Self, EngineError> {
        // SAFETY: what a system library does when it is loaded is trusted like the rest of it.
        let library = unsafe { Library::new(name) };
        let library = library.map_err(|_| EngineError::HostNoLibrary { library: name })?;
        Ok(Self { name, library: std::mem::ManuallyDrop::new(library) })
    }

    // The caller names the type by the field it fills; those fields are typed from the headers.
    fn function<T: Copy>(&self, name: &'static std::ffi::CStr) -> Result<T, EngineError> {
        // SAFETY: the type is that of the function's declaration, see `Functions`.
        let symbol = unsafe { self.library.get::<T>(name.to_bytes_with_nul()) };
        let symbol = symbol.map_err(|_| EngineError::HostOldLibrary { library: self.name })?;
        Ok(*symbol)
    }
}

const VERBS_NAME: &str = "libibverbs.so.1";
const CM_NAME: &str = "librdmacm.so.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_without_the_libraries_says_what_to_install() {
        let error = open("libibverbs-that-nobody-has.so.1", CM_NAME).err().unwrap();
        assert_eq!(
            error.to_string(),
            "libibverbs-that-nobody-has.so.1 is not installed: \
             apt-get install libibverbs1 librdmacm1 verbs-providers"
        );
    }

    #[test]
    fn a_library_that_lacks_a_function_is_called_too_old() {
        let library = Opened::open("libc.so.6").unwrap();
        let absent = library.function::<unsafe extern "C" fn()>(c"ibv_reg_mr_iova2");
        assert_eq!(absent, Err(EngineError::HostOldLibrary { library: "libc.so.6" }));
    }
}
