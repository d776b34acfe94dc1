//! Block devices over the network: the NBD protocol and its server.
//!
//! [`Server`] offers [`Exports`] on TCP addresses and unix sockets, with TLS where it is told to. Below it,
//! [`protocol`] is the protocol itself, without a socket, a thread or a clock: bytes come in, bytes and requests go out.
//!
//! ```text
//!   socket -> server::wire (plain, TLS) -> protocol::Handshake -> protocol::Session -> block::BlockDevice
//!                                          options, one export     requests, replies
//! ```
//!
//! No request reaches outside of its export: the session checks each range against the device's size before it calls
//! the device, which checks again.
//!
//! Spec: the NBD protocol, <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.

mod exports;
pub mod protocol;
mod server;

pub use exports::{Export, ExportError, Exports};
pub use server::{Address, Handle, ListenError, Server, TlsError, TlsFiles};
