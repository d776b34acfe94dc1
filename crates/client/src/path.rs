//! Paths as callers write them, in the two forms of the protocol.

use smb::Name;

use crate::error::ClientError;

/// A path in SMB form: backslashes, none in front.
pub(crate) fn share_path(path: &str) -> Result<Name, ClientError> {
    Ok(Name::new(path.replace('/', "\\").trim_matches('\\'))?)
}

/// A path in POSIX form: slashes, none in front.
pub(crate) fn posix_path(path: &str) -> Result<Name, ClientError> {
    Ok(Name::new(path.replace('\\', "/").trim_matches('/'))?)
}
