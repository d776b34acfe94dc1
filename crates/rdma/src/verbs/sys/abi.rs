//! The structures that are shared with libibverbs and librdmacm, field by field.
//!
//! Part of what a program does with an adapter is inline code in the C headers: it follows
//! pointers through these structures and calls what it finds there. Their layout is therefore the
//! libraries' public ABI; it has only ever grown at the end (`VerbsContext` grows at the front).
//! Fields that this program does not use keep the offsets of the others.
//!
//! Spec: verbs(7), ibv_post_send(3), ibv_wr_post(3), rdma_cm(7) of rdma-core 56; offsets below
//! measured with its headers on x86-64.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A device as libibverbs knows it.
#[repr(C)]
pub(super) struct Device {
    obsolete: [usize; 2],
    pub(super) node_type: c_int,
    pub(super) transport_type: c_int,
    pub(super) name: [c_char; 64],
    dev_name: [c_char; 64],
    dev_path: [c_char; 256],
    ibdev_path: [c_char; 256],
}

/// Functions of a device's driver; what has no name is called through the library instead.
#[repr(C)]
pub(super) struct ContextOps {
    other: [usize; 11],
    pub(super) poll_cq: Option<PollCq>,
    pub(super) req_notify_cq: Option<ReqNotifyCq>,
    more: [usize; 12],
    pub(super) post_send: Option<PostSend>,
    pub(super) post_recv: Option<PostRecv>,
    rest: [usize; 5],
}

pub(super) type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int;
pub(super) type ReqNotifyCq = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub(super) type PostSend =
    unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int;
pub(super) type PostRecv =
    unsafe extern "C" fn(*mut Qp, *mut RecvRequest, *mut *mut RecvRequest) -> c_int;

/// An opened device.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    pub(super) ops: ContextOps,
    cmd_fd: c_int,
    pub(super) async_fd: c_int,
    num_comp_vectors: c_int,
    mutex: libc::pthread_mutex_t,
    /// All ones: this is the last field of a [`VerbsContext`].
    pub(super) abi_compat: usize,
}

/// What lies in front of a [`Context`] of today's library.
#[repr(C)]
pub(super) struct VerbsContext {
    newer: [usize; 27],
    pub(super) query_device_ex: Option<QueryDeviceEx>,
    older: [usize; 11],
    /// Bytes of this structure that the library has filled, counted from its end.
    pub(super) size: usize,
    pub(super) context: Context,
}

pub(super) type QueryDeviceEx =
    unsafe extern "C" fn(*mut Context, *const u32, *mut DeviceAttrEx, usize) -> c_int;

/// What a device can do.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct DeviceAttr {
    fw_ver: [u8; 64],
    guids: [u64; 2],
    max_mr_size: u64,
    page_size_cap: u64,
    vendor: [u32; 3],
    max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    device_cap_flags: c_uint,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub(super) max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    rest: [c_int; 16],
    ends: [u8; 8],
}

/// What a device can do, with the extended attributes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct DeviceAttrEx {
    pub(super) plain: DeviceAttr,
    comp_mask: u32,
    pub(super) odp_general: u64,
    /// On-demand paging of reliable connections, unreliable ones, datagrams.
    pub(super) odp_transports: [u32; 3],
    completion_timestamp_mask: u64,
    hca_core_clock: u64,
    pub(super) device_cap_flags_ex: u64,
    rest: [u64; 14],
}

/// A protection domain.
#[repr(C)]
pub(super) struct Pd {
    context: *mut Context,
    handle: u32,
}

/// Registered memory.
#[repr(C)]
pub(super) struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// A channel on which completion queues announce themselves.
#[repr(C)]
pub(super) struct CompChannel {
    context: *mut Context,
    pub(super) fd: c_int,
    refcnt: c_int,
}

/// A completion queue. There is more behind it that only the library touches.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
    channel: *mut CompChannel,
    pub(super) cq_context: *mut c_void,
}

/// A queue pair.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    qp_context: *mut c_void,
    pd: *mut Pd,
    send_cq: *mut Cq,
    recv_cq: *mut Cq,
    srq: *mut c_void,
    handle: u32,
    pub(super) qp_num: u32,
    state: c_int,
    qp_type: c_int,
    mutex: libc::pthread_mutex_t,
    cond: libc::pthread_cond_t,
    events_completed: u32,
}

/// A queue pair made with extended operations.
#[repr(C)]
pub(super) struct QpEx {
    base: Qp,
    comp_mask: u64,
    pub(super) wr_id: u64,
    pub(super) wr_flags: c_uint,
    others: [usize; 17],
    pub(super) wr_start: Option<unsafe extern "C" fn(*mut Self)>,
    pub(super) wr_complete: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
    pub(super) wr_abort: Option<unsafe extern "C" fn(*mut Self)>,
    pub(super) wr_atomic_write: Option<WrAtomicWrite>,
    pub(super) wr_flush: Option<WrFlush>,
}

pub(super) type WrAtomicWrite = unsafe extern "C" fn(*mut QpEx, u32, u64, *const c_void);
pub(super) type WrFlush = unsafe extern "C" fn(*mut QpEx, u32, u64, usize, u8, u8);

/// Depths of a queue pair.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// How to make a queue pair.
#[repr(C)]
pub(super) struct QpInitAttrEx {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
    pub(super) comp_mask: u32,
    pub(super) pd: *mut Pd,
    pub(super) xrcd: *mut c_void,
    pub(super) create_flags: u32,
    pub(super) max_tso_header: u16,
    pub(super) rwq_ind_tbl: *mut c_void,
    pub(super) rx_hash: [u64; 3],
    pub(super) source_qpn: u32,
    pub(super) send_ops_flags: u64,
}

/// A piece of registered memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// A work request for the send queue. Of the unions only what RDMA Write and Read use has names.
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: c_uint,
    pub(super) invalidate_rkey: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) others: [u64; 9],
}

/// A work request for the receive queue.
#[repr(C)]
pub(super) struct RecvRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// The end of a work request. On failure only `wr_id`, `status`, `vendor_err` and `qp_num` count.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct WorkCompletion {
    pub(super) wr_id: u64,
    pub(super) status: c_int,
    pub(super) opcode: c_int,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    pub(super) invalidated_rkey: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

/// A channel on which connections announce what happens to them.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// A connection, a listener, or one that will be.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    channel: *mut EventChannel,
    context: *mut c_void,
    pub(super) qp: *mut Qp,
    pub(super) src_addr: libc::sockaddr_storage,
    pub(super) dst_addr: libc::sockaddr_storage,
    ib_addr: [u64; 5],
    path_rec: *mut c_void,
    num_paths: u64,
    ps: c_int,
    pub(super) port_num: u8,
    event: *mut c_void,
    queues: [usize; 6],
    qp_type: c_int,
}

/// What the two ends tell each other when they connect.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// An event of a connection. `conn` is the first member of a union.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) conn: ConnParam,
    others: [u64; 4],
}

/// An asynchronous event of a device.
#[repr(C)]
pub(super) struct AsyncEvent {
    pub(super) element: EventElement,
    pub(super) event_type: c_int,
}

/// The object of the event; the type of the event says which field holds it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union EventElement {
    pub(super) cq: *mut Cq,
    pub(super) qp: *mut Qp,
    pub(super) port_num: c_int,
}

/// Transport types of a [`Device`].
pub(super) const TRANSPORT_IWARP: c_int = 1;
/// Port space of reliable connections.
pub(super) const PS_TCP: c_int = 0x0106;
pub(super) const QPT_RC: c_int = 2;
pub(super) const INIT_ATTR_PD: u32 = 1;
pub(super) const INIT_ATTR_SEND_OPS: u32 = 1 << 6;

// Extended operations a queue pair is made for (ibv_create_qp_ex(3)).
pub(super) const WITH_WRITE: u64 = 1;
pub(super) const WITH_SEND: u64 = 1 << 2;
pub(super) const WITH_READ: u64 = 1 << 4;
pub(super) const WITH_SEND_INVALIDATE: u64 = 1 << 9;
pub(super) const WITH_FLUSH: u64 = 1 << 11;
pub(super) const WITH_ATOMIC_WRITE: u64 = 1 << 12;

// Opcodes of work requests (ibv_post_send(3)).
pub(super) const WR_WRITE: c_int = 0;
pub(super) const WR_SEND: c_int = 2;
pub(super) const WR_READ: c_int = 4;
pub(super) const WR_SEND_INVALIDATE: c_int = 9;

pub(super) const SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const SEND_SOLICITED: c_uint = 1 << 2;

pub(super) const FLUSH_GLOBAL: u8 = 1;
pub(super) const FLUSH_PERSISTENT: u8 = 2;
pub(super) const FLUSH_RANGE: u8 = 0;

// Access to registered memory (ibv_reg_mr(3)).
pub(super) const ACCESS_LOCAL_WRITE: u32 = 1;
pub(super) const ACCESS_REMOTE_WRITE: u32 = 1 << 1;
pub(super) const ACCESS_REMOTE_READ: u32 = 1 << 2;
pub(super) const ACCESS_ON_DEMAND: u32 = 1 << 6;
pub(super) const ACCESS_FLUSH_GLOBAL: u32 = 1 << 8;
pub(super) const ACCESS_FLUSH_PERSISTENT: u32 = 1 << 9;

// Bits of `device_cap_flags_ex`, as the kernel numbers them (ib_user_verbs.h).
pub(super) const CAP_FLUSH_GLOBAL: u64 = 1 << 38;
pub(super) const CAP_FLUSH_PERSISTENT: u64 = 1 << 39;
pub(super) const CAP_ATOMIC_WRITE: u64 = 1 << 40;

pub(super) const ODP_SUPPORT: u64 = 1;
/// Receive, write and read on reliable connections.
pub(super) const ODP_WRITE_AND_READ: u32 = 1 << 2 | 1 << 3;

pub(super) const WC_FLAG_INVALIDATED: c_uint = 1 << 3;

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    // Printed by a C program that was compiled with the headers of rdma-core 56 (Debian 13) and
    // of rdma-core 44 (Debian 12); they agree.
    #[test]
    fn the_layouts_are_those_of_the_c_headers() {
        assert_eq!((size_of::<Device>(), offset_of!(Device, name)), (664, 24));
        assert_eq!((offset_of!(Device, node_type), offset_of!(Device, transport_type)), (16, 20));
        assert_eq!(size_of::<ContextOps>(), 256);
        assert_eq!(offset_of!(ContextOps, poll_cq), 88);
        assert_eq!(offset_of!(ContextOps, req_notify_cq), 96);
        assert_eq!(offset_of!(ContextOps, post_send), 200);
        assert_eq!(offset_of!(ContextOps, post_recv), 208);
        assert_eq!((size_of::<Context>(), offset_of!(Context, abi_compat)), (328, 320));
        assert_eq!(offset_of!(Context, async_fd), 268);
        assert_eq!((size_of::<AsyncEvent>(), offset_of!(AsyncEvent, event_type)), (16, 8));
        assert_eq!(size_of::<VerbsContext>(), 648);
        assert_eq!(offset_of!(VerbsContext, query_device_ex), 216);
        assert_eq!(offset_of!(VerbsContext, size), 312);
        assert_eq!(offset_of!(VerbsContext, context), 320);
        assert_eq!(size_of::<DeviceAttr>(), 232);
        assert_eq!(offset_of!(DeviceAttr, max_qp_wr), 112);
        assert_eq!(offset_of!(DeviceAttr, max_cqe), 132);
        assert_eq!(offset_of!(DeviceAttr, max_qp_rd_atom), 144);
        assert_eq!(offset_of!(DeviceAttr, max_qp_init_rd_atom), 156);
        assert_eq!(size_of::<DeviceAttrEx>(), 400);
        assert_eq!(offset_of!(DeviceAttrEx, odp_general), 240);
        assert_eq!(offset_of!(DeviceAttrEx, device_cap_flags_ex), 280);
    }

    #[test]
    fn the_layouts_of_queues_and_requests_are_those_of_the_c_headers() {
        assert_eq!(size_of::<Pd>(), 16);
        assert_eq!((size_of::<Mr>(), offset_of!(Mr, lkey), offset_of!(Mr, rkey)), (48, 36, 40));
        assert_eq!((size_of::<CompChannel>(), offset_of!(CompChannel, fd)), (16, 8));
        assert_eq!((size_of::<Qp>(), offset_of!(Qp, qp_num), offset_of!(Qp, state)), (160, 52, 56));
        assert_eq!(size_of::<QpEx>(), 360);
        assert_eq!((offset_of!(QpEx, wr_id), offset_of!(QpEx, wr_flags)), (168, 176));
        assert_eq!((offset_of!(QpEx, wr_start), offset_of!(QpEx, wr_complete)), (320, 328));
        assert_eq!((offset_of!(QpEx, wr_atomic_write), offset_of!(QpEx, wr_flush)), (344, 352));
        assert_eq!(size_of::<QpInitAttrEx>(), 136);
        assert_eq!(offset_of!(QpInitAttrEx, cap), 32);
        assert_eq!(offset_of!(QpInitAttrEx, qp_type), 52);
        assert_eq!(offset_of!(QpInitAttrEx, comp_mask), 60);
        assert_eq!(offset_of!(QpInitAttrEx, pd), 64);
        assert_eq!(offset_of!(QpInitAttrEx, send_ops_flags), 128);
        assert_eq!((size_of::<Sge>(), size_of::<RecvRequest>()), (16, 32));
        assert_eq!(size_of::<SendRequest>(), 128);
        assert_eq!(offset_of!(SendRequest, opcode), 28);
        assert_eq!(offset_of!(SendRequest, send_flags), 32);
        assert_eq!(offset_of!(SendRequest, invalidate_rkey), 36);
        assert_eq!(offset_of!(SendRequest, remote_addr), 40);
        assert_eq!(size_of::<WorkCompletion>(), 48);
        assert_eq!(offset_of!(WorkCompletion, byte_len), 20);
        assert_eq!(offset_of!(WorkCompletion, qp_num), 28);
        assert_eq!(offset_of!(WorkCompletion, wc_flags), 36);
    }

    #[test]
    fn the_layouts_of_connections_are_those_of_the_c_headers() {
        assert_eq!(size_of::<EventChannel>(), 4);
        assert_eq!(size_of::<CmId>(), 416);
        assert_eq!((offset_of!(CmId, verbs), offset_of!(CmId, qp)), (0, 24));
        assert_eq!((offset_of!(CmId, src_addr), offset_of!(CmId, dst_addr)), (32, 160));
        assert_eq!((offset_of!(CmId, port_num), offset_of!(CmId, qp_type)), (348, 408));
        assert_eq!(size_of::<ConnParam>(), 24);
        assert_eq!(offset_of!(ConnParam, initiator_depth), 10);
        assert_eq!(offset_of!(ConnParam, rnr_retry_count), 13);
        assert_eq!(offset_of!(ConnParam, qp_num), 16);
        assert_eq!((size_of::<CmEvent>(), offset_of!(CmEvent, conn)), (80, 24));
        assert_eq!((offset_of!(CmEvent, event), offset_of!(CmEvent, status)), (16, 20));
    }
}
