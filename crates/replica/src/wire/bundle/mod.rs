//! A link over several connections: each frame goes over one of them, and is taken in the order in which it was sent.
//!
//! ```text
//!   send -- number n --> the connection with least to do --.            .--> reader --.
//!                        the next one                    --+-- TLS ... -+--> reader --+--> frames by number --> receive
//!                        ...                             --'            '--> reader --'
//!   kept until the other end says that it took everything below   <-- Got --
//! ```
//! A frame stays here until the other end has taken it. What a connection had that ends goes once more over those that are left;
//! what comes twice is dropped. The link ends when its last connection does. Readers always read, whatever is done with
//! what they have, so a sender waits for no receiver but by `AHEAD_MAX`: two ends never wait for each other's sockets.
//!
//! A connection over which nothing comes while another goes on, for `STALE`, is ended: its way may be cut without a word.
//!
//! Spec: ours, docs/replica-wire.md.

mod bounds;
mod flow;
mod frames;
mod joining;
mod several;
mod state;
mod threads;

pub use self::bounds::{AHEAD_MAX, CONNECTIONS_MAX, FRAMES_AHEAD_MAX};
pub use self::flow::{Flow, Frame};
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::frames::Mark;
pub(super) use self::joining::{Bundles, dial};
pub(super) use self::several::{Bundle, BundleReceiver, BundleSender};
