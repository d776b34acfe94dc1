//! Names the shared library for the dynamic linker: programs ask for the version of its interface. And keeps the functions for C
//! of dependencies out of it, which would meet others of their names in the program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblandfast.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
