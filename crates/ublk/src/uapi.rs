//! What the driver and its server tell each other, byte for byte.
//!
//! ```text
//!  control command   0 device 4 | queue 2 | length 2 | address 8 | data 8 | path 2, 0 2, 0 4          (32)
//!  device            0 queues 2 | depth 2 | state 2 | 0 2 | largest 4 | number 4 | pid 4 | 0 4 |
//!                   24 flags 8 | the server's own 8 | uid 4 | gid 4 | 0 16                            (64)
//!  parameters        0 length 4 | kinds 4 | attributes 4 | shifts 1 1 1 1 | most sectors 4 | 0 4 |
//!                   24 sectors 8 | 0 8 | discards: 0 4 | unit 4 | most 4 | most zeroes 4 | parts 2, 0 2 (60)
//!  request           0 operation and flags 4 | sectors 4 | first sector 8 | address 8                  (24)
//!  answer            0 queue 2 | tag 2 | result 4 | address 8                                          (16)
//! ```
//! All in the processor's byte order.
//!
//! Spec: Linux `include/uapi/linux/ublk_cmd.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A command to `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct ControlCommand {
    pub(crate) device: u32,
    pub(crate) queue: u16,
    pub(crate) len: u16,
    pub(crate) address: u64,
    pub(crate) data: u64,
    pub(crate) path_len: u16,
    pub(crate) padding: u16,
    pub(crate) reserved: u32,
}
const _: () = assert!(size_of::<ControlCommand>() == 32);

/// What a device is.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: u16,
    pub(crate) padding: u16,
    pub(crate) largest: u32,
    pub(crate) number: u32,
    pub(crate) pid: u32,
    pub(crate) padding_2: u32,
    pub(crate) flags: u64,
    /// The driver keeps it for its server, and does not look at it.
    pub(crate) own: u64,
    pub(crate) owner_uid: u32,
    pub(crate) owner_gid: u32,
    pub(crate) reserved: [u64; 2],
}
const _: () = assert!(size_of::<DeviceInfo>() == 64);

/// What the disk is like.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Parameters {
    pub(crate) len: u32,
    pub(crate) kinds: u32,
    pub(crate) attributes: u32,
    pub(crate) logical_shift: u8,
    pub(crate) physical_shift: u8,
    pub(crate) optimal_shift: u8,
    pub(crate) least_shift: u8,
    pub(crate) sectors_max: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) sectors: u64,
    pub(crate) virtual_boundary: u64,
    pub(crate) discard_alignment: u32,
    pub(crate) discard_granularity: u32,
    pub(crate) discard_max: u32,
    pub(crate) zeroes_max: u32,
    pub(crate) discard_segments: u16,
    pub(crate) reserved: u16,
    /// Of the structures that follow, none is used; the last word keeps this one free of holes.
    pub(crate) tail: u32,
}
const _: () = assert!(size_of::<Parameters>() == 64);
/// Bytes of [`Parameters`] that the driver is told.
pub(crate) const PARAMETERS_LEN: u32 = 60;

/// A request, as the driver describes it in shared memory.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Request {
    pub(crate) operation: u32,
    pub(crate) sectors: u32,
    pub(crate) start: u64,
    pub(crate) address: u64,
}
const _: () = assert!(size_of::<Request>() == 24);

/// What a queue tells the driver of one of its tags.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct Answer {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    pub(crate) result: i32,
    pub(crate) address: u64,
}
const _: () = assert!(size_of::<Answer>() == 16);

impl Answer {
    pub(crate) fn new(queue: u16, tag: u16, result: i32) -> Self {
        Self { queue, tag, result, address: 0 }
    }
}

/// Where the bytes of a request lie in `/dev/ublkcN`.
pub(crate) fn offset_of_bytes(queue: u16, tag: u16) -> u64 {
    BYTES_START + (u64::from(queue) << 41) + (u64::from(tag) << 25)
}

/// Where the descriptions of a queue's requests lie in `/dev/ublkcN`.
pub(crate) fn offset_of_requests(queue: u16) -> u64 {
    u64::from(queue) * (DEPTH_MAX * size_of::<Request>() as u64)
}

const fn command(direction: u32, number: u32, len: u32) -> u32 {
    direction << 30 | len << 16 | (b'u' as u32) << 8 | number
}
const READ: u32 = 2;
const BOTH: u32 = 3;

pub(crate) const GET_DEVICE: u32 = command(READ, 0x02, 32);
pub(crate) const ADD_DEVICE: u32 = command(BOTH, 0x04, 32);
pub(crate) const DELETE_DEVICE: u32 = command(BOTH, 0x05, 32);
pub(crate) const START_DEVICE: u32 = command(BOTH, 0x06, 32);
pub(crate) const STOP_DEVICE: u32 = command(BOTH, 0x07, 32);
pub(crate) const SET_PARAMETERS: u32 = command(BOTH, 0x08, 32);
pub(crate) const GET_PARAMETERS: u32 = command(READ, 0x09, 32);
pub(crate) const START_RECOVERY: u32 = command(BOTH, 0x10, 32);
pub(crate) const END_RECOVERY: u32 = command(BOTH, 0x11, 32);
pub(crate) const DELETE_LATER: u32 = command(READ, 0x14, 32);
pub(crate) const FETCH: u32 = command(BOTH, 0x20, 16);
pub(crate) const ANSWER_AND_FETCH: u32 = command(BOTH, 0x21, 16);

/// The commands above, in their numbers of ioctls.
const FLAG_IOCTL: u64 = 1 << 6;
/// Bytes are copied by `pread` and `pwrite`: no memory of ours is the driver's.
const FLAG_USER_COPY: u64 = 1 << 7;
/// The device stays when its server dies, and requests under way are given to the next one.
const FLAG_RECOVERY: u64 = 1 << 3 | 1 << 4;
pub(crate) const FLAGS: u64 = FLAG_IOCTL | FLAG_USER_COPY | FLAG_RECOVERY;

pub(crate) const STATE_DEAD: u16 = 0;
pub(crate) const STATE_LIVE: u16 = 1;
pub(crate) const STATE_QUIESCED: u16 = 2;

pub(crate) const KIND_BASIC: u32 = 1;
pub(crate) const KIND_DISCARD: u32 = 2;
pub(crate) const ATTRIBUTE_READ_ONLY: u32 = 1;
pub(crate) const ATTRIBUTE_CACHE: u32 = 4;
pub(crate) const ATTRIBUTE_FUA: u32 = 8;

pub(crate) const OPERATION_READ: u32 = 0;
pub(crate) const OPERATION_WRITE: u32 = 1;
pub(crate) const OPERATION_FLUSH: u32 = 2;
pub(crate) const OPERATION_DISCARD: u32 = 3;
pub(crate) const OPERATION_ZEROES: u32 = 5;
pub(crate) const REQUEST_FUA: u32 = 1 << 13;
pub(crate) const REQUEST_KEEP: u32 = 1 << 15;

const BYTES_START: u64 = 0x8000_0000;
const DEPTH_MAX: u64 = 4096;
