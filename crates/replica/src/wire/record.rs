//! The record layer of a link: what follows the handshake, which rustls does.
//!
//! ```text
//!   0 kind 23 | 3, 3 | length 2, big-endian | ciphertext of: content, type 1 (23 data, 22 handshake, 21 alert), zeros | tag 16
//! ```
//! Each direction has a key of its own, so the two halves of a link share no lock; and what is sent is encrypted from
//! where it lies, what arrives is decrypted where it lies. rustls' own record layer copies twice as often, and needs
//! one lock for both directions.
//!
//! Spec: RFC 8446 §5.2, §5.3, §4.6.3.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::kernel::KernelConnection;

/// Bytes of content of a record at most.
pub(super) const CONTENT_MAX: usize = 1 << 14;
/// Bytes of the head of a record.
pub(super) const RECORD_HEAD_LEN: usize = 5;
/// Bytes that a record is longer than its content.
pub(super) const OVERHEAD: usize = RECORD_HEAD_LEN + 1 + TAG_LEN;
/// Bytes behind the head of a record at most (RFC 8446 §5.2).
const RECORD_LEN_MAX: usize = CONTENT_MAX + 256;
const TAG_LEN: usize = 16;
/// A key encrypts this many records at most; AES-GCM bears 2^24 (RFC 8446 §5.5).
pub(super) const RECORDS_OF_KEY: u64 = 1 << 23;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// RFC 8446 §4.6.3: type, length, whether the other end has to update its key too.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
/// RFC 8446 §6.1: a warning that says that nothing more will come.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Why a record is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// The head is not that of encrypted data, or names a length that no record has.
    #[error("the head of a TLS record is wrong")]
    PeerHead,
    /// The record was made with another key, or changed.
    #[error("a TLS record is not authentic")]
    PeerTag,
    /// The record is authentic and has no place here.
    #[error("a TLS record of type {0} has no place here")]
    PeerType(u8),
    /// The other end has ended the link because of an error.
    #[error("the other end has ended the link with TLS alert {0}")]
    PeerAlert(u8),
    /// There is no next key.
    #[error("the key of a direction has been used up")]
    KeyExhausted,
}

/// Gives the keys behind the first ones.
pub(super) trait NextKeys: Send {
    fn to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
    fn to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
}

impl<Data: Send> NextKeys for KernelConnection<Data> {
    fn to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }
}

/// What both directions share: the next keys, and whether the other end has asked for one.
pub(super) struct Rekey {
    keys: Mutex<Box<dyn NextKeys>>,
    is_asked: AtomicBool,
}

impl Rekey {
    pub(super) fn new(keys: Box<dyn NextKeys>) -> Arc<Self> {
        Arc::new(Self { keys: Mutex::new(keys), is_asked: false.into() })
    }

    fn next(
        &self,
        next: impl FnOnce(&mut dyn NextKeys) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>,
    ) -> Result<Key, RecordError> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        next(&mut **keys).ok().and_then(Key::new).ok_or(RecordError::KeyExhausted)
    }
}

/// The key of a direction, and how many records it has made or opened.
struct Key {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Key {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Option<Self> {
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { return None };
        let key = UnboundKey::new(&AES_256_GCM, key.as_ref()).ok()?;
        Some(Self { key: LessSafeKey::new(key), iv: iv.as_ref().try_into().ok()?, sequence })
    }

    /// RFC 8446 §5.3. No number comes twice.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Encrypts what is sent.
pub(super) struct Sealer {
    key: Key,
    records_of_key: u64,
    rekey: Arc<Rekey>,
}

impl Sealer {
    pub(super) fn new(
        secrets: (u64, ConnectionTrafficSecrets),
        rekey: &Arc<Rekey>,
        records_of_key: u64,
    ) -> Option<Self> {
        Some(Self { key: Key::new(secrets)?, records_of_key, rekey: Arc::clone(rekey) })
    }

    /// Makes a record of `content`, at most [`CONTENT_MAX`] bytes, at the front of `out`, and says how long it is. `out`
    /// has room for [`SEAL_ROOM`] bytes more than the content.
    pub(super) fn seal(&mut self, content: &[u8], out: &mut [u8]) -> Result<usize, RecordError> {
        let mut used = 0;
        let is_asked = self.rekey.is_asked.swap(false, Ordering::Relaxed);
        if is_asked || self.key.sequence >= self.records_of_key {
            let [a, b, c, d] = KEY_UPDATE;
            used = self.record(HANDSHAKE, &[a, b, c, d, 0], out)?;
            self.key = self.rekey.next(|keys| keys.to_send())?;
        }
        Ok(used + self.record(DATA, content, &mut out[used..])?)
    }

    /// Makes the record that says that nothing more will come.
    pub(super) fn close(&mut self, out: &mut [u8]) -> Result<usize, RecordError> {
        self.record(ALERT, &CLOSE_NOTIFY, out)
    }

    fn record(&mut self, of: u8, content: &[u8], out: &mut [u8]) -> Result<usize, RecordError> {
        let len = content.len() + 1 + TAG_LEN;
        let len_bytes = u16::try_from(len).expect("a record is shorter than 2^16").to_be_bytes();
        let head = [DATA, 3, 3, len_bytes[0], len_bytes[1]];
        let (head_out, rest) = out.split_at_mut(RECORD_HEAD_LEN);
        head_out.copy_from_slice(&head);
        let (content_out, tail) = rest[..len].split_at_mut(content.len());
        let nonce = self.key.nonce();
        self.key
            .key
            .seal_out_of_place_scatter(nonce, Aad::from(head), content, content_out, &[of], tail)
            .map_err(|_| RecordError::KeyExhausted)?;
        Ok(RECORD_HEAD_LEN + len)
    }
}

/// Bytes that [`Sealer::seal`] may use beside the content: a record's, and those of the one that announces a new key.
pub(super) const SEAL_ROOM: usize = 2 * OVERHEAD + 5;

/// Decrypts what arrives.
pub(super) struct Opener {
    key: Key,
    rekey: Arc<Rekey>,
}

/// What a record was.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Opened {
    /// So many bytes of data, which lie where the ciphertext began.
    Data(usize),
    /// Something between the two ends of TLS.
    Nothing,
    /// Nothing more will come.
    End,
}

impl Opener {
    pub(super) fn new(
        secrets: (u64, ConnectionTrafficSecrets),
        rekey: &Arc<Rekey>,
    ) -> Option<Self> {
        Some(Self { key: Key::new(secrets)?, rekey: Arc::clone(rekey) })
    }

    /// Bytes behind the head.
    pub(super) fn len(head: [u8; RECORD_HEAD_LEN]) -> Result<usize, RecordError> {
        let [of, major, minor, a, b] = head;
        let len = usize::from(u16::from_be_bytes([a, b]));
        let is_one = of == DATA && (major, minor) == (3, 3);
        match is_one && (TAG_LEN + 1..=RECORD_LEN_MAX).contains(&len) {
            true => Ok(len),
            false => Err(RecordError::PeerHead),
        }
    }

    /// Opens a record where it lies: `record` is what follows `head`.
    pub(super) fn open(
        &mut self,
        head: [u8; RECORD_HEAD_LEN],
        record: &mut [u8],
    ) -> Result<Opened, RecordError> {
        let nonce = self.nonce()?;
        let plain = self
            .key
            .key
            .open_in_place(nonce, Aad::from(head), record)
            .map_err(|_| RecordError::PeerTag)?;
        let len = content_len(plain)?;
        let (content, of) = (&plain[..len], plain[len]);
        self.interpret(of, content)
    }

    /// Opens a record into `out`, of [`Self::plain_len`] bytes, which end in what is no data.
    pub(super) fn open_into(
        &mut self,
        head: [u8; RECORD_HEAD_LEN],
        record: &[u8],
        out: &mut [u8],
    ) -> Result<Opened, RecordError> {
        let nonce = self.nonce()?;
        let (content, tag) = record.split_at(Self::plain_len(record.len()));
        self.key
            .key
            .open_separate_gather(nonce, Aad::from(head), content, tag, out)
            .map_err(|_| RecordError::PeerTag)?;
        let len = content_len(out)?;
        let (content, of) = (&out[..len], out[len]);
        self.interpret(of, content)
    }

    /// Bytes in which a record of `len` bytes behind its head is opened.
    pub(super) fn plain_len(len: usize) -> usize {
        len.saturating_sub(TAG_LEN)
    }

    // What a peer sends under one key is bounded, as forgeries are counted by records (RFC 8446 §5.5).
    fn nonce(&mut self) -> Result<Nonce, RecordError> {
        match self.key.sequence > RECEIVED_OF_KEY_MAX {
            true => Err(RecordError::KeyExhausted),
            false => Ok(self.key.nonce()),
        }
    }

    fn interpret(&mut self, of: u8, content: &[u8]) -> Result<Opened, RecordError> {
        if content.len() > CONTENT_MAX {
            return Err(RecordError::PeerHead);
        }
        match (of, content) {
            (DATA, _) => Ok(Opened::Data(content.len())),
            (ALERT, content) if *content == CLOSE_NOTIFY => Ok(Opened::End),
            (ALERT, &[_, alert]) => Err(RecordError::PeerAlert(alert)),
            (HANDSHAKE, &[a, b, c, d, asks @ 0..=1]) if [a, b, c, d] == KEY_UPDATE => {
                self.key = self.rekey.next(|keys| keys.to_receive())?;
                if asks == 1 {
                    self.rekey.is_asked.store(true, Ordering::Relaxed);
                }
                Ok(Opened::Nothing)
            }
            (of, _) => Err(RecordError::PeerType(of)),
        }
    }
}

/// Bytes before the type of what was opened, behind which are zeros alone.
fn content_len(plain: &[u8]) -> Result<usize, RecordError> {
    plain.iter().rposition(|byte| *byte != 0).ok_or(RecordError::PeerType(0))
}

const RECEIVED_OF_KEY_MAX: u64 = 1 << 24;
