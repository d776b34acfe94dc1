//! CREATE: opening and creating, with every disposition.
//!
//! ```text
//!  admit (checked request) -> open: attempt ----------------> grant -> answer
//!                            ^     | a lease or a push region stands in the way
//!                            |     v
//!                            +-- wait until it is given back or taken
//! ```
//!
//! A CREATE that opens nothing goes another way: [`reconnect`] takes back an open whose connection
//! was lost, and gives the answer again to a request that was sent twice.
//!
//! An attempt does all the work on the file system and in the node's table in one go, on a worker
//! where that may block, and leaves nothing behind unless it succeeds.
//!
//! Spec: MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1.

mod admit;
mod answer;
mod attempt;
mod durable;
mod enter;
mod extras;
mod fresh;
mod grant;
mod handle;
mod open;
mod outcome;
mod reconnect;
mod stream;
mod take_over;
#[cfg(test)]
mod tests;
mod wish;

pub(super) use self::handle::handle;
pub(crate) use self::wish::PushWish;
