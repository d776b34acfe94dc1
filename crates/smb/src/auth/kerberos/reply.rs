//! What the server answers: the proof that it could open the ticket, and a key of its own.
//!
//! ```text
//!  AP-REP        6f { 30 { a0 5, a1 15, a2 EncryptedData } }
//!  EncAPRepPart  7b { 30 { a0 time, a1 microseconds, a2 subkey, a3 sequence } }
//! ```
//!
//! Spec: RFC 4120 §5.5.2, §3.2.4.

use super::encryption::{BLOCK, Key, Usage};
use crate::auth::der::{
    GENERALIZED_TIME, INTEGER, OCTET_STRING, SEQUENCE, application, context, wrap,
};

/// The server's proof, before it is sealed.
#[derive(Debug)]
pub(super) struct ApRep<'a> {
    /// The authenticator's time as the client has written it: seconds since 1970, microseconds.
    pub(super) time: (i64, u32),
    pub(super) subkey: &'a Key,
    pub(super) sequence: u32,
}

impl ApRep<'_> {
    /// The message, sealed with the ticket's key. The confounder must not have been used before.
    pub(super) fn emit(&self, key: &Key, confounder: &[u8; BLOCK]) -> Vec<u8> {
        let (seconds, microseconds) = self.time;
        let subkey = [
            integer(0, i64::from(self.subkey.encryption().0)),
            wrap(context(1), &wrap(OCTET_STRING, self.subkey.as_bytes())),
        ];
        let fields = [
            wrap(context(0), &wrap(GENERALIZED_TIME, timestamp(seconds).as_bytes())),
            integer(1, i64::from(microseconds)),
            wrap(context(2), &wrap(SEQUENCE, &subkey.concat())),
            integer(3, i64::from(self.sequence)),
        ];
        let part = zeroize::Zeroizing::new(message(27, &fields.concat()));
        let sealed = key.seal(Usage::AP_REP, confounder, &part);
        let encrypted = [
            integer(0, i64::from(key.encryption().0)),
            wrap(context(2), &wrap(OCTET_STRING, &sealed)),
        ];
        let encrypted = wrap(context(2), &wrap(SEQUENCE, &encrypted.concat()));
        message(15, &[integer(0, super::message::VERSION), integer(1, 15), encrypted].concat())
    }
}

fn message(number: u8, fields: &[u8]) -> Vec<u8> {
    wrap(application(number), &wrap(SEQUENCE, fields))
}

/// A number as field `number`, in as few bytes as its sign allows.
fn integer(number: u8, value: i64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let is_sign =
        |pair: &[u8]| pair[0] == 0 && pair[1] < 0x80 || pair[0] == 0xff && pair[1] >= 0x80;
    let spare = bytes.windows(2).take_while(|pair| is_sign(pair)).count();
    wrap(context(number), &wrap(INTEGER, &bytes[spare..]))
}

/// `YYYYMMDDHHMMSSZ`.
fn timestamp(seconds: i64) -> String {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The calendar from March on, in cycles of 400 years: the reverse of what reads it.
    let day = day + 719_468;
    let (cycle, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = cycle * 400 + year + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::kerberos::message;

    #[test]
    fn each_day_of_four_centuries_is_written_as_it_is_read() {
        for day in -10_000..=146_097_i64 {
            let seconds = day * 86_400 + day.rem_euclid(86_400);
            let text = wrap(GENERALIZED_TIME, timestamp(seconds).as_bytes());
            assert_eq!(message::time(&text), Ok(seconds), "{}", timestamp(seconds));
        }
    }

    #[test]
    fn numbers_take_as_few_bytes_as_they_need() {
        for (value, expected) in [
            (0, &[0xa7, 3, 2, 1, 0][..]),
            (127, &[0xa7, 3, 2, 1, 127]),
            (128, &[0xa7, 4, 2, 2, 0, 128]),
            (-138, &[0xa7, 4, 2, 2, 0xff, 0x76]),
            (0xffff_ffff, &[0xa7, 7, 2, 5, 0, 0xff, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(integer(7, value), expected, "{value}");
        }
    }
}
