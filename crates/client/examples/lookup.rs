//! Measures how long it takes to find a file of a large directory: by its exact name, by its name in
//! another case, and by a name that does not exist. `cargo xtask lookup` makes the directory and
//! runs this.
//!
//! ```sh
//! cargo run --release -p landfast-client --example lookup -- smb://USER:PASSWORD@HOST:PORT/SHARE large 100000
//! ```
//!
//! Files are named `File number N.dat`. Prints the median of each kind in microseconds.

use std::error::Error;
use std::time::Instant;

use client::blocking::Client;
use client::{ClientError, ConnectOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, directory, count] = arguments.as_slice() else {
        return Err("usage: lookup smb://USER:PASSWORD@HOST:PORT/SHARE DIRECTORY COUNT".into());
    };
    let count: usize = count.parse()?;
    let client = Client::connect(&url.parse()?, &ConnectOptions::default())?;
    // A stride that visits all parts of the directory.
    let numbers: Vec<usize> = (0..SAMPLES).map(|sample| sample * 7919 % count).collect();
    let first = Instant::now();
    let _ = client.stat(&format!("{directory}/FILE NUMBER 0.DAT"))?;
    println!("first_us {}", first.elapsed().as_micros());
    for (kind, name) in KINDS {
        let mut times = Vec::with_capacity(SAMPLES);
        for number in &numbers {
            let path = format!("{directory}/{}", name(*number));
            let begin = Instant::now();
            check(kind, client.stat(&path).map(drop))?;
            times.push(begin.elapsed().as_micros());
        }
        times.sort_unstable();
        println!("{kind}_us {}", times[times.len() / 2]);
    }
    Ok(())
}

fn check(kind: &str, found: Result<(), ClientError>) -> Result<(), Box<dyn Error>> {
    match (kind, found) {
        ("absent", Ok(())) => Err("found a file that is not there".into()),
        ("absent", Err(_)) => Ok(()),
        (_, found) => Ok(found?),
    }
}

type Named = fn(usize) -> String;

const KINDS: [(&str, Named); 3] = [
    ("spelled", |number| format!("File number {number}.dat")),
    ("cased", |number| format!("fILE NUMBER {number}.DAT")),
    ("absent", |number| format!("no file {number}.dat")),
];
const SAMPLES: usize = 300;
