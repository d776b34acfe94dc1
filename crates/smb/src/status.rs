//! NTSTATUS values: what the header of every response carries.
//!
//! ```text
//!  31 30  29  28 27          16 15                 0
//!  +-----+---+---+-------------+--------------------+
//!  | sev | C | N | facility    | code               |
//!  +-----+---+---+-------------+--------------------+
//! ```
//!
//! Spec: MS-ERREF §2.3.

use std::fmt;

/// A status code; values we have no name for survive and print as hex.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct NtStatus(pub u32);

impl NtStatus {
    /// Severity success or informational: the operation did what it says.
    pub const fn is_success(self) -> bool {
        self.0 >> 30 <= 1
    }

    /// Severity error.
    pub const fn is_error(self) -> bool {
        self.0 >> 30 == 3
    }

    /// Severity warning: a partial result comes with it, as with `BUFFER_OVERFLOW`.
    pub const fn is_warning(self) -> bool {
        self.0 >> 30 == 2
    }
}

/// Declares the constants and [`NtStatus::name`] from one list.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        impl NtStatus {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name the specification gives it, without `STATUS_`, if it is one of ours.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// The operation is done.
    SUCCESS = 0x0000_0000,
    /// The answer will come later, under an async id.
    PENDING = 0x0000_0103,
    /// Some of the names or SIDs are known, some are not.
    SOME_NOT_MAPPED = 0x0000_0107,
    /// Changes happened that no longer fit the notify buffer.
    NOTIFY_ENUM_DIR = 0x0000_010c,
    /// Some of the pipe data was left unread.
    BUFFER_OVERFLOW = 0x8000_0005,
    /// The directory holds no further matching entry.
    NO_MORE_FILES = 0x8000_0006,
    /// A symbolic link stands in the path.
    STOPPED_ON_SYMLINK = 0x8000_002d,
    /// The extended attribute list is wrong.
    EA_LIST_INCONSISTENT = 0x8000_0014,
    /// An extended attribute name is wrong.
    INVALID_EA_NAME = 0x8000_0013,
    /// No further entries.
    NO_MORE_ENTRIES = 0x8000_001a,
    /// It failed and nothing more precise is known.
    UNSUCCESSFUL = 0xc000_0001,
    /// The command is not there.
    NOT_IMPLEMENTED = 0xc000_0002,
    /// The information class is not there.
    INVALID_INFO_CLASS = 0xc000_0003,
    /// The buffer given has not the length of the class.
    INFO_LENGTH_MISMATCH = 0xc000_0004,
    /// The handle does not exist.
    INVALID_HANDLE = 0xc000_0008,
    /// A parameter is wrong.
    INVALID_PARAMETER = 0xc000_000d,
    /// A range reaches behind the end of what it is taken from.
    INVALID_VIEW_SIZE = 0xc000_001f,
    /// The device does not exist.
    NO_SUCH_DEVICE = 0xc000_000e,
    /// The file does not exist.
    NO_SUCH_FILE = 0xc000_000f,
    /// The request makes no sense for this object.
    INVALID_DEVICE_REQUEST = 0xc000_0010,
    /// Reading began at or behind the end.
    END_OF_FILE = 0xc000_0011,
    /// More legs of the exchange are needed.
    MORE_PROCESSING_REQUIRED = 0xc000_0016,
    /// The right to do so was not granted.
    ACCESS_DENIED = 0xc000_0022,
    /// The buffer cannot hold even the fixed part.
    BUFFER_TOO_SMALL = 0xc000_0023,
    /// The object is of another kind.
    OBJECT_TYPE_MISMATCH = 0xc000_0024,
    /// The name is malformed.
    OBJECT_NAME_INVALID = 0xc000_0033,
    /// The last component does not exist.
    OBJECT_NAME_NOT_FOUND = 0xc000_0034,
    /// The name exists already.
    OBJECT_NAME_COLLISION = 0xc000_0035,
    /// A component before the last does not exist.
    OBJECT_PATH_NOT_FOUND = 0xc000_003a,
    /// The path is malformed.
    OBJECT_PATH_SYNTAX_BAD = 0xc000_003b,
    /// Data was lost or is wrong.
    DATA_ERROR = 0xc000_003e,
    /// Another open excludes this one.
    SHARING_VIOLATION = 0xc000_0043,
    /// The file has no extended attributes.
    EAS_NOT_SUPPORTED = 0xc000_004f,
    /// The extended attributes do not fit.
    EA_TOO_LARGE = 0xc000_0050,
    /// No extended attribute of that name.
    NONEXISTENT_EA_ENTRY = 0xc000_0051,
    /// No further extended attributes.
    NO_MORE_EAS = 0x8000_0012,
    /// No extended attributes on this file.
    NO_EAS_ON_FILE = 0xc000_0052,
    /// A byte range lock stands in the way of reading or writing.
    FILE_LOCK_CONFLICT = 0xc000_0054,
    /// A byte range lock cannot be had.
    LOCK_NOT_GRANTED = 0xc000_0055,
    /// The file is being deleted.
    DELETE_PENDING = 0xc000_0056,
    /// The revision is unknown.
    REVISION_MISMATCH = 0xc000_0059,
    /// Nobody this server knows can own a file under that identity.
    INVALID_OWNER = 0xc000_005a,
    /// The same of a group.
    INVALID_PRIMARY_GROUP = 0xc000_005b,
    /// A privilege is missing.
    PRIVILEGE_NOT_HELD = 0xc000_0061,
    /// No such user.
    NO_SUCH_USER = 0xc000_0064,
    /// User name or password is wrong.
    LOGON_FAILURE = 0xc000_006d,
    /// The account may not log on now.
    ACCOUNT_RESTRICTION = 0xc000_006e,
    /// The account is disabled.
    ACCOUNT_DISABLED = 0xc000_0072,
    /// None of the names or SIDs is known.
    NONE_MAPPED = 0xc000_0073,
    /// A security identifier is malformed.
    INVALID_SID = 0xc000_0078,
    /// A security descriptor is malformed.
    INVALID_SECURITY_DESCR = 0xc000_0079,
    /// No lock is held on that range.
    RANGE_NOT_LOCKED = 0xc000_007e,
    /// The disk is full.
    DISK_FULL = 0xc000_007f,
    /// A quota or a table is full.
    INSUFFICIENT_RESOURCES = 0xc000_009a,
    /// The impersonation level does not exist.
    BAD_IMPERSONATION_LEVEL = 0xc000_00a5,
    /// The two clocks are too far apart.
    TIME_DIFFERENCE_AT_DC = 0xc000_0133,
    /// The object is not in a state for this.
    INVALID_DEVICE_STATE = 0xc000_0184,
    /// A driver that is not there would be needed: no DFS.
    FS_DRIVER_REQUIRED = 0xc000_019c,
    /// The medium cannot be written.
    MEDIA_WRITE_PROTECTED = 0xc000_00a2,
    /// The pipe cannot be had now.
    PIPE_NOT_AVAILABLE = 0xc000_00ac,
    /// The pipe is in the wrong state.
    INVALID_PIPE_STATE = 0xc000_00ad,
    /// The far end of the pipe is gone.
    PIPE_DISCONNECTED = 0xc000_00b0,
    /// Nothing is in the pipe.
    PIPE_EMPTY = 0xc000_00d9,
    /// The wait is over and nothing came.
    IO_TIMEOUT = 0xc000_00b5,
    /// A directory was found where a file was wanted.
    FILE_IS_A_DIRECTORY = 0xc000_00ba,
    /// The request is known and not served here.
    NOT_SUPPORTED = 0xc000_00bb,
    /// A network name was deleted.
    NETWORK_NAME_DELETED = 0xc000_00c9,
    /// Access to the network resource is refused.
    NETWORK_ACCESS_DENIED = 0xc000_00ca,
    /// No share of that name.
    BAD_NETWORK_NAME = 0xc000_00cc,
    /// No further session is accepted.
    REQUEST_NOT_ACCEPTED = 0xc000_00d0,
    /// Two files of different volumes.
    NOT_SAME_DEVICE = 0xc000_00d4,
    /// The file was renamed away.
    FILE_RENAMED = 0xc000_00d5,
    /// The oplock cannot be had.
    OPLOCK_NOT_GRANTED = 0xc000_00e2,
    /// The acknowledgement answers no break.
    INVALID_OPLOCK_PROTOCOL = 0xc000_00e3,
    /// Something went wrong inside.
    INTERNAL_ERROR = 0xc000_00e5,
    /// The directory is not empty.
    DIRECTORY_NOT_EMPTY = 0xc000_0101,
    /// The component is not a directory.
    NOT_A_DIRECTORY = 0xc000_0103,
    /// A name of the process is too long.
    NAME_TOO_LONG = 0xc000_0106,
    /// Opens remain on the share.
    FILES_OPEN = 0xc000_0107,
    /// The request was cancelled.
    CANCELLED = 0xc000_0120,
    /// The file cannot be deleted.
    CANNOT_DELETE = 0xc000_0121,
    /// The file was deleted.
    FILE_DELETED = 0xc000_0123,
    /// The handle is closed.
    FILE_CLOSED = 0xc000_0128,
    /// The file system is full of links to this file.
    TOO_MANY_LINKS = 0xc000_0265,
    /// The DFS path is not ours.
    PATH_NOT_COVERED = 0xc000_0257,
    /// No such entry.
    NOT_FOUND = 0xc000_0225,
    /// A later instance of the application has the file now.
    FILE_FORCED_CLOSED = 0xc000_00b6,
    /// The create GUID is taken.
    DUPLICATE_OBJECTID = 0xc000_022a,
    /// The session is gone.
    USER_SESSION_DELETED = 0xc000_0203,
    /// The connection is gone.
    CONNECTION_DISCONNECTED = 0xc000_020c,
    /// The connection was reset.
    CONNECTION_RESET = 0xc000_020d,
    /// Try again.
    RETRY = 0xc000_022d,
    /// Not a reparse point.
    NOT_A_REPARSE_POINT = 0xc000_0275,
    /// The reparse tag is not understood.
    IO_REPARSE_TAG_NOT_HANDLED = 0xc000_0279,
    /// A mapping of the file stands in the way.
    USER_MAPPED_FILE = 0xc000_0243,
    /// The session ran out.
    NETWORK_SESSION_EXPIRED = 0xc000_035c,
    /// The file is not available now.
    FILE_NOT_AVAILABLE = 0xc000_0467,
    /// The share is going away or offline.
    SHARE_UNAVAILABLE = 0xc000_0480,
    /// A hash was asked for that is not there.
    HASH_NOT_SUPPORTED = 0xc000_a100,
    /// No algorithm in common.
    SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xc05d_0000,
    /// The client must use another dialect.
    SMB_BAD_CLUSTER_DIALECT = 0xc05d_0001,
    /// The account is locked after too many attempts.
    ACCOUNT_LOCKED_OUT = 0xc000_0234,
    /// The user's password ran out.
    PASSWORD_EXPIRED = 0xc000_0071,
    /// The medium could not be read or written.
    IO_DEVICE_ERROR = 0xc000_0185,
    /// The file is too large for the file system.
    FILE_TOO_LARGE = 0xc000_0904,
    /// A guest logon meets a policy against it.
    SMB_GUEST_LOGON_BLOCKED = 0xc05d_0002,
    /// The range to lock wraps around.
    INVALID_LOCK_RANGE = 0xc000_01a1,
    /// The request does not belong here: a connection that agreed on other algorithms.
    REQUEST_OUT_OF_SEQUENCE = 0xc000_042a,
    /// The server was told to stop.
    SERVER_UNAVAILABLE = 0xc000_0466,
}

impl fmt::Display for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "STATUS_{name}"),
            None => write!(f, "NTSTATUS {:#010x}", self.0),
        }
    }
}

impl fmt::Debug for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_warning_and_error_statuses_are_distinguished() {
        assert!(NtStatus::SUCCESS.is_success());
        assert!(NtStatus::PENDING.is_success());
        assert!(NtStatus::BUFFER_OVERFLOW.is_warning());
        assert!(!NtStatus::BUFFER_OVERFLOW.is_success());
        assert!(NtStatus::ACCESS_DENIED.is_error());
    }

    #[test]
    fn unknown_values_survive_and_print_as_hex() {
        assert_eq!(NtStatus(0xdead_0001).to_string(), "NTSTATUS 0xdead0001");
        assert_eq!(format!("{:?}", NtStatus::END_OF_FILE), "STATUS_END_OF_FILE");
    }
}
