#![allow(dead_code, missing_docs, clippy::all, unused)]
#[path = "../../../fuzz/bodies/src/store.rs"]
mod body;
#[test]
fn corpora() {
    for (name, f) in [
        ("store_piece", body::piece as fn(&[u8])),
        ("store_record", body::record),
        ("store_token", body::token),
        ("store_wire", body::wire),
    ] {
        for e in std::fs::read_dir(format!("../../fuzz/corpus/{name}")).unwrap() {
            let bytes = std::fs::read(e.unwrap().path()).unwrap();
            f(&bytes);
            for at in 0..bytes.len() {
                let mut b = bytes.clone();
                b[at] ^= 0x15;
                f(&b);
                f(&bytes[..at]);
            }
        }
    }
}
