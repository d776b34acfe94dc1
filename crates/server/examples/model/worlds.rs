//! What a client's directory may hold: one world, until a request goes unanswered.
//!
//! ```text
//!  acknowledged:    each world changes
//!  unanswered:      each world stays, and is there once more, changed
//!  looked at:       those that differ from what is there are gone; none left is a fault
//! ```
//!
//! A write that a SIGKILL cut short may have happened up to any byte: such a world says which.

use std::collections::BTreeMap;

/// Paths and what is in them.
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
    /// Made, or emptied.
    Empty {
        path: String,
    },
    Remove {
        path: String,
    },
    Rename {
        from: String,
        to: String,
    },
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
            Self::Empty { path } => drop(tree.insert(path.clone(), Vec::new())),
            Self::Remove { path } => drop(tree.remove(path)),
            Self::Rename { from, to } => {
                if let Some(content) = tree.remove(from) {
                    tree.insert(to.clone(), content);
                }
            }
        }
    }
}

fn write(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let end = offset + data.len();
    content.resize(content.len().max(end), 0);
    content[offset..end].copy_from_slice(data);
}

/// The worlds that are possible.
#[derive(Clone, Debug)]
pub(crate) struct Worlds(Vec<World>);

#[derive(Clone, Debug)]
struct World {
    tree: Tree,
    /// This write, up to any byte, on top.
    torn: Option<(String, usize, Vec<u8>)>,
}

impl Worlds {
    pub(crate) fn new() -> Self {
        Self(vec![World { tree: Tree::new(), torn: None }])
    }

    /// The world, while there is one.
    pub(crate) fn tree(&self) -> &Tree {
        &self.0[0].tree
    }

    /// The change was acknowledged.
    pub(crate) fn apply(&mut self, change: &Change) {
        self.0.iter_mut().for_each(|world| change.apply(&mut world.tree));
    }

    /// The change may have happened.
    pub(crate) fn may_have(&mut self, change: &Change) {
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
    }

    /// Keeps the worlds that look like this; says why if there is none, and takes it as it is.
    pub(crate) fn look(&mut self, seen: &Tree) -> Result<(), String> {
        let fits = self.0.iter().any(|world| world.differs(seen).is_none());
        let why = self.0.iter().filter_map(|world| world.differs(seen)).collect::<Vec<_>>();
        self.0 = vec![World { tree: seen.clone(), torn: None }];
        if fits { Ok(()) } else { Err(why.join("; or ")) }
    }
}

impl World {
    /// How what was seen is not this world.
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
    // Fewer bytes may do as well, if those behind were the same before.
    (0..=most).rev().any(|len| {
        let mut content = before.to_vec();
        write(&mut content, offset, &data[..len]);
        content == seen
    })
}

/// Where two contents differ, in a few words.
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

    #[test]
    fn an_unanswered_rename_happened_whole_or_not_at_all() {
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
