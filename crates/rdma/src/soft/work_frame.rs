//! Frames work requests.

use std::sync::Arc;

use iwarp::ddp::{TaggedRepr, UntaggedRepr};
use iwarp::rdmap::{
    AtomicOperation, AtomicRequestRepr, AtomicWriteRequestRepr, FlushRequestRepr, PlacementFlags,
    ReadRequestRepr, VerifyRequestRepr,
};
use iwarp::stream::SendKind;
use iwarp::{FrameError, Framed, Stag, Stream};
use pmem::MediumError;

use super::batch::{After, FETCH_MAX, Work as WorkerJob};
use super::byte_queue::ByteQueue;
use super::fault::Fault;
use super::regions::{AccessError, Regions};
use super::requester::Entry;
use super::scope::Scope;
use super::serial::Serial;
use crate::interface::{
    Access, Lkey, LocalSlice, Operation, Payload, Placement, PostError, QpId, WcStatus,
};

/// A work request as it waits in the queue, with addresses in wire form.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Send { source: Source, kind: SendKind },
    Immediate { data: u64, solicited: bool },
    Write { source: Source, stag: Stag, offset: u64 },
    Read(ReadRequestRepr),
    Flush(FlushRequestRepr),
    AtomicWrite(AtomicWriteRequestRepr),
    Verify { stag: Stag, offset: u64, length: u32, expected: Option<u32> },
    Atomic(AtomicRequestRepr),
}

/// The source of a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// The bytes of the poster, framed before `post_send` returns.
    Inline,
    /// The staging queue, from this position on.
    Staged(u64),
    /// A region, from this offset of its medium on.
    Region { tag: u32, offset: u64 },
}

/// The memory that payloads are taken from.
#[derive(Debug)]
pub(super) struct Bytes<'a> {
    pub(super) inline: &'a [u8],
    pub(super) staging: &'a ByteQueue,
    pub(super) fetched: &'a mut Vec<u8>,
    pub(super) fetching: &'a mut bool,
}

/// The outcome of framing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Framing {
    /// A segment that is not the last.
    Segment,
    /// The last segment.
    Message,
    /// No segment: no room before TCP has taken queued bytes.
    NoRoom,
    /// No segment now: another message is not complete, or no message may be sent yet.
    Later,
    /// No segment: a worker has to fetch the bytes.
    Fetching,
}

impl Work {
    /// Checks a request as far as possible before any of it is sent. `serial` names the request.
    pub(super) fn of(
        scope: &Scope<'_>,
        operation: &Operation<'_>,
        serial: Serial,
    ) -> Result<Self, PostError> {
        Ok(match *operation {
            Operation::Send { payload, invalidate, solicited } => {
                let invalidate = invalidate.map(|rkey| Stag(rkey.0));
                let kind = SendKind { solicited, invalidate };
                Self::Send { source: Source::of(scope, payload)?, kind }
            }
            Operation::Immediate { data, solicited } => Self::Immediate { data, solicited },
            Operation::Write { payload, rkey, remote_addr } => {
                let (stag, offset) = (Stag(rkey.0), remote_addr);
                let len = u64::try_from(payload.len()).unwrap_or(u64::MAX);
                check_remote(offset, len)?;
                Self::Write { source: Source::of(scope, payload)?, stag, offset }
            }
            Operation::Read { local, rkey, remote_addr } => {
                check_remote(remote_addr, u64::from(local.len))?;
                let sink_offset = check_local(scope.regions, scope.id, local, Access::READ_SINK)?;
                Self::Read(ReadRequestRepr {
                    sink_stag: Stag(local.lkey.0),
                    sink_offset,
                    size: local.len,
                    source_stag: Stag(rkey.0),
                    source_offset: remote_addr,
                })
            }
            Operation::Flush { rkey, remote_addr, len, kind } => {
                check_remote(remote_addr, u64::from(len))?;
                let flags = match kind {
                    Placement::Visibility => PlacementFlags::GLOBAL_VISIBILITY,
                    Placement::Persistence => PlacementFlags::PERSISTENCE,
                };
                let (stag, tagged_offset) = (Stag(rkey.0), remote_addr);
                Self::Flush(FlushRequestRepr { stag, length: len, tagged_offset, flags })
            }
            Operation::AtomicWrite { rkey, remote_addr, value } => {
                check_aligned(remote_addr)?;
                let (stag, tagged_offset) = (Stag(rkey.0), remote_addr);
                Self::AtomicWrite(AtomicWriteRequestRepr { stag, tagged_offset, data: value })
            }
            Operation::Verify { rkey, remote_addr, len, expected } => {
                check_remote(remote_addr, u64::from(len))?;
                Self::Verify { stag: Stag(rkey.0), offset: remote_addr, length: len, expected }
            }
            Operation::FetchAdd { rkey, remote_addr, add, mask } => {
                let operation = AtomicOperation::FetchAdd { add, mask };
                Self::atomic(rkey.0, remote_addr, operation, serial)?
            }
            Operation::CompareSwap {
                rkey,
                remote_addr,
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => {
                let operation =
                    AtomicOperation::CompareSwap { compare, compare_mask, swap, swap_mask };
                Self::atomic(rkey.0, remote_addr, operation, serial)?
            }
        })
    }

    fn atomic(
        tag: u32,
        offset: u64,
        operation: AtomicOperation,
        serial: Serial,
    ) -> Result<Self, PostError> {
        check_aligned(offset)?;
        // The stream machine takes no answer that repeats another identifier (RFC 7306 §5.2.2).
        let (stag, tagged_offset, request_id) = (Stag(tag), offset, serial.low());
        Ok(Self::Atomic(AtomicRequestRepr { operation, request_id, stag, tagged_offset }))
    }

    pub(super) fn source(&self) -> Option<Source> {
        match self {
            Self::Send { source, .. } | Self::Write { source, .. } => Some(*source),
            _ => None,
        }
    }

    pub(super) fn set_source(&mut self, new: Source) {
        if let Self::Send { source, .. } | Self::Write { source, .. } = self {
            *source = new;
        }
    }
}

impl Source {
    fn of(scope: &Scope<'_>, payload: Payload<'_>) -> Result<Self, PostError> {
        match payload {
            Payload::Inline(bytes) if bytes.len() > super::INLINE_MAX => {
                Err(PostError::ConfigInline { len: bytes.len(), max: super::INLINE_MAX })
            }
            Payload::Inline(_) => Ok(Self::Inline),
            Payload::Registered(slice) => {
                let offset = check_local(scope.regions, scope.id, slice, Access::empty())?;
                Ok(Self::Region { tag: slice.lkey.0, offset })
            }
        }
    }
}

/// Checks a slice of a queue pair's own memory; returns its offset in the medium.
pub(super) fn check_local(
    regions: &Regions,
    qp: QpId,
    slice: LocalSlice,
    need: Access,
) -> Result<u64, PostError> {
    let LocalSlice { lkey, offset, len } = slice;
    match regions.check_local(qp, lkey, offset, u64::from(len), need) {
        Ok((_, offset)) => Ok(offset),
        Err(AccessError::Tag | AccessError::Stream) => Err(PostError::ConfigLocalKey(lkey)),
        Err(AccessError::Rights) => Err(PostError::ConfigLocalAccess(lkey)),
        Err(AccessError::Bounds | AccessError::Wrap) => Err(PostError::ConfigLocalBounds(lkey)),
    }
}

fn check_remote(offset: u64, len: u64) -> Result<(), PostError> {
    offset.checked_add(len).map(|_| ()).ok_or(PostError::ConfigRemoteWrap(offset))
}

fn check_aligned(offset: u64) -> Result<(), PostError> {
    if offset.is_multiple_of(8) { Ok(()) } else { Err(PostError::ConfigMisaligned(offset)) }
}

/// Upper bound of the bytes of the whole message on the wire.
pub(super) fn size_bound(stream: &Stream, entry: &Entry) -> usize {
    if !matches!(entry.work, Work::Send { .. } | Work::Write { .. }) {
        return SMALL_FRAME_MAX;
    }
    let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
    let share = usize::from(stream.mulpdu()).saturating_sub(UntaggedRepr::LEN).max(1);
    if len <= share {
        // One frame: the payload, the other fields, and markers, which take one part in 128.
        return len + len / 64 + SMALL_FRAME_MAX;
    }
    len.div_ceil(share).saturating_mul(stream.frame_size_max())
}

/// Frames the next segment of a message into the transmit buffer.
pub(super) fn frame(
    scope: &mut Scope<'_>,
    entry: &mut Entry,
    bytes: Bytes<'_>,
) -> Result<Framing, Fault> {
    let wanted = size_bound(scope.stream, entry).min(scope.stream.frame_size_max());
    let Some(out) = scope.transmit.room_of(wanted, &mut scope.stats.bytes_copied) else {
        return Ok(Framing::NoRoom);
    };
    let stream = &mut *scope.stream;
    let left = entry.len - entry.done;
    let control = |size: usize| Framed { size, payload: 0, last: true };
    let framed = match &entry.work {
        Work::Send { source, kind } => {
            let fill = Fill::new(*source, entry, &bytes, scope.regions, scope.id);
            stream.frame_send(out, *kind, left, |room| fill.copy(room))
        }
        Work::Write { source, stag, offset } => {
            let offset = offset + u64::from(entry.done);
            let fill = Fill::new(*source, entry, &bytes, scope.regions, scope.id);
            stream.frame_write(out, *stag, offset, left, |room| fill.copy(room))
        }
        Work::Immediate { data, solicited } => {
            stream.frame_immediate(out, *data, *solicited).map(control).map_err(widen)
        }
        Work::Read(request) => stream.frame_read_request(out, request).map(control).map_err(widen),
        Work::Flush(request) => {
            stream.frame_flush_request(out, request).map(control).map_err(widen)
        }
        Work::AtomicWrite(request) => {
            stream.frame_atomic_write_request(out, request).map(control).map_err(widen)
        }
        Work::Verify { stag, offset, length, expected } => {
            let hash = expected.map(u32::to_be_bytes);
            let (stag, tagged_offset, length) = (*stag, *offset, *length);
            let expected = hash.as_ref().map_or(&[][..], |hash| &hash[..]);
            let request = VerifyRequestRepr { stag, length, tagged_offset, expected };
            stream.frame_verify_request(out, &request).map(control).map_err(widen)
        }
        Work::Atomic(request) => {
            stream.frame_atomic_request(out, request).map(control).map_err(widen)
        }
    };
    match framed {
        Ok(framed) => Ok(committed(scope, entry, bytes, framed)),
        Err(error) => refused(scope, entry, bytes, error),
    }
}

/// Counts a frame that was written into the room.
fn committed(
    scope: &mut Scope<'_>,
    entry: &mut Entry,
    bytes: Bytes<'_>,
    framed: Framed,
) -> Framing {
    scope.transmit.commit(framed.size);
    scope.stats.frames_sent += 1;
    scope.stats.bytes_copied += u64::from(framed.payload);
    entry.done += framed.payload;
    if !bytes.fetched.is_empty() {
        let used = usize::try_from(framed.payload).unwrap_or(usize::MAX);
        bytes.fetched.drain(..used.min(bytes.fetched.len()));
    }
    if framed.last { Framing::Message } else { Framing::Segment }
}

/// Decides what a refusal to frame means.
fn refused(
    scope: &mut Scope<'_>,
    entry: &Entry,
    bytes: Bytes<'_>,
    error: FrameError<FillError>,
) -> Result<Framing, Fault> {
    match error {
        FrameError::NoRoom { .. } => Ok(Framing::NoRoom),
        FrameError::OrdExhausted { .. }
        | FrameError::MessageOpen
        | FrameError::NotReady
        | FrameError::ReadyFirst => Ok(Framing::Later),
        FrameError::Fill(FillError::WouldBlock) => {
            let Some(Source::Region { tag, offset }) = entry.work.source() else {
                return Err(Fault::Local(WcStatus::LocalProtection));
            };
            let offset = offset + u64::from(entry.done);
            let header = match entry.work {
                Work::Write { .. } => TaggedRepr::LEN,
                _ => UntaggedRepr::LEN,
            };
            let left = u64::from(entry.len - entry.done);
            let len = fetch_len(left, scope.stream.mulpdu(), header);
            let region = scope
                .regions
                .check(scope.id, tag, offset, len, Access::empty())
                .map_err(|_| Fault::Local(WcStatus::LocalProtection))?;
            let medium = Arc::clone(&region.medium);
            let after = After::FetchedForRequest(entry.serial);
            scope.deferral.push(tag, &medium, offset, len, WorkerJob::Fetch, after);
            *bytes.fetching = true;
            Ok(Framing::Fetching)
        }
        FrameError::Fill(FillError::Gone) => Err(Fault::Local(WcStatus::LocalProtection)),
        FrameError::Fill(FillError::Medium) => Err(Fault::Local(WcStatus::LocalMedia)),
        // Post has checked these (NotOffered, OffsetWrap, HashTooLong), or this end did not ask for
        // them.
        _ => Err(Fault::Local(WcStatus::Flushed)),
    }
}

/// Bytes to fetch so that they fill whole segments, or reach the end of the message.
pub(super) fn fetch_len(left: u64, mulpdu: u16, header: usize) -> u64 {
    let header = u16::try_from(header).expect("DDP headers are short");
    let share = u64::from(mulpdu - header);
    left.min(FETCH_MAX / share * share)
}

/// Copies a segment's share of a payload.
struct Fill<'a> {
    source: Source,
    done: u32,
    inline: &'a [u8],
    staging: &'a ByteQueue,
    fetched: &'a [u8],
    regions: &'a Regions,
    qp: QpId,
}

/// Why a payload could not be copied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FillError {
    WouldBlock,
    Gone,
    Medium,
}

impl<'a> Fill<'a> {
    fn new(
        source: Source,
        entry: &Entry,
        bytes: &'a Bytes<'a>,
        regions: &'a Regions,
        qp: QpId,
    ) -> Self {
        let Bytes { inline, staging, fetched, .. } = bytes;
        Self { source, done: entry.done, inline, staging, fetched, regions, qp }
    }

    fn copy(self, room: &mut [u8]) -> Result<(), FillError> {
        let len = u64::try_from(room.len()).expect("a frame's length fits 64 bits");
        let from = match self.source {
            _ if room.is_empty() => return Ok(()),
            Source::Inline => {
                let start = usize::try_from(self.done).expect("usize has 32 bits or more");
                self.inline.get(start..start + room.len())
            }
            Source::Staged(start) => {
                let start = start + u64::from(self.done);
                self.staging.slice(start..start + len)
            }
            Source::Region { .. } if !self.fetched.is_empty() => self.fetched.get(..room.len()),
            Source::Region { tag, offset } => {
                let offset = offset + u64::from(self.done);
                return self.read(Lkey(tag), offset, room);
            }
        };
        room.copy_from_slice(from.ok_or(FillError::Gone)?);
        Ok(())
    }

    fn read(&self, Lkey(tag): Lkey, offset: u64, room: &mut [u8]) -> Result<(), FillError> {
        let len = u64::try_from(room.len()).expect("a frame's length fits 64 bits");
        let region = self
            .regions
            .check(self.qp, tag, offset, len, Access::empty())
            .map_err(|_| FillError::Gone)?;
        region.medium.try_read(offset, room).map_err(|error| match error {
            MediumError::WouldBlock => FillError::WouldBlock,
            _ => FillError::Medium,
        })
    }
}

/// The same error with the type of a call that fills a payload.
fn widen(error: FrameError) -> FrameError<FillError> {
    match error {
        FrameError::NoRoom { need } => FrameError::NoRoom { need },
        FrameError::OrdExhausted { ord } => FrameError::OrdExhausted { ord },
        FrameError::NotReady => FrameError::NotReady,
        FrameError::ReadyFirst => FrameError::ReadyFirst,
        FrameError::MessageOpen => FrameError::MessageOpen,
        // The other errors are final; neither the owner nor the peer learns which of them it was.
        _ => FrameError::Ended,
    }
}

/// Upper bound of a frame without payload, markers included.
const SMALL_FRAME_MAX: usize = 128;
