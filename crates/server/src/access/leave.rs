//! Leaves: proofs that somebody was admitted, which the functions that change a share take.

/// Leave to add a name to a directory, or a stream to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayAdd(());

/// Leave to take away a name, or to give it to something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayRemove(());

/// Leave to open the bytes of a file for writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MayWrite(());

/// Leave to change what is said of a file: times, attributes, owner, extended attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaySet(());

/// What an admission gives.
pub(crate) trait Leave {
    /// Whether it is one to change something of the share.
    const CHANGES: bool;

    /// The proof. Made by the decisions of this module alone.
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

        #[cfg(test)]
        impl $name {
            /// For tests of what takes one.
            pub(crate) const TEST: Self = Self(());
        }
    )*};
}

leaves!(MayAdd, MayRemove, MayWrite, MaySet);
