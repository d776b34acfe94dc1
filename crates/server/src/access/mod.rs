//! Decides the rights of users, once per object and operation.
//!
//! ```text
//!  share, user ----> Rights ----> Grant (a CREATE) ----> Open, with the access it was granted
//!                      |            |                      |
//!                       |            |          Look, Write, Set, Remove, Add: the operation on the open
//!                      |            v                      v
//!                      +------> MayAdd, MayRemove, MayWrite, MaySet ----> share: a change of the disk
//! ```
//!
//! * [`Rights`]: the rights of a user in a share; [`Grant`]: the rights of a CREATE;
//! * [`admit`]: the rights of an open, by the tables in [`operation`]; [`leave`]: proofs of admission;
//! * [`deletion`]: objects that no user may delete.
//!
//! Every function of [`tree`] that changes names or metadata of files takes a leave, and only
//! this module makes leaves: a change without admission does not compile. [`tree::rights`] names
//! the leaves as traits, and [`leave`] alone implements these. Bytes are changed through an entry, whose
//! handle is opened for writing only with a leave.
//!
//! Spec: MS-SMB2 §3.3.5, MS-FSA §2.1.5.

mod create;
pub(crate) mod deletion;
mod identity;
pub(crate) mod leave;
pub(crate) mod operation;
mod rights;
mod tree;

pub(crate) use create::{Grant, Regrant};
pub(crate) use identity::{Identity, IdentityMark};
pub(crate) use leave::{MayAdd, MayRemove, MaySet};
pub(crate) use operation::{Add, Granted, Look, Remove, Set, Write, admit};
pub(crate) use rights::Rights;
pub(crate) use tree::{Target, Tree};

#[cfg(test)]
mod tests;
