//! `landfast`: the one binary. Parses the command line, sets up logging, runs a command.

mod args;
mod bench;
mod config;
mod control;
mod demo;
mod failure;
mod files;
mod interrupt;
mod manual;
mod output;
mod passwd;
mod remote;
mod run_as;
mod serve;
mod start_hints;
mod status;
mod sweep;
mod words;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_logging(arguments.verbose);
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_silent() => ExitCode::from(failure.exit_status()),
        Err(failure) => {
            eprintln!("landfast: {failure}");
            if let Some(hint) = failure.hint() {
                eprintln!("  hint: {hint}");
            }
            ExitCode::from(failure.exit_status())
        }
    }
}

fn run(command: Command) -> Result<(), failure::Failure> {
    match command {
        Command::Serve(serve) => serve::run(&serve),
        Command::Ls(path) => files::list(&path),
        Command::Get(get) => files::get::run(&get),
        Command::Put(put) => files::put::run(&put),
        Command::Rm(path) => files::remove(&path),
        Command::Stat(path) => files::stat(&path),
        Command::Status(status) => status::run(&status),
        Command::Bench(bench) => bench::run(&bench),
        Command::BenchFiles(bench) => bench::files::run(&bench),
        Command::Demo(demo) => demo::run(&demo),
        Command::Floor(floor) => bench::floor::respond(&floor),
        Command::Passwd(passwd) => passwd::run(&passwd),
        Command::Sweep(sweep) => sweep::run(&sweep),
        Command::Completions(completions) => manual::completions(&completions),
        Command::Man(man) => manual::pages(&man),
    }
}

/// Logs go to standard error; `RUST_LOG` overrides `-v`.
fn start_logging(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colours = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    logs.with_writer(std::io::stderr).init();
}
