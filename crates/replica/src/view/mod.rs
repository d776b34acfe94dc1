//! Views of a destination: its volumes as they were, or will be, at one point of the group's order, writable, while the
//! destination goes on.
//!
//! ```text
//!   order     ....|=======================|==============|..........
//!               oldest record           applied        point X    end of the ring
//!   volumes      hold all records below applied
//!   view         the volumes, and above them the records from applied up to X, in one Overlay for each volume
//! ```
//!
//! [`Views`] knows how far the volumes are. Whoever changes them does it inside of [`Views::apply`], and announces each
//! change with [`Applying::changes`]; then every open view keeps what was there. A view is made between two such
//! changes, so it begins with what the records below `applied` made; what the records up to X change is loaded into
//! its overlays, whether the destination applies these records meanwhile or not. All volumes of a view are at the same
//! point, whatever volumes the records are about.
//!
//! A change that was begun and not finished (a crash, a failed disk) leaves the volumes between two points. Nothing below
//! its end can be shown then, and everything above can: the view loads the change once more. That bound is the *floor*.

mod bytes;
mod error;
mod find;
mod point;
mod records;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use block::BlockDevice;
use log::Lsn;

pub use self::bytes::bytes_at;
pub use self::error::{Available, ViewError};
use self::find::Position;
pub use self::find::{MARKS_MAX, Mark};
pub use self::point::{NoPoint, Point, Utc};
use self::records::{Go, each};
pub use self::records::{Records, RecordsError};
use crate::format::{Contents, Extent, Kind, Record};
use crate::overlay::Overlay;
use crate::snapshot::Snapshot;

/// The volumes of a member, how far they are, and the views of them.
#[derive(Debug)]
pub struct Views {
    volumes: Vec<Arc<dyn BlockDevice>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    position: Position,
    contents: Contents,
    /// The overlays of each view that has not ended; those that nobody holds any more go with the next change.
    views: Vec<Vec<Weak<Overlay>>>,
}

/// A view: a device for each volume. It lasts as long as somebody holds one of its devices.
#[derive(Debug)]
pub struct View {
    at: Lsn,
    time_ns: Option<u64>,
    volumes: Vec<Arc<Overlay>>,
}

/// Where the changes of views are stored.
#[derive(Clone, Copy, Debug)]
pub struct Room<'p> {
    /// A directory on a disk with room.
    pub directory: &'p Path,
    /// Bytes of each volume that may be stored.
    pub bytes_max: u64,
}

impl Views {
    /// The views of `volumes`, which hold everything below `applied` and nothing at or above `floor`. After a crash, `floor` is the
    /// end of what the member may have applied before it ([`crate::format::Label::bound`]).
    pub fn new(
        volumes: Vec<Arc<dyn BlockDevice>>,
        applied: Lsn,
        floor: Lsn,
        contents: Contents,
    ) -> Self {
        let position = Position { applied, floor: floor.max(applied) };
        Self { volumes, state: Mutex::new(State { position, contents, views: Vec::new() }) }
    }

    /// Begins to apply the records up to `to`, or, where `to` is not beyond what is applied, another change of the volumes.
    /// One change is made at a time; views are made between changes.
    pub fn apply(&self, to: Lsn) -> Applying<'_> {
        let mut state = self.state();
        state.position.floor = state.position.floor.max(to);
        state.views.retain(|view| view.iter().any(|it| it.strong_count() > 0));
        Applying { state, to }
    }

    /// Says how far the volumes are: they hold everything below `applied` and nothing at or above `floor`. The order may have
    /// been cut since a change was announced last, or the volumes changed by a source.
    pub fn set_position(&self, applied: Lsn, floor: Lsn) {
        self.state().position = Position { applied, floor: floor.max(applied) };
    }

    /// [`Views::set_position`], unless the volumes are being changed.
    pub fn try_set_position(&self, applied: Lsn, floor: Lsn) -> bool {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        state.position = Position { applied, floor: floor.max(applied) };
        true
    }

    /// Returns when the change that is under way, if there is one, has ended.
    pub fn wait_for_change(&self) {
        drop(self.state());
    }

    /// Everything below this is in the volumes.
    pub fn applied(&self) -> Lsn {
        self.state().position.applied
    }

    /// Notes whether the volumes are a copy at one moment. Views that are open stay what they are.
    pub fn set_contents(&self, contents: Contents) {
        self.state().contents = contents;
    }

    /// How many views are open.
    pub fn open_views(&self) -> usize {
        let is_open = |view: &&Vec<Weak<Overlay>>| view.iter().any(|it| it.strong_count() > 0);
        self.state().views.iter().filter(is_open).count()
    }

    /// The points at which a view can be made.
    ///
    /// # Errors
    ///
    /// The records cannot be read; [`ViewError::ConfigMixed`].
    pub fn available(&self, records: &dyn Records) -> Result<Available, ViewError> {
        let position = self.state().shown()?;
        find::available(records, position)
    }

    /// The marks in the ring, oldest first; at most [`MARKS_MAX`], the newest.
    ///
    /// # Errors
    ///
    /// The records cannot be read; [`ViewError::ConfigMixed`].
    pub fn marks(&self, records: &dyn Records) -> Result<Vec<Mark>, ViewError> {
        let floor = self.state().shown()?.floor;
        find::marks(records, floor)
    }

    /// Makes a view at `point`.
    ///
    /// The ring has to keep its records from [`Views::applied`] on until this returns; a record that is gone is an error.
    ///
    /// # Errors
    ///
    /// See [`ViewError`].
    pub fn open(
        &self,
        records: &dyn Records,
        point: &Point,
        room: Room<'_>,
    ) -> Result<View, ViewError> {
        let position = self.state().shown()?;
        let at = find::find(records, position, point)?;
        let (from, volumes) = self.pin(at, point, records, room)?;
        let mut view = View { at, time_ns: None, volumes };
        view.load(records, from)?;
        Ok(view)
    }

    /// Makes overlays of the volumes as they are, which all later changes take notice of.
    fn pin(
        &self,
        at: Lsn,
        point: &Point,
        records: &dyn Records,
        room: Room<'_>,
    ) -> Result<(Lsn, Vec<Arc<Overlay>>), ViewError> {
        let mut state = self.state();
        let position = state.shown()?;
        let views = &mut state.views;
        views.retain(|view| view.iter().any(|it| it.strong_count() > 0));
        if views.len() == VIEWS_MAX {
            return Err(ViewError::ConfigTooMany { most: VIEWS_MAX });
        }
        // The volumes went on while the point was looked for.
        if at < position.floor {
            drop(state);
            let (point, available) = (point.clone(), find::available(records, position)?);
            return Err(ViewError::ConfigOutOfRange { point, available });
        }
        let volumes = overlays(self.volumes.iter().cloned(), room)?;
        views.push(volumes.iter().map(Arc::downgrade).collect());
        Ok((position.applied, volumes))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How far the volumes are, as far as views are concerned.
    fn shown(&self) -> Result<Position, ViewError> {
        match self.contents {
            Contents::Consistent => Ok(self.position),
            Contents::Mixed => Err(ViewError::ConfigMixed),
            // A view that holds everything below the point is a copy at one moment before the volumes are.
            Contents::MixedUntil(at) => {
                Ok(Position { floor: self.position.floor.max(at), ..self.position })
            }
        }
    }
}

/// A change of the volumes, under way. Dropped without [`Applying::done`], it may have happened in part.
#[derive(Debug)]
pub struct Applying<'v> {
    state: MutexGuard<'v, State>,
    to: Lsn,
}

impl Applying<'_> {
    /// Has every view keep what is in the range now. The caller changes the range once this has returned. Threads that
    /// share the work call this each for what they change.
    pub fn changes(&self, extent: Extent) {
        let overlays =
            self.state.views.iter().filter_map(|view| view.get(usize::from(extent.volume)));
        for overlay in overlays.filter_map(Weak::upgrade) {
            // A view that cannot keep it has ended, and has said so; the volume goes on.
            let _ = overlay.preserve(extent.offset, extent.len);
        }
    }

    /// Everything below the change's end is in the volumes.
    pub fn done(mut self) {
        self.state.position.applied = self.state.position.applied.max(self.to);
    }
}

impl View {
    /// A view of a snapshot, at its point.
    ///
    /// # Errors
    ///
    /// [`ViewError::Store`].
    pub fn of_snapshot(snapshot: &Snapshot, room: Room<'_>) -> Result<Self, ViewError> {
        let facts = snapshot.facts();
        let devices = (0..).map_while(|volume| snapshot.device(volume));
        let volumes = overlays(devices, room)?;
        Ok(Self { at: facts.at, time_ns: Some(facts.time_ns), volumes })
    }

    /// Everything below this is in the view, and nothing else of the order.
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// Ends each volume at its size, where its device is longer.
    pub fn end_at(&self, sizes: &[u64]) {
        self.volumes.iter().zip(sizes).for_each(|(volume, size)| volume.end_at(*size));
    }

    /// When the last record was made that the view had to load, in nanoseconds since 1970; of a snapshot, when it was made.
    pub fn time_ns(&self) -> Option<u64> {
        self.time_ns
    }

    /// The volumes, by their numbers in the group.
    pub fn volumes(&self) -> &[Arc<Overlay>] {
        &self.volumes
    }

    /// Lays the records from `from` up to the view's point over the volumes.
    fn load(&mut self, records: &dyn Records, from: Lsn) -> Result<(), ViewError> {
        let volumes = &self.volumes;
        let (mut time_ns, range) = (None, from..self.at);
        each(
            records,
            range,
            |record| record.kind == Kind::Write,
            |record, payload| {
                time_ns = Some(record.time_ns);
                load_record(volumes, record, payload)?;
                Ok::<_, ViewError>(Go::On)
            },
        )?;
        self.time_ns = time_ns;
        Ok(())
    }
}

fn overlays(
    bases: impl Iterator<Item = Arc<dyn BlockDevice>>,
    room: Room<'_>,
) -> io::Result<Vec<Arc<Overlay>>> {
    bases.map(|base| Overlay::unnamed(base, room.directory, room.bytes_max).map(Arc::new)).collect()
}

fn load_record(volumes: &[Arc<Overlay>], record: &Record, payload: &[u8]) -> Result<(), ViewError> {
    let (at, volume) = (record.lsn, record.volume);
    let overlay = || volumes.get(usize::from(volume)).ok_or(ViewError::MediaVolume { at, volume });
    let loaded = match record.kind {
        Kind::Write if payload.len() as u64 != record.len => {
            return Err(RecordsError::MediaDamaged { at }.into());
        }
        Kind::Write => overlay()?.load(record.offset, payload),
        Kind::Trim | Kind::Zero => overlay()?.load_zeroes(record.offset, record.len),
        Kind::Resize => {
            let (overlay, size) = (overlay()?, record.offset.saturating_add(record.len));
            // A device that has grown already keeps its size; what lies behind the volume's end there is none of it.
            let is_long = overlay.geometry().size >= size;
            let grown = if is_long { Ok(size) } else { overlay.resize(size) };
            grown.and_then(|_| overlay.load_zeroes(record.offset, record.len))
        }
        Kind::Verify | Kind::Mark | Kind::Epoch | Kind::Pad => Ok(()),
    };
    loaded.map_err(|error| ViewError::Load { at, volume, error })
}

/// Views of a member at once: each change of its volumes is announced to all of them.
pub const VIEWS_MAX: usize = 16;
