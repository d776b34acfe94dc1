//! Network data representation, 32 bits, little-endian: what the arguments of calls are written in.
//!
//! ```text
//!  unique pointer:  referent id u32 (0: null), the thing it points to comes later
//!  string:          maximum count u32 | offset u32 (0) | actual count u32 | UTF-16LE with NUL | pad to 4
//!  counted string:  length u16, room u16, pointer; behind it a string without NUL
//!  SID:             count of sub-authorities u32 | SID
//!  array:           maximum count u32 | elements, then what their pointers point to
//! ```
//!
//! Spec: C706 §14.2 and §14.3, MS-RPCE §2.2.4.

use super::pdu::Fault;
use crate::info::security::Sid;
use crate::wire::Reader;

/// Reads the arguments of a request.
#[derive(Debug)]
pub(super) struct Input<'a> {
    reader: Reader<'a>,
    len: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(stub: &'a [u8]) -> Self {
        Self { reader: Reader::new(stub), len: stub.len() }
    }

    fn align(&mut self, to: usize) -> Result<(), Fault> {
        let taken = self.len - self.reader.rest().len();
        self.bytes(taken.next_multiple_of(to) - taken).map(|_| ())
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        self.reader.bytes(len).map_err(|_| Fault::BAD_STUB_DATA)
    }

    /// An aligned number.
    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.align(4)?;
        self.reader.u32().map_err(|_| Fault::BAD_STUB_DATA)
    }

    /// An aligned short number.
    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.align(2)?;
        self.reader.u16().map_err(|_| Fault::BAD_STUB_DATA)
    }

    /// Bytes that are no number, aligned as one.
    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Fault> {
        self.align(4)?;
        self.reader.array().map_err(|_| Fault::BAD_STUB_DATA)
    }

    /// A SID that stands in place.
    pub(super) fn sid(&mut self) -> Result<Sid, Fault> {
        let count = self.u32()?;
        let (sid, _) = Sid::parse(self.reader.rest()).map_err(|_| Fault::BAD_STUB_DATA)?;
        let len = sid.wire_len();
        if usize::try_from(count) != Ok((len - Sid::FIXED_LEN) / 4) {
            return Err(Fault::BAD_STUB_DATA);
        }
        self.bytes(len).map(|_| sid)
    }

    /// Whether a pointer points anywhere.
    pub(super) fn is_there(&mut self) -> Result<bool, Fault> {
        self.u32().map(|referent| referent != 0)
    }

    /// A string that stands in place, without its NUL.
    pub(super) fn string(&mut self) -> Result<String, Fault> {
        let (max, offset, count) = (self.u32()?, self.u32()?, self.u32()?);
        if offset != 0 || count > max || count > STRING_UNITS_MAX {
            return Err(Fault::BAD_STUB_DATA);
        }
        let bytes = self.bytes(2 * usize::try_from(count).expect("at most STRING_UNITS_MAX"))?;
        let (units, _) = bytes.as_chunks::<2>();
        let units = units.iter().copied().map(u16::from_le_bytes).take_while(|unit| *unit != 0);
        char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| Fault::BAD_STUB_DATA)
    }

    /// A string behind a pointer that may be null.
    pub(super) fn optional_string(&mut self) -> Result<Option<String>, Fault> {
        if self.is_there()? { self.string().map(Some) } else { Ok(None) }
    }
}

/// Writes the results of a response.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// What the written pointers point to; it follows the structure that holds them.
    deferred: Vec<Deferred>,
    referent: u32,
}

#[derive(Debug)]
enum Deferred {
    /// With a NUL.
    String(String),
    /// Without.
    Counted(String),
    Sid(Sid),
}

impl Output {
    /// A short number.
    pub(super) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Bytes that are no number, aligned as one.
    pub(super) fn array(&mut self, bytes: &[u8]) {
        self.align();
        self.bytes.extend_from_slice(bytes);
    }

    /// A number.
    pub(super) fn u32(&mut self, value: u32) {
        self.align();
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A pointer to what the caller writes next.
    pub(super) fn pointer(&mut self) {
        self.referent += 4;
        self.u32(REFERENT_BASE + self.referent);
    }

    /// A pointer to a string, which [`Output::deferred`] writes.
    pub(super) fn string_pointer(&mut self, text: &str) {
        self.pointer();
        self.deferred.push(Deferred::String(text.to_owned()));
    }

    /// A counted string, whose letters [`Output::deferred`] writes.
    pub(super) fn counted_string(&mut self, text: &str) {
        let len = 2 * text.encode_utf16().count();
        let len = u16::try_from(len).expect("names are short");
        self.align();
        self.u16(len);
        self.u16(len);
        self.pointer();
        self.deferred.push(Deferred::Counted(text.to_owned()));
    }

    /// A pointer to a SID, which [`Output::deferred`] writes, or to nothing.
    pub(super) fn sid_pointer(&mut self, sid: Option<&Sid>) {
        match sid {
            None => self.u32(0),
            Some(sid) => {
                self.pointer();
                self.deferred.push(Deferred::Sid(sid.clone()));
            }
        }
    }

    /// Writes what was pointed to, in order.
    pub(super) fn deferred(&mut self) {
        for pointed_to in std::mem::take(&mut self.deferred) {
            match pointed_to {
                Deferred::String(text) => self.string(text.encode_utf16().chain([0]).collect()),
                Deferred::Counted(text) => self.string(text.encode_utf16().collect()),
                Deferred::Sid(sid) => {
                    let count = (sid.wire_len() - Sid::FIXED_LEN) / 4;
                    self.u32(u32::try_from(count).expect("at most 15"));
                    sid.emit(&mut self.bytes);
                }
            }
        }
    }

    fn string(&mut self, units: Vec<u16>) {
        let count = u32::try_from(units.len()).expect("names and comments are short");
        [count, 0, count].into_iter().for_each(|number| self.u32(number));
        self.bytes.extend(units.into_iter().flat_map(u16::to_le_bytes));
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// What was written.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

// Longer than a server, share or user name can be, with its backslashes.
const STRING_UNITS_MAX: u32 = 1024;
// Any number but 0 will do; Windows begins here.
const REFERENT_BASE: u32 = 0x0002_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_counted_terminated_and_padded() {
        // C706 §14.3.4.2, with a conformant maximum in front.
        let mut output = Output::default();
        output.string_pointer("ab");
        output.deferred();
        let expected = [
            4, 0, 2, 0, // referent
            3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, // maximum, offset, actual
            b'a', 0, b'b', 0, 0, 0, 0, 0, // with NUL, padded
        ];
        assert_eq!(output.into_bytes(), expected);
        let mut input = Input::new(&expected);
        assert_eq!(input.optional_string(), Ok(Some("ab".to_owned())));
    }

    #[test]
    fn a_string_that_is_longer_than_it_says_or_than_allowed_is_refused() {
        let string = |max: u32, offset: u32, count: u32| {
            let numbers = [max, offset, count];
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()
        };
        for bytes in [string(1, 0, 2), string(1, 1, 1), string(5, 0, 5), string(9999, 0, 9999)] {
            assert_eq!(Input::new(&bytes).string(), Err(Fault::BAD_STUB_DATA));
        }
    }
}
