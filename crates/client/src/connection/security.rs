//! The protection of the messages of one session, on the client's side.
//!
//! Spec: MS-SMB2 §3.2.4.1.1, §3.2.4.1.8, §3.2.5.1.3.

use smb::crypto::{
    ChannelSigner, LaneId, OpeningKey, SealingKey, SessionKeys, Turn, VerifyError, is_exempt,
};
use smb::{Header, HeaderFlags, SessionId, TransformHeader};

use crate::error::ConnectionError;
use crate::transport::OutFrame;

/// Keys and policy of a session.
#[derive(Debug)]
pub(crate) struct SessionSecurity {
    id: SessionId,
    /// None for guests and anonymous users, and before authentication ends.
    keys: Option<Keys>,
    sign: bool,
    encrypt: bool,
}

#[derive(Debug)]
struct Keys {
    signing: ChannelSigner,
    sealing: Option<SealingKey>,
    opening: Option<OpeningKey>,
}

impl SessionSecurity {
    /// A session that does not have its keys yet.
    pub(crate) fn without_keys(id: SessionId) -> Self {
        Self { id, keys: None, sign: false, encrypt: false }
    }

    /// A session of the connection that `lane` belongs to.
    pub(crate) fn new(
        id: SessionId,
        (keys, lane): (SessionKeys, LaneId),
        sign: bool,
        encrypt: bool,
    ) -> Self {
        let SessionKeys { signing, sealing, opening, .. } = keys;
        let (signing, _) = signing.divide(lane, 0);
        Self { id, keys: Some(Keys { signing, sealing, opening }), sign, encrypt }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn can_sign(&self) -> bool {
        self.keys.is_some()
    }

    pub(crate) fn signs(&self) -> bool {
        self.sign
    }

    pub(crate) fn can_seal(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.sealing.is_some())
    }

    pub(crate) fn encrypts(&self) -> bool {
        self.encrypt
    }

    pub(super) fn sign(&self, turn: Turn, pdu: &mut [u8]) {
        let keys = self.keys.as_ref().expect("only a session with keys signs");
        let signed = keys.signing.sign(turn, pdu);
        signed.expect("a request is neither short nor exempt, and its turn is its connection's");
    }

    pub(super) fn seal(&self, frame: &mut OutFrame) -> Result<(), ConnectionError> {
        let sealing = self.keys.as_ref().and_then(|keys| keys.sealing.as_ref());
        let sealing = sealing.expect("only a session that can seal does");
        let (room, message) = frame.seal_mut();
        let header = TransformHeader {
            signature: [0; 16],
            nonce: [0; 16],
            original_size: u32::try_from(message.len()).expect("a frame is below 16 MiB"),
            session_id: self.id,
        };
        let mut bytes = Vec::with_capacity(TransformHeader::LEN);
        header.emit(&mut bytes);
        room.copy_from_slice(&bytes);
        Ok(sealing.seal(room, message)?)
    }

    /// Opens a frame in place.
    pub(super) fn open(
        &self,
        header: &[u8; TransformHeader::LEN],
        payload: &mut [u8],
    ) -> Result<(), ConnectionError> {
        match self.keys.as_ref().and_then(|keys| keys.opening.as_ref()) {
            Some(opening) => Ok(opening.open(header, payload)?),
            None => Err(ConnectionError::PeerSession(self.id)),
        }
    }

    /// Checks an answer that was not encrypted.
    pub(super) fn verify(&self, header: &Header, pdu: &mut [u8]) -> Result<(), ConnectionError> {
        let Some(keys) = &self.keys else { return Ok(()) };
        if is_exempt(pdu) {
            return Ok(());
        }
        if self.encrypt {
            return Err(ConnectionError::PeerUnencrypted);
        }
        match header.flags.contains(HeaderFlags::SIGNED) {
            true => Ok(keys.signing.verify(pdu)?),
            false if self.sign => Err(VerifyError::PeerUnsigned.into()),
            false => Ok(()),
        }
    }

    /// Checks the last answer of an authentication, which must be signed in 3.x.
    pub(crate) fn verify_final(&self, pdu: &[u8]) -> Result<(), VerifyError> {
        let Some(keys) = &self.keys else { return Ok(()) };
        keys.signing.verify(&mut pdu.to_vec())
    }
}
