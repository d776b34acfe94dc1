//! SMB2 command codes.
//!
//! Spec: MS-SMB2 §2.2.1.2.

use crate::header::Header;
use crate::lock::LockRequest;
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

impl Command {
    /// The longest request of this kind that means anything, in bytes with its header: what its fields can reach.
    /// Receivers ignore what stands behind. `None` for those that carry data, whose length their fields say.
    pub const fn request_len_max(self) -> Option<usize> {
        let body = match self {
            Self::LOGOFF
            | Self::TREE_DISCONNECT
            | Self::CLOSE
            | Self::FLUSH
            | Self::CANCEL
            | Self::ECHO
            | Self::CHANGE_NOTIFY
            | Self::OPLOCK_BREAK => FIXED_MAX,
            Self::LOCK => LockRequest::LEN_MAX,
            Self::TREE_CONNECT | Self::READ | Self::QUERY_DIRECTORY | Self::QUERY_INFO => {
                return Some(REACH_MAX);
            }
            Self::CREATE => return Some(2 * REACH_MAX),
            _ => return None,
        };
        Some(Header::LEN + body)
    }
}

/// Longer than every body without a variable part.
const FIXED_MAX: usize = 64;
/// As far as an offset and a length of 16 bits reach. Contexts of a CREATE, which none of ours comes near, have twice that.
const REACH_MAX: usize = 2 * 65_535;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{FileId, MessageId};
    use crate::lock::{LOCKS_MAX, LockElement, LockFlags};

    #[test]
    fn the_longest_lock_request_is_as_long_as_its_bound_says() {
        let mut pdu = Vec::new();
        Header::request(Command::LOCK, MessageId(1)).emit(&mut pdu);
        let element = LockElement { offset: 0, length: 1, flags: LockFlags::SHARED };
        let locks = vec![element; LOCKS_MAX];
        LockRequest { lock_sequence: 0, file_id: FileId::RELATED, locks }.emit(&mut pdu);
        assert_eq!(Command::LOCK.request_len_max(), Some(pdu.len()));
        assert_eq!(Command::WRITE.request_len_max(), None);
    }
}
