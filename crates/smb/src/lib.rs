//! SMB 2 and 3 without sockets: bytes in, messages out, and back.
//!
//! A tour in the order a message meets it:
//!
//! 1. [`framing`] takes frames off a TCP stream; [`Protocol`] says what a frame speaks;
//!    [`TransformHeader`] stands in front of an encrypted one; [`smb1`] reads the one SMB1 request
//!    that leads to SMB2.
//! 2. [`compound`] walks the PDUs of a frame. Each begins with a [`Header`], which names a
//!    [`Command`] and, in answers, an [`NtStatus`].
//! 3. Each command has a file with its request and its response: `parse` takes the whole PDU from
//!    its header, because offsets count from there; `emit` appends a body behind a header and
//!    cannot fail. READ and WRITE borrow their data where it lies. What holds no data is
//!    [`Empty`], what holds one buffer is [`OutputResponse`].
//! 4. [`create`] and [`negotiate`] carry contexts, [`info`] the information classes, [`fsctl`]
//!    control payloads, [`push`] our own extension.
//! 5. [`auth`] turns tokens into a user and a session key, [`crypto`] signs and seals with it.
//! 6. [`rpc`] is what clients speak on pipes to browse a server.
//! 7. A malformed message is a [`ParseError`], which knows the status to answer.
//!
//! Spec: MS-SMB2, MS-FSCC, MS-DTYP, MS-ERREF. Little-endian throughout, but for TCP framing.

#![forbid(unsafe_code)]

pub mod auth;
mod change_notify;
mod channel;
mod civil;
mod close;
mod command;
pub mod compound;
pub mod create;
pub mod crypto;
mod dtyp;
mod empty;
mod error;
mod flush;
pub mod frame_memory;
pub mod framing;
pub mod fsctl;
mod header;
pub mod info;
mod ioctl;
mod lock;
pub mod negotiate;
mod open_set;
mod oplock_break;
mod output;
mod parse_error;
mod protocol;
pub mod push;
mod query_directory;
mod query_info;
mod read;
pub mod rpc;
mod session_setup;
mod set_info;
pub mod smb1;
mod status;
mod symlink;
mod transform;
mod tree_connect;
mod wire;
mod write;

pub use change_notify::{ChangeNotifyRequest, NotifyAction, NotifyEntry};
pub use channel::Channel;
pub use civil::Civil;
pub use close::{CloseAttributes, CloseRequest, CloseResponse};
pub use command::Command;
pub use create::{CreateRequest, CreateResponse};
pub use dtyp::{FileTime, Guid, NAME_UNITS_MAX, Name, NameTooLong};
pub use empty::Empty;
pub use error::{ErrorContext, ErrorResponse};
pub use flush::FlushRequest;
pub use header::{
    AsyncId, FileId, Header, HeaderFlags, MessageId, Route, SessionId, TreeId, expect_direction,
};
pub use ioctl::{ControlCode, IoctlRequest, IoctlResponse};
pub use lock::{LOCKS_MAX, LockElement, LockFlags, LockRequest};
pub use negotiate::{NegotiateRequest, NegotiateResponse};
pub use oplock_break::{
    BreakAck, BreakNotification, LeaseBreakAck, LeaseBreakNotification, OplockBreak,
};
pub use output::OutputResponse;
pub use parse_error::{Field, ParseError};
pub use protocol::Protocol;
pub use query_directory::{QueryDirectoryFlags, QueryDirectoryRequest};
pub use query_info::QueryInfoRequest;
pub use read::{ReadFlags, ReadRequest, ReadResponse};
pub use session_setup::{SessionFlags, SessionSetupRequest, SessionSetupResponse};
pub use set_info::{SetInfoRequest, SetInfoResponse};
pub use status::NtStatus;
pub use symlink::SymlinkError;
pub use transform::TransformHeader;
pub use tree_connect::{
    ShareCapabilities, ShareFlags, ShareType, TreeConnectRequest, TreeConnectResponse,
};
pub use write::{WriteFlags, WriteRequest, WriteResponse};
