//! The server's CHALLENGE message.
//!
//! ```text
//!  0            8     12              20      24           32        40             48        56
//!  +------------+-----+---------------+-------+------------+---------+--------------+---------+----
//!  | "NTLMSSP\0"| 2   | target field  | flags | challenge  | 0       | info field   | version | name,
//!  +------------+-----+---------------+-------+------------+---------+--------------+---------+ info
//! ```
//!
//! Spec: MS-NLMP §2.2.1.2, §3.2.5.1.1.

use super::av_pair::{AvId, AvPairs, put};
use super::{NtlmError, NtlmFlags, SIGNATURE, expect_message, field};

/// What must be new in every challenge; the caller owns clock and randomness.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    /// Eight unpredictable bytes, never given twice.
    pub challenge: [u8; 8],
    /// Now, in 100 ns since 1601.
    pub now_filetime: u64,
}

/// A challenge about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ChallengeRepr<'a> {
    /// The flags both sides go on with.
    pub flags: NtlmFlags,
    /// Challenge and time.
    pub fresh: Freshness,
    /// Our NetBIOS name, at most 15 characters are sent.
    pub computer: &'a str,
    /// Our DNS name, at most 255 characters are sent.
    pub dns: &'a str,
}

impl ChallengeRepr<'_> {
    /// The whole message.
    pub fn emit(&self) -> Vec<u8> {
        let computer = utf16(self.computer, NETBIOS_NAME_MAX);
        let dns = utf16(self.dns, DNS_NAME_MAX);
        // A server that is its own domain, as every server outside of a directory is.
        let mut info = Vec::with_capacity(2 * (computer.len() + dns.len()) + 32);
        put(&mut info, AvId::NB_DOMAIN, &computer);
        put(&mut info, AvId::NB_COMPUTER, &computer);
        put(&mut info, AvId::DNS_DOMAIN, &dns);
        put(&mut info, AvId::DNS_COMPUTER, &dns);
        // MS-NLMP §3.2.5.1.1: with a timestamp here, modern clients send a MIC.
        put(&mut info, AvId::TIMESTAMP, &self.fresh.now_filetime.to_le_bytes());
        put(&mut info, AvId::END, &[]);

        let mut out = Vec::with_capacity(FIXED + computer.len() + info.len());
        out.extend(SIGNATURE);
        out.extend(2_u32.to_le_bytes());
        put_field(&mut out, &computer, FIXED);
        out.extend(self.flags.bits().to_le_bytes());
        out.extend(self.fresh.challenge);
        out.extend([0; 8]);
        put_field(&mut out, &info, FIXED + computer.len());
        // MS-NLMP §2.2.1.2: zeros where no version was negotiated.
        let version = if self.flags.contains(NtlmFlags::VERSION) { VERSION } else { [0; 8] };
        out.extend(version);
        out.extend(computer);
        out.extend(info);
        out
    }
}

/// Checks a challenge that another server made.
///
/// # Errors
/// Not an NTLM CHALLENGE, a field outside of it, or malformed target info.
pub(in crate::auth) fn check_challenge(message: &[u8]) -> Result<(), NtlmError> {
    expect_message(message, 2, FIXED)?;
    field(message, 12)?;
    AvPairs::parse(field(message, 40)?)?;
    Ok(())
}

fn put_field(out: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    let len = u16::try_from(bytes.len()).expect("names are cut to their maximum");
    let offset = u32::try_from(offset).expect("names are cut to their maximum");
    out.extend(len.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(offset.to_le_bytes());
}

fn utf16(text: &str, max: usize) -> Vec<u8> {
    text.encode_utf16().take(max).flat_map(u16::to_le_bytes).collect()
}

const FIXED: usize = 56;
const NETBIOS_NAME_MAX: usize = 15;
const DNS_NAME_MAX: usize = 255;
/// Windows 10 build 0, NTLMSSP revision 15 (MS-NLMP §2.2.2.10): some clients want the revision.
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_point_at_what_they_should() {
        let message = ChallengeRepr {
            flags: NtlmFlags::UNICODE,
            fresh: Freshness { challenge: *b"8 bytes!", now_filetime: 0x1122 },
            computer: "A NAME OF MORE THAN FIFTEEN",
            dns: "a.example",
        }
        .emit();
        assert_eq!(field(&message, 12).unwrap(), utf16("A NAME OF MORE ", 15));
        assert_eq!(&message[24..32], b"8 bytes!");
        let pairs = AvPairs::parse(field(&message, 40).unwrap()).unwrap();
        assert_eq!(pairs.find(AvId::TIMESTAMP), Some(&[0x22, 0x11, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(pairs.find(AvId::DNS_COMPUTER), Some(&utf16("a.example", 99)[..]));
    }
}
