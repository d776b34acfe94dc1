//! Configuration files, and the user that `run_as` names in them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// A file that its owner alone may read.
pub(crate) fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// A configuration with the share `data`, and users with the password `secret`.
pub(crate) fn config(share: &Path, users: &[&str], more: &str) -> String {
    let mut text = format!("{more}\n[[share]]\nname = \"data\"\npath = \"{}\"\n", share.display());
    for user in users {
        text.push_str(&format!("[[user]]\nname = \"{user}\"\npassword = \"secret\"\n"));
    }
    text
}

/// The user `nobody` on Debian.
pub(crate) const USER: u32 = 65_534;
/// Its group.
pub(crate) const GROUP: u32 = 65_534;
