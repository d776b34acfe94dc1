//! What a store reads of metadata, of its daemons' files, of people and of peers.

use store::host::pieces::{Header, USED};
use store::ids::RegionId;
use store::meta::record::{ClientRecord, RegionRecord, ServerRecord};
use store::token::{Claims, StoreKey, Token};
use store::wire::{self, Answer, NONCE_LEN, Nonces, Request, Sealed, Status};

/// Records: what is taken is written and read as the same, and every byte of a region has its place.
pub(crate) fn record(data: &[u8]) {
    if let Ok(record) = RegionRecord::parse(data) {
        assert_eq!(RegionRecord::parse(&record.emit()).as_ref(), Ok(&record));
        let striping = record.striping();
        let lens = (0..striping.width).map(|piece| striping.piece_len(piece));
        assert_eq!(lens.sum::<u64>(), record.size);
        for segment in striping.segments(record.size - 1, 1, 1) {
            assert!(segment.offset < striping.piece_len(segment.piece));
        }
    }
    if let Ok(record) = ServerRecord::parse(data) {
        assert_eq!(ServerRecord::parse(&record.emit()), Ok(record));
    }
    if let Ok(record) = ClientRecord::parse(data) {
        assert_eq!(ClientRecord::parse(&record.emit()), Ok(record));
    }
}

/// Tokens as text and claims as bytes.
pub(crate) fn token(data: &[u8]) {
    if let Some(claims) = Claims::parse(data) {
        assert_eq!(claims.emit(), data);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.expose(), text.trim().to_ascii_lowercase());
    }
}

/// The header of a piece, as it is and with the right checksum.
pub(crate) fn piece(data: &[u8]) {
    let mut bytes = [0; USED];
    let len = data.len().min(USED);
    bytes[..len].copy_from_slice(&data[..len]);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..48]);
    let crc = u32::try_from(crc).expect("a CRC-32C has 32 bits");
    for crc in [None, Some(crc)] {
        if let Some(crc) = crc {
            bytes[48..].copy_from_slice(&crc.to_le_bytes());
        }
        if let Some(header) = Header::parse(&bytes) {
            assert_eq!(header.emit(), bytes);
        }
    }
}

/// Control messages: frames of strangers open for nobody, and bodies are written as they were read.
pub(crate) fn wire(data: &[u8]) {
    let nonces = Nonces { daemon: [1; NONCE_LEN], client: [2; NONCE_LEN] };
    let Ok(key) = "11".repeat(32).parse::<Key>() else { return };
    if let Some(sealed) = Sealed::parse(data) {
        assert_eq!(
            sealed.open(&key.0.issue(sealed.claims), &nonces),
            None,
            "nobody guesses a proof"
        );
    }
    let claims = Claims {
        region: RegionId(1),
        client: store::ids::ClientId(2),
        expires_ms: 3,
        generation: 4,
        rights: store::Rights::READ,
    };
    let token = key.0.issue(claims);
    let denied = Answer::Refused { status: Status::DENIED, detail: 0 };
    let opened = Answer::open(data, 0, &token, &nonces);
    assert!(opened.is_none_or(|answer| answer == denied), "an answer without a proof refuses");
    if let Some((kind, rest)) = data.split_at_checked(4) {
        let (operation, status) = ([kind[0], kind[1]], [kind[2], kind[3]]);
        let (operation, status) = (u16::from_le_bytes(operation), u16::from_le_bytes(status));
        if let Some(request) = Request::parse(operation, rest) {
            assert_eq!(request.emit(), (operation, rest.to_vec()));
        }
        if let Some(answer) = Answer::parse(operation, Status(status), 0, rest) {
            let (kind, status_again, detail, body) = answer.emit();
            let again = Answer::parse(kind, status_again, detail, &body);
            assert_eq!(again, Some(answer));
        }
    }
    if let Ok(greeting) = data.try_into() {
        let _ = wire::parse_greeting(greeting);
    }
    if let Ok(reply) = data.try_into() {
        let _ = wire::parse_reply(reply);
    }
}

/// A key that is always the same, so that a run can be repeated.
struct Key(StoreKey);

impl std::str::FromStr for Key {
    type Err = store::token::KeyError;

    fn from_str(_: &str) -> Result<Self, Self::Err> {
        StoreKey::draw(&basics::Environment {
            random: basics::Random::given(std::sync::Arc::new(basics::SeededRandom::new(7))),
            ..basics::Environment::host()
        })
        .map(Self)
        .map_err(|_| store::token::KeyError::Random)
    }
}
