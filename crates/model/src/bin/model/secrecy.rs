//! How a client protects its messages, and checks the nonces of its server: no key uses a nonce twice.
//!
//! Under AES-GMAC the nonce is the message id of the answer, whichever connection carries it; a sealed
//! frame carries its own nonce. AES-CMAC has no nonce, and a session's key signs every answer to a
//! bind.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use smb::crypto::{Cipher, SessionKeys, SigningAlgorithm};
use smb::negotiate::{CipherId, NegotiateContext, SigningId};
use smb::{Header, HeaderFlags, NtStatus, Protocol, SessionId, TransformHeader};

use crate::link::Lost;

/// The protection that a machine negotiates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protection {
    Cmac,
    Gmac,
    /// Every message after the logon is sealed. Then no data travels by RDMA.
    Sealed,
}

impl Protection {
    /// Of the machines that use TCP alone, some seal.
    pub(crate) fn of(number: usize) -> Self {
        match (number % 3, number / 3 % 3) {
            (0, 0) => Self::Sealed,
            (_, 1) => Self::Cmac,
            _ => Self::Gmac,
        }
    }

    pub(crate) fn signing(self) -> SigningAlgorithm {
        if self == Self::Cmac { SigningAlgorithm::AesCmac } else { SigningAlgorithm::AesGmac }
    }

    pub(crate) fn cipher(self) -> Option<Cipher> {
        (self == Self::Sealed).then_some(Cipher::Aes128Gcm)
    }

    pub(crate) fn contexts(self) -> Vec<NegotiateContext<'static>> {
        let mut contexts = vec![NegotiateContext::Signing(vec![SigningId(self.signing().id())])];
        let cipher = self.cipher().map(|cipher| vec![CipherId(cipher.id())]);
        contexts.extend(cipher.map(NegotiateContext::Encryption));
        contexts
    }
}

/// The keys of one logon, and the nonces its server has used with them.
#[derive(Debug)]
pub(crate) struct Secret {
    keys: SessionKeys,
    verified: AtomicU64,
    signed: Mutex<HashSet<u64>>,
    sealed: Mutex<HashSet<[u8; 16]>>,
}

impl Secret {
    pub(crate) fn new(keys: SessionKeys) -> Self {
        let (verified, signed, sealed) = Default::default();
        Self { keys, verified, signed, sealed }
    }

    #[expect(clippy::disallowed_methods, reason = "a client that binds has no choice but this key")]
    pub(crate) fn sign(&self, pdu: &mut [u8]) {
        let _ = self.keys.signing.sign_unguarded(pdu);
    }

    /// Whether the server has signed this message with these keys.
    pub(crate) fn has_signed(&self, pdu: &[u8]) -> Result<bool, Lost> {
        if self.keys.signing.verify(&mut pdu.to_vec()).is_err() {
            return Ok(false);
        }
        self.verified.fetch_add(1, Ordering::Relaxed);
        if self.keys.signing.algorithm() == SigningAlgorithm::AesGmac {
            let header = Header::parse(pdu).map_err(|error| Lost::Fault(error.to_string()))?;
            note(&self.signed, header.message_id.0)?;
        }
        Ok(true)
    }

    /// How many answers the server has signed.
    pub(crate) fn signed(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    pub(crate) fn seal(&self, session: u64, mut pdu: Vec<u8>) -> Vec<u8> {
        let header = TransformHeader {
            signature: [0; 16],
            nonce: [0; 16],
            original_size: u32::try_from(pdu.len()).expect("a request is below 16 MiB"),
            session_id: SessionId(session),
        };
        let mut frame = Vec::with_capacity(TransformHeader::LEN + pdu.len());
        header.emit(&mut frame);
        let head = frame.first_chunk_mut().expect("a whole header");
        let key = self.keys.sealing.as_ref().expect("a cipher was negotiated");
        key.seal(head, &mut pdu).expect("keys last longer than this");
        frame.extend(pdu);
        frame
    }

    /// The message in a sealed frame.
    pub(crate) fn open(&self, frame: &[u8]) -> Result<Vec<u8>, Lost> {
        let fault = |why: String| Lost::Fault(format!("a sealed frame: {why}"));
        let (header, _) =
            TransformHeader::parse(frame).map_err(|error| fault(error.to_string()))?;
        note(&self.sealed, header.nonce)?;
        let (head, payload) = frame.split_first_chunk().expect("parsed above");
        let mut payload = payload.to_vec();
        let key = self.keys.opening.as_ref().ok_or_else(|| fault("no key".to_owned()))?;
        key.open(head, &mut payload).map_err(|error| fault(error.to_string()))?;
        Ok(payload)
    }
}

fn note<N: Debug + Eq + Hash>(nonces: &Mutex<HashSet<N>>, nonce: N) -> Result<(), Lost> {
    let mut nonces = nonces.lock().unwrap_or_else(PoisonError::into_inner);
    let text = format!("{nonce:x?}");
    match nonces.insert(nonce) {
        true => Ok(()),
        false => Err(Lost::Fault(format!("the server's key uses a nonce again: {text}"))),
    }
}

/// The message in a frame, checked with the keys there are: those of the connection, and those of
/// the session, which another connection may have set up.
pub(crate) fn open(
    frame: &[u8],
    own: Option<&Secret>,
    session: Option<&Secret>,
    protection: Protection,
) -> Result<Vec<u8>, Lost> {
    let fault = |why: String| Err(Lost::Fault(why));
    match (Protocol::of(frame), session) {
        (Ok(Protocol::Encrypted), Some(session)) => return session.open(frame),
        (Ok(Protocol::Smb2), _) => {}
        (protocol, _) => return fault(format!("what is this: {protocol:?}")),
    }
    let header = Header::parse(frame).map_err(|error| Lost::Fault(error.to_string()))?;
    if header.flags.contains(HeaderFlags::SIGNED) {
        let mut is_known = false;
        for secret in own.into_iter().chain(session) {
            is_known = is_known || secret.has_signed(frame)?;
        }
        // The server has no key of a session that does not exist: it returns the signature of the
        // request.
        if !is_known && own.is_some() && header.status != NtStatus::USER_SESSION_DELETED {
            return fault(format!("{:?} is signed by nobody's key", header.command));
        }
    } else if own.is_some() && protection == Protection::Sealed {
        return fault(format!("{:?} in the clear: {:?}", header.command, header.status));
    }
    Ok(frame.to_vec())
}
