//! Keeps the functions for C of dependencies out of the module, which would meet others of their names in the interpreter.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
