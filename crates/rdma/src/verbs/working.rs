//! Translates work requests into the device's, and its completions into this crate's.
//!
//! A failed completion puts the device's queue pair into its error state: everything else that is
//! posted comes back unfinished, and the connection ends.
//!
//! Spec: ibv_poll_cq(3) for the states a completion can have; InfiniBand Architecture §10.10.3.

use super::connection::{Connection, Sent, Stage};
use super::engine::{VerbsEngine, key_of, qp_of};
use super::ring::{INLINE_MAX, Ring};
use super::sys::queue::{BATCH, Ended, Piece, Remote, Work};
use crate::common::timers::Due;
use crate::interface::{
    Access, DisconnectReason, EngineError, Event, LocalSlice, Operation, Payload, Placement,
    PostError, QUEUE_DEPTH_MAX, QpId, Rkey, TerminateCode, WcOpcode, WcStatus, WorkCompletion,
    WorkRequest,
};
use basics::Key;

impl VerbsEngine {
    pub(super) fn post(&mut self, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let key = key_of(qp);
        let connection = self.qps.get_mut(key).ok_or(PostError::UnknownQp(qp))?;
        if !matches!(connection.stage, Stage::Up) || connection.closing.is_some() {
            return Err(PostError::NotConnected(qp));
        }
        if !connection.capabilities.supports(&request.operation) {
            return Err(PostError::PeerUnsupported);
        }
        if connection.sends.len() >= usize::from(connection.config.send_depth) {
            return Err(PostError::QueueFull);
        }
        let (work, ring) = connection.work(&request.operation)?;
        let (number, asks) =
            connection.sends.next(connection.config.send_depth, request.signaled, ring);
        match connection.queue.post_send(number, asks, work) {
            Ok(()) => {}
            Err(error) => {
                connection.take_back(ring);
                if let EngineError::HostIo { errno: libc::ENOMEM, .. } = error {
                    return Err(PostError::QueueFull);
                }
                tracing::warn!(%error, %qp, "a work request was not taken");
                return Err(PostError::NotConnected(qp));
            }
        }
        let opcode = request.operation.opcode();
        let (wr_id, is_reported) = (request.wr_id, request.signaled);
        let len = len_of(&request.operation);
        connection.sends.push(Sent { wr_id, opcode, is_reported, len, ring }, asks);
        self.is_busy_now(key);
        Ok(())
    }

    pub(super) fn post_buffer(
        &mut self,
        qp: QpId,
        wr_id: u64,
        buffer: LocalSlice,
    ) -> Result<(), PostError> {
        let key = key_of(qp);
        let connection = self.qps.get_mut(key).ok_or(PostError::UnknownQp(qp))?;
        if connection.closing.is_some() || connection.fault.is_some() {
            return Err(PostError::NotConnected(qp));
        }
        let piece = connection.locate(buffer, Access::RECEIVE)?;
        if connection.receives.len() >= usize::from(connection.config.recv_depth) {
            return Err(PostError::QueueFull);
        }
        let number = connection.receives.next() | RECEIVE;
        connection.queue.post_recv(number, piece).map_err(|_| PostError::NotConnected(qp))?;
        connection.receives.push(wr_id);
        self.is_busy_now(key);
        Ok(())
    }

    fn is_busy_now(&mut self, key: Key) {
        if let Some(connection) = self.qps.get_mut(key)
            && !connection.is_busy
        {
            connection.is_busy = true;
            self.busy.push(key);
        }
    }

    /// Takes the completions of every busy queue pair, each its share.
    pub(super) fn take_completions(&mut self) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some(key) = self.busy.get(at).copied() {
            worked |= self.take_completions_of(key);
            let stays = self.qps.get_mut(key).is_some_and(|connection| {
                connection.is_busy = connection.has_work();
                connection.is_busy
            });
            // A connection that has ended is no longer in the list.
            match self.busy.get(at) {
                Some(found) if *found == key && !stays => drop(self.busy.swap_remove(at)),
                Some(found) if *found == key => at += 1,
                _ => {}
            }
        }
        worked
    }

    /// Takes completions of one queue pair; ends the queue pair if a request failed, or if the pair
    /// only waited for its last completions.
    fn take_completions_of(&mut self, key: Key) -> bool {
        let worked = self.drain(key);
        let Some(connection) = self.qps.get_mut(key) else { return worked };
        if connection.fault.is_some() {
            self.end(key, DisconnectReason::PeerClosed);
        } else if std::mem::take(&mut connection.is_broken) {
            // Mostly because the peer has closed the connection, which the connection manager is
            // about to report.
            self.timers.after(BROKEN_PATIENCE, Due::linger(key));
            self.take_happenings();
        } else if connection.closing.is_some() && connection.sends.is_empty() {
            self.end(key, DisconnectReason::Local);
        }
        worked
    }

    /// Turns a share of the device's completions into events.
    fn drain(&mut self, key: Key) -> bool {
        let mut worked = false;
        for _ in 0..BATCHES_PER_ROUND {
            let Some(connection) = self.qps.get_mut(key) else { return worked };
            let mut ended = std::mem::take(&mut self.ended);
            let count = connection.queue.poll(&mut ended);
            for one in ended.drain(..) {
                connection.ended(one, qp_of(key), &mut self.events);
            }
            self.ended = ended;
            worked |= count > 0;
            if count < BATCH {
                break;
            }
        }
        worked
    }

    /// Ends a connection: reports what has completed, flushes what has not, then drops the
    /// connection. A known fault is the reason.
    pub(super) fn end(&mut self, key: Key, reason: DisconnectReason) {
        let Some(connection) = self.qps.get(key) else { return };
        connection.queue.id().disconnect();
        // The depths of a broken queue pair bound the completions that it still reports.
        for _ in 0..DRAINS_MAX {
            if !self.drain(key) {
                break;
            }
        }
        let Some(mut connection) = self.forget(key) else { return };
        let reason = connection.fault.unwrap_or(reason);
        connection.flush(qp_of(key), &mut self.events);
        self.events.push(Event::Disconnected { qp: qp_of(key), reason });
    }

    /// Ends the connection as the owner asked: at once, or when the posted sends have left.
    pub(super) fn say_goodbye(&mut self, key: Key) {
        let Some(connection) = self.qps.get_mut(key) else { return };
        if connection.closing.is_some() {
            return;
        }
        if connection.sends.is_empty() || !matches!(connection.stage, Stage::Up) {
            self.end(key, DisconnectReason::Local);
        } else {
            connection.closing = Some(self.timers.after(LINGER, Due::linger(key)));
        }
    }
}

impl Connection {
    /// The device's form of an operation, and the bytes that the payload took in the ring.
    fn work(&mut self, operation: &Operation<'_>) -> Result<(Work, u64), PostError> {
        let remote = |rkey: Rkey, address: u64, len: u64| {
            let end = address.checked_add(len);
            end.map(|_| Remote { address, rkey: rkey.0 })
                .ok_or(PostError::ConfigRemoteWrap(address))
        };
        Ok(match *operation {
            Operation::Send { payload, invalidate, solicited } => {
                let (piece, ring) = self.payload(payload)?;
                let invalidate = invalidate.map(|rkey| rkey.0);
                (Work::Send { piece, invalidate, solicited }, ring)
            }
            Operation::Write { payload, rkey, remote_addr } => {
                let len = u64::try_from(payload.len()).expect("64 bits");
                let remote = remote(rkey, remote_addr, len)?;
                let (piece, ring) = self.payload(payload)?;
                (Work::Write { piece, remote }, ring)
            }
            Operation::Read { local, rkey, remote_addr } => {
                let remote = remote(rkey, remote_addr, u64::from(local.len))?;
                let piece = self.locate(local, Access::READ_SINK)?;
                (Work::Read { piece, remote }, 0)
            }
            Operation::Flush { rkey, remote_addr, len, kind } => {
                let remote = remote(rkey, remote_addr, u64::from(len))?;
                (Work::Flush { remote, len, persistent: kind == Placement::Persistence }, 0)
            }
            Operation::AtomicWrite { rkey, remote_addr, value } => {
                if !remote_addr.is_multiple_of(8) {
                    return Err(PostError::ConfigMisaligned(remote_addr));
                }
                (Work::AtomicWrite { remote: remote(rkey, remote_addr, 8)?, value }, 0)
            }
            Operation::Immediate { .. }
            | Operation::Verify { .. }
            | Operation::FetchAdd { .. }
            | Operation::CompareSwap { .. } => return Err(PostError::PeerUnsupported),
        })
    }

    fn payload(&mut self, payload: Payload<'_>) -> Result<(Piece, u64), PostError> {
        let bytes = match payload {
            Payload::Registered(slice) => return Ok((self.locate(slice, Access::empty())?, 0)),
            Payload::Inline(bytes) => bytes,
        };
        if bytes.len() > INLINE_MAX {
            return Err(PostError::ConfigInline { len: bytes.len(), max: INLINE_MAX });
        }
        if bytes.is_empty() {
            return Ok((Piece { address: 0, len: 0, lkey: 0 }, 0));
        }
        if self.ring.is_none() {
            self.ring = Ring::new(self.queue.domain());
        }
        // Without memory for a ring there never is room: the owner gives up in time.
        self.ring.as_mut().and_then(|ring| ring.put(bytes)).ok_or(PostError::QueueFull)
    }

    fn take_back(&mut self, ring: u64) {
        if let Some(held) = &mut self.ring {
            held.give_back(ring);
        }
    }

    /// Reports one completion, and the unsignaled requests in front of it.
    fn ended(&mut self, one: Ended, qp: QpId, events: &mut Vec<Event>) {
        if one.id & RECEIVE != 0 {
            let Some(wr_id) = self.receives.pop_named(one.id & !RECEIVE) else {
                // No receive has this number, so the bytes cannot be credited: the whole connection
                // ends.
                self.fault.get_or_insert(DisconnectReason::HostIo { errno: libc::EIO });
                return;
            };
            let status = self.judge(one.status, true);
            let mut completion = WorkCompletion::new(qp, wr_id, WcOpcode::Recv, status, one.len);
            if let Some(rkey) = one.invalidated {
                self.regions.remove(&rkey);
                completion.invalidated = Some(Rkey(rkey));
            }
            events.push(Event::Completion(completion));
            return;
        }
        while let Some((sent, is_it)) = self.sends.pop_until(one.id) {
            self.take_back(sent.ring);
            let status = if is_it { self.judge(one.status, false) } else { WcStatus::Success };
            if sent.is_reported || status != WcStatus::Success {
                let Sent { wr_id, opcode, len, .. } = sent;
                let completion = WorkCompletion::new(qp, wr_id, opcode, status, len);
                events.push(Event::Completion(completion));
            }
        }
    }

    /// The status of a completion in our terms; a failure also sets the fault of the connection.
    fn judge(&mut self, status: i32, is_receive: bool) -> WcStatus {
        if status == SUCCESS {
            return WcStatus::Success;
        }
        let (status, fault) = meaning(status, is_receive);
        // The first failure gives the reason; the requests behind it are only flushed.
        match fault {
            Some(fault) => drop(self.fault.get_or_insert(fault)),
            None => self.is_broken = true,
        }
        status
    }

    /// Ends everything that is still posted as flushed.
    pub(super) fn flush(&mut self, qp: QpId, events: &mut Vec<Event>) {
        let flushed = |wr_id, opcode| {
            Event::Completion(WorkCompletion::new(qp, wr_id, opcode, WcStatus::Flushed, 0))
        };
        while let Some(sent) = self.sends.pop() {
            events.push(flushed(sent.wr_id, sent.opcode));
        }
        while let Some(wr_id) = self.receives.pop() {
            events.push(flushed(wr_id, WcOpcode::Recv));
        }
    }
}

/// Our status for a completion status of the device, and the reason for the end of the connection,
/// if the status gives one.
fn meaning(status: i32, is_receive: bool) -> (WcStatus, Option<DisconnectReason>) {
    use DisconnectReason::{HostIo, LocalFault, PeerTerminated, PeerViolation};
    // No adapter reports which of its memory the peer meant, or what was wrong with the request.
    let code = |layer, etype, code| TerminateCode { layer, etype, code };
    let (status, fault) = match status {
        LOCAL_LENGTH if is_receive => {
            (WcStatus::LocalProtection, PeerViolation(code(1, 2, MESSAGE_TOO_LONG)))
        }
        LOCAL_LENGTH | LOCAL_OPERATION | LOCAL_PROTECTION | LOCAL_ACCESS => {
            (WcStatus::LocalProtection, LocalFault(code(0, 1, UNSPECIFIED)))
        }
        REMOTE_ACCESS => (WcStatus::RemoteAccess, PeerTerminated(code(0, 1, UNSPECIFIED))),
        REMOTE_INVALID | REMOTE_OPERATION => {
            (WcStatus::RemoteOperation, PeerTerminated(code(0, 2, UNSPECIFIED)))
        }
        RECEIVER_NOT_READY => (WcStatus::RemoteOperation, PeerTerminated(code(1, 2, NO_BUFFER))),
        RETRIES_EXCEEDED => (WcStatus::Flushed, HostIo { errno: libc::ETIMEDOUT }),
        FLUSHED => return (WcStatus::Flushed, None),
        _ => (WcStatus::Flushed, HostIo { errno: libc::EIO }),
    };
    (status, Some(fault))
}

fn len_of(operation: &Operation<'_>) -> u32 {
    let payload = |payload: &Payload<'_>| u32::try_from(payload.len()).unwrap_or(u32::MAX);
    match operation {
        Operation::Send { payload: bytes, .. } | Operation::Write { payload: bytes, .. } => {
            payload(bytes)
        }
        Operation::Read { local, .. } => local.len,
        Operation::Flush { len, .. } | Operation::Verify { len, .. } => *len,
        Operation::AtomicWrite { .. }
        | Operation::Immediate { .. }
        | Operation::FetchAdd { .. }
        | Operation::CompareSwap { .. } => 8,
    }
}

/// Set in the number of a receive.
const RECEIVE: u64 = 1 << 63;
/// Batches of completions that one queue pair may take before the next has its turn.
const BATCHES_PER_ROUND: u32 = 4;
/// Shares of completions that a queue pair of the greatest depth can hold.
const DRAINS_MAX: usize = 2 * QUEUE_DEPTH_MAX as usize / BATCH + 1;
/// How long the connection manager may take to report why a queue pair broke.
const BROKEN_PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);
/// How long sends may still leave after the owner has asked for the end.
const LINGER: std::time::Duration = std::time::Duration::from_secs(2);

// Statuses of a completion (ibv_poll_cq(3)).
const SUCCESS: i32 = 0;
const LOCAL_LENGTH: i32 = 1;
const LOCAL_OPERATION: i32 = 2;
const LOCAL_PROTECTION: i32 = 4;
const FLUSHED: i32 = 5;
const LOCAL_ACCESS: i32 = 8;
const REMOTE_INVALID: i32 = 9;
const REMOTE_ACCESS: i32 = 10;
const REMOTE_OPERATION: i32 = 11;
const RETRIES_EXCEEDED: i32 = 12;
const RECEIVER_NOT_READY: i32 = 13;

// Codes of RFC 5040 §4.8 and RFC 5041 §8.2 that are nearest to what an adapter reports.
const UNSPECIFIED: u8 = 0xff;
const NO_BUFFER: u8 = 2;
const MESSAGE_TOO_LONG: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_completion_status_has_one_meaning() {
        let status = |state, is_receive| meaning(state, is_receive).0;
        assert_eq!(status(REMOTE_ACCESS, false), WcStatus::RemoteAccess);
        assert_eq!(status(REMOTE_OPERATION, false), WcStatus::RemoteOperation);
        assert_eq!(status(REMOTE_INVALID, false), WcStatus::RemoteOperation);
        assert_eq!(status(LOCAL_PROTECTION, false), WcStatus::LocalProtection);
        assert_eq!(status(RETRIES_EXCEEDED, false), WcStatus::Flushed);
        assert_eq!(status(99, false), WcStatus::Flushed);
    }

    #[test]
    fn a_flushed_completion_gives_no_reason() {
        assert_eq!(meaning(FLUSHED, true), (WcStatus::Flushed, None));
        let (_, refused) = meaning(REMOTE_ACCESS, false);
        assert!(matches!(refused, Some(DisconnectReason::PeerTerminated(_))));
        let (_, too_long) = meaning(LOCAL_LENGTH, true);
        assert!(matches!(too_long, Some(DisconnectReason::PeerViolation(_))));
    }
}
