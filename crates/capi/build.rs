//! Names the shared library for the dynamic linker: programs ask for the version of its interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblandfast.so.0");
}
