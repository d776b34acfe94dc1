//! Who may do what: every command, disposition, option, information class and control code, with each bit of an
//! access mask, for everybody, on every kind of share, against a table typed from the specifications.
//!
//! ```text
//!  people   who there is, and what each is granted at CREATE
//!  row      something to ask of an open: the rights it takes, and what changes on the disk
//!  table    all rows
//!  creates  CREATE itself: dispositions, options, what is there already
//!  bench    tries cell after cell
//!  disk     what lies on the disk, before and after
//! ```
//!
//! In a cell that says no nothing may change on the disk, whatever the answer is. In a cell that says yes it has to
//! happen, and nothing else: else a table of noes would do.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod creates;
mod crossing;
mod disk;
mod findings;
mod people;
mod row;
mod site;
mod table;

use std::thread;

use crate::bench::Bench;
use crate::findings::Findings;
use crate::people::{Column, Share};
use crate::site::Site;

#[test]
fn everybody_may_do_what_the_table_of_opens_says_and_nothing_else() {
    let site = Site::found();
    let rows = table::rows();
    let columns = Column::of_handles();
    let findings = in_every_share(&site, |bench| {
        for row in &rows {
            bench.try_row(row, if row.is_brief { Column::BRIEF } else { &columns });
        }
    });
    conclude(&site, &findings, false);
}

#[test]
fn everybody_opens_and_makes_what_the_table_of_creates_says() {
    let site = Site::found();
    conclude(&site, &in_every_share(&site, creates::try_all), true);
}

// The shares have directories of their own, and do not disturb each other.
fn in_every_share(site: &Site, work: impl Fn(&mut Bench<'_>) + Sync) -> Findings {
    let mut findings = Findings::default();
    thread::scope(|scope| {
        let one = |share| {
            let work = &work;
            scope.spawn(move || {
                let mut bench = Bench::new(site, share);
                work(&mut bench);
                bench.release();
                std::mem::take(&mut bench.findings)
            })
        };
        for thread in Share::ALL.map(one) {
            findings.merge(thread.join().expect("every cell can be set up"));
        }
    });
    findings
}

fn conclude(site: &Site, findings: &Findings, of_creates: bool) {
    println!("{} cells, {} of which say yes", findings.cells, findings.yes);
    let wrong = findings.unexplained(site.differences.as_deref(), of_creates);
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
