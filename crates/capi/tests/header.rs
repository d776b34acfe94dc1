//! Whether the header that is checked in is the one that the source makes.

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_header_is_what_cbindgen_makes_of_the_source() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
        let mut made = Vec::new();
        cbindgen::generate_with_config(root, config).unwrap().write(&mut made);
        let made = String::from_utf8(made).unwrap();
        let path = root.join("include/landfast.h");
        if std::env::var_os("LANDFAST_UPDATE_HEADER").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == made,
            "{} is not current: LANDFAST_UPDATE_HEADER=1 cargo test --release -p landfast-capi --test header",
            path.display()
        );
    }
}
