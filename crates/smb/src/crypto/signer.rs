//! Signs with a key of a session: each message of its own connection once.
//!
//! ```text
//!  SigningKey --divide--> ChannelSigner   answers of the one connection the key was made on,
//!                    |                    a Turn each; message ids from `first` on
//!                    +--> SessionSigner   what other connections say on the session's account
//!                                         before they have keys of their own; ids below `first`
//! ```
//!
//! AES-GMAC takes its nonce from the message id. Two messages that one key signs under one nonce
//! give away its hash key, and with that everybody can sign. Each connection counts its ids from
//! 0, so a key that signed on two of them would repeat nonces: it signs on one. A connection hands
//! out each of its message ids once, as a [`Turn`], which signing uses up.
//!
//! The one exception the specification makes is an answer to a SESSION_SETUP that binds another
//! connection, and has not succeeded: it is signed with the session's key (MS-SMB2 §3.3.4.1.1). Under AES-GMAC
//! that is done with ids the key's own connection had used up before there was a key, each once;
//! whatever comes with another id, or comes again, is answered unsigned. Its client is asked to
//! sign with that key as well, and has the choice of the id: one that binds two connections with
//! the same id repeats a nonce of its own.
//!
//! In debug builds a key notes what it has signed, and a nonce that repeats is a panic.
//!
//! Spec: MS-SMB2 §3.1.4.1, §3.3.4.1.1.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::signing::{SignError, SigningAlgorithm, SigningKey, VerifyError, id_of, is_cancel};

/// One end of a connection, as far as its message ids go. Whoever owns it hands out a [`Turn`] for
/// each id once.
#[derive(Debug)]
pub struct Lane(LaneId);

/// Tells one connection from every other of this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LaneId(u64);

/// The right to sign one message of one connection.
#[derive(Debug, Eq, PartialEq)]
pub struct Turn {
    lane: LaneId,
    message_id: u64,
    /// A CANCEL has the message id of what it cancels, and a nonce of its own.
    cancels: bool,
}

impl Lane {
    /// The lane of a new connection.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(LaneId(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Which one it is.
    pub fn id(&self) -> LaneId {
        self.0
    }

    /// The turn of a message id, to be made once of each.
    pub fn turn(&self, message_id: u64) -> Turn {
        Turn { lane: self.0, message_id, cancels: false }
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self::new()
    }
}

impl Turn {
    /// The message id that the turn allows to sign.
    pub fn message_id(&self) -> u64 {
        self.message_id
    }

    /// The turn of this message, and that of the CANCEL there may be of it.
    pub fn with_cancel(self) -> (Self, Self) {
        let cancel = Self { cancels: true, ..self };
        (self, cancel)
    }
}

/// Signs what one connection says, and verifies what it hears.
#[derive(Debug)]
pub struct ChannelSigner {
    key: Arc<SigningKey>,
    lane: LaneId,
    first: u64,
    #[cfg(debug_assertions)]
    signed: debug::Signed,
}

/// Verifies what other connections hear in the name of a session, and signs what may be signed
/// there.
#[derive(Debug)]
pub struct SessionSigner {
    key: Arc<SigningKey>,
    first: u64,
    /// The ids it has signed with under AES-GMAC, one bit each.
    signed: AtomicU64,
}

impl SigningKey {
    /// Gives the key to the connection of that lane, whose message ids below `first` were all used
    /// up when there was no such key yet.
    pub fn divide(self, lane: LaneId, first: u64) -> (ChannelSigner, SessionSigner) {
        let key = Arc::new(self);
        let other = SessionSigner { key: Arc::clone(&key), first, signed: AtomicU64::new(0) };
        let channel = ChannelSigner {
            key,
            lane,
            first,
            #[cfg(debug_assertions)]
            signed: debug::Signed::default(),
        };
        (channel, other)
    }
}

impl ChannelSigner {
    /// Signs a complete PDU in place: sets the SIGNED flag and writes the signature.
    ///
    /// `pdu` begins with its SMB2 header and ends where the next one of a compound begins.
    ///
    /// # Errors
    /// The PDU is shorter than a header, one of those that stay unsigned, or not the one whose
    /// turn it is.
    pub fn sign(&self, turn: Turn, pdu: &mut [u8]) -> Result<(), SignError> {
        let is_its = turn.lane == self.lane
            && turn.message_id >= self.first
            && id_of(pdu) == Some(turn.message_id)
            && is_cancel(pdu) == turn.cancels;
        if !is_its {
            return Err(SignError::NotItsTurn);
        }
        self.key.sign(pdu)?;
        #[cfg(debug_assertions)]
        self.signed.note(turn.message_id, turn.cancels);
        Ok(())
    }

    /// Verifies a PDU: [`SigningKey::verify`].
    ///
    /// # Errors
    /// As there.
    pub fn verify(&self, pdu: &mut [u8]) -> Result<(), VerifyError> {
        self.key.verify(pdu)
    }
}

impl SessionSigner {
    /// Signs a PDU of a connection that has no key of its own.
    ///
    /// # Errors
    /// The PDU is shorter than a header, one of those that stay unsigned, or the key cannot sign
    /// it without repeating a nonce.
    pub fn sign(&self, pdu: &mut [u8]) -> Result<(), SignError> {
        if self.key.algorithm() == SigningAlgorithm::AesGmac {
            let id = id_of(pdu).ok_or(SignError::Truncated)?;
            if id >= self.first || id >= u64::from(u64::BITS) {
                return Err(SignError::NonceUsed);
            }
            // Taken before it is used: of two that come at once, one is signed.
            if self.signed.fetch_or(1 << id, Ordering::Relaxed) & 1 << id != 0 {
                return Err(SignError::NonceUsed);
            }
        }
        self.key.sign(pdu)
    }

    /// Verifies a PDU: [`SigningKey::verify`].
    ///
    /// # Errors
    /// As there.
    pub fn verify(&self, pdu: &mut [u8]) -> Result<(), VerifyError> {
        self.key.verify(pdu)
    }
}

/// What a key has signed of late.
#[cfg(debug_assertions)]
mod debug {
    use std::sync::{Mutex, PoisonError};

    #[derive(Debug)]
    pub(super) struct Signed(Mutex<Bits>);

    /// A bit for each nonce from `low` on.
    #[derive(Debug)]
    struct Bits {
        low: u64,
        words: Box<[u64; WORDS]>,
    }

    impl Default for Signed {
        fn default() -> Self {
            Self(Mutex::new(Bits { low: 0, words: Box::new([0; WORDS]) }))
        }
    }

    impl Signed {
        pub(super) fn note(&self, message_id: u64, cancels: bool) {
            let nonce = message_id.wrapping_mul(2).wrapping_add(u64::from(cancels));
            let mut bits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(bits.set(nonce), "a key signs twice under the nonce of message {message_id}");
        }
    }

    impl Bits {
        /// False if it is set, or lies further back than any connection's window.
        fn set(&mut self, nonce: u64) -> bool {
            let low = (nonce / 64 + 1).saturating_sub(SPAN / 64) * 64;
            if low >= self.low.saturating_add(SPAN) {
                self.words.fill(0);
                self.low = low;
            }
            while self.low < low {
                self.words[place(self.low)] = 0;
                self.low += 64;
            }
            let (word, bit) = (&mut self.words[place(nonce)], 1 << (nonce % 64));
            let is_new = nonce >= self.low && *word & bit == 0;
            *word |= bit;
            is_new
        }
    }

    fn place(nonce: u64) -> usize {
        usize::try_from(nonce % SPAN / 64).expect("below WORDS")
    }

    /// Twice the widest window of message ids there is, with and without CANCEL.
    const SPAN: u64 = 4 * 8192;
    const WORDS: usize = 512;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(algorithm: SigningAlgorithm) -> SigningKey {
        SigningKey::new(algorithm, &[7; 16])
    }

    /// An answer to the request of that id.
    fn answer(id: u64) -> Vec<u8> {
        let mut pdu = b"\xfeSMB".to_vec();
        pdu.resize(72, 0x5a);
        pdu[8..20].fill(0);
        pdu[16] = 1;
        pdu[24..32].copy_from_slice(&id.to_le_bytes());
        pdu
    }

    #[test]
    fn a_turn_signs_its_own_message_of_its_own_connection_alone() {
        for algorithm in SigningAlgorithm::PREFERENCE {
            let (here, elsewhere) = (Lane::new(), Lane::new());
            let (signer, _) = key(algorithm).divide(here.id(), 3);
            let refused = Err(SignError::NotItsTurn);
            assert_eq!(signer.sign(elsewhere.turn(3), &mut answer(3)), refused);
            assert_eq!(signer.sign(here.turn(4), &mut answer(3)), refused);
            assert_eq!(signer.sign(here.turn(2), &mut answer(2)), refused, "before the key");
            let (turn, cancel) = here.turn(3).with_cancel();
            assert_eq!(signer.sign(cancel, &mut answer(3)), refused, "it is no CANCEL");
            let mut pdu = answer(3);
            assert_eq!(turn.message_id(), 3);
            signer.sign(turn, &mut pdu).unwrap();
            signer.verify(&mut pdu).unwrap();
        }
    }

    #[test]
    fn a_changed_message_is_refused_by_the_signers_of_connection_and_session() {
        for algorithm in SigningAlgorithm::PREFERENCE {
            let lane = Lane::new();
            let (channel, session) = key(algorithm).divide(lane.id(), 0);
            let mut pdu = answer(3);
            channel.sign(lane.turn(3), &mut pdu).unwrap();
            session.verify(&mut pdu.clone()).unwrap();
            *pdu.last_mut().unwrap() ^= 1;
            channel.verify(&mut pdu.clone()).unwrap_err();
            session.verify(&mut pdu).unwrap_err();
        }
    }

    #[test]
    fn a_session_s_gmac_key_signs_each_id_once_elsewhere() {
        let lane = Lane::new();
        let (_, session) = key(SigningAlgorithm::AesGmac).divide(lane.id(), 2);
        let mut first = answer(1);
        session.sign(&mut first).unwrap();
        session.verify(&mut first).unwrap();
        assert_eq!(session.sign(&mut answer(1)), Err(SignError::NonceUsed), "again");
        session.sign(&mut answer(0)).unwrap();
        assert_eq!(session.sign(&mut answer(2)), Err(SignError::NonceUsed), "the channel's own");
        assert_eq!(session.sign(&mut answer(u64::MAX - 1)), Err(SignError::NonceUsed));
    }

    #[test]
    fn keys_without_nonces_sign_elsewhere_as_often_as_asked() {
        for algorithm in [SigningAlgorithm::AesCmac, SigningAlgorithm::HmacSha256] {
            let (_, session) = key(algorithm).divide(Lane::new().id(), 2);
            for id in [1, 1, 2, 1 << 40] {
                let mut pdu = answer(id);
                session.sign(&mut pdu).unwrap();
                session.verify(&mut pdu).unwrap();
            }
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn ids_in_any_order_of_a_window_are_no_repetition() {
        let signed = debug::Signed::default();
        for base in [0, 8192, 1 << 40, (1 << 40) + 20_000] {
            (0..8192).rev().for_each(|id| signed.note(base + id, false));
            (0..8192).for_each(|id| signed.note(base + id, true));
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn ids_that_follow_each_other_for_long_are_no_repetition() {
        let signed = debug::Signed::default();
        (0..70_000).for_each(|id| signed.note(id, false));
        (70_000 - 8192..70_000).for_each(|id| signed.note(id, true));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "signs twice under the nonce")]
    fn a_nonce_that_repeats_is_noticed() {
        let lane = Lane::new();
        let (signer, _) = key(SigningAlgorithm::AesGmac).divide(lane.id(), 0);
        signer.sign(lane.turn(5), &mut answer(5)).unwrap();
        let _ = signer.sign(lane.turn(5), &mut answer(5));
    }
}
