//! `landfast status`: the state of a running server.

mod tables;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use server::Report;

use crate::args;
use crate::control::{self, Ask, Request, Response};
use crate::failure::Failure;
use crate::output;

/// Asks the server and prints its answer.
pub(crate) fn run(options: &args::Status) -> Result<(), Failure> {
    let path = match &options.control {
        Some(path) => path.clone(),
        None => control::only_socket()?,
    };
    let report = ask(&path, options.rows.unwrap_or(control::ROWS_DEFAULT))?;
    let text = if options.json {
        let mut text = serde_json::to_string_pretty(&report).expect("it came as JSON");
        text.push('\n');
        text
    } else {
        tables::all(&report)
    };
    output::say(&text)
}

fn ask(path: &PathBuf, rows_max: usize) -> Result<Report, Failure> {
    let failed = || Failure::local("cannot ask the server at", path);
    let mut stream = UnixStream::connect(path).map_err(failed())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
    let request = Request { landfast: control::VERSION, ask: Ask::Status, rows_max };
    let mut line = serde_json::to_vec(&request).expect("a number and a word are JSON");
    line.push(b'\n');
    stream.write_all(&line).map_err(failed())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(failed())?;
    read(path, &answer)
}

fn read(path: &Path, answer: &str) -> Result<Report, Failure> {
    let refused = |why: String| Failure::ControlAnswer { path: path.into(), why };
    let response: Response = serde_json::from_str(answer)
        .map_err(|error| refused(format!("what came is no answer: {error}")))?;
    match (response.status, response.error) {
        (Some(report), None) => Ok(report),
        (_, Some(error)) => Err(refused(error)),
        (None, None) => Err(refused("it said nothing".to_owned())),
    }
}

// A server that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_server_is_printed() {
        let answer = r#"{"landfast":2,"error":"version 1 is not known, 2 is"}"#;
        let error = read(Path::new("/x"), answer).unwrap_err();
        assert!(error.to_string().contains("version 1 is not known"), "{error}");
        read(Path::new("/x"), "").unwrap_err();
        read(Path::new("/x"), "{\"landfast\":1}").unwrap_err();
    }
}
