//! Extended attributes on the wire: from and to FILE_FULL_EA_INFORMATION.
//!
//! Spec: MS-FSCC §2.4.15 and §2.4.15.1, MS-SMB2 §3.3.5.20.1, MS-FSA §2.1.5.11.10, §2.1.5.15.5.

use std::collections::HashMap;

use smb::NtStatus;
use smb::info::{EaNames, FullEa};
use tree::{EA_NAME_MAX, ExtendedAttribute, ShareError};

use crate::status::OrStatus as _;

/// Reads a list a client wants set.
pub(super) fn parse(list: &[u8]) -> Result<Vec<FullEa<'_>>, NtStatus> {
    FullEa::parse_list(list).map_err(|_| NtStatus::EA_LIST_INCONSISTENT)
}

/// The same in memory of its own, for work that outlives the request.
pub(super) fn own(list: &[FullEa<'_>]) -> Vec<ExtendedAttribute> {
    let own =
        |ea: &FullEa<'_>| ExtendedAttribute { name: ea.name.to_vec(), value: ea.value.to_vec() };
    list.iter().map(own).collect()
}

/// Bytes of all names.
pub(super) fn names(list: &[FullEa<'_>]) -> usize {
    list.iter().map(|ea| ea.name.len()).sum()
}

/// What a client asks for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Only these, if there are any.
    pub(super) names: Vec<Vec<u8>>,
    /// Just one.
    pub(super) single: bool,
}

impl Wanted {
    pub(super) fn parse(input: &[u8], flags: u32) -> Result<Self, NtStatus> {
        let names = EaNames::parse(input).map_err(|_| NtStatus::EA_LIST_INCONSISTENT)?;
        let names = names.0.into_iter().map(<[u8]>::to_vec).collect();
        Ok(Self { names, single: flags & RETURN_SINGLE_ENTRY != 0 })
    }
}

/// An answer: its bytes, and how many entries it holds.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) bytes: Vec<u8>,
    pub(super) is_cut: bool,
    pub(super) count: usize,
}

/// Lists attributes from the `from`th on, as many as fit `len_max`: no more of their values are read.
pub(super) fn list(
    there: &[String],
    value: impl Fn(&str) -> Result<Vec<u8>, ShareError>,
    wanted: &Wanted,
    from: usize,
    len_max: usize,
) -> Result<Listed, NtStatus> {
    if there.is_empty() && wanted.names.is_empty() {
        return Err(NtStatus::NO_EAS_ON_FILE);
    }
    // As it is spelled in the answer, and on disk. MS-FSA §2.1.5.11.10: a name that is asked for and not there
    // has an empty value.
    let chosen: Vec<(&[u8], Option<&str>)> = if wanted.names.is_empty() {
        there.iter().map(|name| (name.as_bytes(), Some(name.as_str()))).collect()
    } else {
        let spelled: HashMap<Vec<u8>, &str> =
            there.iter().map(|own| (own.to_ascii_uppercase().into_bytes(), own.as_str())).collect();
        let usable = |name: &&Vec<u8>| name.len() <= EA_NAME_MAX;
        let find = |name: &Vec<u8>| spelled.get(&name.to_ascii_uppercase()).copied();
        wanted.names.iter().filter(usable).map(|name| (name.as_slice(), find(name))).collect()
    };
    let rest = chosen.get(from..).unwrap_or_default();
    if rest.is_empty() {
        return Err(NtStatus::NO_MORE_EAS);
    }
    let rest = if wanted.single { &rest[..1] } else { rest };
    let mut fitting = Vec::new();
    let mut len = 0_usize;
    for (name, own) in rest {
        let value = own.map_or(Ok(Vec::new()), &value).or_status()?;
        let end = len.next_multiple_of(4) + ENTRY_FIXED + name.len() + value.len();
        if end > len_max {
            break;
        }
        fitting.push((*name, value));
        len = end;
    }
    if fitting.is_empty() {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let entries: Vec<_> =
        fitting.iter().map(|(name, value)| FullEa { flags: 0, name, value }).collect();
    let mut bytes = Vec::with_capacity(len);
    FullEa::emit_list(&entries, &mut bytes);
    Ok(Listed { bytes, is_cut: fitting.len() < rest.len(), count: fitting.len() })
}

// Next, flags, two lengths, and the zero behind the name.
const ENTRY_FIXED: usize = 9;
// SL_RETURN_SINGLE_ENTRY and SL_RESTART_SCAN, MS-SMB2 §2.2.37.
const RETURN_SINGLE_ENTRY: u32 = 0x02;
pub(super) const RESTART_SCAN: u32 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    fn there() -> Vec<String> {
        vec!["ONE".to_owned(), "TWO".to_owned()]
    }

    fn value(name: &str) -> Result<Vec<u8>, ShareError> {
        Ok(if name == "ONE" { b"1".to_vec() } else { b"22".to_vec() })
    }

    #[test]
    fn a_list_is_what_fits_and_what_was_asked_for() {
        let listing = |there: &[String], wanted: &Wanted, from, len_max| {
            list(there, value, wanted, from, len_max)
        };
        let all = Wanted { names: Vec::new(), single: false };
        let listed = listing(&there(), &all, 0, 1000).unwrap();
        // Typed from MS-FSCC §2.4.15: next 16, flags, name length 3, value length 1, "ONE\0", "1".
        let golden = b"\x10\0\0\0\0\x03\x01\0ONE\x001\0\0\0\0\0\0\0\0\x03\x02\0TWO\x0022";
        assert_eq!((listed.bytes.as_slice(), listed.count), (&golden[..], 2));
        let cut = listing(&there(), &all, 0, 20).unwrap();
        assert!(cut.is_cut && cut.count == 1);
        assert_eq!(listing(&there(), &all, 0, 5).unwrap_err(), NtStatus::BUFFER_TOO_SMALL);
        assert_eq!(listing(&there(), &all, 2, 99).unwrap_err(), NtStatus::NO_MORE_EAS);
        assert_eq!(listing(&[], &all, 0, 99).unwrap_err(), NtStatus::NO_EAS_ON_FILE);
        let some = Wanted { names: vec![b"two".to_vec(), b"NONE".to_vec()], single: false };
        let listed = listing(&there(), &some, 0, 1000).unwrap();
        let values: Vec<_> = FullEa::parse_list(&listed.bytes).unwrap();
        assert_eq!((values[0].value, values[1].value), (&b"22"[..], &b""[..]));
    }

    #[test]
    fn the_size_counts_as_os2_did() {
        let size = |lengths: &[(usize, usize)]| ExtendedAttribute::size_of(lengths.iter().copied());
        assert_eq!(size(&[(3, 1), (3, 2)]), 4 + (5 + 3 + 1) + (5 + 3 + 2));
        assert_eq!(size(&[]), 0);
    }
}
