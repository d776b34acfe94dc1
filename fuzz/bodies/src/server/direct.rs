//! The first look at a frame that came over SMB Direct.

use server::fuzzing;

use crate::Input;

/// A limit of one work request, then a frame.
pub(crate) fn first_look(data: &[u8]) {
    let mut input = Input::new(data);
    let len_max = u32::from(input.u16()) + 1;
    fuzzing::first_look(input.rest(), len_max);
}
