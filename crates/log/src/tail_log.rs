//! A log whose tail is memory: append, commit, trim.
//!
//! ```text
//!   append: encode under one lock --> staged
//!   commit: one caller leads: takes all that is staged, places it at every member, commits everywhere, tells the rest
//!           the others wait, and what they append meanwhile leaves with the next commit
//!   append with its commit, on one member in the memory of this machine: each thread places its own record (direct)
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::MediumError;

use crate::create;
use crate::direct::{Direct, Frontier, Reserved};
use crate::error::LogError;
use crate::format::Label;
use crate::gate::{Gate, Gates};
use crate::lsn::{Generation, Lsn};
use crate::members::{MEMBERS_MAX, MemberSet};
use crate::mirror::{Member, Mirror};
use crate::open::{self, Opened};
use crate::options::{CreateOptions, OpenOptions};
use crate::replay::Replay;
use crate::seal::Seal;
use crate::staging::Staging;
use crate::store::{Store, StoreError, Worth};

/// An open log. Any thread may append and commit.
#[derive(Debug)]
pub struct TailLog {
    staging: Mutex<Staging>,
    mirror: Mutex<Mirror>,
    gates: Gates,
    direct: Direct,
    frontier: Frontier,
    /// Everything below is being made durable, or is: a hint for those who wait.
    taken: AtomicU64,
    /// The destager has work once everything below is durable.
    destage_at: AtomicU64,
    /// What the gate says of a leader, for those who spin: a hint.
    is_led: AtomicBool,
    /// A commit is worth less than the sleep of a thread that waits for it.
    is_quick: bool,
    /// Opens sealed records for replay.
    pub(crate) unseal: Option<Seal>,
}

/// What a log is at this moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Bytes of the ring.
    pub capacity: u64,
    /// The oldest record that is kept.
    pub start: Lsn,
    /// Everything below is durable at every member in sync.
    pub durable: Lsn,
    /// The LSN of the next record, or of the filler before it.
    pub tail: Lsn,
    /// The ownership of this opening.
    pub generation: Generation,
    /// The members in sync.
    pub in_sync: MemberSet,
    /// What a commit is worth at each member in sync, by number.
    pub worths: Vec<(usize, Worth)>,
    /// Members that failed since the log was opened, each with its reason.
    pub failed: Vec<(usize, StoreError)>,
}

impl TailLog {
    /// Makes a log whose members are `stores`, numbered in this order, and opens it.
    ///
    /// # Durability
    ///
    /// On `Ok` the empty log is durable. A crash before leaves members without a log, or with an empty one.
    ///
    /// # Errors
    ///
    /// [`LogError::ConfigExists`] where a member holds a log and [`CreateOptions::replace`] is not set;
    /// other `Config` errors; [`LogError::Store`] if any member fails.
    pub fn create(
        mut stores: Vec<Box<dyn Store>>,
        options: &CreateOptions,
    ) -> Result<Self, LogError> {
        create::create(&mut stores, options)?;
        Self::open(stores, &OpenOptions { key: options.key.clone(), ..OpenOptions::default() })
    }

    /// Opens the log of these members, in any order. The records it has are read by [`TailLog::replay`].
    ///
    /// A member that was out of sync catches up first. The caller has taken the members from an earlier owner that may
    /// still live: a local file is locked by [`crate::LocalStore`], a remote one by the server's revocation.
    ///
    /// # Durability
    ///
    /// On `Ok` every record that [`TailLog::replay`] finds is durable at every member in sync.
    ///
    /// # Errors
    ///
    /// [`LogError::Missing`] if members that are not here may have acknowledged more: bring one of them, or name those
    /// that are gone for good in [`OpenOptions::given_up`]. [`LogError::Damaged`] if a durable record is at no member.
    pub fn open(stores: Vec<Box<dyn Store>>, options: &OpenOptions) -> Result<Self, LogError> {
        let Opened { mirror, seal, tail } = open::open(stores, options)?;
        let label = mirror.label();
        let sealer = seal.as_ref().map(Seal::sealer).transpose()?;
        let is_quick = mirror.worths().iter().all(|(_, worth)| worth.is_quick());
        Ok(Self {
            staging: Mutex::new(Staging::new(label, sealer, tail)),
            direct: Direct::new(mirror.only_memory()),
            frontier: Frontier::new(tail),
            taken: AtomicU64::new(tail.0),
            destage_at: AtomicU64::new(u64::MAX),
            mirror: Mutex::new(mirror),
            gates: Gates::default(),
            is_led: AtomicBool::new(false),
            is_quick,
            unseal: seal,
        })
    }

    /// Appends a record; a commit of its LSN makes it durable.
    ///
    /// # Errors
    ///
    /// [`LogError::Full`]: trim, or wait for the destager ([`TailLog::wait_for_room`]). [`LogError::TooLong`].
    pub fn append(&self, record: &[u8]) -> Result<Lsn, LogError> {
        self.append_with(record.len(), |bytes| bytes.copy_from_slice(record))
    }

    /// Appends a record of `len` bytes that `fill` builds in place, in zeroed memory. Other appends wait for `fill`.
    ///
    /// # Errors
    ///
    /// As [`TailLog::append`].
    pub fn append_with(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Lsn, LogError> {
        let mut staging = lock(&self.staging);
        while staging.is_crowded_for(len) {
            let tail = staging.tail();
            drop(staging);
            self.commit_below(tail)?;
            staging = lock(&self.staging);
        }
        staging.append(len, self.durable_lsn(), fill)
    }

    /// Makes the record at `lsn`, and all before it, durable. Commits of several threads share one round.
    ///
    /// # Durability
    ///
    /// On `Ok` the record survives, at every member in sync, what the member's class survives. A crash before leaves
    /// the record whole or not at all, and no later record without it.
    ///
    /// # Errors
    ///
    /// [`LogError::Store`] if too few members are left, [`LogError::Broken`] after that: the record may be durable or
    /// not, and opening the log tells.
    pub fn commit(&self, lsn: Lsn) -> Result<(), LogError> {
        self.commit_below(lsn.plus(1))
    }

    /// [`TailLog::append`] and [`TailLog::commit`].
    ///
    /// # Durability
    ///
    /// As [`TailLog::commit`].
    ///
    /// # Errors
    ///
    /// As both.
    pub fn append_commit(&self, record: &[u8]) -> Result<Lsn, LogError> {
        if let Some(reserved) = self.write_directly(record)? {
            self.commit_below(reserved.end)?;
            return Ok(reserved.lsn);
        }
        let lsn = self.append(record)?;
        self.commit(lsn)?;
        Ok(lsn)
    }

    /// Writes a record beside other threads; `None` where that cannot be. It is durable with all before it.
    fn write_directly(&self, record: &[u8]) -> Result<Option<Reserved>, LogError> {
        // Dropped behind the hold on the memory: the end of the log waits for those who have one.
        let mut unfinished = Unfinished::of(self);
        let memory = self.direct.memory();
        let Some(medium) = &*memory else { return Ok(None) };
        let Some(reserved) = self.reserve(record.len())? else { return Ok(None) };
        unfinished.is_there = true;
        let written = reserved.write(&**medium, record);
        unfinished.is_there = false;
        if let Err(cause) = written {
            drop(memory);
            return Err(self.fail_directly(cause));
        }
        if self.publish(reserved.range()) {
            self.tell();
        }
        Ok(Some(reserved))
    }

    /// Ends the log: a thread could not write its record, and nothing behind that is ever durable.
    pub(crate) fn fail_directly(&self, cause: MediumError) -> LogError {
        let error = lock(&self.mirror).only_failed(StoreError::new(cause));
        self.break_off();
        error
    }

    /// Room for a record that its thread writes.
    pub(crate) fn reserve(&self, len: usize) -> Result<Option<Reserved>, LogError> {
        let mut staging = lock(&self.staging);
        let reserved = staging.reserve(len, self.durable_lsn())?;
        self.taken.store(staging.taken().0, Ordering::Release);
        Ok(reserved)
    }

    /// Notes bytes that are durable; whether more is durable than before.
    pub(crate) fn publish(&self, range: Range<Lsn>) -> bool {
        let before = self.durable_lsn();
        self.frontier.publish(range);
        before < self.durable_lsn()
    }

    /// Tells whoever waits that more is durable.
    fn tell(&self) {
        self.gates.announce_lately();
        // The destager stores the one and then looks at the other: one of both sees what the other did.
        if self.durable_lsn().0 >= self.destage_at.load(Ordering::Acquire) {
            // Under the lock, so that a destager that is about to wait hears of it.
            let _gate = self.gates.lock();
            self.gates.announce_work();
        }
    }

    /// What names the log: random, and the same at every member and in the archive.
    pub fn id(&self) -> [u8; 16] {
        lock(&self.mirror).label().id
    }

    /// Whether a failure ended the log. What was acknowledged is there when the log is opened again.
    pub fn is_broken(&self) -> bool {
        self.gates.lock().is_broken
    }

    /// Everything below is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.frontier.durable()
    }

    /// Longest record in bytes.
    pub fn record_max(&self) -> usize {
        lock(&self.staging).record_max()
    }

    /// Forgets the records before `upto`, which is the LSN of a durable record or [`TailLog::durable_lsn`].
    ///
    /// # Durability
    ///
    /// On `Ok` the records are gone for good, and their room is free. A crash before leaves all of them.
    ///
    /// # Errors
    ///
    /// [`LogError::NoRecord`] if no durable record begins there, or it is gone already.
    pub fn trim(&self, upto: Lsn) -> Result<(), LogError> {
        let mut unfinished = Unfinished::of(self);
        let mut mirror = lock(&self.mirror);
        let (start, durable) = (mirror.label().start, self.durable_lsn());
        if upto == start {
            // What a trim that failed has changed in memory is at no member.
            return if self.is_broken() { Err(LogError::Broken) } else { Ok(()) };
        }
        let is_kept = upto == durable
            || (start..durable).contains(&upto) && mirror.header_at(upto)?.is_some();
        if !is_kept {
            return Err(LogError::NoRecord { lsn: upto });
        }
        #[cfg(test)]
        if crate::planted::Planted::FreesBeforeLabel.is_here() {
            mirror.forget_to_label(upto);
            drop(mirror);
            lock(&self.staging).keep_from(upto);
            return Ok(());
        }
        unfinished.is_there = true;
        let outcome = mirror.put_labels(|label| label.start = upto);
        unfinished.is_there = false;
        drop(mirror);
        self.or_break(outcome)?;
        lock(&self.staging).keep_from(upto);
        self.gates.announce(self.gates.lock());
        Ok(())
    }

    /// [`TailLog::append`], which waits while the log is full: another thread trims, or a [`crate::Destager`] does.
    ///
    /// # Errors
    ///
    /// As [`TailLog::append`] and [`TailLog::wait_for_room`].
    pub fn append_when_room(&self, record: &[u8]) -> Result<Lsn, LogError> {
        loop {
            match self.append(record) {
                Err(LogError::Full { .. }) => self.wait_for_room(record.len())?,
                outcome => return outcome,
            }
        }
    }

    /// Waits until a record of `len` bytes fits, because another thread trims. What is staged becomes durable first: it
    /// could not be trimmed.
    ///
    /// # Errors
    ///
    /// [`LogError::TooLong`] if it never fits; [`LogError::Broken`]; [`LogError::Destaging`] once the destager failed.
    pub fn wait_for_room(&self, len: usize) -> Result<(), LogError> {
        if self.has_room_for(len)? {
            return Ok(());
        }
        let tail = lock(&self.staging).tail();
        self.commit_below(tail)?;
        let mut gate = self.gates.lock();
        gate.wanting_room += 1;
        self.gates.announce_work();
        let outcome = loop {
            // Trims take the gate after they have made room, so that no signal is lost here.
            match self.look_for_room(&gate, len) {
                Ok(false) => {
                    // What others have staged meanwhile could not be trimmed either, and its owners may commit nothing.
                    let tail = lock(&self.staging).tail();
                    if tail <= self.durable_lsn() {
                        gate = self.gates.wait(gate);
                        continue;
                    }
                    drop(gate);
                    let outcome = self.commit_below(tail);
                    gate = self.gates.lock();
                    if outcome.is_err() {
                        break outcome;
                    }
                }
                outcome => break outcome.map(drop),
            }
        };
        gate.wanting_room -= 1;
        outcome
    }

    fn has_room_for(&self, len: usize) -> Result<bool, LogError> {
        match lock(&self.staging).has_room_for(len) {
            Ok(()) => Ok(true),
            Err(LogError::Full { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn look_for_room(&self, gate: &Gate, len: usize) -> Result<bool, LogError> {
        if gate.is_broken {
            return Err(LogError::Broken);
        }
        match (self.has_room_for(len)?, &gate.destaging_ended) {
            (false, Some(cause)) => Err(cause.clone()),
            (has_room, _) => Ok(has_room),
        }
    }

    /// Reads the durable records from `from` on, which is the LSN of a record that is kept, up to what is durable now.
    ///
    /// # Errors
    ///
    /// [`LogError::NoRecord`] if `from` is no place from which records are kept.
    pub fn replay(&self, from: Lsn) -> Result<Replay<'_>, LogError> {
        self.replay_below(from, self.durable_lsn())
    }

    /// [`TailLog::replay`] up to a durable LSN.
    pub(crate) fn replay_below(&self, from: Lsn, end: Lsn) -> Result<Replay<'_>, LogError> {
        let mut mirror = lock(&self.mirror);
        let start = mirror.label().start;
        let is_kept =
            from == end || ((start..end).contains(&from) && mirror.header_at(from)?.is_some());
        if !is_kept {
            return Err(LogError::NoRecord { lsn: from });
        }
        Ok(Replay::new(self, mirror.label(), from..end))
    }

    /// The LSN from which records are kept.
    pub fn start_lsn(&self) -> Lsn {
        lock(&self.mirror).label().start
    }

    /// What the log is at this moment.
    pub fn status(&self) -> Status {
        let tail = lock(&self.staging).tail();
        let mirror = lock(&self.mirror);
        let label: &Label = mirror.label();
        Status {
            capacity: label.capacity,
            start: label.start,
            durable: self.durable_lsn(),
            tail,
            generation: label.generation,
            in_sync: label.in_sync,
            worths: mirror.worths(),
            failed: mirror.failed().to_vec(),
        }
    }

    /// Takes a member in while others append: it gets the records that are kept, and is in sync when this returns.
    ///
    /// Whatever the store held is overwritten. Returns the member's number.
    ///
    /// # Errors
    ///
    /// [`LogError::ConfigCapacity`] if the store is too small; [`LogError::ConfigMembers`] if the log has no number
    /// left; [`LogError::Store`] if a member fails.
    pub fn add_member(&self, store: Box<dyn Store>) -> Result<usize, LogError> {
        let member = {
            let mirror = lock(&self.mirror);
            let max = store.len().saturating_sub(crate::format::RING_START);
            if max < mirror.label().capacity {
                return Err(LogError::ConfigCapacity { asked: mirror.label().capacity, max });
            }
            let given = usize::from(mirror.label().members) + 1;
            let max = MEMBERS_MAX;
            let number = mirror.free_number().ok_or(LogError::ConfigMembers { given, max })?;
            Member { number, sequence: 0, store }
        };
        let outcome = self.take_in(member);
        let mirror = lock(&self.mirror);
        self.direct.set(mirror.only_memory());
        outcome
    }

    fn take_in(&self, mut member: Member) -> Result<usize, LogError> {
        let mut unfinished = Unfinished::of(self);
        open::erase_labels(&mut member)?;
        let ring = lock(&self.mirror).ring();
        open::erase_records(&mut member, ring, Lsn::FIRST..Lsn::FIRST.plus(ring.capacity))?;
        let mut at = self.start_lsn();
        loop {
            let mut mirror = lock(&self.mirror);
            at = at.max(mirror.label().start);
            // No commit is under way: a leader holds the members while it writes, and nobody writes directly any more.
            self.direct.set(None);
            let durable = self.durable_lsn();
            let to = durable.min(at.plus(ROUND));
            open::copy_range(&mut mirror, &mut member, at, to)?;
            if to == durable {
                // Others may have been taken in meanwhile.
                let (given, max) = (usize::from(mirror.label().members) + 1, MEMBERS_MAX);
                let free = mirror.free_number().ok_or(LogError::ConfigMembers { given, max });
                unfinished.is_there = true;
                let outcome = free.and_then(|number| {
                    member.number = number;
                    mirror.admit(member).map(|()| number)
                });
                unfinished.is_there = false;
                // A disk has larger units than memory.
                lock(&self.staging).raise_unit(mirror.label().unit);
                self.look_after(mirror);
                return outcome;
            }
            at = to;
        }
    }

    /// Takes a member out for good.
    ///
    /// # Errors
    ///
    /// [`LogError::ConfigLeastInSync`] if too few would be left; [`LogError::Store`] if those that are left failed.
    pub fn remove_member(&self, number: usize) -> Result<(), LogError> {
        let mut unfinished = Unfinished::of(self);
        let mut mirror = lock(&self.mirror);
        unfinished.is_there = true;
        let outcome = mirror.dismiss(number);
        unfinished.is_there = false;
        // While the members are held: no newcomer is taken in between the look and what comes of it.
        self.direct.set(mirror.only_memory());
        self.look_after(mirror);
        outcome
    }

    /// Ends the log if its members are too few after a change.
    fn look_after(&self, mirror: MutexGuard<'_, Mirror>) {
        let is_broken = mirror.is_broken();
        drop(mirror);
        if is_broken {
            self.break_off();
        }
    }

    /// Ends the log; the caller holds neither the members nor the memory.
    fn break_off(&self) {
        // Its records would be durable, and acknowledged by a log that says it is broken.
        self.direct.set(None);
        let mut gate = self.gates.lock();
        gate.is_broken = true;
        self.gates.announce(gate);
        self.gates.announce_work();
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, Mirror> {
        lock(&self.mirror)
    }

    /// Makes everything below `end` durable, as the one that leads or behind the one that does.
    pub(crate) fn commit_below(&self, end: Lsn) -> Result<(), LogError> {
        if self.durable_lsn() >= end {
            return Ok(());
        }
        let mut has_spun = false;
        let mut gate = self.gates.lock();
        loop {
            if self.durable_lsn() >= end {
                return Ok(());
            }
            if gate.is_broken {
                return Err(LogError::Broken);
            }
            if !gate.is_led && !self.is_taken(end) {
                gate.is_led = true;
                self.is_led.store(true, Ordering::Relaxed);
                let spare = std::mem::take(&mut gate.spare);
                drop(gate);
                let mut unfinished = Unfinished { log: self, is_there: true, is_leader: true };
                let led = self.lead(spare);
                unfinished.is_there = false;
                if led.is_err() {
                    self.direct.set(None);
                }
                gate = self.gates.lock();
                gate.is_led = false;
                self.is_led.store(false, Ordering::Relaxed);
                gate.is_broken |= led.is_err();
                let outcome = led.map(|spare| gate.spare = spare);
                self.gates.announce(gate);
                outcome.inspect_err(|_| self.gates.announce_work())?;
                if self.durable_lsn() >= end {
                    return Ok(());
                }
                if !self.is_taken(end) {
                    return Err(LogError::NoRecord { lsn: end });
                }
                gate = self.gates.lock();
            } else if self.is_quick && !has_spun {
                drop(gate);
                if self.spin_until_durable(end) {
                    return Ok(());
                }
                has_spun = true;
                gate = self.gates.lock();
            } else {
                gate = self.gates.wait_unless(gate, || self.durable_lsn() >= end);
                has_spun = false;
            }
        }
    }

    /// Whether everything below `end` is durable, or some thread is about to make it so and tells.
    fn is_taken(&self, end: Lsn) -> bool {
        self.taken.load(Ordering::Acquire) >= end.0
    }

    /// Looks for the end of another thread's commit for about as long as a commit in memory takes, and then leaves the
    /// core to whoever leads, who may have lost its own: to sleep and be woken would cost more than many commits.
    fn spin_until_durable(&self, end: Lsn) -> bool {
        for turn in 0..SPINS + YIELDS {
            if turn < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
            if self.durable_lsn() >= end {
                return true;
            }
            if !self.is_led.load(Ordering::Relaxed) && !self.is_taken(end) {
                break;
            }
        }
        false
    }

    /// Takes all that is staged, and makes it durable.
    fn lead(&self, spare: Vec<u8>) -> Result<Vec<u8>, LogError> {
        let mut mirror = lock(&self.mirror);
        let batch = {
            let mut staging = lock(&self.staging);
            let batch = staging.take(self.durable_lsn(), spare);
            self.taken.store(staging.taken().0, Ordering::Release);
            batch
        };
        mirror.harden(&batch)?;
        // Under the members' lock: who has it finds no commit under way.
        let is_more = self.publish(batch.range());
        drop(mirror);
        if is_more {
            self.tell();
        }
        Ok(batch.bytes)
    }

    fn or_break<T>(&self, outcome: Result<T, LogError>) -> Result<T, LogError> {
        outcome.inspect_err(|_| self.break_off())
    }

    /// One destager at a time.
    pub(crate) fn begin_to_destage(&self) -> Result<(), LogError> {
        let mut gate = self.gates.lock();
        if std::mem::replace(&mut gate.is_destaged, true) {
            return Err(LogError::ConfigDestaged);
        }
        (gate.destaging_ended, gate.is_destaging_to_end) = (None, false);
        gate.drain_to = Lsn::FIRST;
        Ok(())
    }

    /// The destager has ended, or did not begin.
    pub(crate) fn end_to_destage(&self) {
        self.destage_at(Lsn(u64::MAX));
        self.gates.lock().is_destaged = false;
    }

    pub(crate) fn gates(&self) -> &Gates {
        &self.gates
    }

    /// From which durable LSN on the destager is woken.
    pub(crate) fn destage_at(&self, lsn: Lsn) {
        self.destage_at.store(lsn.0, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Appends without waiting for anybody.
    pub(crate) fn try_append(&self, record: &[u8]) -> Result<Option<Lsn>, LogError> {
        let mut staging = lock(&self.staging);
        if staging.is_crowded_for(record.len()) {
            return Ok(None);
        }
        let fill = |bytes: &mut [u8]| bytes.copy_from_slice(record);
        match staging.append(record.len(), self.durable_lsn(), fill) {
            Ok(lsn) => Ok(Some(lsn)),
            Err(LogError::Full { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Behind the last record that was appended.
    pub(crate) fn tail(&self) -> Lsn {
        lock(&self.staging).tail()
    }
}

/// Whether a thread has begun what nobody else can end: room whose record it has not made durable, a batch that is out of the
/// staging, labels that say something else than the members know. Nothing behind that is ever durable if the thread panics
/// now, and those who wait for what is behind hear of the end of the log. Dropped without the locks of what was begun.
struct Unfinished<'l> {
    log: &'l TailLog,
    is_there: bool,
    is_leader: bool,
}

impl<'l> Unfinished<'l> {
    /// Nothing yet.
    fn of(log: &'l TailLog) -> Self {
        Self { log, is_there: false, is_leader: false }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.is_there && self.is_leader {
            self.log.gates.lock().is_led = false;
            self.log.is_led.store(false, Ordering::Relaxed);
        }
        if self.is_there {
            self.log.break_off();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks of a thread at the end of another's commit before it sleeps: some microseconds, less than a sleep and a wake-up
/// cost.
const SPINS: u32 = 100;
/// How often a thread then leaves its core before it sleeps.
const YIELDS: u32 = 50;
/// Bytes that a member that catches up is behind before commits wait for it.
const ROUND: u64 = 1 << 20;
