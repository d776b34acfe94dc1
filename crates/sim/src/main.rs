//! `landfast-sim`: Landfast's programs on virtual time, under one scheduler. One seed, one run.
//!
//! ```text
//! landfast-sim run --seeds 0..1000        workers, a core each; prints the seeds that fail, made small
//! landfast-sim replay PLAN --trace FILE   one run, with all that happened in it
//! ```

#![forbid(unsafe_code)]

mod auxiliary;
mod calls;
mod chance;
mod command;
mod disk;
mod failure;
mod files;
mod machine;
mod net;
mod plan;
mod program;
mod scenario;
mod sockets;
mod stage;
mod trace;
mod tracee;

fn main() -> std::process::ExitCode {
    command::main()
}
