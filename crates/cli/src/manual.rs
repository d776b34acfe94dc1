//! Shell completions and man pages, made from the same definitions as `--help`.

use clap::CommandFactory;

use crate::args::{Arguments, Completions, Man};
use crate::failure::Failure;
use crate::output;

/// Prints a completion script on standard output.
pub(crate) fn completions(options: &Completions) -> Result<(), Failure> {
    let mut command = Arguments::command();
    // Into memory first: clap panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "landfast", &mut script);
    output::say(&String::from_utf8_lossy(&script))
}

/// Writes `landfast.1` and one page for each command.
pub(crate) fn pages(options: &Man) -> Result<(), Failure> {
    let failed = |source| Failure::LocalFile {
        action: "cannot write man pages to",
        path: options.directory.clone(),
        source,
    };
    std::fs::create_dir_all(&options.directory).map_err(failed)?;
    clap_mangen::generate_to(Arguments::command(), &options.directory).map_err(failed)
}
