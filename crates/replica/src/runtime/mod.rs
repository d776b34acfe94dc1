//! A member as a running process has it: the core, the threads that carry out what it orders, the devices of its volumes.
//!
//! ```text
//!   mod       starts a member and ends it; what operators ask
//!   setup     what a member is started with, and why it does not start
//!   hub       the core under its lock, and the queues of what it has ordered
//!   device    the volumes of a source as block devices: the way of a write
//!   writers   who waits for what
//!   ranges    who has which range
//!   rpo       how far asynchronous members are behind
//!   inner     what the threads share
//!   connections  who is connected
//!   links     the threads of connections: dial, read, copy
//!   carrying, carrier, carry  who sends what goes to a member
//!   ways, making_ways  one-sided ways between members
//!   storage   the ring, labels, volumes and the witness, each a thread
//!   volumes   records and copies come into the volumes, views and snapshots keep what was there
//!   events    what operators are told
//!   settings  what operators change
//! ```

mod carrier;
mod carry;
mod carrying;
mod connections;
mod device;
mod differing;
mod events;
mod healing;
mod hub;
mod inner;
mod links;
mod making_ways;
mod quiet;
mod ranges;
mod resizing;
mod resuming;
mod rpo;
mod settings;
mod setup;
mod storage;
mod volumes;
mod ways;
mod writers;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block::{BlockDevice, BlockError};
use log::Lsn;

use self::device::ReplicaDevice;
pub use self::events::Noted;
use self::hub::Hub;
use self::inner::{Inner, Wire};
use self::ranges::Ranges;
pub use self::resizing::ResizeError;
pub use self::rpo::Rpo;
pub use self::settings::Settings;
pub use self::setup::{Setup, StartError};
use self::setup::{check_volumes, readable};
use self::storage::Kept;
use self::volumes::Volumes;
use crate::core::{Core, Denial, Entry, Event, Found, Mode, News, Status, Wish};
use crate::digest::Digester;
use crate::format::{Extent, Kind};
use crate::names::{MEMBERS_MAX, MemberId};
use crate::one_sided::Hosting;
use crate::ring::RingError;
use crate::snapshot::Snapshots;
use crate::view::{Available, Mark, Point, View, ViewError};

/// A running member. It ends when this is dropped; what it has acknowledged stays.
#[derive(Debug)]
pub struct Member {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _accepts: crate::wire::Listening,
    address: SocketAddr,
}

/// What operators see of a member beside its [`Status`].
#[derive(Clone, Debug)]
pub struct Report {
    /// What the core says.
    pub status: Status,
    /// The modes of the other members.
    pub modes: Vec<(MemberId, Mode)>,
    /// The connections of the link to each member that is connected.
    pub connections: Vec<(MemberId, usize)>,
    /// Why the last attempt to reach a member failed.
    pub failures: Vec<(MemberId, String)>,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Ranges that were compared with what their source had, since the process began.
    pub verified: u64,
    /// Those of them that differed.
    pub differences: u64,
    /// Views that are open.
    pub views: usize,
    /// Bytes of each volume.
    pub sizes: Vec<u64>,
    /// Where one-sided ways are wanted, at a source: to whom records go by one, and why they do not go so to the others.
    pub ways: Vec<(MemberId, Way)>,
}

/// How records go to a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Way {
    /// By one-sided operations of this provider.
    OneSided(&'static str),
    /// By messages, and why, if an attempt has failed.
    Messages(Option<String>),
}

impl Member {
    /// Reads what the member has and begins to run it. If it was the source it goes on as such; writes wait until that is
    /// certain.
    ///
    /// # Errors
    ///
    /// See [`StartError`]; nothing runs then.
    pub fn start(setup: Setup) -> Result<Self, StartError> {
        let Setup { mut config, ring, volumes, directory, map, environment, .. } = setup;
        let (ring, label) = readable(ring, &mut config, &setup.identity)?;
        let scanned = ring.scan(&label)?;
        let seals = config.seals;
        let others: Vec<MemberId> = config.others.iter().map(|(other, _)| *other).collect();
        let entries = scanned.records.iter().map(|it| Entry::of(&it.record, it.sum)).collect();
        let contents = label.contents;
        let mut found = Found { label, entries, dirty: Vec::new(), claimed: scanned.claimed };
        if found.is_damaged(&config) {
            return Err(StartError::Damaged { found: scanned.end, claimed: scanned.claimed });
        }
        let sizes = found.sizes(&config);
        check_volumes(&sizes, &volumes)?;
        let dirty_of = |other: &MemberId| Ok((*other, ring.load_dirty(*other, &sizes)?));
        found.dirty = others.iter().map(dirty_of).collect::<Result<_, RingError>>()?;
        let core = Core::new(config, found);
        let reached = (core.applied(), core.bound().unwrap_or_else(|| core.applied()));
        let snapshots = Snapshots::open(&directory, map)?;
        let volumes = Volumes::new(volumes, snapshots, directory, reached, contents)?;
        let hosting = match &setup.one_sided {
            Some(options) => Some(Hosting::open(options, &environment)?),
            None => None,
        };
        let inner = Arc::new(Inner {
            hub: Hub::new(environment, core, &others, setup.rpo),
            carriers: (0..MEMBERS_MAX).map(|_| Mutex::default()).collect(),
            one_sided: setup.one_sided,
            hosting,
            digester: Digester::new(ring.group()),
            seals,
            ring,
            volumes,
            ranges: Ranges::default(),
            resizing: Mutex::default(),
            witness: setup.witness,
            compression: RwLock::new(setup.compression),
            wire: Wire {
                identity: setup.identity.clone(),
                addresses: setup.addresses,
                options: setup.links,
            },
        });
        let above = match inner.hub.lock().core.was_source() {
            true => Some(resuming::ask(&inner)?),
            false => None,
        };
        let waits = above == Some(None);
        // Before anybody is heard: who follows another source by then is none to be resumed.
        if let Some(epoch) = above.flatten() {
            inner.resume(epoch)?;
        }
        let address = setup.listener.local_addr();
        let accepting = Arc::clone(&inner);
        let options = inner.wire.options.clone();
        let accepts = setup.listener.run(setup.identity, options, move |member, link| {
            links::read_link(&accepting, member, link, false);
        })?;
        let member = Self { inner, threads: Mutex::default(), _accepts: accepts, address };
        member.spawn_all(&others)?;
        if waits {
            member.spawn("resumes", resuming::wait)?;
        }
        Ok(member)
    }

    fn spawn_all(&self, others: &[MemberId]) -> Result<(), StartError> {
        self.spawn("ring", storage::persist)?;
        self.spawn("labels", storage::store)?;
        self.spawn("volumes", storage::apply)?;
        self.spawn("witness", storage::propose)?;
        self.spawn("clock", |inner| {
            for tick in 1_u64.. {
                if inner.hub.pauses_to_end(TICK) {
                    return;
                }
                inner.hub.tick();
                if tick.is_multiple_of(INVITES_AFTER) {
                    inner.invite_again();
                }
            }
        })?;
        for other in others.iter().copied() {
            self.spawn("dialer", move |inner| links::dial(inner, other))?;
            self.spawn("sender", move |inner| carry::carry(inner, other))?;
            self.spawn("copier", move |inner| links::copy(inner, other))?;
            if self.inner.has_ways() {
                self.spawn("way", move |inner| making_ways::dial(inner, other))?;
            }
        }
        Ok(())
    }

    fn spawn(
        &self,
        name: &str,
        run: impl FnOnce(&Inner) + Send + 'static,
    ) -> Result<(), StartError> {
        let inner = Arc::clone(&self.inner);
        let thread = thread::Builder::new().name(format!("replica-{name}"));
        let handle = thread.spawn(move || run(&inner))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    }

    /// A random number for a new epoch.
    ///
    /// # Errors
    ///
    /// The kernel has none.
    pub fn nonce(&self) -> Result<u64, std::io::Error> {
        self.inner.nonce()
    }

    /// Where the member is reached by the others.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Which of the times at which this member was the source it is, since it was started; 0 while it is not.
    pub fn tenure(&self) -> u64 {
        self.inner.hub.tenure()
    }

    /// The volumes as devices, in order. They take requests as long as this member is the source without a break, and refuse them
    /// for good from then on ([`BlockError::ConfigElsewhere`]): whoever kept what he had read from them would not see what
    /// another source wrote meanwhile.
    pub fn devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        let tenure = self.tenure();
        let device = |volume| -> Arc<dyn BlockDevice> {
            Arc::new(ReplicaDevice { inner: Arc::clone(&self.inner), volume, tenure })
        };
        (0..self.inner.volumes.count()).map(device).collect()
    }

    /// Says what an operator wants. What comes of it is seen in [`Member::report`] and [`Member::events`].
    pub fn want(&self, wish: Wish) {
        self.inner.hub.step(Event::Wanted(wish));
    }

    /// [`Member::want`], and why it is not granted, where that is clear at once: with the number of the event that says so.
    pub fn want_answered(&self, wish: Wish) -> Option<(u64, Denial)> {
        let hub = &self.inner.hub;
        let mut state = hub.lock();
        let before = state.events.newest();
        hub.step_locked(&mut state, Event::Wanted(wish));
        state.events.since(before).into_iter().find_map(|noted| match noted.news {
            News::Denied(denial) => Some((noted.number, denial)),
            _ => None,
        })
    }

    /// Wants this member to be the source: of an epoch that is newer than what the witness has.
    ///
    /// # Errors
    ///
    /// The witness cannot be asked, or there are no random numbers.
    pub fn promote(&self, by_force: bool) -> Result<(), StartError> {
        self.promote_as(false, by_force)
    }

    /// [`Member::promote`]; with `was_in_sync` the operator knows that this member was in sync to the end of the source before.
    ///
    /// # Errors
    ///
    /// As [`Member::promote`].
    pub fn promote_as(&self, was_in_sync: bool, by_force: bool) -> Result<(), StartError> {
        self.want(self.promotion(was_in_sync, by_force)?);
        Ok(())
    }

    /// What [`Member::promote_as`] wants.
    ///
    /// # Errors
    ///
    /// As [`Member::promote`].
    pub fn promotion(&self, was_in_sync: bool, by_force: bool) -> Result<Wish, StartError> {
        let seat = self.inner.witness.load()?;
        let above = seat.map_or(0, |seat| seat.epoch.number);
        let nonce = self.nonce()?;
        Ok(Wish::Promote { nonce, above, was_in_sync, by_force })
    }

    /// How the member is.
    pub fn report(&self) -> Report {
        let hub = &self.inner.hub;
        let state = hub.lock();
        let status = state.core.status();
        let sizes = state.core.sizes().to_vec();
        let modes = state.core.modes();
        let failures = modes
            .iter()
            .filter_map(|(member, _)| Some((*member, state.links.failure(*member)?.to_owned())))
            .collect();
        let connections = modes
            .iter()
            .filter_map(|(member, _)| Some((*member, state.links.connections(*member)?)))
            .collect();
        let (verified, differences) = state.verified;
        let provider = self.inner.one_sided.as_ref().map(|options| options.provider.name());
        let ways = modes.iter().filter(|_| status.is_source).filter_map(|(member, _)| {
            let way = match state.ways.is_used(*member) {
                true => Way::OneSided(provider?),
                false => Way::Messages(state.ways.failure(*member).map(str::to_owned)),
            };
            provider.map(|_| (*member, way))
        });
        let ways = ways.collect();
        drop(state);
        let views = self.inner.volumes.views().open_views();
        Report {
            status,
            modes,
            connections,
            failures,
            time_ns: hub.time_ns(),
            verified,
            differences,
            views,
            sizes,
            ways,
        }
    }

    /// What has happened behind the event of a number.
    pub fn events(&self, since: u64) -> Vec<Noted> {
        self.inner.hub.lock().events.since(since)
    }

    /// Makes a volume longer, at all members, and returns its size. What is new reads as zeroes. Files grow by themselves; a
    /// device has to be so long at every member before: one where it is not follows no more until it is.
    ///
    /// # Durability
    ///
    /// Once this returns the size is in the rings of all members in sync, as a write is.
    ///
    /// # Errors
    ///
    /// This member is not the source, the volume would not be longer, or its device cannot be.
    pub fn resize(&self, volume: u8, size: u64) -> Result<u64, ResizeError> {
        self.inner.resize(volume, size)
    }

    /// Puts a named point into the order, and returns where it is once it is committed.
    ///
    /// # Errors
    ///
    /// This member is not the source, or ceases to be.
    pub fn mark(&self, name: &str) -> Result<Lsn, BlockError> {
        let nowhere = Extent { volume: 0, offset: 0, len: 0 };
        self.inner.note(Kind::Mark, nowhere, || Ok((None, name.as_bytes().to_vec())))
    }

    /// Has all members compare a range, in whole granules of 64 KiB, with what it is here, at one point of the order.
    /// What differs is copied to the member where it does.
    ///
    /// # Errors
    ///
    /// This member is not the source, or the volume cannot be read.
    pub fn verify(&self, extent: Extent) -> Result<Lsn, BlockError> {
        let device = self.inner.volumes.device(extent.volume).ok_or(BlockError::MediaIo(5))?;
        self.inner.note(Kind::Verify, extent, || {
            // Nobody writes to the range until the record has its place.
            let held = self.inner.ranges.hold(extent);
            let digest = self.inner.digester.range(&**device, extent.offset, extent.len)?;
            Ok((Some(held), digest.to_vec()))
        })
    }

    /// The points at which a view can be made.
    ///
    /// # Errors
    ///
    /// See [`ViewError`].
    pub fn available(&self) -> Result<(Available, Vec<Mark>), ViewError> {
        let records = Kept(&self.inner);
        self.place_views()?;
        let views = self.inner.volumes.views();
        Ok((views.available(&records)?, views.marks(&records)?))
    }

    /// The volumes as they were, or will be, at a point, for reading and writing. What is written to them is kept apart, at
    /// most `bytes_max` bytes of each volume, and is gone with the view.
    ///
    /// # Errors
    ///
    /// See [`ViewError`]. A source shows its volumes as they are now, and no other point; its writers wait for the moment that
    /// takes.
    pub fn view(&self, point: &Point, bytes_max: u64) -> Result<View, ViewError> {
        let inner = &self.inner;
        if self.tenure() != 0 && *point == Point::Latest {
            return inner.while_quiet(|at| {
                let contents = inner.hub.lock().core.label().contents;
                inner.volumes.views().set_contents(contents);
                inner.volumes.views().set_position(at, at);
                inner.volumes.view(&Kept(inner), (point, |at| inner.sizes_at(at)), bytes_max)
            });
        }
        self.place_views()?;
        inner.volumes.view(&Kept(inner), (point, |at| inner.sizes_at(at)), bytes_max)
    }

    /// Tells the views how far the volumes are. A thread that applies, which may wait for a slow disk, is not waited for under
    /// the lock that records and signs of life need.
    fn place_views(&self) -> Result<(), ViewError> {
        let views = self.inner.volumes.views();
        for _ in 0..PLACE_ATTEMPTS {
            let state = self.inner.hub.lock();
            let bound = state.core.bound().ok_or(ViewError::ConfigSource)?;
            if views.try_set_position(state.core.applied(), bound) {
                return Ok(());
            }
            drop(state);
            views.wait_for_change();
        }
        let state = self.inner.hub.lock();
        let bound = state.core.bound().ok_or(ViewError::ConfigSource)?;
        views.set_position(state.core.applied(), bound);
        Ok(())
    }

    /// Ends the member's threads.
    pub fn end(&self) {
        self.inner.hub.end();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.inner.hub.wait_for_readers();
        // Devices may outlive the member; another process may have its memory now.
        self.inner.ring.release();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end();
    }
}

/// How often the core is told that time passes.
const TICK: Duration = Duration::from_millis(50);
/// How often it is tried between two changes of the volumes to say how far they are.
const PLACE_ATTEMPTS: u32 = 1000;
/// After so many ticks a source that has no one-sided way is invited again.
const INVITES_AFTER: u64 = 200;
