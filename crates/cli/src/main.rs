//! `landfast`: the one binary. Parses the command line, sets up logging, runs a command.

mod args;
mod bench;
mod bench_local;
mod closed;
mod config;
mod control;
mod demo;
mod diagnose;
mod failure;
mod files;
mod interrupt;
mod logging;
mod manual;
mod metrics;
mod notify;
mod output;
mod passwd;
mod poll;
mod remote;
mod replica;
mod run_as;
mod serve;
mod size;
mod start_hints;
mod status;
mod store;
mod sweep;
mod volume;
mod words;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};

fn main() -> ExitCode {
    demo::end_with_parent();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    logging::start(arguments.verbose);
    interrupt::outlive_file_size_limit();
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_silent() => ExitCode::from(failure.exit_status()),
        Err(failure) => {
            files::clear_progress();
            // Without a standard error nobody reads the message; the exit status reports the
            // failure.
            let _ = writeln!(io::stderr(), "landfast: {failure}");
            if let Some(hint) = failure.hint() {
                let _ = writeln!(io::stderr(), "  hint: {hint}");
            }
            ExitCode::from(failure.exit_status())
        }
    }
}

// clap repeats what was typed, and a URL in the wrong place may hold a password.
fn refuse(error: &clap::Error) -> ExitCode {
    // Help that was asked for repeats nothing that was typed.
    if !error.use_stderr() {
        return match error.print().and_then(|()| io::stdout().flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let text = error.render().to_string();
    let shown = output::without_passwords(&text);
    if shown == text {
        error.exit();
    }
    let _ = write!(io::stderr(), "{shown}");
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(command: Command) -> Result<(), failure::Failure> {
    if command.is_for_its_output() {
        output::check()?;
    }
    match command {
        Command::Serve(serve) => serve::run(&serve),
        Command::Ls(path) => files::list(&path),
        Command::Get(get) => files::get::run(&get),
        Command::Put(put) => files::put::run(&put),
        Command::Rm(path) => files::remove(&path),
        Command::Stat(path) => files::stat(&path),
        Command::Status(status) => status::run(&status),
        Command::Bench(bench) => bench::run(&bench),
        Command::BenchLocal(bench) => bench_local::run(&bench),
        Command::BenchFiles(bench) => bench::files::run(&bench),
        Command::Demo(demo) => demo::run(&demo),
        Command::Floor(floor) => bench::floor::respond(&floor),
        Command::Passwd(passwd) => passwd::run(&passwd),
        Command::Sweep(sweep) => sweep::run(&sweep),
        Command::Diagnose(diagnose) => diagnose::run(&diagnose),
        Command::Volume(volume) => volume::run(&volume.command),
        Command::Replica(replica) => replica::run(&replica.command),
        Command::Store(store) => store::run(&store.command),
        Command::Completions(completions) => manual::completions(&completions),
        Command::Man(man) => manual::pages(&man),
    }
}
