//! The seal and the signatures of a long frame, or of a compound of many requests: a thread that may wait computes them
//! before the frame is handled.
//!
//! ```text
//!                short, or neither signed nor sealed
//!   frame --------------------------------------------------> handled; a signature is verified when it is asked for
//!     |  long, or of many requests                            ^
//!     +-----> Unproven --prove, on a thread--> Proven --------+
//! ```
//!
//! The transport handles no other frame of the connection meanwhile: frames stay in their order, and a connection
//! has one such thread at a time.
//!
//! Spec: MS-SMB2 §3.3.5.2.1.1 (decrypting), §3.3.5.2.4 (verifying).

use std::ops::Range;
use std::sync::Arc;

use smb::compound;
use smb::frame_memory::InFrame;
use smb::framing;
use smb::{Command, Header, HeaderFlags, Protocol, Route, SessionId, TransformHeader};

use super::connection::Violation;
use crate::connections::{Channel, Frame, Link};
use crate::limits::{IO_INLINE_MAX, REQUEST_COST, SIGNED_INLINE_MAX};
use crate::state::{Account, Resource, Room};

/// What is known of the protection of a frame.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    /// Over which channel its seal was opened.
    pub(super) sealed: Option<Arc<Channel>>,
    /// The requests whose signature is right, and whose it is: by where they begin. `None`: nobody has looked yet.
    signed: Option<Vec<(usize, Arc<Channel>)>>,
    /// The requests of the frame, if somebody has walked it.
    pub(super) walk: Option<Vec<(Range<usize>, Header)>>,
}

impl Proof {
    /// Opens the seal of a frame in place.
    pub(super) fn open_seal(link: &Link, frame: &mut [u8]) -> Result<Self, Violation> {
        let session_id = TransformHeader::parse(frame)?.0.session_id.0;
        let channel = link.channel(session_id).ok_or(Violation::PeerUnknownSession)?;
        let key = channel.session.opening.as_ref().ok_or(Violation::PeerUnknownSession)?;
        let (head, payload) = frame.split_at_mut(TransformHeader::LEN);
        let head = head.first_chunk().expect("parsed above");
        key.open(head, payload).map_err(|_| Violation::PeerSeal)?;
        Ok(Self { sealed: Some(channel), ..Self::default() })
    }

    fn of(link: &Link, frame: &mut [u8]) -> Result<Self, Violation> {
        match Protocol::of(frame)? {
            Protocol::Encrypted => Self::open_seal(link, frame),
            _ => Self::verify_all(link, frame),
        }
    }

    fn verify_all(link: &Link, frame: &mut [u8]) -> Result<Self, Violation> {
        let mut signed = Vec::new();
        let mut before = None;
        let walk: Vec<_> = compound::walk(frame).collect::<Result<_, _>>()?;
        for (range, header) in &walk {
            let mut header = *header;
            relate(&mut header, &mut before);
            if header.command == Command::CANCEL || !header.flags.contains(HeaderFlags::SIGNED) {
                continue;
            }
            let id = header.session_id.0;
            let channel = link.channel(id).or_else(|| link.ended_channel(id));
            let is_right = |channel: &Arc<Channel>| {
                let key = channel.signing.as_ref();
                key.is_some_and(|key| key.verify(&mut frame[range.clone()]).is_ok())
            };
            signed.extend(channel.filter(is_right).map(|channel| (range.start, channel)));
        }
        Ok(Self { sealed: None, signed: Some(signed), walk: Some(walk) })
    }

    /// Whether that channel has signed the request that begins there.
    pub(super) fn is_signed(&self, channel: &Arc<Channel>, pdu: &mut [u8], at: usize) -> bool {
        match &self.signed {
            None => channel.signing.as_ref().is_some_and(|key| key.verify(pdu).is_ok()),
            Some(signed) => {
                let found = signed.binary_search_by_key(&at, |(at, _)| *at);
                found.is_ok_and(|found| Arc::ptr_eq(&signed[found].1, channel))
            }
        }
    }
}

/// MS-SMB2 §3.3.5.2.7.2: for a related request session and tree of the one before it count.
pub(super) fn relate(header: &mut Header, before: &mut Option<(SessionId, Route)>) {
    if let Some(before) = before.filter(|_| header.flags.contains(HeaderFlags::RELATED)) {
        (header.session_id, header.route) = before;
    }
    *before = Some((header.session_id, header.route));
}

/// A long frame whose seal or signatures nobody has looked at.
#[derive(Debug)]
pub(crate) struct Unproven {
    link: Arc<Link>,
    holder: Arc<Account>,
    frame: InFrame,
    room: Option<Room>,
}

impl Unproven {
    /// Takes the frame if it is too long to be proven where it has arrived.
    pub(super) fn take<'a>(link: &Arc<Link>, mut frame: Frame<'a>) -> Result<Self, Frame<'a>> {
        if !is_long_to_prove(frame.bytes()) {
            return Err(frame);
        }
        // A stranger's is short, and nobody could sign it.
        let Some(holder) = link.holder() else { return Err(frame) };
        let (frame, room) = match frame {
            Frame::Owned(frame, room) => (frame, room),
            Frame::Borrowed(bytes) => {
                let cost = bytes.len() + REQUEST_COST;
                let room = Room::try_take((&link.account, &holder), Resource::Requests, cost);
                let Some(room) = room else { return Err(Frame::Borrowed(bytes)) };
                (bytes.to_vec().into(), Some(room))
            }
        };
        Ok(Self { link: Arc::clone(link), holder, frame, room })
    }

    /// Opens its seal, or verifies its signatures, as a job of whoever has logged on. What is begun of that goes to its end
    /// if nobody waits for it any more.
    pub(crate) async fn prove(self) -> Result<Proven, Violation> {
        let Self { link, holder, mut frame, room } = self;
        let whose = Arc::clone(&link);
        let work = move || {
            let proof = Proof::of(&link, &mut frame)?;
            Ok(Proven { frame, room, proof })
        };
        let proven = whose.compute(&holder, "the signature or seal of a request", work).await;
        proven.unwrap_or(Err(Violation::HostPanicked))
    }
}

/// A frame whose seal is open, and of which is known who has signed what.
#[derive(Debug)]
pub(crate) struct Proven {
    pub(super) frame: InFrame,
    pub(super) room: Option<Room>,
    pub(super) proof: Proof,
}

fn is_long_to_prove(frame: &[u8]) -> bool {
    let is_long = frame.len() > LONG;
    match Protocol::of(frame) {
        Ok(Protocol::Encrypted) => is_long,
        Ok(Protocol::Smb2) => Header::parse(frame).is_ok_and(|header| {
            let is_compound = header.next_command != 0;
            let is_proven = header.flags.contains(HeaderFlags::SIGNED) || is_compound;
            (is_long && is_proven) || (is_compound && is_of_many(compound::walk(frame)))
        }),
        _ => false,
    }
}

/// Whether a compound is of more requests than are signed and verified where they have arrived.
pub(super) fn is_of_many(requests: impl Iterator) -> bool {
    requests.take(SIGNED_INLINE_MAX + 1).count() > SIGNED_INLINE_MAX
}

/// Bytes of a frame whose seal or signatures are computed where it has arrived: of a request with [`IO_INLINE_MAX`].
const LONG: usize = IO_INLINE_MAX + framing::FRAME_OVERHEAD_MAX;

#[cfg(test)]
mod tests {
    use smb::NtStatus;
    use smb::crypto::{SigningAlgorithm, SigningKey};

    use super::*;
    use crate::fuzzing::{Machine, Place};

    const KEY: [u8; 16] = [7; 16];

    /// A server and a connection over which somebody has logged on, who signs with [`KEY`].
    fn logged_on() -> (tempfile::TempDir, Machine, Place) {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(dir.path(), tokio::runtime::Handle::current());
        let place = machine.log_on(&KEY);
        let mut first = echo(place, &KEY);
        // For credits.
        first[14..16].copy_from_slice(&8_u16.to_le_bytes());
        sign(&mut first, &KEY);
        assert!(machine.handle(&mut first, &mut Vec::new()));
        (dir, machine, place)
    }

    /// Gets so many credits; the message id to go on with.
    fn with_credits(machine: &mut Machine, place: Place, wanted: u16) -> u64 {
        machine.connection().link.window().widen(wanted + 8);
        let mut pdu = request(Command::ECHO, 1, place, 72, &KEY);
        pdu[64..66].copy_from_slice(&4_u16.to_le_bytes());
        pdu[14..16].copy_from_slice(&wanted.to_le_bytes());
        sign(&mut pdu, &KEY);
        let mut out = Vec::new();
        assert!(machine.handle(&mut pdu, &mut out));
        2
    }

    fn echo(place: Place, key: &[u8; 16]) -> Vec<u8> {
        let mut pdu = request(Command::ECHO, 0, place, 72, key);
        pdu[64..66].copy_from_slice(&4_u16.to_le_bytes());
        sign(&mut pdu, key);
        pdu
    }

    /// A request of `len` bytes, signed with `key`.
    fn request(command: Command, id: u64, place: Place, len: usize, key: &[u8; 16]) -> Vec<u8> {
        let mut pdu = b"\xfeSMB\x40\0".to_vec();
        pdu.resize(len, 0);
        pdu[12..14].copy_from_slice(&command.0.to_le_bytes());
        pdu[24..32].copy_from_slice(&id.to_le_bytes());
        pdu[36..40].copy_from_slice(&place.disk.to_le_bytes());
        pdu[40..48].copy_from_slice(&place.session.to_le_bytes());
        // A body of WRITE, and of a file that there is not.
        pdu[64..66].copy_from_slice(&49_u16.to_le_bytes());
        sign(&mut pdu, key);
        pdu
    }

    #[expect(clippy::disallowed_methods, reason = "this plays clients that break rules, too")]
    fn sign(pdu: &mut [u8], key: &[u8; 16]) {
        SigningKey::new(SigningAlgorithm::AesCmac, key).sign_unguarded(pdu).unwrap();
    }

    fn statuses(out: &[u8]) -> Vec<NtStatus> {
        let answers = compound::walk(&out[framing::PREFIX_LEN..]).map(Result::unwrap);
        answers.map(|(_, header)| header.status).collect()
    }

    async fn answered(machine: &mut Machine, frame: Vec<u8>) -> Vec<NtStatus> {
        let mut out = Vec::new();
        let frame = Frame::Owned(frame.into(), None);
        let unproven = machine.connection().handle(frame, &mut out).unwrap();
        assert!(out.is_empty(), "answered before its signatures were verified");
        let proven = unproven.unwrap().prove().await.unwrap();
        machine.connection().handle_proven(proven, &mut out).unwrap();
        wait_for_answers(machine, &mut out).await;
        statuses(&out)
    }

    /// A compound whose turn is over goes on later, on a busy machine after its first request.
    async fn wait_for_answers(machine: &Machine, out: &mut Vec<u8>) {
        while out.is_empty() {
            tokio::task::yield_now().await;
            *out = machine.late_answers();
        }
    }

    #[tokio::test]
    async fn the_signature_of_a_long_request_is_verified_on_a_thread_that_may_wait() {
        let (_dir, mut machine, place) = logged_on();
        let long = |id, key: &[u8; 16]| request(Command::WRITE, id, place, LONG + 1, key);
        assert_eq!(answered(&mut machine, long(1, &[8; 16])).await, [NtStatus::ACCESS_DENIED]);
        let right = answered(&mut machine, long(2, &KEY)).await;
        assert_ne!(right, [NtStatus::ACCESS_DENIED]);
        // One that is not long is answered where it arrives.
        let frame = request(Command::WRITE, 3, place, LONG, &KEY);
        let mut out = Vec::new();
        let handled = machine.connection().handle(Frame::Owned(frame.into(), None), &mut out);
        assert!(handled.unwrap().is_none());
        assert_eq!(statuses(&out), right);
    }

    #[tokio::test]
    async fn a_long_frame_waits_for_no_work_on_a_disk() {
        let (_dir, mut machine, place) = logged_on();
        let link = Arc::clone(&machine.connection().link);
        let whose = (&link.account, &link.holder().unwrap());
        let busy: Vec<_> =
            std::iter::from_fn(|| Room::try_take(whose, Resource::Jobs, 1)).collect();
        assert!(!busy.is_empty());
        let frame = request(Command::WRITE, 1, place, LONG + 1, &[8; 16]);
        assert_eq!(answered(&mut machine, frame).await, [NtStatus::ACCESS_DENIED]);
    }

    #[tokio::test]
    async fn each_signature_of_a_long_compound_counts_for_its_own_request() {
        let (_dir, mut machine, place) = logged_on();
        let mut frame = Vec::new();
        for (id, len, key) in [(1, 128, KEY), (2, 128, [8; 16]), (3, LONG, KEY)] {
            let mut pdu = request(Command::WRITE, id, place, len, &key);
            let next = if id == 3 { 0 } else { u32::try_from(len).unwrap() };
            pdu[20..24].copy_from_slice(&next.to_le_bytes());
            sign(&mut pdu, &key);
            frame.extend_from_slice(&pdu);
        }
        let statuses = answered(&mut machine, frame).await;
        let refused: Vec<_> =
            statuses.iter().map(|status| *status == NtStatus::ACCESS_DENIED).collect();
        assert_eq!(refused, [false, true, false]);
    }

    /// A compound of signed requests, the first one of which has this message id.
    fn compound(place: Place, first: u64, count: u64) -> Vec<u8> {
        let mut frame = Vec::new();
        for id in first..first + count {
            let mut pdu = request(Command::ECHO, id, place, 72, &KEY);
            pdu[64..66].copy_from_slice(&4_u16.to_le_bytes());
            let next = if id + 1 == first + count { 0_u32 } else { 72 };
            pdu[20..24].copy_from_slice(&next.to_le_bytes());
            sign(&mut pdu, &KEY);
            frame.extend_from_slice(&pdu);
        }
        frame
    }

    #[tokio::test]
    async fn signatures_of_a_compound_of_many_requests_are_verified_on_a_thread_that_may_wait() {
        let (_dir, mut machine, place) = logged_on();
        let many = u64::try_from(SIGNED_INLINE_MAX).unwrap() + 1;
        let first = with_credits(&mut machine, place, 512);
        let mut out = Vec::new();
        let mut few = compound(place, first, many - 1);
        let handled = machine.connection().handle(Frame::Borrowed(&mut few), &mut out);
        assert!(handled.unwrap().is_none());
        wait_for_answers(&machine, &mut out).await;
        assert_eq!(statuses(&out).len(), SIGNED_INLINE_MAX);
        // Also where it stands in the buffer that many frames are read into.
        let mut frame = compound(place, first + many - 1, many);
        let mut out = Vec::new();
        let unproven = machine.connection().handle(Frame::Borrowed(&mut frame), &mut out).unwrap();
        let proven = unproven.unwrap().prove().await.unwrap();
        machine.connection().handle_proven(proven, &mut out).unwrap();
        wait_for_answers(&machine, &mut out).await;
        let wanted = vec![NtStatus::SUCCESS; SIGNED_INLINE_MAX + 1];
        assert_eq!(statuses(&out), wanted);
    }

    #[tokio::test]
    async fn a_long_request_of_a_session_that_has_ended_is_told_so_if_it_is_signed() {
        let (_dir, mut machine, place) = logged_on();
        machine.connection().link.remove_channel(place.session);
        let frame = request(Command::WRITE, 1, place, LONG + 1, &KEY);
        assert_eq!(answered(&mut machine, frame).await, [NtStatus::USER_SESSION_DELETED]);
    }
}
