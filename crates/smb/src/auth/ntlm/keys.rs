//! What an NTLMv2 proof is made of, and the keys that follow from it.
//!
//! ```text
//!  response key  = HMAC-MD5(NT hash, UTF-16(upper(user) || domain))
//!  proof         = HMAC-MD5(response key, challenge || blob)
//!  exchange key  = HMAC-MD5(response key, proof)
//!  exported key  = RC4(exchange key, encrypted key), or the exchange key itself
//!  MIC           = HMAC-MD5(exported key, NEGOTIATE || CHALLENGE || AUTHENTICATE with MIC zero)
//!
//!  signature of a message (SPNEGO's mechListMIC), n counting from 0 for each direction:
//!  +---------+-----------------------------------------------------------+--------+
//!  | 1 (4)   | HMAC-MD5(sign key, n || message)[0..8], by RC4 if KEY_EXCH| n (4)  |
//!  +---------+-----------------------------------------------------------+--------+
//! ```
//!
//! Spec: MS-NLMP §3.3.2, §3.4.4.2, §3.4.5.

use std::fmt;
use std::ops::RangeInclusive;

use zeroize::Zeroizing;

use super::NtlmFlags;
use crate::auth::legacy::{hmac_md5, md5, rc4};

/// NTOWFv2.
pub(super) fn response_key(nt_hash: &[u8; 16], user: &str, domain: &str) -> Zeroizing<[u8; 16]> {
    let mut names = Vec::with_capacity(2 * (user.len() + domain.len()));
    for unit in user.chars().map(upper).collect::<String>().encode_utf16() {
        names.extend(unit.to_le_bytes());
    }
    for unit in domain.encode_utf16() {
        names.extend(unit.to_le_bytes());
    }
    Zeroizing::new(hmac_md5(nt_hash, &[&names]))
}

/// The upper case of a code point in Windows' table, which is that of Unicode 5.1: code points of the first plane
/// alone, each to one code point from which the lower case leads back. A name with another mapping makes another
/// proof, and the logon fails (MS-UCODEREF §3.1.5.3).
fn upper(c: char) -> char {
    let code = u32::from(c);
    let offset = match code {
        // To the title case, as the upper case is two code points.
        0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7 => Some(8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => Some(9),
        _ => None,
    };
    if let Some(offset) = offset {
        return char::from_u32(code + offset).unwrap_or(c);
    }
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) if is_windows_pair(c, single) => single,
        _ => c,
    }
}

fn is_windows_pair(lower: char, upper: char) -> bool {
    let (code, mut back) = (u32::from(lower), upper.to_lowercase());
    let leads_back = (back.next(), back.next()) == (Some(lower), None);
    leads_back && code <= 0xffff && !NEWER.iter().any(|range| range.contains(&code))
}

/// Code points that got their upper case after Unicode 5.1.
const NEWER: [RangeInclusive<u32>; 24] = [
    0x19b..=0x19b,
    0x23f..=0x240,
    0x252..=0x252,
    0x25c..=0x25c,
    0x261..=0x261,
    0x264..=0x266,
    0x26a..=0x26a,
    0x26c..=0x26c,
    0x282..=0x282,
    0x287..=0x287,
    0x29d..=0x29e,
    0x3f3..=0x3f3,
    0x524..=0x52f,
    0x10d0..=0x10ff,
    0x13f8..=0x13fd,
    0x1c80..=0x1c8f,
    0x1d8e..=0x1d8e,
    0x2c5f..=0x2c5f,
    0x2cec..=0x2cf3,
    0x2d26..=0x2d2d,
    0xa661..=0xa661,
    0xa698..=0xa69f,
    0xa78d..=0xa7ff,
    0xab30..=0xabbf,
];

/// NTProofStr.
pub(super) fn proof(response_key: &[u8; 16], challenge: &[u8; 8], blob: &[u8]) -> [u8; 16] {
    hmac_md5(response_key, &[challenge, blob])
}

/// The session key, once the proof is known to be right.
#[derive(Clone)]
pub(in crate::auth) struct ExportedKey {
    bytes: Zeroizing<[u8; 16]>,
    flags: NtlmFlags,
}

impl ExportedKey {
    /// `flags` are those both sides agreed on.
    pub(super) fn new(
        response_key: &[u8; 16],
        proof: &[u8; 16],
        encrypted_key: &[u8],
        flags: NtlmFlags,
    ) -> Self {
        let mut bytes = Zeroizing::new(hmac_md5(response_key, &[proof]));
        if let (true, Ok(encrypted)) =
            (flags.contains(NtlmFlags::KEY_EXCH), <[u8; 16]>::try_from(encrypted_key))
        {
            let exchange = bytes.clone();
            *bytes = encrypted;
            rc4(exchange.as_slice(), bytes.as_mut_slice());
        }
        Self { bytes, flags }
    }

    /// The one that a client has `chosen`, and how it tells the server; without an exchange of keys it is
    /// the one that follows from the proof, and nothing is told.
    pub(super) fn choose(
        response_key: &[u8; 16],
        proof: &[u8; 16],
        chosen: &[u8; 16],
        flags: NtlmFlags,
    ) -> (Self, Vec<u8>) {
        let exchange = Zeroizing::new(hmac_md5(response_key, &[proof]));
        if !flags.contains(NtlmFlags::KEY_EXCH) {
            return (Self { bytes: exchange, flags }, Vec::new());
        }
        let mut encrypted = chosen.to_vec();
        rc4(exchange.as_slice(), &mut encrypted);
        (Self { bytes: Zeroizing::new(*chosen), flags }, encrypted)
    }

    pub(in crate::auth) fn as_bytes(&self) -> &[u8; 16] {
        &self.bytes
    }

    /// The code over all three messages; `authenticate` has zeros where its MIC lies.
    pub(in crate::auth) fn mic(&self, messages: &[&[u8]]) -> [u8; 16] {
        hmac_md5(self.bytes.as_slice(), messages)
    }
}

impl fmt::Debug for ExportedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExportedKey(..)")
    }
}

/// The first signature of a direction, which SPNEGO uses as its mechListMIC.
///
/// MS-SPNG §3.3.5.1 has the cipher start anew for later messages; SMB sends none.
pub(in crate::auth) fn mic_token(key: &ExportedKey, from_server: bool, message: &[u8]) -> [u8; 16] {
    let magic = |client: &'static [u8], server| if from_server { server } else { client };
    let sign_key = md5(&[key.as_bytes(), magic(CLIENT_SIGN, SERVER_SIGN)]);
    let sequence = 0_u32.to_le_bytes();
    let mut checksum = [0; 8];
    checksum.copy_from_slice(&hmac_md5(&sign_key, &[&sequence, message])[..8]);
    if key.flags.contains(NtlmFlags::KEY_EXCH) {
        // MS-NLMP §3.4.5.3: how much of the key counts.
        let strength = if key.flags.contains(NtlmFlags::KEY_128) {
            16
        } else if key.flags.contains(NtlmFlags::KEY_56) {
            7
        } else {
            5
        };
        let magic = magic(CLIENT_SEAL, SERVER_SEAL);
        rc4(&md5(&[&key.as_bytes()[..strength], magic]), &mut checksum);
    }
    let mut token = [0; 16];
    token[0] = 1;
    token[4..12].copy_from_slice(&checksum);
    token[12..].copy_from_slice(&sequence);
    token
}

// MS-NLMP §3.4.5.2 and §3.4.5.3.
const CLIENT_SIGN: &[u8] = b"session key to client-to-server signing key magic constant\0";
const SERVER_SIGN: &[u8] = b"session key to server-to-client signing key magic constant\0";
const CLIENT_SEAL: &[u8] = b"session key to client-to-server sealing key magic constant\0";
const SERVER_SEAL: &[u8] = b"session key to server-to-client sealing key magic constant\0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upper_cased_by_the_table_of_windows() {
        for (name, expected) in [
            ("alice-ÿéжωա", "ALICE-ŸÉЖΩԱ"),
            // Windows leaves these: they do not come back, or got an upper case later, or are in another plane.
            ("µıſςϐǅß", "µıſςϐǅß"),
            ("აꭰᲊɡԥꞑ", "აꭰᲊɡԥꞑ"),
            ("𐐨", "𐐨"),
            ("ᾀᾳ", "ᾈᾼ"),
            ("ɐɑɫɽⲁⴀꙁꞌ", "ⱯⱭⱢⱤⲀႠꙀꞋ"),
        ] {
            assert_eq!(name.chars().map(upper).collect::<String>(), expected);
        }
    }
    use crate::auth::NtHash;
    use crate::crypto::hex;

    // MS-NLMP §4.2.1 and §4.2.4: User, Domain, Password, fixed challenges, time zero.
    const BLOB: &str = "01010000000000000000000000000000aaaaaaaaaaaaaaaa00000000\
                        02000c0044006f006d00610069006e0001000c00530065007200760065007200\
                        0000000000000000";

    #[test]
    fn the_specification_s_example_comes_out() {
        let blob = hex(BLOB);
        let hash = NtHash::of_password("Password");
        let key = response_key(hash.as_bytes(), "User", "Domain");
        assert_eq!(key[..], hex("0c868a403bfd7a93a3001ef22ef02e3f"));
        let challenge = hex("0123456789abcdef").try_into().unwrap();
        let proof = proof(&key, &challenge, &blob);
        assert_eq!(proof[..], hex("68cd0ab851e51c96aabc927bebef6a1c"));
        let base = ExportedKey::new(&key, &proof, &[], NtlmFlags::empty());
        assert_eq!(base.as_bytes()[..], hex("8de40ccadbc14a82f15cb0ad0de95ca3"));
        let encrypted = hex("c5dad2544fc9799094ce1ce90bc9d03e");
        let exported = ExportedKey::new(&key, &proof, &encrypted, NtlmFlags::KEY_EXCH);
        assert_eq!(exported.as_bytes(), &[0x55; 16]);
    }

    // MS-NLMP §4.2.4.4: the checksum of "Plaintext", which nothing encrypts where no key was exchanged.
    #[test]
    fn the_specification_s_signature_comes_out() {
        let key = ExportedKey { bytes: Zeroizing::new([0x55; 16]), flags: NtlmFlags::empty() };
        let plaintext: Vec<u8> = "Plaintext".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let token = mic_token(&key, false, &plaintext);
        assert_eq!(token[..], hex("0100000070352851f256430900000000"));
        assert_ne!(mic_token(&key, true, &plaintext), token, "of the other direction");
    }

    #[test]
    fn letters_that_would_grow_stay() {
        assert_eq!(upper('ß'), 'ß');
        assert_eq!(upper('é'), 'É');
    }
}
