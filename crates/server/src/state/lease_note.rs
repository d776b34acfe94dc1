//! What the log of persistent opens says of a lease, and whether a crash may bring that back.
//!
//! ```text
//!  None --- noted --> Held --- broken --> Stale --- the log says otherwise --> None
//! ```

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LeaseNote {
    /// Nothing that a crash could bring back and should not.
    None,
    /// That it is held.
    Held,
    /// That it is held still, though it is not whole any more: nobody goes on before the log says otherwise.
    Stale { number: NoteNumber, is_being_written: bool },
}

/// Tells one stale note from every other of the file: its owner may have another lease by the time the log is right.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct NoteNumber(u64);

impl LeaseNote {
    pub(super) fn is_stale(self) -> bool {
        matches!(self, Self::Stale { .. })
    }

    /// The lease is not whole any more. `last` is the number that was drawn last for this file.
    pub(super) fn break_off(&mut self, last: &mut NoteNumber) {
        if *self == Self::Held {
            last.0 += 1;
            *self = Self::Stale { number: *last, is_being_written: false };
        }
    }

    /// Somebody waits for it, and writes it from now on. `None`: it is not stale, or somebody else does.
    pub(super) fn begin(&mut self) -> Option<NoteNumber> {
        let Self::Stale { number, is_being_written } = self else { return None };
        (!std::mem::replace(is_being_written, true)).then_some(*number)
    }

    /// The log says that nothing is held, as was asked for by the note of this number.
    pub(super) fn is_right(&mut self, written: NoteNumber) {
        if matches!(*self, Self::Stale { number, .. } if number == written) {
            *self = Self::None;
        }
    }
}
