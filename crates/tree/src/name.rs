//! Paths of peers, checked once.
//!
//! A [`SharePath`] cannot hold `..`, an empty component or a character that Windows forbids, so no
//! path that reaches the file system can climb out; `openat2` with RESOLVE_BENEATH does the same
//! for symbolic links.
//!
//! Spec: MS-FSCC §2.1.5 (names and streams), MS-SMB2 §2.2.13 (CREATE names).

use std::path::Path;

use super::error::ShareError;
use super::short::short_name;

/// A path inside one share. The root is the empty path.
#[derive(Clone, Debug, Default)]
pub struct SharePath {
    // Components joined by '/': the form for the kernel.
    text: String,
    naming: Naming,
    /// The request named the last component by its short name.
    is_by_short_name: bool,
}

/// The interpretation of a path. Neither this nor the spelling of the request is part of its
/// identity: two paths of the same text are equal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Naming {
    /// Ignoring case, and through symbolic links.
    #[default]
    Windows,
    /// Literally, and a link at the end is meant itself (SMB3 POSIX extensions).
    Posix,
}

impl PartialEq for SharePath {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SharePath {}

impl SharePath {
    /// The share's top directory.
    pub fn root() -> Self {
        Self::default()
    }

    /// Checks a path with backslashes, or slashes, in the form of rename requests.
    pub fn parse(wire: &str) -> Result<Self, ShareError> {
        if wire.encode_utf16().count() > PATH_UNITS_MAX {
            return Err(ShareError::PeerNameInvalid);
        }
        let wire = wire.strip_suffix(SEPARATORS).unwrap_or(wire);
        if wire.is_empty() {
            return Ok(Self::root());
        }
        let mut text = String::with_capacity(wire.len());
        for component in wire.split(SEPARATORS) {
            check_component(component)?;
            if !text.is_empty() {
                text.push('/');
            }
            text.push_str(component);
        }
        Ok(Self { text, ..Self::default() })
    }

    /// Checks a path with slashes: names may hold whatever a file system can, but cannot climb out.
    pub fn parse_posix(wire: &str) -> Result<Self, ShareError> {
        if wire.encode_utf16().count() > PATH_UNITS_MAX {
            return Err(ShareError::PeerNameInvalid);
        }
        let wire = wire.strip_suffix('/').unwrap_or(wire);
        let components = wire.split('/').filter(|_| !wire.is_empty());
        for component in components {
            check_posix_component(component)?;
        }
        Ok(Self { text: wire.to_owned(), naming: Naming::Posix, ..Self::default() })
    }

    /// The same path with another interpretation.
    pub fn meant(&self, naming: Naming) -> Self {
        Self { naming, ..self.clone() }
    }

    /// The interpretation of the path.
    pub fn naming(&self) -> Naming {
        self.naming
    }

    /// Whether every client could have written this path.
    pub fn is_presentable(&self) -> bool {
        self.components().all(is_presentable)
    }

    /// Whether this is the share's top directory.
    pub fn is_root(&self) -> bool {
        self.text.is_empty()
    }

    /// The directory this path's last component lies in; the root's parent is the root.
    pub fn parent(&self) -> Self {
        let end = self.text.rfind('/').unwrap_or(0);
        self.with_text(self.text[..end].to_owned())
    }

    /// The last component; empty for the root.
    pub fn leaf(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or("")
    }

    /// This path with one more component, which must come from a directory listing or from another
    /// checked path.
    pub(super) fn join(&self, component: &str) -> Self {
        debug_assert!(!component.is_empty() && !component.contains('/') && component != "..");
        if self.is_root() {
            return self.with_text(component.to_owned());
        }
        self.with_text(format!("{}/{component}", self.text))
    }

    fn with_text(&self, text: String) -> Self {
        Self { text, naming: self.naming, is_by_short_name: false }
    }

    /// The same path, whose last component the request named by its short name.
    pub(super) fn by_short_name(self) -> Self {
        Self { is_by_short_name: true, ..self }
    }

    /// The short name by which the request named the last component.
    pub(super) fn short_name(&self) -> Option<String> {
        self.is_by_short_name.then(|| short_name(self.leaf()))
    }

    /// The directory of this path with the last component of `other`.
    pub fn parent_with_leaf_of(&self, other: &Self) -> Self {
        self.parent().join(other.leaf())
    }

    /// The components, from the top down.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.text.split('/').filter(|component| !component.is_empty())
    }

    /// Whether `self` lies below `ancestor`, at any depth.
    pub fn is_below(&self, ancestor: &Self) -> bool {
        if ancestor.is_root() {
            return !self.is_root();
        }
        self.text.strip_prefix(&ancestor.text).is_some_and(|rest| rest.starts_with('/'))
    }

    /// This path, which is `from` or below it, after `from` is renamed to `to`.
    pub fn moved(&self, from: &Self, to: &Self) -> Self {
        let rest = self.text.strip_prefix(&from.text).unwrap_or_default();
        Self { text: format!("{}{rest}", to.text), ..self.clone() }
    }

    /// A path below a share's top, of components of the file system; `None` if one is not UTF-8.
    pub(super) fn of_components(path: &Path) -> Option<Self> {
        Some(Self { text: path.to_str()?.to_owned(), ..Self::default() })
    }

    /// This path, which is relative to `above`, relative to the parent of `above`.
    pub(super) fn inside(&self, above: &Self) -> Self {
        let between = if self.is_root() || above.is_root() { "" } else { "/" };
        Self { text: format!("{}{between}{}", above.text, self.text), ..self.clone() }
    }

    /// This path relative to `above`; `None` if it is not `above` or below it.
    pub(super) fn out_of(&self, above: &Self) -> Option<Self> {
        if self == above {
            return Some(self.with_text(String::new()));
        }
        let rest = self.text.strip_prefix(&above.text)?;
        let text = if above.is_root() { rest } else { rest.strip_prefix('/')? };
        Some(Self { text: text.to_owned(), ..self.clone() })
    }

    /// The form for a system call relative to the share's root.
    pub(super) fn for_system(&self) -> &str {
        if self.is_root() { "." } else { &self.text }
    }

    /// The path with backslashes, as FileNameInformation shows it, without the leading one.
    pub fn to_wire(&self) -> String {
        self.text.replace('/', "\\")
    }
}

/// Whether a name on disk can be shown to an SMB client.
pub(super) fn is_presentable(name: &str) -> bool {
    check_component(name).is_ok()
}

/// Whether a name on disk can be shown to a client with this interpretation.
pub(super) fn is_presentable_to(naming: Naming, name: &str) -> bool {
    match naming {
        Naming::Windows => is_presentable(name),
        Naming::Posix => check_posix_component(name).is_ok(),
    }
}

fn check_posix_component(component: &str) -> Result<(), ShareError> {
    match component {
        ".." => Err(ShareError::PeerPathSyntax),
        "" | "." => Err(ShareError::PeerNameInvalid),
        _ if component.len() > COMPONENT_BYTES_MAX
            || component.contains('\0')
            || component.eq_ignore_ascii_case(HOME) =>
        {
            Err(ShareError::PeerNameInvalid)
        }
        _ => Ok(()),
    }
}

// MS-FSCC §2.1.5.2: the characters a component cannot hold. Wildcards belong to patterns, never to
// names.
fn check_component(component: &str) -> Result<(), ShareError> {
    match component {
        ".." => return Err(ShareError::PeerPathSyntax),
        "" | "." => return Err(ShareError::PeerNameInvalid),
        _ => {}
    }
    if component.len() > COMPONENT_BYTES_MAX {
        return Err(ShareError::PeerNameInvalid);
    }
    // Clients cannot name the server's own directory, at any depth: shares may overlap.
    if component.eq_ignore_ascii_case(HOME) {
        return Err(ShareError::PeerNameInvalid);
    }
    let forbidden =
        |c: char| c < ' ' || matches!(c, '"' | '*' | '/' | ':' | '<' | '>' | '?' | '|' | '\\');
    if component.chars().any(forbidden) {
        return Err(ShareError::PeerNameInvalid);
    }
    Ok(())
}

/// Between components. Deviates: Windows refuses a slash; smbd takes a slash of a POSIX path for a
/// separator. No component holds either character, so no other meaning is possible.
pub const SEPARATORS: [char; 2] = ['\\', '/'];
/// Longest path in UTF-16 units: the 64 KiB a NameLength can express.
/// The directory of all streams of a share, at its top. No client can name it.
pub(super) const HOME: &str = ".landfast-streams";
const PATH_UNITS_MAX: usize = 32_767;
/// NAME_MAX of every Linux file system in use.
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
        for climb in
            ["..", "a\\..\\..\\b", "..\\etc", "a\\..", "../etc", "a/../b", "a\\../b", "a/.."]
        {
            assert_eq!(SharePath::parse(climb), Err(ShareError::PeerPathSyntax), "{climb}");
        }
        for odd in [
            "a//b", "a\\/b", "/a", "a\\\\b", "\\a", ".", "a/.", "a\\.", "a\0b", "a*b", "what?",
            "a|b", "a\"b",
        ] {
            assert_eq!(SharePath::parse(odd), Err(ShareError::PeerNameInvalid), "{odd}");
        }
        assert_eq!(SharePath::parse(&"n".repeat(256)), Err(ShareError::PeerNameInvalid));
    }

    #[test]
    fn a_slash_separates_as_a_backslash_does() {
        for wire in ["a/b c/d.txt", "a\\b c/d.txt", "a/b c\\d.txt/"] {
            let path = SharePath::parse(wire).unwrap();
            assert_eq!(path.components().collect::<Vec<_>>(), ["a", "b c", "d.txt"], "{wire}");
            assert_eq!(path.to_wire(), "a\\b c\\d.txt", "{wire}");
        }
    }

    #[test]
    fn a_posix_name_holds_anything_that_cannot_climb_out() {
        let path = SharePath::parse_posix("a/b:c*/d\\e. ").unwrap();
        assert_eq!(path.components().collect::<Vec<_>>(), ["a", "b:c*", "d\\e. "]);
        assert_eq!((path.naming(), path.parent().naming()), (Naming::Posix, Naming::Posix));
        assert!(!path.is_presentable());
        assert!(SharePath::parse_posix("").unwrap().is_root());
        for bad in ["..", "a/../b", "a//b", "/a", ".", "a\0", ".landfast-streams/x"] {
            SharePath::parse_posix(bad).unwrap_err();
        }
    }

    #[test]
    fn no_client_can_name_the_directory_of_streams() {
        for own in [".landfast-streams", "a\\.LANDFAST-Streams", "f:s", "f::$DATA"] {
            assert_eq!(SharePath::parse(own), Err(ShareError::PeerNameInvalid), "{own}");
        }
    }
}
