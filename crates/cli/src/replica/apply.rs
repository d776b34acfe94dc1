//! `landfast replica apply` and `set`: a running member takes another file of its group.
//!
//! ```text
//!   command   reads and checks the file          -- Apply{file} --> member   compares it with what it runs by,
//!             shows what came of each difference <-- changes --              and takes what may change now
//! ```

use serde_json::Value;

use super::args::{Apply, Of, Set};
use super::control::Asked;
use super::group::Group;
use super::{ReplicaFailure, ask, edit, show};
use crate::failure::Failure;
use crate::output;

/// Has a running member take what has changed in the file.
pub(super) fn run(options: &Apply) -> Result<(), Failure> {
    let group = Group::read(&options.asked.of.file)?;
    let wish = Asked::Apply {
        file: Box::new(group.file),
        dry_run: options.dry_run,
        others_have_it: options.others_have_it,
        keys: Vec::new(),
    };
    let (_, answer) = ask::ask(&options.asked.of, wish)?;
    match options.asked.json {
        true => output::say(&format!("{answer:#}\n"))?,
        false => output::say(&show::changes(&answer))?,
    }
    left(&answer, |_| true)
}

/// Changes keys of the file, and has the member that runs here take them.
pub(super) fn set(options: &Set) -> Result<(), Failure> {
    let _locked = Group::locked(&options.file)?;
    let group = Group::read(&options.file)?;
    let of = Of { file: options.file.clone(), at: options.at.clone() };
    let (member, keys) = match options.what.split_first() {
        Some((name, keys)) if !name.contains('=') => (Some(group.member(name)?), keys),
        _ => (None, &options.what[..]),
    };
    match (options.mode, member, keys) {
        (Some(mode), Some(member), []) => {
            ask::ask(&of, Asked::SetMode { member: member.number, mode: mode.into() })?;
            return Ok(());
        }
        (Some(_), ..) => {
            let why = "--mode is of one member, and of no other key: set FILE MEMBER --mode MODE";
            return Err(ReplicaFailure::Refused(why.to_owned()).into());
        }
        (None, _, []) => {
            let why = "say what to change: KEY=VALUE, or MEMBER and mode=VALUE";
            return Err(ReplicaFailure::Refused(why.to_owned()).into());
        }
        (None, ..) => {}
    }
    let path = &options.file;
    let failed = |source| ReplicaFailure::File { path: path.clone(), source };
    let before = std::fs::read_to_string(path).map_err(failed)?;
    let (mut text, mut names) = (before.clone(), Vec::new());
    for pair in keys {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(written("key", pair).into());
        };
        if key.trim().is_empty() {
            return Err(written("key", pair).into());
        }
        let name = member.map(|member| &*member.name);
        text = edit::with_key(&text, name, key, value).ok_or_else(|| ReplicaFailure::Group {
            path: path.clone(),
            why: format!("{key} is not changed here in one line: write it into the file, then `replica apply`"),
        })?;
        names.push(name.map_or_else(|| key.to_owned(), |name| format!("member {name}: {key}")));
    }
    let new = Group::of_text(path, &text)?;
    let wish = |dry_run| Asked::Apply {
        file: Box::new(new.file.clone()),
        dry_run,
        others_have_it: options.others_have_it,
        keys: names.clone(),
    };
    let is_ours = |key: &str| names.iter().any(|name| name == key);
    let runs = match ask::ask(&of, wish(true)) {
        Ok((_, answer)) => {
            // Nothing is written that the member would not take.
            let shown = left(&answer, is_ours);
            if shown.is_err() {
                output::say(&show::changes(&answer))?;
            }
            shown.map(|()| true)?
        }
        Err(ReplicaFailure::Nobody(_)) => false,
        Err(error) => return Err(error.into()),
    };
    if text != before {
        Group::write_text(path, &text, true)?;
    }
    let copied =
        format!("{} has it: every member needs the file, and `replica apply`", path.display());
    if !runs {
        return output::say(&format!("no member runs here\n{copied}\n"));
    }
    let (_, answer) = ask::ask(&of, wish(false))?;
    output::say(&format!("{}{copied}\n", show::changes(&answer)))?;
    left(&answer, is_ours)
}

fn written(what: &'static str, text: &str) -> ReplicaFailure {
    ReplicaFailure::Written { what, text: text.to_owned(), form: "KEY=VALUE, as in window=32M" }
}

/// An error if something of the file is not in force.
fn left(answer: &Value, is_meant: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let changes = answer["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_left = |change: &&Value| {
        let is_done = ["changed", "would-change"].iter().any(|it| change["outcome"] == *it);
        !is_done && is_meant(change["key"].as_str().unwrap_or_default())
    };
    let keys: Vec<&str> =
        changes.iter().filter(is_left).filter_map(|change| change["key"].as_str()).collect();
    match keys.is_empty() {
        true => Ok(()),
        false => Err(ReplicaFailure::NotInForce(keys.join(", ")).into()),
    }
}
