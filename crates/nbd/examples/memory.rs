//! Serves memory on a unix socket until its input ends: `memory MIB SOCKET`. What a volume adds to that is the
//! difference between this and `landfast volume serve`; nbdkit's memory plugin is the same by others.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use block::MemoryDevice;
use nbd::{Address, Export, Exports, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mib: u64 = arguments.next().and_then(|mib| mib.parse().ok()).unwrap_or(256);
    let socket = PathBuf::from(arguments.next().unwrap_or_else(|| "memory.sock".to_owned()));
    let device = Arc::new(MemoryDevice::anonymous(mib << 20)?);
    let exports = Exports::new(vec![Export::new("memory", "", device)?])?;
    let handle = Server::new(exports, None)?.listen(&[Address::Unix(socket)])?;
    println!("serving {mib} MiB on {}", handle.addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
