//! The few pieces of DER that SPNEGO and Kerberos are made of.
//!
//! ```text
//!  tag (1) | length: 00..7f, or 81 nn, or 82 nn nn | content
//! ```
//!
//! Longer length forms, high tag numbers and indefinite lengths do not occur below
//! [`crate::auth::TOKEN_MAX`] and are refused.
//!
//! Spec: X.690 §8.1, §10.1.

/// Splits off the element in front: its tag, its content, all its bytes, and what follows.
pub(in crate::auth) fn split(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, content) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(&len, rest)| (usize::from(len), rest))?,
        0x82 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    let (content, rest) = content.split_at_checked(len)?;
    let whole = &bytes[..bytes.len() - rest.len()];
    Some(Element { tag, content, whole, rest })
}

/// One element and its surroundings.
#[derive(Clone, Copy, Debug)]
pub(in crate::auth) struct Element<'a> {
    pub(in crate::auth) tag: u8,
    pub(in crate::auth) content: &'a [u8],
    /// Tag, length and content.
    pub(in crate::auth) whole: &'a [u8],
    pub(in crate::auth) rest: &'a [u8],
}

/// The element in front, if it has that tag.
pub(in crate::auth) fn expect(bytes: &[u8], tag: u8) -> Option<Element<'_>> {
    split(bytes).filter(|element| element.tag == tag)
}

/// An element with that content.
pub(in crate::auth) fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 4);
    out.push(tag);
    match u8::try_from(content.len()) {
        Ok(len @ 0..=0x7f) => out.push(len),
        Ok(len) => out.extend([0x81, len]),
        Err(_) => {
            let len = u16::try_from(content.len()).expect("tokens are bounded by TOKEN_MAX");
            out.push(0x82);
            out.extend(len.to_be_bytes());
        }
    }
    out.extend(content);
    out
}

pub(in crate::auth) const INTEGER: u8 = 0x02;
pub(in crate::auth) const BIT_STRING: u8 = 0x03;
pub(in crate::auth) const OCTET_STRING: u8 = 0x04;
pub(in crate::auth) const OBJECT_ID: u8 = 0x06;
pub(in crate::auth) const ENUMERATED: u8 = 0x0a;
pub(in crate::auth) const GENERALIZED_TIME: u8 = 0x18;
pub(in crate::auth) const GENERAL_STRING: u8 = 0x1b;
pub(in crate::auth) const SEQUENCE: u8 = 0x30;
pub(in crate::auth) const APPLICATION_0: u8 = application(0);

/// The tag of one of an application's own types.
pub(in crate::auth) const fn application(number: u8) -> u8 {
    0x60 | number
}

/// The tag of an explicitly tagged field.
pub(in crate::auth) const fn context(number: u8) -> u8 {
    0xa0 | number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_all_three_forms_parse_as_they_were_emitted() {
        for len in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x1234] {
            let bytes = [wrap(SEQUENCE, &vec![7; len]), vec![9]].concat();
            let element = expect(&bytes, SEQUENCE).unwrap();
            assert_eq!((element.content.len(), element.rest), (len, &[9][..]));
            assert_eq!(element.whole.len() + 1, bytes.len());
        }
    }

    #[test]
    fn indefinite_long_and_truncated_lengths_are_refused() {
        for bytes in [&[0x30][..], &[0x30, 0x80], &[0x30, 0x83, 0, 0, 1, 0], &[0x30, 2, 0], &[]] {
            assert!(split(bytes).is_none());
        }
    }
}
