use super::*;
use crate::crypto::hex;

fn key(encryption: EncryptionType, bytes: &str) -> Key {
    Key::new(encryption, &hex(bytes)).unwrap()
}

#[test]
fn ciphertext_stealing_gives_the_bytes_of_the_rfc() {
    // RFC 3962 §B.
    let aes = Aes::new(b"chicken teriyaki");
    let plain = hex("4920776f756c64206c696b65207468652047656e6572616c20476175277320436869636b656e");
    for (len, cipher) in [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
    ] {
        let mut data = plain[..len].to_vec();
        aes.cts_encrypt(&mut data);
        assert_eq!(data, hex(cipher), "{len} bytes");
        aes.cts_decrypt(&mut data);
        assert_eq!(data, plain[..len], "{len} bytes");
    }
}

#[test]
fn derived_keys_are_those_of_the_rfc() {
    // RFC 8009 §A, usage 2: Kc, Ke, Ki.
    let of_128 = [
        "b31a018a48f54776f403e9a396325dc3",
        "9b197dd1e8c5609d6e67c3e37c62c72e",
        "9fda0e56ab2d85e1569a688696c26a6c",
    ];
    let of_256 = [
        "ef5718be86cc84963d8bbb5031e9f5c4ba41f28faf69e73d",
        "56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49",
        "69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f",
    ];
    let bases = [
        key(EncryptionType::AES128_SHA256, "3705d96080c17728a0e800eab6e0d23c"),
        key(
            EncryptionType::AES256_SHA384,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        ),
    ];
    for (base, expected) in bases.iter().zip([of_128, of_256]) {
        let purposes = [Purpose::Checksum, Purpose::Encryption, Purpose::Integrity];
        for (purpose, expected) in purposes.into_iter().zip(expected) {
            assert_eq!(base.derive(Usage(2), purpose).to_vec(), hex(expected), "{base:?}");
        }
    }
}

#[test]
fn sealed_bytes_open_only_with_the_same_key_and_usage() {
    for (encryption, len) in [
        (EncryptionType::AES128_SHA1, 16),
        (EncryptionType::AES256_SHA1, 32),
        (EncryptionType::AES128_SHA256, 16),
        (EncryptionType::AES256_SHA384, 32),
    ] {
        let key = Key::new(encryption, &vec![7; len]).unwrap();
        let other = Key::new(encryption, &vec![8; len]).unwrap();
        for plain in [&b""[..], b"a", &[1; 16], &[2; 17], &[3; 100]] {
            let sealed = key.seal(Usage::TICKET, &[9; BLOCK], plain);
            assert_eq!(key.open(Usage::TICKET, &sealed).unwrap()[..], *plain, "{encryption}");
            assert!(key.open(Usage::AP_REQ, &sealed).is_none());
            assert!(other.open(Usage::TICKET, &sealed).is_none());
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 0x10;
                assert!(key.open(Usage::TICKET, &changed).is_none(), "byte {at}");
                assert!(key.open(Usage::TICKET, &sealed[..at]).is_none(), "{at} bytes");
            }
        }
    }
}

#[test]
fn keys_have_the_length_of_their_type_and_never_print() {
    assert!(Key::new(EncryptionType::AES256_SHA1, &[0; 16]).is_none());
    assert!(Key::new(EncryptionType::RC4, &[0; 16]).is_none());
    let key = Key::new(EncryptionType::AES128_SHA1, &[0x41; 16]).unwrap();
    assert_eq!(format!("{key:?}"), "Key(AES128_SHA1)");
}
