//! Names in a directory of 100,000, found ignoring case: ours beside smbd, the same client.
//!
//! Linux compares names byte by byte, so a server that is asked in another case has to know all of
//! them or read all of them.

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::peer::{Against, Peer};
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask lookup`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Names in the directory.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) names: usize,
    /// Fail if a name in another case costs more than so many times one as it is spelled.
    #[arg(long)]
    pub(crate) assert: Option<f64>,
}

/// Makes the directory, asks both servers, prints both.
pub(crate) fn run(options: &Options) -> Outcome {
    let scratch = workspace::scratch()?;
    let directory = scratch.path().join(DIRECTORY);
    std::fs::create_dir(&directory).map_err(Failure::io("creating", &directory))?;
    for number in 0..options.names {
        let path = directory.join(format!("File number {number}.dat"));
        std::fs::write(&path, []).map_err(Failure::io("creating", &path))?;
    }
    workspace::build_of(["--example", "lookup"]).run()?;
    let mut tally = Tally::default();
    println!("\n  microseconds, the middle of 300:");
    println!("  {:<10} {:>8} {:>8} {:>8} {:>8}", "", "first", "spelled", "cased", "absent");
    for against in [Against::Landfast, Against::Smbd] {
        if against == Against::Smbd && !workspace::is_root() {
            tally.skipped.push("smbd starts as root only".to_owned());
            continue;
        }
        let peer = Peer::start(against, scratch.path())?;
        let [first, spelled, cased, absent] = ask(&peer, options.names)?;
        println!("  {against:<10?} {first:>8} {spelled:>8} {cased:>8} {absent:>8}");
        if against == Against::Landfast {
            let ratio = cased / spelled.max(1.0);
            tally.note = format!("another case costs {ratio:.2} times the right one");
            let within = options.assert.is_none_or(|most| ratio <= most);
            tally.count("lookup", if within { Ok(()) } else { Err(tally.note.clone()) });
        }
    }
    Ok(tally)
}

fn ask(peer: &Peer, names: usize) -> Result<[f64; 4], Failure> {
    let output = Step::new(workspace::target().join("release/examples/lookup"))
        .args([peer.address().url(""), DIRECTORY.to_owned(), names.to_string()])
        .quiet()
        .output()?;
    let number = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok())
            .ok_or_else(|| Failure::new(format!("the lookup did not say {name}: {output}")))
    };
    Ok([number("first_us")?, number("spelled_us")?, number("cased_us")?, number("absent_us")?])
}

const DIRECTORY: &str = "large";
