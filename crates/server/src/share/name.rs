//! Paths as peers write them, checked once and for all.
//!
//! A [`SharePath`] cannot hold `..`, an empty component or a character Windows
//! forbids, so nothing that reaches the file system through it can climb out; `openat2` with
//! RESOLVE_BENEATH stands behind it for symbolic links.
//!
//! Spec: MS-FSCC §2.1.5 (names and streams), MS-SMB2 §2.2.13 (CREATE names).

use super::error::ShareError;
use super::streams;

/// A path inside one share. The root is the empty path.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SharePath {
    // Components joined by '/': the form the kernel wants.
    text: String,
}

impl SharePath {
    /// The share's top directory.
    pub fn root() -> Self {
        Self::default()
    }

    /// Checks a path with backslashes, as it stands in rename requests.
    pub fn parse(wire: &str) -> Result<Self, ShareError> {
        if wire.encode_utf16().count() > PATH_UNITS_MAX {
            return Err(ShareError::PeerNameInvalid);
        }
        let wire = wire.strip_suffix('\\').unwrap_or(wire);
        if wire.is_empty() {
            return Ok(Self::root());
        }
        let mut text = String::with_capacity(wire.len());
        for component in wire.split('\\') {
            check_component(component)?;
            if !text.is_empty() {
                text.push('/');
            }
            text.push_str(component);
        }
        Ok(Self { text })
    }

    /// Whether this is the share's top directory.
    pub fn is_root(&self) -> bool {
        self.text.is_empty()
    }

    /// The directory this path's last component lies in; the root's parent is the root.
    pub fn parent(&self) -> Self {
        let end = self.text.rfind('/').unwrap_or(0);
        Self { text: self.text[..end].to_owned() }
    }

    /// The last component; empty for the root.
    pub fn leaf(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or("")
    }

    /// This path with one more component, which must come from a directory listing or from
    /// another checked path.
    pub(super) fn join(&self, component: &str) -> Self {
        debug_assert!(!component.is_empty() && !component.contains('/') && component != "..");
        if self.is_root() {
            return Self { text: component.to_owned() };
        }
        Self { text: format!("{}/{component}", self.text) }
    }

    /// The directory of this path with the last component of `other`.
    pub fn parent_with_leaf_of(&self, other: &Self) -> Self {
        self.parent().join(other.leaf())
    }

    /// The components from the top down.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.text.split('/').filter(|component| !component.is_empty())
    }

    /// Whether `self` lies somewhere below `ancestor`.
    pub fn is_below(&self, ancestor: &Self) -> bool {
        if ancestor.is_root() {
            return !self.is_root();
        }
        self.text.strip_prefix(&ancestor.text).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The form a system call relative to the share's root takes.
    pub(super) fn for_system(&self) -> &str {
        if self.is_root() { "." } else { &self.text }
    }

    /// The path with backslashes, as FileNameInformation shows it, without the leading one.
    pub fn to_wire(&self) -> String {
        self.text.replace('/', "\\")
    }
}

/// Whether a name found on disk can be shown to an SMB client at all.
pub(super) fn is_presentable(name: &str) -> bool {
    check_component(name).is_ok()
}

// MS-FSCC §2.1.5.2: the characters a component cannot hold. '/' separates on our side only, so
// a peer that sends one is trying something. Wildcards belong to patterns, never to names.
fn check_component(component: &str) -> Result<(), ShareError> {
    match component {
        ".." => return Err(ShareError::PeerPathSyntax),
        "" | "." => return Err(ShareError::PeerNameInvalid),
        _ => {}
    }
    if component.len() > COMPONENT_BYTES_MAX {
        return Err(ShareError::PeerNameInvalid);
    }
    // What the server keeps beside the tree is not there for clients, at any depth: shares may
    // overlap.
    if component.eq_ignore_ascii_case(streams::HOME) {
        return Err(ShareError::PeerNameInvalid);
    }
    let forbidden =
        |c: char| c < ' ' || matches!(c, '"' | '*' | '/' | ':' | '<' | '>' | '?' | '|' | '\\');
    if component.chars().any(forbidden) {
        return Err(ShareError::PeerNameInvalid);
    }
    Ok(())
}

/// Longest path in UTF-16 units: the 64 KiB a NameLength can express.
const PATH_UNITS_MAX: usize = 32_767;
/// NAME_MAX of every Linux file system we meet.
const COMPONENT_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_splits_into_parent_and_leaf() {
        let path = SharePath::parse("a\\b c\\d.txt").unwrap();
        assert_eq!((path.parent().to_wire().as_str(), path.leaf()), ("a\\b c", "d.txt"));
        assert!(SharePath::parse("").unwrap().is_root());
        assert_eq!(path.components().count(), 3);
        assert!(path.is_below(&SharePath::parse("a").unwrap()));
        assert!(!SharePath::parse("ab").unwrap().is_below(&SharePath::parse("a").unwrap()));
    }

    #[test]
    fn no_spelling_climbs_out_of_the_share() {
        for climb in ["..", "a\\..\\..\\b", "..\\etc", "a\\.."] {
            assert_eq!(SharePath::parse(climb), Err(ShareError::PeerPathSyntax), "{climb}");
        }
        for odd in ["a/b", "a\\\\b", "\\a", ".", "a\\.", "a\0b", "a*b", "what?", "a|b", "a\"b"] {
            assert_eq!(SharePath::parse(odd), Err(ShareError::PeerNameInvalid), "{odd}");
        }
        assert_eq!(SharePath::parse(&"n".repeat(256)), Err(ShareError::PeerNameInvalid));
    }

    #[test]
    fn what_the_server_keeps_for_itself_has_no_name() {
        for own in [".landfast-streams", "a\\.LANDFAST-Streams", "f:s", "f::$DATA"] {
            assert_eq!(SharePath::parse(own), Err(ShareError::PeerNameInvalid), "{own}");
        }
    }
}
