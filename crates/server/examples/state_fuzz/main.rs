//! Clients that do anything to names, streams, locks and caches, to find states that a server must not get into.
//! `cargo xtask lockstep` and `cargo xtask caching` start it.
//!
//! ```text
//! state_fuzz together ADDRESS DIRECTORY --share S --user NAME:PASSWORD --seed N --seconds S --clients N
//! state_fuzz lockstep PART ADDRESS DIRECTORY --beside ADDRESS --beside-directory DIRECTORY
//!                     --differences FILE --share S --user NAME:PASSWORD --seed N --seconds S
//! ```
//!
//! Exit status 1 if there was any fault; each is a line that begins with `FAULT`, with what was done before below it.
#![expect(clippy::unwrap_used, reason = "what goes wrong ends the program, and is its result")]
#![allow(clippy::print_stdout, reason = "that is how it reports")]

mod actor;
mod books;
mod changes;
mod differences;
mod link;
mod listing;
mod lockstep;
mod plan;
#[path = "../../../model/src/bin/model/random.rs"]
#[allow(dead_code, reason = "each program uses its part")]
mod random;
mod side;
mod step;
#[path = "../../tests/support/mod.rs"]
mod support;
mod together;

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::link::Place;
use crate::plan::Part;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mode, options) = words.split_first().expect("a mode: see the source");
    let faults = match mode.as_str() {
        "together" => together::run(&together_options(options)),
        "lockstep" => lockstep::run(&lockstep_options(options)),
        mode => panic!("no such mode: {mode}"),
    };
    println!("{} faults", faults.len());
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn together_options(words: &[String]) -> together::Options {
    let [address, directory, options @ ..] = words else { panic!("ADDRESS DIRECTORY ...") };
    let options = Words::new(options);
    together::Options {
        address: address.parse().expect("an address"),
        directory: directory.into(),
        place: options.place(),
        clients: options.number("--clients"),
        seed: options.number("--seed"),
        seconds: options.number("--seconds"),
    }
}

fn lockstep_options(words: &[String]) -> lockstep::Options {
    let [part, address, directory, options @ ..] = words else { panic!("PART ADDRESS DIRECTORY") };
    let options = Words::new(options);
    let server =
        |address: &str, directory: &str| (address.parse().expect("an address"), directory.into());
    let beside = server(options.word("--beside"), options.word("--beside-directory"));
    lockstep::Options {
        part: match part.as_str() {
            "names" => Part::Names,
            "locks" => Part::Locks,
            "leases" => Part::Leases,
            part => panic!("no such part: {part}"),
        },
        servers: [server(address, directory), beside],
        differences: options.word("--differences").into(),
        place: options.place(),
        seed: options.number("--seed"),
        seconds: options.number("--seconds"),
    }
}

/// Options as pairs of words.
struct Words<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Words<'a> {
    fn new(words: &'a [String]) -> Self {
        Self(words.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect())
    }

    fn word(&self, name: &str) -> &'a str {
        self.0.get(name).copied().unwrap_or_else(|| panic!("{name} is missing: see the source"))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> T {
        self.word(name).parse().ok().unwrap_or_else(|| panic!("{name} takes a number"))
    }

    fn place(&self) -> Place {
        let (user, password) = self.word("--user").split_once(':').expect("NAME:PASSWORD");
        let [user, password] = [user, password].map(str::to_owned);
        Place { share: self.word("--share").to_owned(), user, password }
    }
}
