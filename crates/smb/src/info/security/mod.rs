//! Security descriptors in self-relative form: owner, group and access list.
//!
//! Spec: MS-DTYP §2.4.

mod acl;
mod descriptor;
mod sid;

pub use acl::{ACES_MAX, Ace, AceKind};
pub use descriptor::{Control, Dacl, SecurityDescriptor};
pub use sid::{SUB_AUTHORITIES_MAX, Sid};
