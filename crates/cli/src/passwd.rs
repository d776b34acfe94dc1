//! `landfast passwd`: accounts in a users file.
//!
//! At a terminal the password is asked for twice and not shown; a pipe gives it in one line.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use server::users::UsersFile;

use crate::args::Passwd;
use crate::failure::Failure;
use crate::files::off_thread;
use crate::interrupt::{self, Stops};

/// Sets a password or removes an account.
pub(crate) fn run(options: &Passwd) -> Result<(), Failure> {
    if options.remove {
        return Ok(UsersFile::change(&options.file, &options.user, None)?);
    }
    let set = |password: &str| Ok(UsersFile::change(&options.file, &options.user, Some(password))?);
    if !io::stdin().is_terminal() {
        return set(&given(line().map_err(Failure::system(READING))?)?);
    }
    interrupt::run(async |stops| set(&ask_twice(stops, &options.user).await?))
}

async fn ask_twice(stops: &mut Stops, user: &str) -> Result<String, Failure> {
    let _hidden = Hidden::begin().map_err(Failure::system("cannot hide what is typed"))?;
    let password = given(ask(stops, &format!("Password of {user}: ")).await?)?;
    match ask(stops, "The same again: ").await? == password {
        true => Ok(password),
        false => Err(refused("the two are not the same: nothing was changed")),
    }
}

async fn ask(stops: &mut Stops, prompt: &str) -> Result<String, Failure> {
    // A prompt that cannot be shown does no harm.
    let _ = write!(io::stderr(), "{prompt}");
    let _ = io::stderr().flush();
    let asked = stops.or(async { off_thread(line).await?.map_err(Failure::system(READING)) }).await;
    // The terminal did not show the end of the line either.
    let _ = writeln!(io::stderr());
    asked
}

fn line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let end = line.trim_end_matches(['\n', '\r']).len();
    line.truncate(end);
    Ok(line)
}

fn given(password: String) -> Result<String, Failure> {
    if password.is_empty() { Err(refused("an empty one is no password")) } else { Ok(password) }
}

fn refused(why: &'static str) -> Failure {
    Failure::ConfigValue { what: "password", value: String::new(), why }
}

/// A terminal that does not echo, until this value is dropped.
struct Hidden {
    before: Termios,
}

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // Input that was typed before the prompt is discarded: the terminal has shown it.
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self { before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

const READING: &str = "cannot read the password";
