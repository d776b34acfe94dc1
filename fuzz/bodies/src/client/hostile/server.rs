//! The server: answers each request as it should, or with the misdeed of its plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use smb::compound::walk;
use smb::create::{LeaseKey, LeaseState};
use smb::crypto::{PreauthHash, Role, SessionKey, SessionKeys};
use smb::{
    AsyncId, Command, ErrorResponse, Header, HeaderFlags, LeaseBreakNotification, MessageId,
    NtStatus, Protocol, Route, SessionId, TransformHeader, TreeId,
};
use tokio::sync::mpsc::UnboundedSender;

use super::Standing;
use super::drive::KEY;
use super::honest::Honest;
use super::misdeed::{Misdeed, Plan};
use super::wire::Ends;

/// See the module.
#[derive(Debug)]
pub(super) struct Server {
    standing: Standing,
    plan: Box<dyn Plan>,
    honest: Honest,
    preauth: PreauthHash,
    keys: Option<SessionKeys>,
    /// Set when the answer to a call was one that no key has proven.
    unproven: Arc<AtomicBool>,
}

impl Server {
    pub(super) fn new(
        standing: Standing,
        honest: Honest,
        plan: Box<dyn Plan>,
        unproven: Arc<AtomicBool>,
    ) -> Self {
        let preauth = PreauthHash::new();
        Self { standing, plan, honest, preauth, keys: None, unproven }
    }

    /// Answers until the client goes, or a misdeed ends the connection.
    pub(super) async fn serve(mut self, mut ends: Ends) {
        while let Some(mut frame) = ends.requests.recv().await {
            self.open(&mut frame);
            let pdus: Vec<_> = walk(&frame).map_while(Result::ok).collect();
            for (range, header) in pdus {
                if header.command == Command::CANCEL {
                    continue;
                }
                if !self.act(&header, &frame[range], &ends.answers) {
                    return;
                }
            }
        }
    }

    /// `false`: the connection ends.
    fn act(&mut self, request: &Header, pdu: &[u8], out: &UnboundedSender<Vec<u8>>) -> bool {
        let misdeed = self.plan.next(request.command);
        if matches!(request.command, Command::NEGOTIATE | Command::SESSION_SETUP) {
            self.preauth.update(pdu);
        }
        let mut header = request.response(NtStatus::SUCCESS);
        header.credits = 32;
        if request.command == Command::SESSION_SETUP {
            header.session_id = SESSION;
            self.derive();
        }
        if request.command == Command::TREE_CONNECT {
            header.route = Route::Sync { process_id: 0, tree_id: TreeId(5) };
        }
        let answer = self.honest.answer(request.command, pdu, &misdeed);
        header.status = answer.status;
        let mut body = match answer.status {
            NtStatus::SUCCESS | NtStatus::MORE_PROCESSING_REQUIRED => answer.body,
            _ => refusal(),
        };
        if misdeed.is_unproven() && self.is_a_call(request.command) {
            self.unproven.store(true, Ordering::Relaxed);
        }
        let is_signed = request.flags.contains(HeaderFlags::SIGNED)
            || (request.command == Command::SESSION_SETUP && self.keys.is_some());
        if let Some(stays) = self.instead(&misdeed, request, out) {
            return stays;
        }
        self.distort(&misdeed, request, (&mut header, &mut body), out);
        let mut frame = Vec::new();
        header.emit(&mut frame);
        frame.extend(body);
        if request.command == Command::NEGOTIATE {
            self.preauth.update(&frame);
        }
        let is_sealed = self.standing == Standing::Sealed && request.session_id == SESSION;
        match (&misdeed, is_sealed) {
            (Misdeed::Unsigned, _) => {}
            (_, true) => self.seal(&mut frame),
            (_, false) if is_signed => self.sign(&mut frame),
            (_, false) => {}
        }
        deliver(misdeed, frame, out)
    }

    /// What is done in the place of an answer; `None` if there is one.
    fn instead(
        &self,
        misdeed: &Misdeed,
        request: &Header,
        out: &UnboundedSender<Vec<u8>>,
    ) -> Option<bool> {
        match misdeed {
            Misdeed::Silence => Some(true),
            Misdeed::Close => Some(false),
            Misdeed::PendForEver | Misdeed::Trickle => {
                say(out, self.interim(request));
                if *misdeed == Misdeed::Trickle {
                    tokio::spawn(trickle(out.clone()));
                }
                Some(true)
            }
            Misdeed::Garbage => Some(say(out, vec![0xaa; 100])),
            Misdeed::Sealed => {
                let mut frame = b"\xfdSMB".to_vec();
                frame.resize(200, 3);
                frame[44..52].copy_from_slice(&SESSION.0.to_le_bytes());
                Some(say(out, frame))
            }
            _ => None,
        }
    }

    /// Changes an answer before it is protected.
    fn distort(
        &self,
        misdeed: &Misdeed,
        request: &Header,
        (header, body): (&mut Header, &mut Vec<u8>),
        out: &UnboundedSender<Vec<u8>>,
    ) {
        match misdeed {
            Misdeed::Body(bytes) => *body = bytes.clone(),
            Misdeed::Status(status) => (header.status, *body) = (*status, refusal()),
            Misdeed::OtherCommand => header.command = Command(request.command.0 ^ 1),
            Misdeed::OtherMessage => header.message_id = MessageId(request.message_id.0 + 1000),
            Misdeed::OtherSession => header.session_id = SessionId(header.session_id.0 ^ 0x80),
            Misdeed::NoCredit => header.credits = 0,
            Misdeed::ManyCredits => header.credits = u16::MAX,
            Misdeed::PendingForGood => header.status = NtStatus::PENDING,
            Misdeed::OtherRoute => {
                say(out, self.interim(request));
                header.route = Route::Async(AsyncId(99));
            }
            Misdeed::Breaks => {
                for number in 0..BREAKS {
                    say(out, lease_break(LeaseKey([number; 16])));
                }
            }
            Misdeed::Break => {
                say(out, lease_break(self.honest.lease.unwrap_or(LeaseKey([0; 16]))));
            }
            _ => {}
        }
    }

    /// Whether a call of the client waits for the answer and needs it: a file is closed, and a server asked for
    /// its interfaces, without.
    fn is_a_call(&self, command: Command) -> bool {
        matches!(self.standing, Standing::Member | Standing::Sealed)
            && matches!(
                command,
                Command::TREE_CONNECT
                    | Command::CREATE
                    | Command::READ
                    | Command::WRITE
                    | Command::FLUSH
                    | Command::SET_INFO
                    | Command::QUERY_INFO
                    | Command::QUERY_DIRECTORY
            )
    }

    fn derive(&mut self) {
        let schedule = self.honest.schedule(self.preauth);
        let key = SessionKey::new(&KEY);
        self.keys = match self.standing {
            Standing::Member | Standing::Sealed => Some(schedule.derive(&key, Role::Server)),
            Standing::Guest => None,
            // It has some key.
            Standing::Stranger => {
                Some(schedule.derive(&SessionKey::new(&[0x55; 16]), Role::Server))
            }
        };
    }

    #[expect(clippy::disallowed_methods, reason = "plays a peer that breaks the rules")]
    fn sign(&self, pdu: &mut [u8]) {
        if let Some(keys) = &self.keys {
            // What is exempt goes as it is.
            let _ = keys.signing.sign_unguarded(pdu);
        }
    }

    /// Opens a sealed frame, if it is one.
    fn open(&self, frame: &mut Vec<u8>) {
        let opening = self.keys.as_ref().and_then(|keys| keys.opening.as_ref());
        let is_sealed = Protocol::of(frame) == Ok(Protocol::Encrypted);
        if let (Some(opening), true) = (opening, is_sealed)
            && let Some((header, payload)) = frame.split_first_chunk_mut()
        {
            opening.open(header, payload).expect("the client seals with its key");
            frame.drain(..TransformHeader::LEN);
        }
    }

    fn seal(&self, frame: &mut Vec<u8>) {
        let sealing = self.keys.as_ref().and_then(|keys| keys.sealing.as_ref());
        let Some(sealing) = sealing else { return };
        let header = TransformHeader {
            signature: [0; 16],
            nonce: [0; 16],
            original_size: u32::try_from(frame.len()).expect("short"),
            session_id: SESSION,
        };
        let mut sealed = Vec::new();
        header.emit(&mut sealed);
        let room = sealed.as_mut_slice().try_into().expect("a whole header");
        sealing.seal(room, frame).expect("a few frames");
        sealed.append(frame);
        *frame = sealed;
    }

    fn interim(&self, request: &Header) -> Vec<u8> {
        let mut header = request.response(NtStatus::PENDING);
        (header.route, header.credits) = (Route::Async(AsyncId(7)), 8);
        let mut frame = Vec::new();
        header.emit(&mut frame);
        frame.extend(refusal());
        frame
    }
}

fn refusal() -> Vec<u8> {
    let mut pdu = vec![0; Header::LEN];
    ErrorResponse::NONE.emit(&mut pdu);
    pdu.split_off(Header::LEN)
}

/// Takes nothing back from others and everything from a holder.
fn lease_break(lease_key: LeaseKey) -> Vec<u8> {
    let flags = HeaderFlags::RESPONSE;
    let header = Header { flags, ..Header::request(Command::OPLOCK_BREAK, MessageId::UNSOLICITED) };
    let mut frame = Vec::new();
    header.emit(&mut frame);
    let (current, new) = (LeaseState::READ, LeaseState::READ | LeaseState::WRITE);
    LeaseBreakNotification { epoch: 1, ack_required: true, lease_key, current, new }
        .emit(&mut frame);
    frame
}

async fn trickle(out: UnboundedSender<Vec<u8>>) {
    while say(&out, lease_break(LeaseKey([1; 16]))) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// `false`: the client is gone.
fn say(out: &UnboundedSender<Vec<u8>>, frame: Vec<u8>) -> bool {
    out.send(frame).is_ok()
}

const SESSION: SessionId = SessionId(0x77);
const BREAKS: u8 = 200;

/// Sends a protected answer, damaged, twice or late where the misdeed is that.
fn deliver(misdeed: Misdeed, frame: Vec<u8>, out: &UnboundedSender<Vec<u8>>) -> bool {
    let mut frame = frame;
    match misdeed {
        Misdeed::BadSignature => *frame.last_mut().expect("a header at least") ^= 1,
        Misdeed::Cut(len) => frame.truncate(len),
        Misdeed::Outside => frame[20..24].copy_from_slice(&1_000_000_u32.to_le_bytes()),
        Misdeed::Twice => {
            say(out, frame.clone());
        }
        Misdeed::Late(seconds) => {
            let out = out.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                say(&out, frame)
            });
            return true;
        }
        _ => {}
    }
    say(out, frame)
}
