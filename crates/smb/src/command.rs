//! SMB2 command codes.
//!
//! Spec: MS-SMB2 §2.2.1.2.

use crate::open_set::open_set;

open_set! {
    /// A command code; unknown ones survive.
    pub struct Command(u16) {
        /// Agree on dialect and capabilities.
        NEGOTIATE = 0x00,
        /// Authenticate.
        SESSION_SETUP = 0x01,
        /// End a session.
        LOGOFF = 0x02,
        /// Enter a share.
        TREE_CONNECT = 0x03,
        /// Leave a share.
        TREE_DISCONNECT = 0x04,
        /// Open or create a file.
        CREATE = 0x05,
        /// Close an open.
        CLOSE = 0x06,
        /// Make written data durable.
        FLUSH = 0x07,
        /// Read.
        READ = 0x08,
        /// Write.
        WRITE = 0x09,
        /// Lock or unlock byte ranges.
        LOCK = 0x0a,
        /// Control code.
        IOCTL = 0x0b,
        /// Give up on an earlier request.
        CANCEL = 0x0c,
        /// Is the server there?
        ECHO = 0x0d,
        /// List a directory.
        QUERY_DIRECTORY = 0x0e,
        /// Wait for changes of a directory.
        CHANGE_NOTIFY = 0x0f,
        /// Read metadata.
        QUERY_INFO = 0x10,
        /// Change metadata.
        SET_INFO = 0x11,
        /// Break of an oplock or lease, and its acknowledgement.
        OPLOCK_BREAK = 0x12,
        /// A notification from the server.
        SERVER_TO_CLIENT_NOTIFICATION = 0x13,
    }
}
