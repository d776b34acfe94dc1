//! Leaves: proofs of admission, which the functions that change a share take as arguments. No other file implements
//! the traits of [`tree::rights`].

use tree::rights;

/// Leave to add a name to a directory, or a stream to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayAdd(());

/// Leave to remove a name, or to give it to another file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayRemove(());

/// Leave to open the bytes of a file for writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayWrite(());

/// Leave to change the metadata of a file: times, attributes, owner, extended attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaySet(());

/// The leave that an admission gives.
pub(crate) trait Leave {
    /// Whether the leave allows a change of the share.
    const CHANGES: bool;

    /// Makes the proof. Only the decisions of this module can call it.
    #[doc(hidden)]
    fn given(by: Decided) -> Self;
}

/// Shows that a decision of this module was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided(());

impl Decided {
    pub(super) const fn yes() -> Self {
        Self(())
    }
}

impl Leave for () {
    const CHANGES: bool = false;

    fn given(_: Decided) {}
}

macro_rules! leaves {
    ($($name:ident),*) => {$(
        impl Leave for $name {
            const CHANGES: bool = true;

            fn given(_: Decided) -> Self {
                Self(())
            }
        }

        impl rights::$name for $name {}
    )*};
}

leaves!(MayAdd, MayRemove, MayWrite, MaySet);

#[cfg(test)]
impl MayAdd {
    /// A leave for unit tests of functions that take one.
    pub(crate) const TEST: Self = Self(());
}

#[cfg(test)]
impl MayRemove {
    /// A leave for unit tests of functions that take one.
    pub(crate) const TEST: Self = Self(());
}
