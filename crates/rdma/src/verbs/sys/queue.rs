//! Completion queues and queue pairs.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::cm::{CmId, loaded};
use super::device::{Device, Domain, Features};
use super::{abi, checked, direct, last_error};
use crate::interface::EngineError;

/// The channel on which completion queues announce completions. Calls on it do not block.
#[derive(Debug)]
pub(in crate::verbs) struct Announcements {
    raw: NonNull<abi::CompChannel>,
}

// SAFETY: used from any thread.
unsafe impl Send for Announcements {}
// SAFETY: only reading its descriptor takes `&self`.
unsafe impl Sync for Announcements {}

impl Announcements {
    pub(in crate::verbs) fn open(device: Device) -> Result<Self, EngineError> {
        // SAFETY: the context is open.
        let raw = unsafe { (loaded().create_comp_channel)(device.context()) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_create_comp_channel"))?;
        let channel = Self { raw };
        let set = rustix::fs::fcntl_setfl(&channel, rustix::fs::OFlags::NONBLOCK);
        set.map_err(crate::common::poller::host_io("fcntl"))?;
        Ok(channel)
    }

    /// Takes one announcement: the name of a queue that has to be armed again.
    pub(in crate::verbs) fn take(&self) -> Option<u64> {
        let (mut queue, mut name) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel is open; the library writes both pointers on success.
        let outcome =
            unsafe { (loaded().get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut name) };
        if outcome != 0 {
            return None;
        }
        // SAFETY: the library names a queue that exists; destroying the queue waits for this
        // acknowledgement.
        unsafe { (loaded().ack_cq_events)(queue, 1) };
        u64::try_from(name.addr()).ok()
    }
}

impl AsFd for Announcements {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: valid as long as the channel is.
        let fd = unsafe { self.raw.as_ref() }.fd;
        // SAFETY: open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        // SAFETY: every queue on it held it alive, so there is none left.
        let _ = unsafe { (loaded().destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// A completion queue.
#[derive(Debug)]
struct Completions {
    raw: NonNull<abi::Cq>,
    poll: abi::PollCq,
    arm: abi::ReqNotifyCq,
    _announcements: Arc<Announcements>,
}

impl Completions {
    fn new(
        device: Device,
        announcements: &Arc<Announcements>,
        entries: u32,
        name: u64,
    ) -> Result<Self, EngineError> {
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        let context = device.context();
        let name = std::ptr::without_provenance_mut::<c_void>(
            usize::try_from(name).expect("names are places in a table"),
        );
        let channel = announcements.raw.as_ptr();
        // SAFETY: context and channel are open; the name is never followed as a pointer.
        let raw = unsafe { (loaded().create_cq)(context, entries, name, channel, 0) };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_create_cq"))?;
        // SAFETY: a queue that exists has an open context.
        let ops = unsafe { &(*context).ops };
        let (poll, arm) = ops.poll_cq.zip(ops.req_notify_cq).expect("every driver has both");
        Ok(Self { raw, poll, arm, _announcements: Arc::clone(announcements) })
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: its queue pair is gone (QueuePair's order of fields), announcements were
        // acknowledged.
        let _ = unsafe { (loaded().destroy_cq)(self.raw.as_ptr()) };
    }
}

/// One end of a connection, to which requests can be posted. Dropped in this order: queue pair and
/// identifier, completion queue, domain.
#[derive(Debug)]
pub(in crate::verbs) struct QueuePair {
    id: CmId,
    qp: NonNull<abi::Qp>,
    extended: Option<Extended>,
    post_send: abi::PostSend,
    post_recv: abi::PostRecv,
    completions: Completions,
    domain: Arc<Domain>,
}

// SAFETY: owned by one thread at a time; the libraries take calls from any.
unsafe impl Send for QueuePair {}

/// What a queue pair with extended operations has.
#[derive(Clone, Copy, Debug)]
struct Extended {
    qp: NonNull<abi::QpEx>,
    start: unsafe extern "C" fn(*mut abi::QpEx),
    complete: unsafe extern "C" fn(*mut abi::QpEx) -> i32,
    flush: Option<abi::WrFlush>,
    atomic_write: Option<abi::WrAtomicWrite>,
}

/// The depths and the purpose of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Shape {
    pub(in crate::verbs) send_depth: u32,
    pub(in crate::verbs) recv_depth: u32,
    /// The name under which its completion queue is announced.
    pub(in crate::verbs) name: u64,
}

/// A piece of memory under a local key. The device checks it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) struct Piece {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) len: u32,
    pub(in crate::verbs) lkey: u32,
}

/// A piece of the peer's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) struct Remote {
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) rkey: u32,
}

/// One operation of a work request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) enum Work {
    Send { piece: Piece, invalidate: Option<u32>, solicited: bool },
    Write { piece: Piece, remote: Remote },
    Read { piece: Piece, remote: Remote },
    Flush { remote: Remote, len: u32, persistent: bool },
    AtomicWrite { remote: Remote, value: u64 },
}

/// The end of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) struct Ended {
    pub(in crate::verbs) id: u64,
    /// 0, or the reason of a failure (ibv_wc_status).
    pub(in crate::verbs) status: i32,
    pub(in crate::verbs) len: u32,
    pub(in crate::verbs) invalidated: Option<u32>,
}

impl QueuePair {
    /// Makes a queue pair for a bound identifier.
    pub(in crate::verbs) fn new(
        id: CmId,
        features: &Features,
        announcements: &Arc<Announcements>,
        shape: Shape,
    ) -> Result<Self, EngineError> {
        let device = id.device().ok_or(EngineError::HostNoDevice)?;
        let domain = Arc::new(Domain::new(device)?);
        let entries = shape.send_depth + shape.recv_depth;
        let completions = Completions::new(device, announcements, entries, shape.name)?;
        let mut operations = 0;
        if features.flush || features.atomic_write {
            operations =
                abi::WITH_WRITE | abi::WITH_SEND | abi::WITH_READ | abi::WITH_SEND_INVALIDATE;
            operations |= if features.flush { abi::WITH_FLUSH } else { 0 };
            operations |= if features.atomic_write { abi::WITH_ATOMIC_WRITE } else { 0 };
        }
        let comp_mask = match operations {
            // siw refuses queue pairs that name any extended operation, even RDMA Write.
            0 => abi::INIT_ATTR_PD,
            _ => abi::INIT_ATTR_PD | abi::INIT_ATTR_SEND_OPS,
        };
        let queue = completions.raw.as_ptr();
        let mut attributes = abi::QpInitAttrEx {
            qp_context: std::ptr::null_mut(),
            send_cq: queue,
            recv_cq: queue,
            srq: std::ptr::null_mut(),
            cap: abi::QpCap {
                max_send_wr: shape.send_depth,
                max_recv_wr: shape.recv_depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: abi::QPT_RC,
            sq_sig_all: 0,
            comp_mask,
            pd: domain.raw(),
            xrcd: std::ptr::null_mut(),
            create_flags: 0,
            max_tso_header: 0,
            rwq_ind_tbl: std::ptr::null_mut(),
            rx_hash: [0; 3],
            source_qpn: 0,
            send_ops_flags: operations,
        };
        // SAFETY: the identifier is bound and has no queue pair; domain and queue are of the same
        // device and outlive it (order of fields).
        let outcome = unsafe { (loaded().create_qp_ex)(id.raw(), &raw mut attributes) };
        checked("rdma_create_qp_ex", outcome)?;
        // SAFETY: the identifier is valid and has a queue pair now.
        let qp = unsafe { (*id.raw()).qp };
        let qp = NonNull::new(qp).ok_or_else(|| last_error("rdma_create_qp_ex"))?;
        let extended = if operations == 0 { None } else { Extended::of(qp) };
        // SAFETY: the context of a device is open.
        let ops = unsafe { &(*device.context()).ops };
        let (post_send, post_recv) =
            ops.post_send.zip(ops.post_recv).expect("every driver has both");
        Ok(Self { id, qp, extended, post_send, post_recv, completions, domain })
    }

    pub(in crate::verbs) fn id(&self) -> &CmId {
        &self.id
    }

    /// The number by which its device knows it.
    pub(in crate::verbs) fn number(&self) -> u32 {
        // SAFETY: the queue pair is ours, so its structure is valid; the number never changes.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    /// Tells this completion queue from others in [`super::news::News`].
    pub(in crate::verbs) fn completions_name(&self) -> usize {
        self.completions.raw.addr().get()
    }

    pub(in crate::verbs) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Posts a request. The queue has room for as many as it was made for.
    pub(in crate::verbs) fn post_send(
        &mut self,
        id: u64,
        signaled: bool,
        work: Work,
    ) -> Result<(), EngineError> {
        match work {
            Work::Flush { remote: Remote { address, rkey }, len, persistent } => {
                let call = self.extended.and_then(|extended| extended.flush);
                let call = call.ok_or(UNSUPPORTED)?;
                let len = usize::try_from(len).expect("at least 32 bits");
                let kind = if persistent { abi::FLUSH_PERSISTENT } else { abi::FLUSH_GLOBAL };
                self.post_extended(id, signaled, |qp| {
                    // SAFETY: between start and complete; the peer's device checks the range.
                    unsafe { call(qp, rkey, address, len, kind, abi::FLUSH_RANGE) }
                })
            }
            Work::AtomicWrite { remote: Remote { address, rkey }, value } => {
                let call = self.extended.and_then(|extended| extended.atomic_write);
                let call = call.ok_or(UNSUPPORTED)?;
                let value = &raw const value;
                self.post_extended(id, signaled, |qp| {
                    // SAFETY: between start and complete; eight bytes are read during the call.
                    unsafe { call(qp, rkey, address, value.cast()) }
                })
            }
            Work::Send { piece, invalidate, solicited } => {
                let opcode =
                    if invalidate.is_some() { abi::WR_SEND_INVALIDATE } else { abi::WR_SEND };
                let flags = if solicited { abi::SEND_SOLICITED } else { 0 };
                let nowhere = Remote { address: 0, rkey: 0 };
                let mut request = request(id, signaled, opcode, nowhere);
                request.send_flags |= flags;
                request.invalidate_rkey = invalidate.unwrap_or(0);
                self.post_plain(request, piece)
            }
            Work::Write { piece, remote } => {
                self.post_plain(request(id, signaled, abi::WR_WRITE, remote), piece)
            }
            Work::Read { piece, remote } => {
                self.post_plain(request(id, signaled, abi::WR_READ, remote), piece)
            }
        }
    }

    fn post_plain(
        &mut self,
        mut request: abi::SendRequest,
        piece: Piece,
    ) -> Result<(), EngineError> {
        let mut sge = sge(piece);
        request.sg_list = &raw mut sge;
        request.num_sge = i32::from(piece.len > 0);
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is ours; request and list are read during the call only.
        let outcome = unsafe { (self.post_send)(self.qp.as_ptr(), &raw mut request, &raw mut bad) };
        direct("ibv_post_send", outcome)
    }

    fn post_extended(
        &self,
        id: u64,
        signaled: bool,
        fill: impl FnOnce(*mut abi::QpEx),
    ) -> Result<(), EngineError> {
        let extended = self.extended.ok_or(UNSUPPORTED)?;
        let qp = extended.qp.as_ptr();
        // SAFETY: the queue pair is ours; nobody else is between start and complete.
        unsafe { (extended.start)(qp) };
        // SAFETY: a queue pair with extended operations has these two fields for us to set.
        unsafe { (*qp).wr_id = id };
        // SAFETY: as above.
        unsafe { (*qp).wr_flags = if signaled { abi::SEND_SIGNALED } else { 0 } };
        fill(qp);
        // SAFETY: after start.
        let outcome = unsafe { (extended.complete)(qp) };
        direct("ibv_wr_complete", outcome)
    }

    /// Posts a buffer for a message.
    pub(in crate::verbs) fn post_recv(&mut self, id: u64, piece: Piece) -> Result<(), EngineError> {
        let mut sge = sge(piece);
        let next = std::ptr::null_mut();
        let num_sge = i32::from(piece.len > 0);
        let mut request = abi::RecvRequest { wr_id: id, next, sg_list: &raw mut sge, num_sge };
        let mut bad = std::ptr::null_mut();
        // SAFETY: as in post_plain().
        let outcome = unsafe { (self.post_recv)(self.qp.as_ptr(), &raw mut request, &raw mut bad) };
        direct("ibv_post_recv", outcome)
    }

    /// Takes up to [`BATCH`] completions and returns how many it put into `ended`.
    pub(in crate::verbs) fn poll(&mut self, ended: &mut Vec<Ended>) -> usize {
        let mut found = [MaybeUninit::<abi::WorkCompletion>::zeroed(); BATCH];
        let most = i32::try_from(BATCH).expect("few");
        let first = found.as_mut_ptr().cast::<abi::WorkCompletion>();
        let queue = self.completions.raw.as_ptr();
        // SAFETY: the queue is ours, and there is room for so many.
        let count = unsafe { (self.completions.poll)(queue, most, first) };
        let count = usize::try_from(count).unwrap_or(0).min(BATCH);
        ended.extend(found.iter().take(count).map(|one| {
            // SAFETY: filled by the driver; integers that were zero before.
            let one = unsafe { one.assume_init_ref() };
            let invalidated = one.wc_flags & abi::WC_FLAG_INVALIDATED != 0 && one.status == 0;
            Ended {
                id: one.wr_id,
                status: one.status,
                len: one.byte_len,
                invalidated: invalidated.then_some(one.invalidated_rkey),
            }
        }));
        count
    }

    /// Announces the next completion that comes.
    pub(in crate::verbs) fn arm(&mut self) -> Result<(), EngineError> {
        let queue = self.completions.raw.as_ptr();
        // SAFETY: the queue is ours.
        direct("ibv_req_notify_cq", unsafe { (self.completions.arm)(queue, 0) })
    }
}

impl Extended {
    fn of(qp: NonNull<abi::Qp>) -> Option<Self> {
        let convert = loaded().qp_to_qp_ex?;
        // SAFETY: the queue pair exists; null unless it was made with extended operations.
        let raw = NonNull::new(unsafe { convert(qp.as_ptr()) })?;
        // SAFETY: as the library says, it has extended operations.
        let inner = unsafe { raw.as_ref() };
        Some(Self {
            qp: raw,
            start: inner.wr_start?,
            complete: inner.wr_complete?,
            flush: inner.wr_flush,
            atomic_write: inner.wr_atomic_write,
        })
    }
}

fn request(id: u64, signaled: bool, opcode: i32, remote: Remote) -> abi::SendRequest {
    abi::SendRequest {
        wr_id: id,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode,
        send_flags: if signaled { abi::SEND_SIGNALED } else { 0 },
        invalidate_rkey: 0,
        remote_addr: remote.address,
        rkey: remote.rkey,
        others: [0; 9],
    }
}

fn sge(Piece { address, len, lkey }: Piece) -> abi::Sge {
    abi::Sge { addr: address, length: len, lkey }
}

/// The error of a queue pair without extended operations; callers check capabilities first.
const UNSUPPORTED: EngineError =
    EngineError::HostIo { call: "ibv_wr_start", errno: libc::EOPNOTSUPP };

/// Completions taken in one call.
pub(in crate::verbs) const BATCH: usize = 16;
