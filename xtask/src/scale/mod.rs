//! How a store of many servers scales: a discrete-event model on measured costs, which says what saturates first.
//!
//! ```text
//!   client core -> client NIC -> uplinks -> server NIC -> engine -> flash, on a miss
//!        ^                                                             |
//!        +------ client NIC <- uplinks <- server NIC <-----------------+
//! ```
//!
//! Each box is a station that serves one operation after the other (an engine and a flash device several at once). A
//! client keeps a fixed number of operations on their way. No cost is of the model's making: `docs/scale-costs.json` has
//! them, each with where it was measured or who states it.

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of engines is small and above 0"
)]
mod costs;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a model in nanoseconds: never negative, and far below the bounds"
)]
mod events;
mod page;
mod work;

use std::fs;

use clap::Args;

use self::costs::Costs;
use self::page::Row;
use self::work::WORK;
use crate::failure::{Failure, Outcome, Tally};
use crate::workspace;

/// Options of `cargo xtask scale`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Servers, and as many clients; may be given several times [default: 10, 30, 100, 300, 1000]
    #[arg(long)]
    servers: Vec<u32>,
    /// Operations of each client
    #[arg(long, default_value_t = 2000)]
    operations: u64,
    /// A network whose racks of 40 have this fraction of their links' bandwidth to other racks
    #[arg(long, default_value_t = 0.5)]
    uplinks: f64,
    /// Write the plot and the table of docs/scale.md again
    #[arg(long)]
    update: bool,
}

/// Plays all kinds of work at all sizes, and prints what they reach and what holds them.
pub(crate) fn run(options: &Options) -> Outcome {
    let costs = Costs::read(&workspace::root().join(COSTS))?;
    let sizes = match &options.servers[..] {
        [] => &SIZES[..],
        asked => asked,
    };
    let mut rows = Vec::new();
    println!("{}", page::HEAD);
    for work in &WORK {
        for servers in sizes {
            let found = events::play(&costs, work, *servers, options.operations, options.uplinks);
            let row = Row { work, servers: *servers, found };
            println!("{}", page::line(&row));
            rows.push(row);
        }
    }
    if options.update {
        let root = workspace::root();
        let plot = root.join(PLOT);
        fs::write(&plot, page::plot(&rows)).map_err(Failure::io("writing", &plot))?;
        let document = root.join(DOCUMENT);
        let text = fs::read_to_string(&document).map_err(Failure::io("reading", &document))?;
        let text = page::with_table(&text, &rows)
            .ok_or_else(|| Failure::new(format!("{DOCUMENT} has no place for the table")))?;
        fs::write(&document, text).map_err(Failure::io("writing", &document))?;
    }
    Ok(Tally::passed(format!("{} runs", rows.len())))
}

const SIZES: [u32; 5] = [10, 30, 100, 300, 1000];
const COSTS: &str = "docs/scale-costs.json";
const PLOT: &str = "docs/scale.svg";
const DOCUMENT: &str = "docs/scale.md";
