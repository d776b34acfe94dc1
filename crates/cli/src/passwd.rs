//! `landfast passwd`: accounts in a users file.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use server::users::UsersFile;

use crate::args::Passwd;
use crate::failure::Failure;

/// Sets a password, read from standard input, or removes an account.
pub(crate) fn run(options: &Passwd) -> Result<(), Failure> {
    if options.remove {
        return Ok(UsersFile::change(&options.file, &options.user, None)?);
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        eprint!("Password of {} (it is shown as you type): ", options.user);
        // A prompt that cannot be shown is not missed.
        let _ = std::io::stderr().flush();
    }
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(Failure::system("cannot read the password"))?;
    let password = line.strip_suffix('\n').unwrap_or(&line);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        let (value, why) = (String::new(), "write it to standard input, on one line");
        return Err(Failure::ConfigValue { what: "password", value, why });
    }
    Ok(UsersFile::change(&options.file, &options.user, Some(password))?)
}
