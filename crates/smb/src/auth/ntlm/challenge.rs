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
use super::{
    NtlmError, NtlmFlags, SIGNATURE, VERSION, expect_message, field, put_field, u32_at, utf16,
};

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

/// A challenge that another server made.
#[derive(Clone, Copy, Debug)]
pub struct ChallengeView<'a> {
    /// The flags the server goes on with.
    pub flags: NtlmFlags,
    /// Its eight bytes.
    pub challenge: &'a [u8; 8],
    /// What it says of itself.
    pub info: AvPairs<'a>,
}

impl<'a> ChallengeView<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// Not an NTLM CHALLENGE, a field outside of it, or malformed target info.
    pub fn parse(message: &'a [u8]) -> Result<Self, NtlmError> {
        expect_message(message, 2, FIXED_MIN)?;
        field(message, 12)?;
        let flags = NtlmFlags::from_bits_retain(u32_at(message, 20));
        let challenge = message[24..].first_chunk().expect("the fixed part is longer");
        Ok(Self { flags, challenge, info: AvPairs::parse(field(message, 40)?)? })
    }
}

const FIXED: usize = 56;
/// Without a version, which old servers leave out.
const FIXED_MIN: usize = 48;
const NETBIOS_NAME_MAX: usize = 15;
const DNS_NAME_MAX: usize = 255;

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
