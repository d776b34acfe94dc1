//! Who may do what: decided here, once per object and operation.
//!
//! ```text
//!  share, user ----> Rights ----> Grant (a CREATE) ----> Open, with the access it was granted
//!                      |            |                      |
//!                      |            |          Look, Write, Set, Remove, Add: what is asked of it
//!                      |            v                      v
//!                      +------> MayAdd, MayRemove, MayWrite, MaySet ----> share: a change of the disk
//! ```
//!
//! * [`Rights`]: what a user may do in a share; * [`Grant`]: what a CREATE is allowed;
//! * [`admit`]: what an open is allowed, by the tables in [`operation`]; * [`leave`]: proofs of admission;
//! * [`deletion`]: what nobody deletes.
//!
//! Whatever changes names or facts of files in [`crate::share`] takes a leave, and only this module makes
//! one: a change that nobody was admitted to does not compile. Bytes are changed through an entry, whose
//! handle is opened for writing with a leave only.
//!
//! Spec: MS-SMB2 §3.3.5, MS-FSA §2.1.5.

mod create;
pub(crate) mod deletion;
pub(crate) mod leave;
pub(crate) mod operation;
mod rights;

pub(crate) use create::{Grant, Regrant};
pub(crate) use leave::{MayAdd, MayRemove, MaySet, MayWrite};
pub(crate) use operation::{Add, Look, Remove, Set, Write, admit};
pub(crate) use rights::Rights;
