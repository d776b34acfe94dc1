//! `cargo xtask install-c PREFIX`: the C library where a program's build finds it.
//!
//! ```text
//!  PREFIX/include/landfast.h
//!  PREFIX/lib/liblandfast.so -> liblandfast.so.0 -> liblandfast.so.0.1.0    liblandfast.a
//!  PREFIX/lib/pkgconfig/landfast.pc
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::workspace;

/// Options of `cargo xtask install-c`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Where to: /usr/local, or a directory of your own for PKG_CONFIG_PATH
    prefix: PathBuf,
    /// Leave out liblandfast.a, which takes its time and 100 MB
    #[arg(long)]
    shared_only: bool,
}

/// Builds the library and installs it.
pub(crate) fn run(options: &Options) -> Outcome {
    let prefix =
        std::path::absolute(&options.prefix).map_err(Failure::io("finding", &options.prefix))?;
    install(&prefix, !options.shared_only)?;
    println!(
        "  PKG_CONFIG_PATH={} pkg-config --cflags --libs landfast",
        pkg_config(&prefix).display()
    );
    Ok(Tally::passed(format!("installed in {}", prefix.display())))
}

/// Installs below `prefix`, which is absolute.
pub(crate) fn install(prefix: &Path, is_static: bool) -> Result<(), Failure> {
    let built = workspace::shipped()?;
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let pkg_config = pkg_config(prefix);
    for directory in [&include, &pkg_config] {
        fs::create_dir_all(directory).map_err(Failure::io("creating", directory))?;
    }
    copy(&workspace::root().join(HEADER), &include.join("landfast.h"))?;
    let version = version();
    let full = format!("liblandfast.so.{version}");
    copy(&built.join("liblandfast.so"), &lib.join(&full))?;
    for (name, target) in [(SONAME, full.as_str()), ("liblandfast.so", SONAME)] {
        let link = lib.join(name);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link).map_err(Failure::io("removing", &link))?;
        }
        symlink(target, &link).map_err(Failure::io("linking", &link))?;
    }
    if is_static {
        copy(&built.join("liblandfast.a"), &lib.join("liblandfast.a"))?;
    }
    let description = pkg_config.join("landfast.pc");
    fs::write(&description, described(prefix, version))
        .map_err(Failure::io("writing", &description))
}

/// The directory that pkg-config searches.
pub(crate) fn pkg_config(prefix: &Path) -> PathBuf {
    prefix.join("lib/pkgconfig")
}

/// The new file takes the place of the old in one step: a program that runs keeps the old.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let part = to.with_extension("part");
    fs::copy(from, &part).map_err(Failure::io("copying", from))?;
    fs::rename(&part, to).map_err(Failure::io("writing", to))
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The libraries of the system that the static library needs, as `rustc --print native-static-libs` names them.
fn described(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}\n\
         Name: landfast\n\
         Description: Files and push regions of a Landfast server\n\
         Version: {version}\n\
         Cflags: -I${{prefix}}/include\n\
         Libs: -L${{prefix}}/lib -llandfast\n\
         Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc\n",
        prefix.display()
    )
}

const HEADER: &str = "crates/capi/include/landfast.h";
/// The version of the interface; `crates/capi/build.rs` says the same to the linker.
const SONAME: &str = "liblandfast.so.0";
