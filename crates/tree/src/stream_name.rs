//! Names with a stream suffix: `file:stream:$DATA`.
//!
//! ```text
//!  dir\file              the file                dir\file::$DATA              its unnamed stream
//!  dir\file:s            the stream s            dir\dir::$INDEX_ALLOCATION   the directory
//!  dir\file:s:$DATA      the same                anything else                refused
//! ```
//!
//! Spec: MS-FSCC §2.1.5.3 (streams), §2.1.5.4 (stream types).

use super::error::ShareError;
use super::name::{SEPARATORS, SharePath};
use super::pattern::{folded, same_name};

/// The name of a stream beside the unnamed one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct StreamName(String);

impl StreamName {
    /// Checks a name.
    pub fn parse(name: &str) -> Result<Self, ShareError> {
        let forbidden = |c: char| matches!(c, '\0' | '/' | ':' | '\\');
        let is_long = name.len() > STREAM_BYTES_MAX || name.encode_utf16().count() > 255;
        if name.is_empty() || is_long || name.chars().any(forbidden) {
            return Err(ShareError::PeerNameInvalid);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in its folded form.
    pub fn folded(&self) -> String {
        folded(&self.0)
    }

    /// Whether `name` is equal to a client.
    pub(super) fn is(&self, name: &str) -> bool {
        same_name(&self.0, name)
    }
}

/// The part behind the name of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StreamPart {
    /// Nothing: the file or directory.
    Absent,
    /// `::$DATA`: the unnamed stream, which only files have.
    Unnamed,
    /// `::$INDEX_ALLOCATION` or `:$I30:$INDEX_ALLOCATION`: the directory, and only a directory.
    Index,
    /// A stream of its own name.
    Named(StreamName),
}

impl StreamPart {
    /// Parses the text behind the first colon; `None` if there is no colon.
    pub fn parse(behind: Option<&str>) -> Result<Self, ShareError> {
        let Some(behind) = behind else { return Ok(Self::Absent) };
        let (name, kind) = match behind.split_once(':') {
            Some((name, kind)) => (name, kind),
            None => (behind, "$DATA"),
        };
        if kind.eq_ignore_ascii_case("$INDEX_ALLOCATION") {
            return match name {
                name if name.is_empty() || name.eq_ignore_ascii_case("$I30") => Ok(Self::Index),
                _ => Err(ShareError::PeerNameInvalid),
            };
        }
        if !kind.eq_ignore_ascii_case("$DATA") {
            return Err(ShareError::PeerNameInvalid);
        }
        if name.is_empty() && behind.contains(':') {
            return Ok(Self::Unnamed);
        }
        StreamName::parse(name).map(Self::Named)
    }
}

impl SharePath {
    /// Checks a path with backslashes whose last component may name a stream.
    pub fn parse_with_stream(wire: &str) -> Result<(Self, StreamPart), ShareError> {
        let (file, behind) = match wire.split_once(':') {
            Some((file, behind)) => (file, Some(behind)),
            None => (wire, None),
        };
        // A component behind a stream, or a stream without a file.
        let is_odd = behind.is_some_and(|behind| {
            behind.contains(SEPARATORS) || file.is_empty() || file.ends_with(SEPARATORS)
        });
        if is_odd {
            return Err(ShareError::PeerNameInvalid);
        }
        Ok((Self::parse(file)?, StreamPart::parse(behind)?))
    }
}

/// A file name of Linux without the mark in front of each.
const STREAM_BYTES_MAX: usize = 254;

#[cfg(test)]
mod tests {
    use super::*;

    fn part(wire: &str) -> Result<StreamPart, ShareError> {
        SharePath::parse_with_stream(wire).map(|(_, part)| part)
    }

    #[test]
    fn each_spelling_of_a_stream_is_understood() {
        let named = |name: &str| Ok(StreamPart::Named(StreamName(name.to_owned())));
        assert_eq!(part("d\\f"), Ok(StreamPart::Absent));
        assert_eq!(part("d\\f::$DaTa"), Ok(StreamPart::Unnamed));
        assert_eq!(part("d::$INDEX_ALLOCATION"), Ok(StreamPart::Index));
        assert_eq!(part("d:$I30:$INDEX_ALLOCATION"), Ok(StreamPart::Index));
        assert_eq!(part("d\\f:s"), named("s"));
        assert_eq!(part("d\\f:?s*\u{5}:$data"), named("?s*\u{5}"));
        let (path, _) = SharePath::parse_with_stream("d\\f:s").unwrap();
        assert_eq!(path.to_wire(), "d\\f");
    }

    // A rename of a stream gives its new name alone: no path around it is looked at.
    #[test]
    fn a_separator_in_the_name_of_a_stream_is_refused_wherever_it_comes_from() {
        for odd in ["a/b", "/", "a\\b", "a:b", "a\0b", ""] {
            assert_eq!(StreamName::parse(odd), Err(ShareError::PeerNameInvalid), "{odd:?}");
        }
        assert_eq!(StreamName::parse("a b").unwrap().as_str(), "a b");
    }

    #[test]
    fn meaningless_stream_names_are_refused() {
        for odd in [
            "f:",
            "f:s:",
            "f:s:$FOO",
            "f:s:$DATA:",
            "f:a/b",
            "f:s\\x",
            "f:s/x",
            ":s",
            "d\\:s",
            "d/:s",
        ] {
            assert_eq!(part(odd), Err(ShareError::PeerNameInvalid), "{odd}");
        }
        assert!(
            part(&format!("f:{}", "n".repeat(254))).is_ok_and(|part| part != StreamPart::Absent)
        );
        assert_eq!(part(&format!("f:{}", "n".repeat(255))), Err(ShareError::PeerNameInvalid));
        assert_eq!(part("..\\f:s"), Err(ShareError::PeerPathSyntax));
    }
}
