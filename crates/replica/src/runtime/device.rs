//! A volume of a group as a block device: at the source it takes writes, elsewhere it refuses everything.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use block::{BlockDevice, BlockError, Extent as Status, Geometry, Survives, Zeroing};
use log::Lsn;
use pmem::DurabilityClass;

use super::carry::{carry_until, send_queued};
use super::healing::{HEALED_BLOCK, may_heal};
use super::hub::State;
use super::inner::Inner;
use super::ranges::Held;
use super::storage::persist_range;
use crate::core::{Admitted, Core, Denied, Draft, Event};
use crate::format::{Encoding, Extent, Kind, PAYLOAD_MAX, Record, header_sum, payload_sum_with};
use crate::names::MemberSet;
use crate::wire::compress;

/// A replicated volume. A change has been applied once its call returns, and is as durable as the group's mode says:
/// in the rings of all members in sync, so that a flush has nothing to do.
///
/// A change waits while the ring is full, or fewer members are in sync than the group wants.
#[derive(Debug)]
pub(super) struct ReplicaDevice {
    pub(super) inner: Arc<Inner>,
    pub(super) volume: u8,
    /// The time at which the member is the source that the device is for: whoever has read from it then may keep what he read.
    pub(super) tenure: u64,
}

impl BlockDevice for ReplicaDevice {
    fn geometry(&self) -> Geometry {
        let below = self.below().geometry();
        let size = self.inner.hub.sizes[usize::from(self.volume)].load(Ordering::Acquire);
        // What has left the log is where the volume keeps it.
        let class = match below.class {
            DurabilityClass::Volatile => DurabilityClass::Volatile,
            _ => self.inner.ring.medium().class(),
        };
        Geometry { size, class, may_wait: true, ..below }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        // What is read is what is there when it is asked for: not at a member that may be the source no more.
        while self.inner.hub.may_be_old() {
            self.check_open()?;
            thread::sleep(LOOK_AGAIN);
        }
        self.check_open()?;
        self.geometry().check_read(offset, length_of(out))?;
        match self.below().read(offset, out) {
            Err(error) if may_heal(error) => self.read_healed(offset, out, error),
            done => done,
        }
    }

    fn write(&self, offset: u64, bytes: &[u8], _survives: Survives) -> Result<(), BlockError> {
        self.geometry().check_change(offset, length_of(bytes))?;
        let mut at = offset;
        for part in bytes.chunks(PAYLOAD_LEN) {
            let extent = self.extent(at, length_of(part));
            self.inner.change(self.tenure, Kind::Write, extent, part)?;
            at += extent.len;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        // What was answered is durable in the rings.
        self.check_open()
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        _survives: Survives,
    ) -> Result<(), BlockError> {
        self.geometry().check_change(offset, len)?;
        let kind = match zeroing {
            Zeroing::MayFree => Kind::Trim,
            Zeroing::KeepSpace => Kind::Zero,
        };
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let extent = self.extent(at, ZEROED_MAX.min(end - at));
            self.inner.change(self.tenure, kind, extent, &[])?;
            at += extent.len;
        }
        Ok(())
    }

    fn status(&self, offset: u64, len: u64) -> Result<Status, BlockError> {
        self.check_open()?;
        self.geometry().check_status(offset, len)?;
        self.below().status(offset, len)
    }

    fn resize(&self, _size: u64) -> Result<u64, BlockError> {
        Err(BlockError::ConfigFixedSize)
    }
}

impl ReplicaDevice {
    // Some at a time: writers wait meanwhile.
    fn read_healed(
        &self,
        offset: u64,
        out: &mut [u8],
        error: BlockError,
    ) -> Result<(), BlockError> {
        tracing::warn!(volume = self.volume, offset, %error, "a volume cannot be read");
        let (size, mut at) = (self.geometry().size, offset);
        for part in out.chunks_mut(HEALED_LEN) {
            let end = at + length_of(part);
            let from = at - at % HEALED_BLOCK;
            let extent = self.extent(from, end.next_multiple_of(HEALED_BLOCK).min(size) - from);
            let _held = self.inner.ranges.hold(extent);
            self.check_open()?;
            self.inner.heal(extent, error)?;
            self.below().read(at, part)?;
            at = end;
        }
        Ok(())
    }

    fn below(&self) -> &dyn BlockDevice {
        &**self
            .inner
            .volumes
            .device(self.volume)
            .expect("devices are made for volumes that are there")
    }

    fn extent(&self, offset: u64, len: u64) -> Extent {
        Extent { volume: self.volume, offset, len }
    }

    fn check_open(&self) -> Result<(), BlockError> {
        self.inner.check(self.tenure)
    }
}

impl Inner {
    /// Whether the member is the source for the same time still.
    pub(super) fn check(&self, tenure: u64) -> Result<(), BlockError> {
        match tenure != 0 && self.hub.tenure() == tenure {
            true => Ok(()),
            false => Err(NOT_SOURCE),
        }
    }

    /// Makes a change of a volume: its range is the caller's from before the change has its place until it is applied, but not
    /// while it waits for a place: what it waits for may be copies of that range.
    pub(super) fn change(
        &self,
        tenure: u64,
        kind: Kind,
        extent: Extent,
        bytes: &[u8],
    ) -> Result<(), BlockError> {
        let mut packed = Vec::new();
        let encoding = match kind {
            Kind::Write => compress(self.compression(), bytes, &mut packed),
            _ => Encoding::Plain,
        };
        let payload = if encoding == Encoding::Plain { bytes } else { &packed[..] };
        let (_held, placed) = loop {
            let held = self.ranges.hold(extent);
            if let Some(placed) = self.order(tenure, (kind, encoding), extent, payload)? {
                break (held, placed);
            }
            drop(held);
            thread::park_timeout(PATIENCE);
        };
        let done = self.wait_for(tenure, placed).and_then(|()| {
            self.volumes.write(extent, |device| match kind {
                Kind::Write => device.write(extent.offset, bytes, Survives::Placed),
                Kind::Trim | Kind::Resize => device.write_zeroes(
                    extent.offset,
                    extent.len,
                    Zeroing::MayFree,
                    Survives::Placed,
                ),
                _ => device.write_zeroes(
                    extent.offset,
                    extent.len,
                    Zeroing::KeepSpace,
                    Survives::Placed,
                ),
            })
        });
        self.leave(placed.lsn, &done);
        done
    }

    /// Puts a record that changes no volume into the order, and waits until it is committed. `make` gives its payload, with what
    /// is let go of as soon as the record has its place, or has to wait for one: then it is made anew.
    pub(super) fn note<'h>(
        &self,
        kind: Kind,
        extent: Extent,
        make: impl Fn() -> Result<(Option<Held<'h>>, Vec<u8>), BlockError>,
    ) -> Result<Lsn, BlockError> {
        let tenure = self.hub.tenure();
        let placed = loop {
            let (held, payload) = make()?;
            let placed = self.order(tenure, (kind, Encoding::Plain), extent, &payload)?;
            drop(held);
            match placed {
                Some(placed) => break placed,
                None => thread::park_timeout(PATIENCE),
            }
        };
        let done = self.wait_for(tenure, placed);
        self.leave(placed.lsn, &done);
        done.map(|()| placed.end)
    }

    /// Gives a record its place in the order and puts it there. The caller is among the writers until it calls
    /// [`Inner::leave`]. `None` where there is no place now: the caller is unparked once there may be.
    fn order(
        &self,
        tenure: u64,
        (kind, encoding): (Kind, Encoding),
        extent: Extent,
        payload: &[u8],
    ) -> Result<Option<Placed>, BlockError> {
        let hub = &self.hub;
        let group = self.ring.group();
        let stored = u32::try_from(payload.len()).map_err(|_| BlockError::MediaIo(EINVAL))?;
        let keys = self.ring.keys().filter(|_| self.seals);
        let encoding = if keys.is_some() { encoding.sealed() } else { encoding };
        let draft = Draft {
            kind,
            encoding,
            volume: extent.volume,
            stored: stored + encoding.tag_len(),
            offset: extent.offset,
            len: extent.len,
            time_ns: hub.time_ns(),
        };
        // A tag is all that a sealed payload is checked by: its record has a header before it is sealed.
        let sum = if keys.is_some() { 0 } else { crate::format::crc32c(&[payload]) };
        let mut state = hub.lock();
        self.check(tenure)?;
        let epoch = state.core.epoch();
        let header_of = |record: &Record| match (record.kind, keys) {
            (Kind::Pad, Some(keys)) => keys.seal_pad(epoch, record).encode(&group, 0),
            (Kind::Pad, None) | (_, Some(_)) => record.encode(&group, 0),
            (_, None) => {
                let sum = payload_sum_with(&group, record.lsn, sum, length_of(payload));
                record.encode(&group, sum)
            }
        };
        let seal = |record: &Record| header_sum(&header_of(record));
        let submitted = match state.lag.holds || state.writers.held > 0 {
            true => Err(Denied::NotNow),
            false => state.core.submit(draft, seal),
        };
        let Admitted { pad, record } = match submitted {
            Ok(admitted) => admitted,
            Err(Denied::NotNow) => {
                state.writers.park();
                return Ok(None);
            }
            Err(Denied::NotSource) => return Err(NOT_SOURCE),
            Err(Denied::Failed) => return Err(BlockError::MediaPoisoned),
            Err(Denied::TooLong) => return Err(BlockError::MediaIo(EINVAL)),
        };
        state.writers.inside += 1;
        drop(state);
        let placed = pad
            .map_or(Ok(()), |pad| self.ring.place(pad.lsn, &header_of(&pad), &[]))
            .and_then(|()| {
                let header = header_of(&record);
                match keys {
                    None => self.ring.place(record.lsn, &header, payload),
                    Some(keys) => {
                        let sealed = keys.seal(epoch, record.lsn, &header, payload);
                        self.ring.place(record.lsn, &header, &sealed)
                    }
                }
            });
        let mut state = hub.lock();
        if let Err(error) = placed {
            tracing::error!(%error, "a record cannot be placed");
            hub.step_locked(&mut state, Event::StorageFailed);
            state.writers.inside -= 1;
            hub.writers_may_have_stopped(&mut state);
            return Err(BlockError::MediaPoisoned);
        }
        if let Some(pad) = pad {
            hub.step_locked(&mut state, Event::Placed(pad.lsn));
        }
        let carries = self.go_on_with(state, record.lsn);
        Ok(Some(Placed { lsn: record.lsn, end: record.end(), carries }))
    }

    /// Makes a record durable that is placed, and sends it to those that are waited for, as far as nobody else does. Gives for
    /// whom the caller goes on to carry.
    fn go_on_with(&self, mut state: MutexGuard<'_, State>, lsn: Lsn) -> MemberSet {
        let may = Core::is_waited_for;
        let (persists, carries) = self.hub.step_to_carry(&mut state, Event::Placed(lsn), may);
        drop(state);
        let persist = || persists.into_iter().for_each(|(from, to)| persist_range(self, from, to));
        // What takes long begins first. Memory is durable before a message has left; a disk, and a member whose ring is written
        // by operations, work meanwhile.
        let is_memory = self.ring.medium().class() != DurabilityClass::Storage;
        let is_first = is_memory && !self.has_ways();
        if is_first {
            persist();
        }
        let carries = send_queued(self, carries, None);
        if !is_first {
            persist();
        }
        carries
    }

    /// Waits until everything up to the end of a record is committed.
    fn wait_for(&self, tenure: u64, placed: Placed) -> Result<(), BlockError> {
        let (hub, Placed { end, carries, .. }) = (&self.hub, placed);
        carry_until(self, carries, end);
        if hub.committed() >= end {
            return Ok(());
        }
        let mut state = hub.lock();
        if hub.committed() < end && hub.tenure() == tenure {
            state.writers.park_until(end);
        }
        drop(state);
        loop {
            if hub.committed() >= end {
                return Ok(());
            }
            self.check(tenure)?;
            thread::park();
        }
    }

    /// The caller is no writer any more. What it made is in its volume, or never will be by this member's doing.
    fn leave<T>(&self, lsn: Lsn, done: &Result<T, BlockError>) {
        let hub = &self.hub;
        let mut state = hub.lock();
        state.writers.inside -= 1;
        match done {
            Ok(_) => hub.step_locked(&mut state, Event::Applied(lsn)),
            Err(error) if *error == NOT_SOURCE => {}
            Err(error) => {
                tracing::error!(%error, "a volume failed");
                hub.step_locked(&mut state, Event::StorageFailed);
            }
        }
        hub.writers_may_have_stopped(&mut state);
    }
}

/// A record that has its place.
#[derive(Clone, Copy, Debug)]
struct Placed {
    lsn: Lsn,
    /// The LSN of the next one.
    end: Lsn,
    /// For whom its writer goes on to carry.
    carries: MemberSet,
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("no supported machine has more than 64 address bits")
}

/// The member is not the source.
const NOT_SOURCE: BlockError = BlockError::ConfigElsewhere;
const EINVAL: i32 = 22;
/// Bytes of a long read that are looked at together.
const HEALED_LEN: usize = 1 << 20;
/// How often a reader looks whether the member is the source still.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Bytes of one record of a longer write.
const PAYLOAD_LEN: usize = PAYLOAD_MAX as usize;
/// Bytes that one record zeroes at most, so that no record holds a lane for long.
const ZEROED_MAX: u64 = 64 << 20;
/// A writer without a place looks again after this, whatever it was told.
const PATIENCE: Duration = Duration::from_secs(1);
