//! Signed and encrypted frames from somebody without the key, and from ourselves.

use smb::crypto::{
    Cipher, KeySchedule, PreauthHash, Role, SessionKey, SigningAlgorithm, SigningKey,
};
use smb::{Header, TransformHeader};

use crate::Input;

/// One byte for the algorithm, then a frame.
pub(crate) fn sealing(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let frame = input.rest();
    if choice & 0x80 == 0 { sealed(choice, frame) } else { signed(choice, frame) }
}

fn sealed(choice: u8, frame: &[u8]) {
    let cipher = match choice % 4 {
        0 => Cipher::Aes128Ccm,
        1 => Cipher::Aes128Gcm,
        2 => Cipher::Aes256Ccm,
        _ => Cipher::Aes256Gcm,
    };
    let (preauth, signing) = (PreauthHash::new(), SigningAlgorithm::AesCmac);
    let schedule = KeySchedule::Smb311 { preauth, signing, cipher: Some(cipher) };
    let key = SessionKey::new(&[7; 16]);
    let client = schedule.derive(&key, Role::Client).sealing;
    let server = schedule.derive(&key, Role::Server).opening;
    let (sealing, opening) = client.zip(server).expect("a cipher was negotiated");
    if let Some((header, payload)) = frame.split_first_chunk::<{ TransformHeader::LEN }>() {
        let mut payload = payload.to_vec();
        assert!(opening.open(header, &mut payload).is_err(), "nobody else has the key");
    }
    let mut header = [0; TransformHeader::LEN];
    let mut payload = frame.to_vec();
    sealing.seal(&mut header, &mut payload).expect("a fresh key is not exhausted");
    opening.open(&header, &mut payload).expect("we open what we sealed");
    assert_eq!(payload, frame);
}

fn signed(choice: u8, frame: &[u8]) {
    let algorithm = match choice % 3 {
        0 => SigningAlgorithm::HmacSha256,
        1 => SigningAlgorithm::AesCmac,
        _ => SigningAlgorithm::AesGmac,
    };
    let key = SigningKey::new(algorithm, &[7; 16]);
    let mut pdu = frame.to_vec();
    assert!(key.verify(&mut pdu).is_err(), "nobody else has the key");
    assert_eq!(pdu, frame, "verifying changes nothing");
    #[expect(clippy::disallowed_methods, reason = "one PDU under a key of its own")]
    let has_signed = key.sign_unguarded(&mut pdu).is_ok();
    if has_signed {
        key.verify(&mut pdu).expect("we verify what we signed");
        pdu[Header::LEN - 1] ^= 1;
        assert!(key.verify(&mut pdu).is_err());
    }
}
