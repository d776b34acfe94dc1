//! The client's requirements for a connection.

use std::net::IpAddr;
use std::time::Duration;

use basics::Environment;
use smb::negotiate::Dialect;
use smb::{Guid, SessionId};

use crate::url::SmbUrl;

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Dialects to offer.
    pub dialects: Vec<Dialect>,
    /// When to sign.
    pub signing: Protection,
    /// When to encrypt.
    pub encryption: Protection,
    /// Cipher and signing preferences, best first; see [`smb::crypto`].
    pub ciphers: Vec<smb::crypto::Cipher>,
    /// Signing algorithms to offer, best first.
    pub signing_algorithms: Vec<smb::crypto::SigningAlgorithm>,
    /// Tells a server of 3.1.1 that the client understands modes and owners: if the server knows the
    /// POSIX extensions, security descriptors carry them.
    pub posix: bool,
    /// How long connecting and authenticating may take.
    pub connect_timeout: Duration,
    /// How long the server may be silent while it owes an answer before the connection fails. ECHO
    /// checks a server that said that a request may take long.
    pub answer_timeout: Duration,
    /// How long one request may take, whatever the server sends meanwhile: it said that the request may take
    /// long, or grants no credits for it. Then the call fails, at most a fifth of `answer_timeout` later; the
    /// connection goes on.
    pub call_timeout: Duration,
    /// Most bytes of memory that the entries of one listing may take.
    pub listing_bytes_max: usize,
    /// The identity of the client, by which a server gives an open back whose connection was lost; `None` draws one.
    pub client_guid: Option<Guid>,
    /// The session of this user that this one follows, which is lost to the client: a server that still holds it ends it first,
    /// so that its persistent opens can come back.
    pub previous_session: Option<SessionId>,
    /// Further addresses at which the client may look for the push listener of the server, beside the address
    /// of the SMB connection and those that the server announces over it.
    pub push_addresses: Vec<IpAddr>,
    /// Where the client takes time and random numbers from, among them the salts and challenges of its
    /// proofs: outside tests this is the host.
    pub environment: Environment,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            dialects: vec![
                Dialect::SMB_2_0_2,
                Dialect::SMB_2_1,
                Dialect::SMB_3_0,
                Dialect::SMB_3_0_2,
                Dialect::SMB_3_1_1,
            ],
            signing: Protection::Required,
            encryption: Protection::IfRequired,
            ciphers: smb::crypto::Cipher::PREFERENCE.to_vec(),
            signing_algorithms: smb::crypto::SigningAlgorithm::PREFERENCE.to_vec(),
            posix: false,
            connect_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(300),
            listing_bytes_max: 512 << 20,
            client_guid: None,
            previous_session: None,
            push_addresses: Vec::new(),
            environment: Environment::host(),
        }
    }
}

impl ConnectOptions {
    /// The defaults for the user of `url`: whoever names no user connects as a guest, who has no key to sign with.
    pub fn for_user_of(url: &SmbUrl) -> Self {
        let signing = match url.user.is_empty() {
            true => Protection::IfRequired,
            false => Protection::Required,
        };
        Self { signing, ..Self::default() }
    }
}

/// When messages are protected.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Protection {
    /// If the server requires it.
    IfRequired,
    /// Always; a session without it fails.
    Required,
}
