//! Links over real sockets.

mod ends;
mod identities;
mod links;
mod peers;
