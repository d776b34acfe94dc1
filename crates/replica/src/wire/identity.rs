//! How a member proves which member it is, and whose proof it takes.
//!
//! Keys are pinned, so there is no authority, and no certificate expires. Two ways:
//!
//! - **A secret** that all members have. It and the id of the group give one Ed25519 key, which both ends have to show
//!   (RFC 7250, no certificate). Which member the other end is, it claims; whoever has the secret is believed.
//! - **A certificate** for each member, of any kind that TLS 1.3 signs with. Every member knows the fingerprints of the
//!   others, and the fingerprint says which member it is.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::hkdf;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use super::keys::{Fingerprint, Keys};
use super::verify::{self, ForGroup, provider};
use crate::format::RecordKeys;
use crate::names::{GroupId, MEMBERS_MAX, MemberId, MemberSet};

/// Bytes of a secret at least. They have to be random: whoever can connect can try guesses at leisure.
pub const SECRET_MIN: usize = 16;
/// Bytes of the file of a secret at most.
pub const SECRET_MAX: usize = 4096;

/// 64 hexadecimal digits, with or without colons, as `openssl x509 -noout -fingerprint -sha256` prints them.
impl FromStr for Fingerprint {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let digits: Vec<u32> = text
            .chars()
            .filter(|digit| *digit != ':')
            .map(|digit| digit.to_digit(16).ok_or(IdentityError::ConfigFingerprint))
            .collect::<Result<_, _>>()?;
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(IdentityError::ConfigFingerprint);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::try_from(pair[0] * 16 + pair[1]).expect("two digits of 16");
        }
        Ok(Self(bytes))
    }
}

/// Why a member has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read, or does not hold what it should.
    #[error("{}: {source}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A secret is too short, or its file too long.
    #[error(
        "a secret has {0} bytes, not from {SECRET_MIN} to {SECRET_MAX}; make one with `openssl rand -hex 32`"
    )]
    ConfigSecretLen(usize),
    /// The text is no fingerprint.
    #[error("a fingerprint is 64 hexadecimal digits: the SHA-256 of a certificate")]
    ConfigFingerprint,
    /// Two members have one certificate.
    #[error("{0} and {1} have the same fingerprint")]
    ConfigTwice(MemberId, MemberId),
    /// The fingerprint of this member is that of another certificate.
    #[error("the certificate of {member} has the fingerprint {found}, the group names {named}")]
    ConfigOwn {
        /// This member.
        member: MemberId,
        /// That of its certificate.
        found: Fingerprint,
        /// That of the group's configuration.
        named: Fingerprint,
    },
    /// The number is that of no member of the group.
    #[error("{0} is not one of the group's members {1}")]
    ConfigMember(MemberId, MemberSet),
    /// Certificate and key do not fit together, or cannot be used.
    #[error("certificate and key: {0}")]
    ConfigPair(#[source] rustls::Error),
}

/// Who a member is, how it proves that, and who the others are.
#[derive(Clone)]
pub struct Identity {
    pub(super) group: GroupId,
    pub(super) me: MemberId,
    pub(super) members: MemberSet,
    pub(super) keys: Arc<Keys>,
    pub(super) client: Arc<rustls::ClientConfig>,
    pub(super) server: Arc<rustls::ServerConfig>,
    pub(super) own: Arc<CertifiedKey>,
    record_keys: Option<Arc<RecordKeys>>,
}

impl Identity {
    /// Member `me` of a group whose members share a secret.
    ///
    /// # Errors
    ///
    /// The secret is too short or too long, or `me` is not one of `members`.
    pub fn from_secret(
        group: GroupId,
        me: MemberId,
        members: MemberSet,
        secret: &[u8],
    ) -> Result<Self, IdentityError> {
        if !(SECRET_MIN..=SECRET_MAX).contains(&secret.len()) {
            return Err(IdentityError::ConfigSecretLen(secret.len()));
        }
        let mut pkcs8 = Zeroizing::new([0; PKCS8_PREFIX.len() + SEED_LEN]);
        let (prefix, seed) = pkcs8.split_at_mut(PKCS8_PREFIX.len());
        prefix.copy_from_slice(&PKCS8_PREFIX);
        hkdf::Salt::new(hkdf::HKDF_SHA256, SALT)
            .extract(secret)
            .expand(&[&group.0], hkdf::HKDF_SHA256)
            .and_then(|key| key.fill(seed))
            .expect("32 bytes are what one block of HKDF gives");
        let pkcs8 = PrivatePkcs8KeyDer::from(&pkcs8[..]);
        let key = rustls::crypto::aws_lc_rs::sign::any_eddsa_type(&pkcs8)
            .map_err(IdentityError::ConfigPair)?;
        let public = key.public_key().ok_or_else(no_public_key)?.to_vec();
        let keys = Keys::Shared(Fingerprint::of(&public));
        let own = CertifiedKey::new(vec![CertificateDer::from(public)], key);
        let record_keys = Some(Arc::new(RecordKeys::new(group, secret)));
        Ok(Self { record_keys, ..Self::new(group, me, members, keys, own)? })
    }

    /// [`Identity::from_secret`] with the secret that a file holds; line ends behind it do not count.
    ///
    /// # Errors
    ///
    /// The file cannot be read, and those of [`Identity::from_secret`].
    pub fn from_secret_file(
        group: GroupId,
        me: MemberId,
        members: MemberSet,
        path: &Path,
    ) -> Result<Self, IdentityError> {
        let failed = |source| IdentityError::ConfigFile { path: path.to_owned(), source };
        let len = fs::metadata(path).map_err(failed)?.len();
        // A file that is longer than its end of line is no secret.
        if len > SECRET_MAX as u64 + 2 {
            return Err(IdentityError::ConfigSecretLen(usize::try_from(len).unwrap_or(usize::MAX)));
        }
        let bytes = Zeroizing::new(fs::read(path).map_err(failed)?);
        Self::from_secret(group, me, members, bytes.trim_ascii_end())
    }

    /// Member `me` of a group in which each member has a certificate: that of this one and its key, in PEM, and the
    /// fingerprints of all.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used; a fingerprint is there twice, or, for `me`, another one than the certificate's.
    pub fn from_certificates(
        group: GroupId,
        me: MemberId,
        certificate: &Path,
        key: &Path,
        fingerprints: &[(MemberId, Fingerprint)],
    ) -> Result<Self, IdentityError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |error| IdentityError::ConfigFile { path, source: io::Error::other(error) }
        };
        // The others look at the first certificate alone.
        let own = CertificateDer::from_pem_file(certificate).map_err(failed(certificate))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
        let key = provider().key_provider.load_private_key(key);
        let own = CertifiedKey::new(vec![own], key.map_err(IdentityError::ConfigPair)?);
        // Some keys do not say which public key is theirs; a handshake then fails where it is used.
        match own.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(error) => return Err(IdentityError::ConfigPair(error)),
        }
        let found = Fingerprint::of(&own.cert[0]);
        let (mut members, mut pinned) = (MemberSet::NONE, Vec::<(MemberId, Fingerprint)>::new());
        for (member, named) in fingerprints {
            if member.0 >= MEMBERS_MAX || members.contains(*member) {
                return Err(IdentityError::ConfigMember(*member, members));
            }
            if let Some((other, _)) = pinned.iter().find(|(_, other)| other == named) {
                return Err(IdentityError::ConfigTwice(*other, *member));
            }
            if *member == me && *named != found {
                return Err(IdentityError::ConfigOwn { member: me, found, named: *named });
            }
            if *member != me && *named == found {
                return Err(IdentityError::ConfigTwice(me, *member));
            }
            members = members.with(*member);
            pinned.push((*member, *named));
        }
        Self::new(group, me, members, Keys::Pinned(pinned), own)
    }

    fn new(
        group: GroupId,
        me: MemberId,
        members: MemberSet,
        keys: Keys,
        own: CertifiedKey,
    ) -> Result<Self, IdentityError> {
        if me.0 >= MEMBERS_MAX || !members.contains(me) {
            return Err(IdentityError::ConfigMember(me, members));
        }
        let (keys, own) = (Arc::new(keys), Arc::new(own));
        let (client, server) = verify::configs(&keys, &own).map_err(IdentityError::ConfigPair)?;
        Ok(Self { group, me, members, keys, client, server, own, record_keys: None })
    }

    /// What this member is to one connection that another has made.
    pub(super) fn for_one(&self) -> (rustls::ServerConfig, Arc<ForGroup>) {
        let resolver = Arc::new(ForGroup::new(self.group, &self.own, &self.keys));
        let mut config = rustls::ServerConfig::clone(&self.server);
        config.cert_resolver = Arc::clone(&resolver) as _;
        (config, resolver)
    }

    /// Whether the number is that of a member of the group.
    pub(super) fn has(&self, member: MemberId) -> bool {
        member.0 < MEMBERS_MAX && self.members.contains(member)
    }

    /// The keys of records that are sealed, where the members share a secret.
    pub fn record_keys(&self) -> Option<Arc<RecordKeys>> {
        self.record_keys.clone()
    }

    /// The group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Which member this is.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// All members of the group.
    pub fn members(&self) -> MemberSet {
        self.members
    }

    /// What the others have to know of this member, where each has a certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.own.cert[0])
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (me, members) = (self.me, self.members);
        write!(f, "Identity({me} of {members} of group {}, {:?})", self.group, self.fingerprint())
    }
}

/// The fingerprint of the first certificate of a file.
///
/// # Errors
///
/// The file cannot be read, or holds none.
pub fn fingerprint_of(certificate: &Path) -> Result<Fingerprint, IdentityError> {
    let read = CertificateDer::from_pem_file(certificate).map_err(|error| {
        IdentityError::ConfigFile { path: certificate.to_owned(), source: io::Error::other(error) }
    })?;
    Ok(Fingerprint::of(&read))
}

fn no_public_key() -> IdentityError {
    IdentityError::ConfigPair(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown))
}

/// RFC 8410 §7: a private key of Ed25519 in PKCS #8, before its 32 bytes.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const SEED_LEN: usize = 32;
const SALT: &[u8] = b"landfast replica link 1";
