//! Standard output, whose reader may have gone: `landfast ls ... | head -1`.

mod closed;

use std::io::{self, Write as _};

use crate::failure::Failure;

/// Writes text as it is.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Refuses to start a command whose output nobody can get.
///
/// # Errors
/// The program was started without standard output.
pub(crate) fn check() -> Result<(), Failure> {
    if closed::was_closed() {
        return Err(Failure::Output(rustix::io::Errno::BADF.into()));
    }
    Ok(())
}

/// The same text without the passwords of URLs in it.
pub(crate) fn without_passwords(text: &str) -> String {
    let mut parts = text.split(SCHEME);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(SCHEME);
        let end = part.find(|c: char| c.is_whitespace()).unwrap_or(part.len());
        let authority = part[..end].rfind('@').map(|at| &part[..at]);
        match authority.and_then(|authority| authority.split_once(':')) {
            Some((user, password)) => {
                out.push_str(user);
                out.push_str(&part[user.len() + 1 + password.len()..]);
            }
            None => out.push_str(part),
        }
    }
    out
}

const SCHEME: &str = "smb://";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_urls_are_removed_from_text() {
        let text = "unexpected 'smb://alice:p@ss:x@h:1/d' and smb://bob@h/d, smb://h:445/d";
        let shown = "unexpected 'smb://alice@h:1/d' and smb://bob@h/d, smb://h:445/d";
        assert_eq!(without_passwords(text), shown);
    }
}
