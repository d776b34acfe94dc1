//! Push mode from a program: the sample of README.md, to be run against a share.
//!
//! ```sh
//! cargo run -p landfast-client --example push -- smb://alice:secret@127.0.0.1:4450/data log.dat
//! ```

use std::error::Error;

use client::blocking::Client;
use client::{ConnectOptions, OpenOptions, RegionSettings};
use smb::push::{Durability, PushRequest, Rights};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: push smb://USER:PASSWORD@HOST:PORT/SHARE FILE".into());
    };
    push(&url, &name).map(drop)
}

/// Writes a record and a pointer to it, reads the record back, and returns the path that the
/// operations took.
pub(crate) fn push(url: &str, name: &str) -> Result<client::Path, Box<dyn Error>> {
    let client = Client::connect(&url.parse()?, &ConnectOptions::default())?;

    let file = client.open(name, &OpenOptions::read_write())?;
    if file.stat()?.len < 1 << 20 {
        file.set_len(1 << 20)?; // a region lies within its file
    }
    file.close()?;

    let push = PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
        durability: Durability::STORAGE, // a server that can only promise less does not push, and commits fail
        accept_emulated: false,
        regions_max: 1,
    };
    let options = OpenOptions::read_write().with_push(push);
    let mut region = client.map(name, &options, 0..1 << 20, RegionSettings::default())?;
    println!("{}", region.path()); // push or SMB, which class, and why

    region.write_commit(4096, b"durable when this returns")?;
    region.atomic_write(0, 4096)?; // points there; not stored if a commit before it failed
    region.commit(0, 8)?;

    let mut read = [0; 25];
    region.read(4096, &mut read)?;
    assert_eq!(&read, b"durable when this returns");

    Ok(region.path().clone())
}
