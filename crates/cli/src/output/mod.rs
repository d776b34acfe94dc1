//! Standard output, whose reader may have gone: `landfast ls ... | head -1`; and whether there is a standard input.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::closed;
use crate::failure::Failure;

/// Writes text as it is.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes what a command says that serves others, and goes on whether somebody hears it or not: the terminal or the reader of a
/// pipe may be gone, a disk full. A pipe that is full, as nobody reads it, is not waited for.
pub(crate) fn tell(text: &str) {
    let mut out = io::stdout().lock();
    let mut room = [PollFd::new(&out, PollFlags::OUT)];
    let looked = poll(&mut room, Some(&Timespec::default()));
    let [room] = room.map(|it| it.revents());
    if looked.is_ok() && room.contains(PollFlags::OUT) {
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Writes what a command that waits says of its progress, if somebody hears it.
pub(crate) fn note(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Refuses to start a command whose output nobody can get.
///
/// # Errors
/// The program was started without standard output.
pub(crate) fn check() -> Result<(), Failure> {
    if closed::is_output_closed() {
        return Err(Failure::Output(Errno::BADF.into()));
    }
    Ok(())
}

/// Refuses to read a standard input that is not there, and would read as an empty one.
///
/// # Errors
/// The program was started without standard input.
pub(crate) fn check_input() -> Result<(), Failure> {
    match closed::is_input_closed() {
        true => Err(Failure::system("cannot read standard input")(Errno::BADF.into())),
        false => Ok(()),
    }
}

/// Refuses a path such as `/dev/stdin` that stands for an input or output that is not there: it would read as empty, and what is
/// written to it would be nowhere.
///
/// # Errors
/// The program was started without it.
pub(crate) fn check_path(action: &'static str, path: &Path) -> Result<(), Failure> {
    match closed::is_closed(path) {
        true => Err(Failure::local(action, path)(Errno::BADF.into())),
        false => Ok(()),
    }
}

/// Text of others in one line: signs that move the cursor, change the terminal, begin a line or turn the direction
/// of writing are shown as `\u{1b}`. No name on a share holds a backslash.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unshown) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(2 * text.len());
    for sign in text.chars() {
        match is_unshown(sign) {
            true => out.extend(sign.escape_default()),
            false => out.push(sign),
        }
    }
    Cow::Owned(out)
}

/// C0 and C1 controls, separators of lines and paragraphs, and the controls of UAX #9 and its invisible kin.
fn is_unshown(sign: char) -> bool {
    sign.is_control()
        || matches!(sign, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(sign, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
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
    fn a_name_of_a_server_reaches_the_terminal_as_one_plain_line() {
        for (text, expected) in [
            ("grün 漢字.txt", "grün 漢字.txt"),
            ("a\u{1b}]0;x\u{7}\r\nd 0 forged", "a\\u{1b}]0;x\\u{7}\\r\\nd 0 forged"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("exe\u{202e}txt\u{2028}\u{feff}", "exe\\u{202e}txt\\u{2028}\\u{feff}"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn passwords_of_urls_are_removed_from_text() {
        let text = "unexpected 'smb://alice:p@ss:x@h:1/d' and smb://bob@h/d, smb://h:445/d";
        let shown = "unexpected 'smb://alice@h:1/d' and smb://bob@h/d, smb://h:445/d";
        assert_eq!(without_passwords(text), shown);
    }
}
