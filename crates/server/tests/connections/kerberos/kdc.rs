//! Tickets as a KDC makes them, with the cryptography of `picky-krb` and DER written out: nothing of the
//! server's own.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use picky_krb::crypto::CipherSuite;

/// A ticket and an authenticator for it. Times are in seconds from now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) owner: &'static str,
    pub(crate) realm: &'static str,
    pub(crate) version: u8,
    pub(crate) service_key: [u8; 32],
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Of the client's clock.
    pub(crate) now: i64,
    /// Tells authenticators of one second apart; below 128.
    pub(crate) microseconds: u8,
}

impl Wish {
    pub(crate) fn of(owner: &'static str) -> Self {
        Self {
            owner,
            realm: REALM,
            version: 1,
            service_key: SERVICE_KEY,
            start: -60,
            end: 3600,
            now: 0,
            microseconds: 1,
        }
    }

    /// A GSS token with an AP-REQ that asks for an answer.
    pub(crate) fn token(&self) -> Vec<u8> {
        let key = sequence(&[integer(0, ETYPE), field(1, &element(0x04, &TICKET_KEY))]);
        let owner = sequence(&[integer(0, 1), field(1, &sequence(&[string(self.owner)]))]);
        let part = element(
            0x63,
            &sequence(&[
                field(0, &element(0x03, &[0, 0, 0x40, 0, 0])),
                field(1, &key),
                field(2, &string(self.realm)),
                field(3, &owner),
                field(4, &sequence(&[integer(0, 0), field(1, &element(0x04, &[]))])),
                field(5, &time(self.start)),
                field(7, &time(self.end)),
            ]),
        );
        let names = [string("cifs"), string("files")];
        let service = sequence(&[integer(0, 2), field(1, &sequence(&names))]);
        let ticket = element(
            0x61,
            &sequence(&[
                integer(0, 5),
                field(1, &string(REALM)),
                field(2, &service),
                field(3, &sealed(&self.service_key, 2, &part, Some(self.version))),
            ]),
        );
        // RFC 4121 §4.1.1: no bindings; mutual, replay, sequence, integrity.
        let flags = [&[16, 0, 0, 0][..], &[0; 16], &[0x2e, 0, 0, 0]].concat();
        let checksum =
            [field(0, &element(0x02, &[0, 0x80, 0x03])), field(1, &element(0x04, &flags))];
        let authenticator = element(
            0x62,
            &sequence(&[
                integer(0, 5),
                field(1, &string(self.realm)),
                field(2, &owner),
                field(3, &sequence(&checksum)),
                integer(4, self.microseconds),
                field(5, &time(self.now)),
                integer(7, 77),
            ]),
        );
        let request = element(
            0x6e,
            &sequence(&[
                integer(0, 5),
                integer(1, 14),
                field(2, &element(0x03, &[0, 0x20, 0, 0, 0])),
                field(3, &ticket),
                field(4, &sealed(&TICKET_KEY, 11, &authenticator, None)),
            ]),
        );
        element(0x60, &[&element(0x06, KERBEROS)[..], &[1, 0], &request].concat())
    }
}

/// The subkey in the AP-REP of a GSS token.
pub(crate) fn subkey(token: &[u8]) -> [u8; 32] {
    // 60 82 xx xx, the mechanism, 02 00; then the sealed part is the last OCTET STRING.
    let at = token.windows(5).position(|window| window == [0xa0, 3, 2, 1, ETYPE]).unwrap();
    let cipher = &token[at + 5..];
    // a2 81 xx 04 81 xx: field 2, an OCTET STRING, each longer than 127 bytes or not.
    let skip =
        |bytes: &[u8]| if bytes[1] & 0x80 == 0 { 2 } else { 2 + usize::from(bytes[1] & 0x7f) };
    let string = &cipher[skip(cipher)..];
    let cipher = &string[skip(string)..];
    let part = CipherSuite::Aes256CtsHmacSha196.cipher().decrypt(&TICKET_KEY, 12, cipher).unwrap();
    let at = part.windows(2).position(|window| window == [0x04, 32]).unwrap();
    *part[at + 2..].first_chunk().unwrap()
}

/// Writes the service's keytab, for the owner's eyes.
pub(crate) fn write_keytab(path: &Path, version: u8, key: &[u8; 32]) {
    let counted =
        |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let entry = [
        &[0, 2][..],
        &counted(REALM.as_bytes()),
        &counted(b"cifs"),
        &counted(b"files"),
        &[0, 0, 0, 1, 0, 0, 0, 0, version, 0, ETYPE],
        &counted(key),
    ]
    .concat();
    let size = i32::try_from(entry.len()).unwrap().to_be_bytes();
    let beside = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file =
        options.create(true).write(true).truncate(true).mode(0o600).open(&beside).unwrap();
    std::io::Write::write_all(&mut file, &[&[5, 2][..], &size, &entry].concat()).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

fn sealed(key: &[u8], usage: i32, plain: &[u8], version: Option<u8>) -> Vec<u8> {
    let cipher = CipherSuite::Aes256CtsHmacSha196.cipher().encrypt(key, usage, plain).unwrap();
    let version = version.map(|version| integer(1, version)).unwrap_or_default();
    sequence(&[integer(0, ETYPE), version, field(2, &element(0x04, &cipher))])
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap();
    let [high, low] = len.to_be_bytes();
    let head = if len < 0x80 { vec![tag, low] } else { vec![tag, 0x82, high, low] };
    [&head[..], content].concat()
}

fn sequence(elements: &[Vec<u8>]) -> Vec<u8> {
    element(0x30, &elements.concat())
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    element(0xa0 | number, content)
}

fn integer(number: u8, value: u8) -> Vec<u8> {
    field(number, &element(0x02, &[value]))
}

fn string(text: &str) -> Vec<u8> {
    element(0x1b, text.as_bytes())
}

fn time(from_now: i64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seconds = i64::try_from(now).unwrap() + from_now;
    let (mut days, mut year) = (seconds.div_euclid(86_400), 1970);
    let len = |year: i64| {
        if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 }
    };
    while days >= len(year) {
        days -= len(year);
        year += 1;
    }
    let february = len(year) - 337;
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let day = days + 1;
    element(0x18, format!("{year}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z").as_bytes())
}

pub(crate) const REALM: &str = "TEST";
pub(crate) const SERVICE_KEY: [u8; 32] = [0x51; 32];
const TICKET_KEY: [u8; 32] = [0x7e; 32];
// aes256-cts-hmac-sha1-96.
const ETYPE: u8 = 18;
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
