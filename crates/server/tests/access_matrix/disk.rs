//! What lies in a directory, down to the extended attributes, and what differs between two looks at it.
//!
//! Access times are not looked at: reading moves them. Where our server keeps the bytes of alternate data
//! streams (`.landfast-streams`) is one entry, [`STREAMS`], whatever stays changed below it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A look at a directory: each name below it, and the directory itself as "".
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Look(BTreeMap<String, Facts>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Facts {
    /// Who it is and what it holds.
    contents: Contents,
    /// Modes, owners, links, the times of the last write and of the last change.
    outside: [i64; 8],
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Contents {
    Directory { inode: u64 },
    File { inode: u64, bytes: Vec<u8> },
    Link { to: String },
}

/// What can happen to a name.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Change<'a> {
    /// It is there now.
    New(&'a str),
    /// It is not there any more.
    Gone(&'a str),
    /// It holds something else, or is another file.
    Contents(&'a str),
    /// Something is said of it otherwise: mode, times, links, attributes.
    Facts(&'a str),
}

impl Look {
    pub(crate) fn at(root: &Path) -> Self {
        let mut look = Self::default();
        look.add(root, String::new());
        look
    }

    fn add(&mut self, path: &Path, name: String) {
        // Gone since it was listed: the next look says so.
        let Ok(found) = fs::symlink_metadata(path) else { return };
        let inode = found.ino();
        let contents = if found.is_dir() {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                let leaf = entry.file_name().to_string_lossy().into_owned();
                let below = if name.is_empty() { leaf } else { format!("{name}/{leaf}") };
                self.add(&entry.path(), below);
            }
            Contents::Directory { inode }
        } else if found.is_symlink() {
            let to = fs::read_link(path).unwrap_or_default().to_string_lossy().into_owned();
            Contents::Link { to }
        } else {
            Contents::File { inode, bytes: fs::read(path).unwrap_or_default() }
        };
        let outside = [
            i64::from(found.mode()),
            i64::from(found.uid()),
            i64::from(found.gid()),
            found.nlink().cast_signed(),
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ];
        self.0.insert(name, Facts { contents, outside, attributes: attributes(path) });
    }

    /// What has changed since.
    pub(crate) fn changes<'a>(&'a self, later: &'a Self) -> Vec<Change<'a>> {
        let mut changes = Vec::new();
        for (name, old) in &self.0 {
            match later.0.get(name) {
                None => changes.push(Change::Gone(name)),
                Some(new) if new.contents != old.contents => changes.push(Change::Contents(name)),
                Some(new) if new != old => changes.push(Change::Facts(name)),
                Some(_) => {}
            }
        }
        let new = later.0.keys().filter(|name| !self.0.contains_key(*name));
        changes.extend(new.map(|name| Change::New(name)));
        // Where links that replace are made, and left by each: what stays there is a change.
        changes.retain(|change| change.name() != HOME && change.name() != NEW_LINKS);
        let mut changes: Vec<_> = changes.into_iter().map(Change::of_streams).collect();
        changes.sort_unstable();
        changes.dedup();
        changes
    }
}

impl<'a> Change<'a> {
    pub(crate) fn name(self) -> &'a str {
        let (Self::New(name) | Self::Gone(name) | Self::Contents(name) | Self::Facts(name)) = self;
        name
    }

    fn of_streams(self) -> Self {
        if self.name().starts_with(HOME) { Self::Contents(STREAMS) } else { self }
    }
}

pub(crate) fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = [0; 1024];
    let len = rustix::fs::llistxattr(path, &mut names).expect("their names fit");
    names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| (name.to_vec(), attribute(path, name)))
        .collect()
}

// Most are short, and a long buffer is not cleared for each of some millions.
fn attribute(path: &Path, name: &[u8]) -> Vec<u8> {
    let mut short = [0; 1024];
    if let Ok(len) = rustix::fs::lgetxattr(path, name, &mut short) {
        return short[..len].to_vec();
    }
    // The longest that Linux has.
    let mut long = vec![0; 65_536];
    let len = rustix::fs::lgetxattr(path, name, &mut long).expect("it is there, and fits");
    long.truncate(len);
    long
}

/// The entry that stands for the bytes of all streams.
pub(crate) const STREAMS: &str = ":";
/// Where our server keeps them.
pub(crate) const HOME: &str = ".landfast-streams";
/// Where it makes hard links that take the name of another file.
const NEW_LINKS: &str = ".landfast-streams/links";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["same", "written", "linked", "gone"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir_all(at(NEW_LINKS)).unwrap();
        let before = Look::at(dir.path());
        assert_eq!(before.changes(&Look::at(dir.path())), []);
        fs::write(at(NEW_LINKS).join("link"), "").unwrap();
        fs::remove_file(at(NEW_LINKS).join("link")).unwrap();
        assert_eq!(before.changes(&Look::at(dir.path())), []);
        fs::write(at("written"), "other").unwrap();
        fs::hard_link(at("linked"), at("new")).unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::create_dir(at(HOME).join("x")).unwrap();
        let after = Look::at(dir.path());
        let expected = [
            Change::New("new"),
            Change::Gone("gone"),
            Change::Contents(STREAMS),
            Change::Contents("written"),
            Change::Facts(""),
            Change::Facts("linked"),
        ];
        assert_eq!(before.changes(&after), expected);
    }
}
