//! The leaves that a change of the tree takes: proofs that somebody decided that it may be made.
//!
//! The tree knows no users and decides nothing. Each function that changes names or metadata takes one of these
//! leaves; a handle is opened for writing with one. The code that decides has types of its own, which only its
//! decisions can make, and these types alone implement the traits: then a change without a decision does not
//! compile. `cargo xtask tidy` refuses an implementation in any other file.
//!
//! Rejected: leaves made here, because a constructor that another crate can call is open to the whole of that
//! crate; a tree that is generic over the code that decides, because each crate that uses the tree would then
//! compile the whole tree again; the decisions themselves in this crate, because they read sessions and opens.

/// Leave to add a name to a directory, or a stream to a file.
pub trait MayAdd: Copy {}

/// Leave to remove a name, or to give it to another file.
pub trait MayRemove: Copy {}

/// Leave to open the bytes of a file for writing.
pub trait MayWrite: Copy {}

/// Leave to change the metadata of a file: times, attributes, owner, extended attributes.
pub trait MaySet: Copy {}

/// A leave to write, whoever gave it.
#[derive(Clone, Copy, Debug)]
pub struct Writing(());

impl Writing {
    /// Keeps that the leave was given.
    pub fn by(_leave: impl MayWrite) -> Self {
        Self(())
    }
}

/// Leaves for tests of functions that take one.
#[cfg(test)]
pub(crate) mod given {
    macro_rules! given {
        ($($name:ident),*) => {$(
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct $name;

            impl $name {
                pub(crate) const TEST: Self = Self;
            }

            impl super::$name for $name {}
        )*};
    }

    given!(MayAdd, MayRemove, MayWrite, MaySet);
}
