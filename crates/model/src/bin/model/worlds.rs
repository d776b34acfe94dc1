//! The possible contents of a client's directory: one world, until a request stays unanswered.
//!
//! ```text
//!  acknowledged:    each world changes
//!   unanswered:      each world stays, and its changed copy is added
//!   looked at:       worlds that differ from the files are dropped; none left is a fault
//! ```
//!
//! A SIGKILL may cut a write short at any byte: such a world says which write. Of a request with two
//! steps the server may have done only the first.
//!
//! A tree names files (`c00/d0/f1`), streams of them (`c00/d0/f1:s`) and directories (`c00/d0/`).

use std::collections::BTreeMap;
use std::fmt;

use crate::names;

/// Paths and their contents.
pub(crate) type Tree = BTreeMap<String, Vec<u8>>;

/// A change that a request makes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write {
        path: String,
        offset: usize,
        data: Vec<u8>,
    },
    Resize {
        path: String,
        len: usize,
    },
    /// The file or stream is made or emptied: an emptied file loses its streams, a new stream makes
    /// its file.
    Empty {
        path: String,
    },
    /// A file with its streams, a stream, or a directory.
    Remove {
        path: String,
    },
    /// A file with its streams, or a directory with everything in it.
    Rename {
        from: String,
        to: String,
    },
    MakeDirectory {
        path: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The bytes are left out.
            Self::Write { path, offset, data } => write!(f, "Write {path} {offset} {}", data.len()),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Change {
    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Write { path, offset, data } => {
                if let Some(content) = tree.get_mut(path) {
                    write(content, *offset, data);
                }
            }
            Self::Resize { path, len } => {
                if let Some(content) = tree.get_mut(path) {
                    content.resize(*len, 0);
                }
            }
            Self::Empty { path } => {
                match path.split_once(':') {
                    Some((file, _)) => drop(tree.entry(file.to_owned()).or_default()),
                    None => remove_streams(tree, path),
                }
                tree.insert(path.clone(), Vec::new());
            }
            Self::Remove { path } => {
                take(tree, path);
            }
            Self::Rename { from, to } => {
                if !names::is_directory(from) {
                    Self::Remove { path: to.clone() }.apply(tree);
                }
                for (path, content) in take(tree, from) {
                    tree.insert(format!("{to}{}", &path[from.len()..]), content);
                }
            }
            Self::MakeDirectory { path } => drop(tree.entry(path.clone()).or_default()),
        }
    }

    // The tree if only the first of two steps was done.
    fn half(&self, tree: &Tree) -> Option<Tree> {
        let mut half = tree.clone();
        match self {
            Self::Empty { path } => match path.split_once(':') {
                // The file of a stream that does not exist yet.
                Some((file, _)) => drop(half.entry(file.to_owned()).or_default()),
                // The file is emptied, its streams are not removed yet.
                None => drop(half.insert(path.clone(), Vec::new())),
            },
            _ => return None,
        }
        Some(half)
    }
}

fn remove_streams(tree: &mut Tree, file: &str) {
    tree.retain(|path, _| path.strip_prefix(file).is_none_or(|rest| !rest.starts_with(':')));
}

fn take(tree: &mut Tree, path: &str) -> Tree {
    tree.extract_if(.., |other, _| names::goes_with(path, other)).collect()
}

fn write(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let end = offset + data.len();
    content.resize(content.len().max(end), 0);
    content[offset..end].copy_from_slice(data);
}

/// The possible worlds.
#[derive(Clone, Debug)]
pub(crate) struct Worlds(Vec<World>);

#[derive(Clone, Debug)]
struct World {
    tree: Tree,
    /// This write, up to any byte, on top of the tree.
    torn: Option<(String, usize, Vec<u8>)>,
}

impl Worlds {
    pub(crate) fn new() -> Self {
        Self(vec![World { tree: Tree::new(), torn: None }])
    }

    /// The world, while there is only one.
    pub(crate) fn tree(&self) -> &Tree {
        &self.0[0].tree
    }

    /// The change was acknowledged.
    pub(crate) fn apply(&mut self, change: &Change) {
        self.0.iter_mut().for_each(|world| change.apply(&mut world.tree));
    }

    /// The change may have happened.
    pub(crate) fn may_have(&mut self, change: &Change) {
        let half = |world: &World| change.half(&world.tree).map(|tree| World { tree, torn: None });
        let halves: Vec<_> = self.0.iter().filter_map(half).collect();
        let mut changed = self.0.clone();
        for world in &mut changed {
            match change {
                Change::Write { path, offset, data } => {
                    world.torn = Some((path.clone(), *offset, data.clone()));
                }
                whole => whole.apply(&mut world.tree),
            }
        }
        self.0.extend(changed);
        self.0.extend(halves);
    }

    /// Keeps the worlds that equal `seen`; if there is none, returns the difference and continues
    /// with `seen`.
    pub(crate) fn look(&mut self, seen: &Tree) -> Result<(), String> {
        let fits = self.0.iter().any(|world| world.differs(seen).is_none());
        let why = self.0.iter().filter_map(|world| world.differs(seen)).collect::<Vec<_>>();
        self.0 = vec![World { tree: seen.clone(), torn: None }];
        if fits { Ok(()) } else { Err(why.join("; or ")) }
    }
}

impl World {
    /// The difference between `seen` and this world.
    fn differs(&self, seen: &Tree) -> Option<String> {
        for (path, content) in seen {
            let Some(expected) = self.tree.get(path) else {
                return Some(format!("{path} is there, with {} bytes", content.len()));
            };
            let is_torn = self.torn.as_ref().is_some_and(|(torn, offset, data)| {
                torn == path && is_prefix(expected, *offset, data, content)
            });
            if !is_torn && let Some(difference) = compare(expected, content) {
                return Some(format!("{path}: {difference}"));
            }
        }
        let missing = self.tree.keys().find(|path| !seen.contains_key(*path))?;
        Some(format!("{missing} is not there"))
    }
}

// Whether a write of some of the first bytes of `data` makes `seen` of `before`.
fn is_prefix(before: &[u8], offset: usize, data: &[u8], seen: &[u8]) -> bool {
    let agreed = seen.get(offset..).unwrap_or_default();
    let most = agreed.iter().zip(data).take_while(|(one, other)| one == other).count();
    // Fewer bytes are possible too, if the bytes behind them were the same before.
    (0..=most).rev().any(|len| {
        let mut content = before.to_vec();
        write(&mut content, offset, &data[..len]);
        content == seen
    })
}

/// The first difference between two contents, in a few words.
pub(crate) fn compare(expected: &[u8], seen: &[u8]) -> Option<String> {
    let at = expected.iter().zip(seen).position(|(one, other)| one != other);
    match at {
        Some(at) => {
            Some(format!("byte {at} of {} is {:#x}, {:#x} expected", seen.len(), seen[at], {
                expected[at]
            }))
        }
        None if expected.len() != seen.len() => {
            Some(format!("{} bytes, {} expected", seen.len(), expected.len()))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Worlds {
        fn fits(&self, seen: &Tree) -> bool {
            self.clone().look(seen).is_ok()
        }
    }

    #[test]
    fn an_unanswered_write_may_have_happened_up_to_any_byte() {
        let mut worlds = Worlds::new();
        let path = || "f".to_owned();
        worlds.apply(&Change::Empty { path: path() });
        worlds.apply(&Change::Write { path: path(), offset: 0, data: b"abc".to_vec() });
        worlds.may_have(&Change::Write { path: path(), offset: 4, data: b"xyz".to_vec() });
        let tree = |content: &[u8]| Tree::from([("f".to_owned(), content.to_vec())]);
        for possible in [&b"abc"[..], b"abc\0x", b"abc\0xyz"] {
            assert!(worlds.fits(&tree(possible)), "{possible:?}");
        }
        for impossible in [&b"ab"[..], b"abc\0", b"abc\0y", b"abc\0xyz\0", b"abd"] {
            assert!(!worlds.fits(&tree(impossible)), "{impossible:?}");
        }
        worlds.look(&tree(b"abc\0x")).unwrap();
        assert!(!worlds.fits(&tree(b"abc")), "that has been settled");
        worlds.look(&Tree::new()).unwrap_err();
    }

    fn tree(paths: &[&str]) -> Tree {
        paths.iter().map(|&path| (path.to_owned(), Vec::new())).collect()
    }

    #[test]
    fn streams_go_with_their_file_and_files_with_their_directory() {
        let mut seen = tree(&["c/d0/", "c/d0/f", "c/d0/f:s", "c/f", "c/f:s"]);
        let rename = |from: &str, to: &str| Change::Rename { from: from.into(), to: to.into() };
        rename("c/d0/", "c/d1/").apply(&mut seen);
        assert_eq!(seen, tree(&["c/d1/", "c/d1/f", "c/d1/f:s", "c/f", "c/f:s"]));
        rename("c/f", "c/d1/f").apply(&mut seen);
        assert_eq!(seen, tree(&["c/d1/", "c/d1/f", "c/d1/f:s"]));
        Change::Empty { path: "c/d1/f".into() }.apply(&mut seen);
        assert_eq!(seen, tree(&["c/d1/", "c/d1/f"]));
        Change::Empty { path: "c/g:s".into() }.apply(&mut seen);
        Change::Remove { path: "c/d1/f".into() }.apply(&mut seen);
        assert_eq!(seen, tree(&["c/d1/", "c/g", "c/g:s"]));
        Change::Remove { path: "c/g".into() }.apply(&mut seen);
        assert_eq!(seen, tree(&["c/d1/"]));
    }

    #[test]
    fn a_request_of_two_steps_may_have_done_only_the_first() {
        let mut worlds = Worlds::new();
        worlds.may_have(&Change::Empty { path: "f:s".into() });
        for possible in [&[][..], &["f"], &["f", "f:s"]] {
            assert!(worlds.fits(&tree(possible)), "{possible:?}");
        }
        worlds.look(&tree(&["f", "f:s"])).unwrap();
        worlds.may_have(&Change::Empty { path: "f".into() });
        assert!(worlds.fits(&tree(&["f"])) && worlds.fits(&tree(&["f", "f:s"])));
        assert!(!worlds.fits(&tree(&["f:s"])) && !worlds.fits(&tree(&[])));
    }

    #[test]
    fn an_unanswered_rename_happened_entirely_or_not_at_all() {
        let mut worlds = Worlds::new();
        worlds.apply(&Change::Empty { path: "a".to_owned() });
        worlds.may_have(&Change::Rename { from: "a".to_owned(), to: "b".to_owned() });
        let names = |names: &[&str]| {
            names.iter().map(|&name| (name.to_owned(), Vec::new())).collect::<Tree>()
        };
        assert!(worlds.fits(&names(&["a"])) && worlds.fits(&names(&["b"])));
        assert!(!worlds.fits(&names(&["a", "b"])) && !worlds.fits(&names(&[])));
    }
}
