//! Links over real sockets.

mod ends;
mod identities;
mod links;
mod peers;
mod proxy;
mod several;
