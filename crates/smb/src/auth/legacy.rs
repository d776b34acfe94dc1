//! MD4, HMAC-MD5 and RC4: broken for anything new, and all that NTLM knows.
//!
//! They stay inside `auth`. Nothing but NTLM may use them.

use hmac::{Hmac, KeyInit, Mac};
use md4::{Digest, Md4};
use md5::Md5;

pub(super) fn md4(data: &[u8]) -> [u8; 16] {
    Md4::digest(data).into()
}

pub(super) fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Md5::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

pub(super) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Encrypts or decrypts `data` with the first bytes of the key stream.
pub(super) fn rc4(key: &[u8], data: &mut [u8]) {
    let mut state: [u8; 256] = std::array::from_fn(|i| u8::try_from(i).expect("below 256"));
    let mut j = 0_u8;
    for i in 0..=255_u8 {
        let at = usize::from(i);
        j = j.wrapping_add(state[at]).wrapping_add(key[at % key.len()]);
        state.swap(at, usize::from(j));
    }
    let (mut i, mut j) = (0_u8, 0_u8);
    for byte in data {
        i = i.wrapping_add(1);
        j = j.wrapping_add(state[usize::from(i)]);
        state.swap(usize::from(i), usize::from(j));
        let sum = state[usize::from(i)].wrapping_add(state[usize::from(j)]);
        *byte ^= state[usize::from(sum)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::hex;

    // RFC 1320 §A.5, RFC 2202 §2 (case 2), RFC 6229 §2 (40-bit key, first bytes of the stream).
    #[test]
    fn the_rfc_examples_come_out() {
        assert_eq!(md4(b"abc")[..], hex("a448017aaf21d8525fc10ae87aa6729d"));
        let mac = hmac_md5(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(mac[..], hex("750c783e6ab0b503eaa86e310a5db738"));
        let mut stream = [0; 16];
        rc4(&[1, 2, 3, 4, 5], &mut stream);
        assert_eq!(stream[..], hex("b2396305f03dc027ccc3524a0a1118a8"));
    }
}
