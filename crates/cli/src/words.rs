//! The meaning of a server's statuses, in words.
//!
//! Spec: MS-ERREF §2.3; the commands' own sections of MS-SMB2 say when each status is given.

use std::io::ErrorKind;

use client::{ClientError, ConnectionError, UrlError};
use smb::{Command, NtStatus};

/// An error as a sentence without a full stop. The name of the status follows, for searching.
pub(crate) fn of(error: &ClientError) -> String {
    match error {
        ClientError::PeerStatus { command, status } => match sentence(*command, *status) {
            Some(sentence) => format!("{sentence} ({status})"),
            None => format!("the server answered {command} with {status}"),
        },
        ClientError::Connection(ConnectionError::HostIo(kind)) => match kind {
            ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            ErrorKind::TimedOut => "no answer in time".to_owned(),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                "no way leads there".to_owned()
            }
            _ => error.to_string(),
        },
        _ => error.to_string(),
    }
}

/// The meaning of a status of a command.
fn sentence(command: Command, status: NtStatus) -> Option<&'static str> {
    Some(match (command, status) {
        (Command::TREE_CONNECT, NtStatus::ACCESS_DENIED) => "this account may not enter the share",
        (_, NtStatus::ACCESS_DENIED) => "the server does not allow it",
        (_, NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::NO_SUCH_FILE) => {
            "there is no such file or directory"
        }
        (_, NtStatus::OBJECT_PATH_NOT_FOUND) => "a directory on the way there does not exist",
        (_, NtStatus::OBJECT_NAME_INVALID | NtStatus::OBJECT_PATH_SYNTAX_BAD) => {
            "that cannot be a name on the server"
        }
        (_, NtStatus::NAME_TOO_LONG) => "the name is too long",
        (_, NtStatus::OBJECT_NAME_COLLISION) => "something of that name is there already",
        (_, NtStatus::BAD_NETWORK_NAME) => "the server has no share of that name",
        (_, NtStatus::NETWORK_NAME_DELETED) => "the server has taken the share away",
        (_, NtStatus::LOGON_FAILURE) => "the user's name or password is wrong",
        (_, NtStatus::ACCOUNT_LOCKED_OUT) => {
            "too many wrong passwords: the server has not looked at this one"
        }
        (
            _,
            NtStatus::ACCOUNT_DISABLED | NtStatus::ACCOUNT_RESTRICTION | NtStatus::PASSWORD_EXPIRED,
        ) => "the account may not log on now",
        (_, NtStatus::SMB_GUEST_LOGON_BLOCKED) => "the server takes no guests",
        (_, NtStatus::REQUEST_NOT_ACCEPTED) => "the server takes no more sessions",
        (_, NtStatus::NETWORK_SESSION_EXPIRED | NtStatus::USER_SESSION_DELETED) => {
            "the server has ended the session"
        }
        (_, NtStatus::FILE_CLOSED) => {
            "the server has closed it: the account or its share may have gone"
        }
        (_, NtStatus::SHARING_VIOLATION) => "another program has it open and does not share it",
        (_, NtStatus::FILE_LOCK_CONFLICT | NtStatus::LOCK_NOT_GRANTED) => {
            "another program has locked it"
        }
        (_, NtStatus::USER_MAPPED_FILE) => "another program has mapped it for push",
        (_, NtStatus::DELETE_PENDING) => "it is being removed, and others have it open still",
        (_, NtStatus::CANNOT_DELETE) => "it is marked read-only, or may not be removed",
        (_, NtStatus::DIRECTORY_NOT_EMPTY) => "the directory is not empty",
        (_, NtStatus::FILE_IS_A_DIRECTORY) => "it is a directory",
        (_, NtStatus::NOT_A_DIRECTORY) => "it, or a name on the way to it, is no directory",
        (_, NtStatus::STOPPED_ON_SYMLINK) => {
            "a symbolic link is on the way that the server does not follow"
        }
        (_, NtStatus::DISK_FULL) => "the server's disk is full",
        (_, NtStatus::FILE_TOO_LARGE) => "the server's file system has no files as large",
        (_, NtStatus::TOO_MANY_LINKS) => "the file has as many names as it can have",
        (_, NtStatus::MEDIA_WRITE_PROTECTED) => "the share is served for reading only",
        (_, NtStatus::IO_DEVICE_ERROR | NtStatus::DATA_ERROR) => "the server's disk has failed",
        (_, NtStatus::INSUFFICIENT_RESOURCES) => "the server is at one of its limits",
        (_, NtStatus::NOT_SUPPORTED | NtStatus::NOT_IMPLEMENTED) => "the server cannot do that",
        (_, NtStatus::SERVER_UNAVAILABLE) => "the server is stopping",
        (_, NtStatus::IO_TIMEOUT) => "the server gave up waiting",
        _ => return None,
    })
}

/// A hint for the person at the terminal.
pub(crate) fn hint(error: &ClientError) -> Option<&'static str> {
    Some(match error {
        ClientError::PeerStatus { command, status } => match (*command, *status) {
            (_, NtStatus::LOGON_FAILURE) => {
                "an account is named as in smb://USER:PASSWORD@HOST/SHARE, or the password in LANDFAST_PASSWORD; \
                 without a name only guests get in, where a share takes them"
            }
            (_, NtStatus::ACCOUNT_LOCKED_OUT) => "wait half a minute before the next try",
            (_, NtStatus::BAD_NETWORK_NAME) => {
                "shares are named when the server is started: --share NAME=PATH, or \"data\" for the \
                 directory without a name"
            }
            (Command::TREE_CONNECT, NtStatus::ACCESS_DENIED) => {
                "in the server's config, users and readers of the share say who may; a share that requires \
                 encryption takes nobody without"
            }
            (_, NtStatus::ACCESS_DENIED) => {
                "may the account write, and not only read? may the server's own user do it on its disk? is \
                 the file open somewhere (landfast status)?"
            }
            (_, NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND) => {
                "landfast ls shows what is there; directories are not made on the way"
            }
            (_, NtStatus::OBJECT_NAME_INVALID | NtStatus::OBJECT_PATH_SYNTAX_BAD) => {
                "a name has 255 bytes at most, none of < > : \" | ? * and no control character; .landfast-streams is the \
                 server's own"
            }
            (_, NtStatus::FILE_IS_A_DIRECTORY) => {
                "name a file in it; landfast ls shows what is there"
            }
            (
                _,
                NtStatus::SHARING_VIOLATION
                | NtStatus::USER_MAPPED_FILE
                | NtStatus::FILE_LOCK_CONFLICT,
            ) => "landfast status, where the server runs, shows who has it open",
            _ => return None,
        },
        ClientError::Connection(ConnectionError::HostIo(ErrorKind::ConnectionRefused)) => {
            "does the server run, and on that port? without one it is 445, where landfast serve takes 4450 \
             unless it is told another"
        }
        ClientError::Connection(ConnectionError::HostIo(ErrorKind::TimedOut)) => {
            "is that the right address, and does a firewall let the port through?"
        }
        ClientError::Connection(ConnectionError::HostName) => "is the host's name spelled right?",
        ClientError::ConfigUrl(error) => match error {
            UrlError::ConfigEscape => {
                "after a % two hex digits follow; write %25 for the sign itself"
            }
            UrlError::ConfigScheme | UrlError::ConfigHost | UrlError::ConfigShare => {
                "write smb://USER:PASSWORD@HOST:PORT/SHARE/PATH"
            }
            _ => {
                "in user and password write %3A for a colon, %40 for an @, %2F for a slash, %25 for a %"
            }
        },
        ClientError::ConfigSigning => {
            "the server knows no account of that name and took it for a guest: is the name spelled right?"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(command: Command, status: NtStatus) -> ClientError {
        ClientError::PeerStatus { command, status }
    }

    #[test]
    fn each_status_that_users_meet_has_a_sentence() {
        for (command, status, expected) in SENTENCES {
            assert_eq!(of(&answered(command, status)), format!("{expected} ({status})"));
        }
    }

    #[test]
    fn a_status_without_a_sentence_keeps_its_number() {
        let unknown = answered(Command::READ, NtStatus(0xc000_1234));
        assert_eq!(of(&unknown), "the server answered READ with NTSTATUS 0xc0001234");
        assert_eq!(hint(&unknown), None);
    }

    const SENTENCES: [(Command, NtStatus, &str); 19] = [
        (Command::CREATE, NtStatus::OBJECT_NAME_NOT_FOUND, "there is no such file or directory"),
        (
            Command::CREATE,
            NtStatus::OBJECT_PATH_NOT_FOUND,
            "a directory on the way there does not exist",
        ),
        (Command::CREATE, NtStatus::OBJECT_NAME_INVALID, "that cannot be a name on the server"),
        (
            Command::CREATE,
            NtStatus::OBJECT_NAME_COLLISION,
            "something of that name is there already",
        ),
        (Command::CREATE, NtStatus::ACCESS_DENIED, "the server does not allow it"),
        (
            Command::CREATE,
            NtStatus::SHARING_VIOLATION,
            "another program has it open and does not share it",
        ),
        (Command::CREATE, NtStatus::FILE_IS_A_DIRECTORY, "it is a directory"),
        (
            Command::CREATE,
            NtStatus::NOT_A_DIRECTORY,
            "it, or a name on the way to it, is no directory",
        ),
        (
            Command::CREATE,
            NtStatus::DELETE_PENDING,
            "it is being removed, and others have it open still",
        ),
        (Command::TREE_CONNECT, NtStatus::ACCESS_DENIED, "this account may not enter the share"),
        (Command::TREE_CONNECT, NtStatus::BAD_NETWORK_NAME, "the server has no share of that name"),
        (Command::SESSION_SETUP, NtStatus::LOGON_FAILURE, "the user's name or password is wrong"),
        (
            Command::SESSION_SETUP,
            NtStatus::ACCOUNT_LOCKED_OUT,
            "too many wrong passwords: the server has not looked at this one",
        ),
        (Command::WRITE, NtStatus::DISK_FULL, "the server's disk is full"),
        (Command::WRITE, NtStatus::FILE_LOCK_CONFLICT, "another program has locked it"),
        (Command::FLUSH, NtStatus::IO_DEVICE_ERROR, "the server's disk has failed"),
        (Command::SET_INFO, NtStatus::DIRECTORY_NOT_EMPTY, "the directory is not empty"),
        (
            Command::SET_INFO,
            NtStatus::CANNOT_DELETE,
            "it is marked read-only, or may not be removed",
        ),
        (
            Command::SET_INFO,
            NtStatus::MEDIA_WRITE_PROTECTED,
            "the share is served for reading only",
        ),
    ];
}
