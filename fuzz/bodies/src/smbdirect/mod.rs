//! SMB Direct: its four formats, the negotiation, the connection.

pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod messages;
