//! The volumes of a member: records and copies go into them, and what open views and the snapshot need of them is kept
//! before.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use block::{BlockDevice, BlockError, State, Survives, Zeroing};
use log::Lsn;

use crate::format::{Contents, Extent, Kind, Record};
use crate::names::GroupId;
use crate::snapshot::{Moment, Snapshot, SnapshotError, Snapshots, Source};
use crate::view::{Point, Records, Room, View, ViewError, Views};

/// See the module.
#[derive(Debug)]
pub(super) struct Volumes {
    devices: Vec<Arc<dyn BlockDevice>>,
    views: Views,
    /// Whether there may be views. Writers hold it for reading while they write, and where there may be, write one after the
    /// other.
    may_have_views: RwLock<bool>,
    /// Views that are being made.
    opening: AtomicUsize,
    snapshots: Snapshots,
    snapshot: Mutex<Option<Snapshot>>,
    /// Where views keep what changes.
    scratch: PathBuf,
}

/// Why a change did not get into a volume.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("volume {volume}: {error}")]
    Volume { volume: u8, error: BlockError },
    #[error("a record is not what its header says")]
    Record,
}

/// The bytes of a device that is shorter than it has to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooShort(pub(super) u64);

impl Volumes {
    /// The volumes of a member whose label and ring say how far they are.
    pub(super) fn new(
        devices: Vec<Arc<dyn BlockDevice>>,
        snapshots: Snapshots,
        scratch: PathBuf,
        (applied, bound): (Lsn, Lsn),
        contents: Contents,
    ) -> Result<Self, SnapshotError> {
        let kept = snapshots.list()?.iter().any(|(name, _)| name == BEFORE_COPIES);
        let snapshot = kept.then(|| snapshots.get(BEFORE_COPIES, &devices)).transpose()?;
        Ok(Self {
            views: Views::new(devices.clone(), applied, bound, contents),
            devices,
            may_have_views: RwLock::new(false),
            opening: AtomicUsize::new(0),
            snapshots,
            snapshot: Mutex::new(snapshot),
            scratch,
        })
    }

    pub(super) fn count(&self) -> u8 {
        u8::try_from(self.devices.len()).expect("VOLUMES_MAX at most")
    }

    pub(super) fn device(&self, volume: u8) -> Option<&Arc<dyn BlockDevice>> {
        self.devices.get(usize::from(volume))
    }

    pub(super) fn views(&self) -> &Views {
        &self.views
    }

    /// Whether a range lies in a volume, in whole blocks.
    pub(super) fn has(&self, extent: Extent) -> bool {
        self.device(extent.volume).is_some_and(|device| {
            let geometry = device.geometry();
            extent.len > 0 && geometry.check_read(extent.offset, extent.len).is_ok()
        })
    }

    /// Makes the device of a volume so long, if it is not.
    pub(super) fn reserve(&self, volume: u8, size: u64) -> Result<(), TooShort> {
        let device = self.device(volume).ok_or(TooShort(0))?;
        let found = device.geometry().size;
        if found >= size {
            return Ok(());
        }
        match device.resize(size) {
            Ok(grown) if grown >= size => Ok(()),
            Ok(grown) => Err(TooShort(grown)),
            Err(error) => {
                tracing::warn!(volume, found, size, %error, "the device of a volume cannot grow: grow it, and start this member again");
                Err(TooShort(found))
            }
        }
    }

    /// Whether a record can be applied here. A device grows before the record that says so is taken.
    pub(super) fn takes(&self, record: &Record) -> bool {
        let grows = record.changes().filter(|_| record.kind == Kind::Resize);
        if let Some(Extent { volume, offset, len }) = grows
            && self.reserve(volume, offset + len).is_err()
        {
            return false;
        }
        record.changes().is_none_or(|extent| self.has(extent))
    }

    /// A writer's change of a volume; it is durable in the ring already.
    pub(super) fn write(
        &self,
        extent: Extent,
        change: impl FnOnce(&dyn BlockDevice) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let device = self.device(extent.volume).ok_or(BlockError::MediaIo(EIO))?;
        let may_have_views = self.may_have_views.read().unwrap_or_else(PoisonError::into_inner);
        if *may_have_views {
            let applying = self.views.apply(Lsn(0));
            applying.changes(extent);
            change(&**device)?;
            applying.done();
            drop(may_have_views);
            self.forget_views();
            return Ok(());
        }
        change(&**device)
    }

    // Once the last view has ended, writers write beside each other again.
    fn forget_views(&self) {
        let has_none = || self.opening.load(Ordering::SeqCst) == 0 && self.views.open_views() == 0;
        if !has_none() {
            return;
        }
        // Whoever makes a view from now on says so first, and then waits for this lock.
        let mut may_have_views =
            self.may_have_views.write().unwrap_or_else(PoisonError::into_inner);
        if has_none() {
            *may_have_views = false;
        }
    }

    /// Records that follow each other, with their payloads, come into the volumes, up to `to`.
    pub(super) fn apply(&self, to: Lsn, records: &[(Record, Vec<u8>)]) -> Result<(), ApplyError> {
        let applying = self.views.apply(to);
        let extents: Vec<Extent> = records.iter().filter_map(|(it, _)| it.changes()).collect();
        self.keep_before(&extents);
        for (record, payload) in records {
            let Some(extent) = record.changes() else { continue };
            applying.changes(extent);
            let failed = |error| ApplyError::Volume { volume: extent.volume, error };
            let device = self.device(extent.volume).ok_or(ApplyError::Record)?;
            change(&**device, record.kind, extent, payload).map_err(failed)?;
        }
        applying.done();
        Ok(())
    }

    /// A copy comes into its volume; without bytes, zeroes.
    pub(super) fn put(&self, extent: Extent, bytes: Option<&[u8]>) -> Result<(), ApplyError> {
        let applying = self.views.apply(Lsn(0));
        self.keep_before(&[extent]);
        applying.changes(extent);
        let device = self.device(extent.volume).ok_or(ApplyError::Record)?;
        let kind = if bytes.is_some() { Kind::Write } else { Kind::Trim };
        let failed = |error| ApplyError::Volume { volume: extent.volume, error };
        change(&**device, kind, extent, bytes.unwrap_or_default()).map_err(failed)?;
        applying.done();
        Ok(())
    }

    /// The bytes of a range; nothing where it reads as zeroes and has no bytes.
    pub(super) fn copy_of(&self, extent: Extent) -> Result<Option<Vec<u8>>, BlockError> {
        let device = self.device(extent.volume).ok_or(BlockError::MediaIo(EIO))?;
        let status = device.status(extent.offset, extent.len)?;
        if status.state != State::Data && status.len >= extent.len {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(extent.len).expect("a granule")];
        device.read(extent.offset, &mut bytes)?;
        Ok(Some(bytes))
    }

    pub(super) fn flush(&self) -> Result<(), BlockError> {
        self.devices.iter().try_for_each(|device| device.flush())
    }

    /// Keeps what the volumes are, as they are everything below `moment.at`.
    pub(super) fn take_snapshot(&self, moment: Moment) -> Result<(), SnapshotError> {
        let mut snapshot = self.snapshot();
        if snapshot.is_none() {
            let sources: Vec<Source<'_>> = self
                .devices
                .iter()
                .map(|device| Source { device: Arc::clone(device), file: None })
                .collect();
            *snapshot = Some(self.snapshots.keep(BEFORE_COPIES, moment, &sources)?);
        }
        Ok(())
    }

    /// The volumes are a copy at one moment again.
    pub(super) fn drop_snapshot(&self) -> Result<(), SnapshotError> {
        let mut snapshot = self.snapshot();
        match snapshot.take() {
            Some(_) => self.snapshots.drop(BEFORE_COPIES),
            None => Ok(()),
        }
    }

    // A snapshot that can keep no more is dropped: the member goes on without.
    fn keep_before(&self, extents: &[Extent]) {
        let mut snapshot = self.snapshot();
        let Some(kept) = &*snapshot else { return };
        if let Err(error) = kept.preserve_durably(extents) {
            tracing::warn!(%error, "the snapshot from before the copies is dropped");
            *snapshot = None;
            if let Err(error) = self.snapshots.drop(BEFORE_COPIES) {
                tracing::warn!(%error, "the snapshot from before the copies stays on the disk");
            }
        }
    }

    fn snapshot(&self) -> MutexGuard<'_, Option<Snapshot>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A view at a point; where the volumes are a mixture, of the snapshot from before. `sizes_at` knows how long volumes are at
    /// an LSN.
    pub(super) fn view(
        &self,
        records: &dyn Records,
        (point, sizes_at): (&Point, impl Fn(Lsn) -> Vec<u64>),
        bytes_max: u64,
    ) -> Result<View, ViewError> {
        let room = Room { directory: &self.scratch, bytes_max };
        self.opening.fetch_add(1, Ordering::SeqCst);
        *self.may_have_views.write().unwrap_or_else(PoisonError::into_inner) = true;
        let opened = self.views.open(records, point, room);
        let opened = opened.inspect(|view| view.end_at(&sizes_at(view.at())));
        self.opening.fetch_sub(1, Ordering::SeqCst);
        match (opened, &*self.snapshot()) {
            (Err(ViewError::ConfigMixed), Some(snapshot)) if *point == Point::Latest => {
                View::of_snapshot(snapshot, room)
            }
            (opened, _) => opened,
        }
    }
}

fn change(
    device: &dyn BlockDevice,
    kind: Kind,
    extent: Extent,
    payload: &[u8],
) -> Result<(), BlockError> {
    let Extent { offset, len, .. } = extent;
    match kind {
        Kind::Write => device.write(offset, payload, Survives::Placed),
        Kind::Trim | Kind::Resize => {
            device.write_zeroes(offset, len, Zeroing::MayFree, Survives::Placed)
        }
        Kind::Zero => device.write_zeroes(offset, len, Zeroing::KeepSpace, Survives::Placed),
        Kind::Verify | Kind::Mark | Kind::Epoch | Kind::Pad => Ok(()),
    }
}

/// A moment of the group for a snapshot.
pub(super) const fn moment(group: GroupId, at: Lsn, time_ns: u64, id: u64) -> Moment {
    Moment { group, at, time_ns, id, bytes_max: u64::MAX }
}

/// The snapshot of the volumes as they were before copies made them a mixture.
const BEFORE_COPIES: &str = "before-copies";
const EIO: i32 = 5;
