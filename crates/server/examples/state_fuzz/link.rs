//! A connection that hears of breaks: each is acknowledged as soon as it is read.
//!
//! Spec: MS-SMB2 §3.2.5.19 (oplock and lease breaks at the client), §3.3.4.6, §3.3.4.7 (at the server).

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use smb::create::{LeaseState, OplockLevel};
use smb::{
    BreakAck, BreakNotification, Command, Empty, FileId, LeaseBreakAck, MessageId, NtStatus,
};

use crate::support::{Answer, Wire};

/// Names what a client caches under: the key of a lease, or the open of an oplock.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Key(pub(crate) [u8; 16]);

impl Key {
    /// The key of an oplock: oplocks belong to one open.
    pub(crate) fn of_open(id: FileId) -> Self {
        Self((u128::from(id.persistent) << 64 | u128::from(id.volatile)).to_le_bytes())
    }
}

/// What a client holds, and is told to give up.
pub(crate) trait Holder {
    /// Notes that `left` is left of what is cached under `key`. Returns what it was before.
    fn broken(&mut self, key: Key, left: LeaseState) -> LeaseState;
}

/// A client's connection to a share.
pub(crate) struct Link {
    pub(crate) wire: Wire,
    /// Acknowledgements without an answer yet, and what they are about.
    acknowledged: Vec<(u64, Key)>,
    /// Acknowledgements that the server refused.
    pub(crate) refused: Vec<(Key, NtStatus)>,
    /// The server has closed the connection.
    pub(crate) is_closed: bool,
}

impl Link {
    /// Logs on as client machine `number` and enters the share.
    pub(crate) fn enter(address: SocketAddr, number: u8, place: &Place) -> Self {
        let mut wire = Wire::dial(address);
        wire.stream.set_nodelay(true).unwrap();
        wire.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        wire.negotiate(number);
        wire.log_on_as(&place.user, &place.password);
        assert_eq!(wire.enter(&place.share), NtStatus::SUCCESS, "the share is entered");
        Self { wire, acknowledged: Vec::new(), refused: Vec::new(), is_closed: false }
    }

    /// Sends a request and waits for its answer; what is broken meanwhile is noted and acknowledged.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        body: impl FnOnce(&mut Vec<u8>),
        holder: &mut impl Holder,
    ) -> Answer {
        let id = self.wire.start(command, body);
        loop {
            let answer = self.receive();
            if let Some(answer) = self.sort(id, answer, holder) {
                return answer;
            }
        }
    }

    /// Everything that the server has sent before it answers this has come when this returns.
    pub(crate) fn fence(&mut self, holder: &mut impl Holder) {
        self.ask(Command::ECHO, |out| Empty.emit(out), holder);
    }

    /// The answer to `id`, if it is the next message and comes within `time`.
    pub(crate) fn finish_within(
        &mut self,
        id: u64,
        time: Duration,
        holder: &mut impl Holder,
    ) -> Option<Answer> {
        if !self.hears_within(time) {
            return None;
        }
        let answer = self.receive();
        self.sort(id, answer, holder)
    }

    /// Takes the next message, if it comes within `time`. Whether it did.
    pub(crate) fn listen(&mut self, time: Duration, holder: &mut impl Holder) -> bool {
        let hears = self.hears_within(time);
        if hears {
            let answer = self.receive();
            self.sort(NO_REQUEST, answer, holder);
        }
        hears
    }

    // What the wire passed over first.
    fn receive(&mut self) -> Answer {
        match self.wire.unsolicited.is_empty() {
            true => self.wire.receive(),
            false => self.wire.unsolicited.remove(0),
        }
    }

    fn hears_within(&mut self, time: Duration) -> bool {
        if !self.wire.unsolicited.is_empty() {
            return true;
        }
        self.wire.stream.set_read_timeout(Some(time)).unwrap();
        let heard = self.wire.stream.peek(&mut [0]);
        self.wire.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match heard {
            Ok(count) => {
                self.is_closed |= count == 0;
                count > 0
            }
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                false
            }
        }
    }

    fn sort(&mut self, id: u64, (header, pdu): Answer, holder: &mut impl Holder) -> Option<Answer> {
        if header.message_id == MessageId(u64::MAX) {
            self.take(&pdu, holder);
            return None;
        }
        let about = self.acknowledged.iter().position(|(id, _)| *id == header.message_id.0);
        if let Some(at) = about {
            let (_, key) = self.acknowledged.swap_remove(at);
            if header.status.is_error() {
                self.refused.push((key, header.status));
            }
            return None;
        }
        let is_it = header.message_id.0 == id && header.status != NtStatus::PENDING;
        is_it.then_some((header, pdu))
    }

    // The client's books are right before the server learns that they are.
    fn take(&mut self, pdu: &[u8], holder: &mut impl Holder) {
        let (key, ack) = match BreakNotification::parse(pdu).expect("a break") {
            BreakNotification::Lease(lease) => {
                let key = Key(lease.lease_key.0);
                holder.broken(key, lease.new);
                let ack = LeaseBreakAck { lease_key: lease.lease_key, state: lease.new };
                (key, lease.ack_required.then_some(BreakAck::Lease(ack)))
            }
            BreakNotification::Oplock(oplock) => {
                let key = Key::of_open(oplock.file_id);
                let before = holder.broken(key, caching(oplock.level));
                // MS-SMB2 §3.2.5.19.1: a client gives up level II without a word.
                let asks = before.contains(LeaseState::WRITE);
                (key, asks.then_some(BreakAck::Oplock(oplock)))
            }
        };
        let Some(ack) = ack else { return };
        let id = self.wire.start(Command::OPLOCK_BREAK, |out| match ack {
            BreakAck::Oplock(ack) => ack.emit(out),
            BreakAck::Lease(ack) => ack.emit(out),
        });
        self.acknowledged.push((id, key));
    }
}

/// What an oplock lets its holder cache.
pub(crate) fn caching(level: OplockLevel) -> LeaseState {
    match level {
        OplockLevel::II => LeaseState::READ,
        OplockLevel::EXCLUSIVE => LeaseState::READ | LeaseState::WRITE,
        OplockLevel::BATCH => LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE,
        _ => LeaseState::empty(),
    }
}

/// The share, and the account that enters it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) share: String,
    pub(crate) user: String,
    pub(crate) password: String,
}

/// Longer than a server waits for the acknowledgement of a break: an answer that takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);
/// The message id of no request.
const NO_REQUEST: u64 = u64::MAX - 1;
