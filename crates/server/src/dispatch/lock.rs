//! LOCK: byte ranges, taken and given back.
//!
//! Spec: MS-SMB2 §3.3.5.14.

use std::sync::Arc;

use smb::Empty;
use smb::NtStatus;
use smb::negotiate::Dialect;
use smb::{LockElement, LockFlags, LockRequest};
use tracing::warn;
use tree::journal::{LockChange, LockNote};
use tree::{InlineIo, MayWait};

use super::call::{Call, Lasting};
use super::frame::{Outcome, malformed};
use crate::access::{self, Look};
use crate::state::caching::Intent;
use crate::state::changes::{Count, Kept};
use crate::state::lock_sequence::Copy;
use crate::state::lock_waiters::LockWaiter;
use crate::state::locks::{GrantedLock, LockRefused};
use crate::state::range::LockRange;
use crate::state::{Open, Resource};
use crate::status::status_of_log;

/// Takes or gives back ranges, all or none of those to be taken.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = LockRequest::parse(call.pdu()).map_err(malformed)?;
    let open = call.open(request.file_id)?;
    if open.entry.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // MS-SMB2 §3.3.5.14: what has succeeded is not done twice.
    let counts = call.link.dialect() >= Dialect::SMB_3_0 || open.durable().is_some();
    let sequence = if counts { request.lock_sequence } else { 0 };
    let Some(_turn) = Turn::take(call, &open, sequence).await? else {
        Empty.emit(out);
        return Ok(NtStatus::SUCCESS);
    };
    let first = request.locks.first().ok_or(NtStatus::INVALID_PARAMETER)?;
    if first.flags.contains(LockFlags::UNLOCK) {
        unlock(call, &open, sequence, &request.locks).await?;
    } else {
        access::admit(&open, Look::Lock)?;
        call.yield_caching(&open.node, open.owner, Intent::Modify).await?;
        lock(call, &open, sequence, &request.locks).await?;
    }
    Empty.emit(out);
    Ok(NtStatus::SUCCESS)
}

/// A request is carried out. Dropping it says that it has ended.
struct Turn {
    open: Arc<Open>,
    sequence: u32,
}

impl Turn {
    // The first copy may still be under way, over a channel that the client has lost: what it comes to
    // is the answer. `None` where that is known already, or by then.
    async fn take(call: &Call, open: &Arc<Open>, sequence: u32) -> Result<Option<Self>, NtStatus> {
        let mut place = None;
        let look = || {
            let copy = open.lock_sequences().begin(sequence);
            match copy {
                Copy::No => return Some(Ok(Some(Self { open: Arc::clone(open), sequence }))),
                Copy::OfSuccess => return Some(Ok(None)),
                Copy::OfOneUnderWay => {}
            }
            place = place.take().or_else(|| open.lock_copies.places.try_acquire().ok());
            place.is_none().then_some(Err(NtStatus::INSUFFICIENT_RESOURCES))
        };
        let turn = basics::found(&open.lock_copies.ended, look);
        call.wait_unless_ready(Lasting::Unbounded, turn).await?
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.open.lock_sequences().end(self.sequence);
        if self.sequence != 0 {
            self.open.lock_copies.ended.notify_waiters();
        }
    }
}

async fn unlock(
    call: &Call,
    open: &Arc<Open>,
    sequence: u32,
    locks: &[LockElement],
) -> Result<(), NtStatus> {
    // MS-SMB2 §3.3.5.14.1: those before a wrong one are given back all the same.
    let (ranges, wrong) = held(open, locks);
    let changes = ranges
        .iter()
        .map(|range| LockChange::Unlock { offset: range.offset, length: range.length })
        .collect();
    settle(call, open, if wrong.is_ok() { sequence } else { 0 }, changes, ranges).await?;
    wrong
}

// The ranges the open holds, up to the first that it does not, or that is none.
fn held(open: &Open, locks: &[LockElement]) -> (Vec<LockRange>, Result<(), NtStatus>) {
    let mut ranges = Vec::with_capacity(locks.len());
    let named: Vec<LockRange> = locks.iter().map_while(|element| range(element).ok()).collect();
    let mut left = open.node.lock().locks.count(open.serial, &named);
    for element in locks {
        let range = match range(element) {
            Ok(range) if element.flags == LockFlags::UNLOCK => range,
            Ok(_) => return (ranges, Err(NtStatus::INVALID_PARAMETER)),
            Err(status) => return (ranges, Err(status)),
        };
        let Some(left) = left.get_mut(&range).filter(|left| **left > 0) else {
            return (ranges, Err(NtStatus::RANGE_NOT_LOCKED));
        };
        *left -= 1;
        ranges.push(range);
    }
    (ranges, Ok(()))
}

async fn lock(
    call: &Call,
    open: &Arc<Open>,
    sequence: u32,
    locks: &[LockElement],
) -> Result<(), NtStatus> {
    let waits = |element: &LockElement| !element.flags.contains(LockFlags::FAIL_IMMEDIATELY);
    // MS-SMB2 §3.3.5.14.2: only a single range may be waited for.
    if locks.len() > 1 && locks.iter().any(waits) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut taken = Vec::with_capacity(locks.len());
    let mut changes = Vec::with_capacity(locks.len());
    let mut outcome = Ok(());
    for element in locks {
        let asked = range(element).and_then(|range| Ok((range, is_exclusive(element)?)));
        outcome = match asked {
            Ok((range, exclusive)) => {
                let granted = take(call, open, range, exclusive, waits(element)).await;
                granted.map(|lock| {
                    let LockRange { offset, length } = range;
                    taken.push(lock);
                    changes.push(LockChange::Lock(LockNote { offset, length, exclusive }));
                })
            }
            Err(status) => Err(status),
        };
        if outcome.is_err() {
            break;
        }
    }
    if outcome.is_ok() {
        outcome = settle(call, open, sequence, changes, Vec::new()).await;
    }
    if outcome.is_err() {
        open.node.revert_locks(open.serial, &taken);
    }
    // The end of its session may give it what it has waited for, and then take the open.
    match outcome {
        Err(NtStatus::FILE_CLOSED) if call.session().is_closed() => Err(NtStatus::RANGE_NOT_LOCKED),
        outcome => outcome,
    }
}

fn is_exclusive(element: &LockElement) -> Result<bool, NtStatus> {
    match element.flags - LockFlags::FAIL_IMMEDIATELY {
        LockFlags::SHARED => Ok(false),
        LockFlags::EXCLUSIVE => Ok(true),
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}

// What a request comes to, as one change of the open: noted, ranges given back, and remembered. No
// other connection takes the open over in between.
//
// What a persistent open holds is noted before anybody is told: in this order a crash leaves it
// what it was promised, and what it gave back to those who have it now.
async fn settle(
    call: &Call,
    open: &Arc<Open>,
    sequence: u32,
    changes: Vec<LockChange>,
    given_back: Vec<LockRange>,
) -> Result<(), NtStatus> {
    let changed = Arc::clone(open);
    let work = move |may_wait| -> Result<(), NtStatus> {
        note(&changed, sequence, &changes, may_wait)?;
        if !changed.node.release_locks(changed.serial, &given_back) {
            return Err(NtStatus::RANGE_NOT_LOCKED);
        }
        changed.lock_sequences().set_done(sequence);
        Ok(())
    };
    let inline = if open.is_persistent() { InlineIo::CachedReads } else { InlineIo::Everything };
    call.changing_somewhere(open, inline, work).await?
}

// Where it may not wait the open is not persistent, and the log has nothing of it.
fn note(
    open: &Open,
    sequence: u32,
    changes: &[LockChange],
    may_wait: Option<MayWait>,
) -> Result<(), NtStatus> {
    let share = open.tree.share().filter(|_| open.is_persistent());
    let Some(journal) = share.zip(may_wait).and_then(|(share, may)| share.journal(may)) else {
        return Ok(());
    };
    let serial = open.serial.0;
    journal.lock_durably(serial, sequence, changes).map_err(|error| {
        warn!(serial, %error, "locks of a persistent open cannot be noted");
        status_of_log(&error)
    })
}

async fn take(
    call: &Call,
    open: &Open,
    range: LockRange,
    exclusive: bool,
    waits: bool,
) -> Result<GrantedLock, NtStatus> {
    let mut waiter = None;
    loop {
        let place = call.session().account.try_take(Resource::Locks, 1);
        let place = place.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        let locked = {
            let mut state = open.node.lock();
            // Closed on another channel: nobody would ever give the lock back.
            if open.is_closed() || state.record(open.serial).is_none() {
                return Err(NtStatus::RANGE_NOT_LOCKED);
            }
            match state.locks.lock(open.serial, range, exclusive, Some(place)) {
                Ok(lock) => Some((lock, state.changes.so_far())),
                Err(LockRefused::TableFull) => return Err(NtStatus::INSUFFICIENT_RESOURCES),
                Err(LockRefused::Conflict(_)) if !waits => return Err(NtStatus::LOCK_NOT_GRANTED),
                Err(LockRefused::Conflict(held)) => {
                    state.locks.wait(&open.node, &mut waiter, held);
                    None
                }
            }
        };
        if let Some((lock, before)) = locked {
            drop(waiter);
            settled(call, open, lock, exclusive, before).await?;
            return Ok(lock);
        }
        let waiter: &LockWaiter = waiter.as_ref().expect("it has just begun to wait");
        let turn = async {
            tokio::select! {
                () = waiter.woken() => {}
                () = basics::until(&open.closed, || open.is_closed()) => {}
            }
        };
        match call.wait_pending(Lasting::Unbounded, turn).await {
            // Where the session has ended nobody has cancelled it: its open is closed.
            Err(NtStatus::CANCELLED | NtStatus::USER_SESSION_DELETED)
                if call.session().is_closed() =>
            {
                return Err(NtStatus::RANGE_NOT_LOCKED);
            }
            waited => waited?,
        }
    }
}

// Under a lock nothing changes, and under an exclusive one others read nothing, that was admitted before it; nor is
// anything cached that was granted before it.
async fn settled(
    call: &Call,
    open: &Open,
    lock: GrantedLock,
    exclusive: bool,
    before: Count,
) -> Result<(), NtStatus> {
    open.node.begin_breaks(open.owner, Intent::Modify);
    let kept = Kept { serial: open.serial, range: lock.range, exclusive, before };
    let settled = call.wait(open.node.settled(kept)).await;
    if settled.is_err() {
        open.node.revert_locks(open.serial, &[lock]);
    }
    settled
}

fn range(element: &LockElement) -> Result<LockRange, NtStatus> {
    LockRange::new(element.offset, element.length).ok_or(NtStatus::INVALID_LOCK_RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::tests::rig::{Opened, Rig};
    use crate::state::locks::LockTable;

    #[tokio::test]
    async fn a_lock_whose_handle_is_closed_while_it_waits_is_refused() {
        let rig = Rig::new();
        let (open, other) = (rig.open("f", 1).await, rig.open("f", 1).await);
        let of = |open: Opened| {
            rig.session().open(open.id.persistent, open.id.volatile).expect("it is open")
        };
        let other = of(other);
        let (node, range) = (Arc::clone(&other.node), LockRange::new(0, 10).unwrap());
        // What was admitted before the LOCK is waited for.
        let changing = node.begin_change(other.change(range), |_| true).await.unwrap();
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        let locks = vec![LockElement { offset: 0, length: 10, flags }];
        let request = LockRequest { lock_sequence: 0, file_id: open.id, locks };
        let mut locked = Box::pin(rig.ask(smb::Command::LOCK, |out| request.emit(out)));
        for _ in 0..100 {
            tokio::select! {
                biased;
                outcome = &mut locked => panic!("it did not wait: {outcome:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        rig.close(open.id).await;
        drop(changing);
        assert_eq!(locked.await.err(), Some(NtStatus::FILE_CLOSED));
        let is_free = |locks: &LockTable| locks.allows_write(other.serial, 0, 10);
        assert!(is_free(&node.lock().locks));
    }
}
