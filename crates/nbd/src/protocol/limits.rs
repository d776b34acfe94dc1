//! What a client can make the protocol hold and do.

/// Bytes of an option: a name and the queries of a client that asks for many contexts.
pub const OPTION_LEN_MAX: u32 = 64 << 10;
/// Options of a connection. Clients use about six.
pub const OPTIONS_MAX: u32 = 256;
/// Bytes that a request reads or writes: what clients assume of servers that do not say.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// Extents that a reply to a question for states has.
pub const EXTENTS_MAX: usize = 1024;
