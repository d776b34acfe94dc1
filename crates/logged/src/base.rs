//! The file below: where the bytes of a logged file end.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use client::blocking;

/// A file that can be read, written, cut and flushed. Offsets count from the first byte.
pub trait Base: Send + Sync + fmt::Debug {
    /// Length in bytes.
    ///
    /// # Errors
    ///
    /// The system or the server refuses.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no byte.
    ///
    /// # Errors
    ///
    /// As [`Base::len`].
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Reads up to the end of the file, and returns how many bytes there were.
    ///
    /// # Errors
    ///
    /// As [`Base::len`].
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes`; a crash may undo any part.
    ///
    /// # Errors
    ///
    /// As [`Base::len`]; any part may have been written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Sets the length; new bytes are zero.
    ///
    /// # Errors
    ///
    /// As [`Base::len`].
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes durable what was written.
    ///
    /// # Durability
    ///
    /// On `Ok` every earlier write survives what the file's storage survives.
    ///
    /// # Errors
    ///
    /// As [`Base::len`]; it is then unknown what is durable.
    fn flush(&self) -> io::Result<()>;
}

/// A file of this machine.
#[derive(Debug)]
pub struct LocalBase(pub File);

impl LocalBase {
    /// Opens the file for reading and writing, and makes it if it does not exist.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(path).map(Self)
    }
}

impl Base for LocalBase {
    fn len(&self) -> io::Result<u64> {
        self.0.metadata().map(|data| data.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < out.len() {
            match self.0.read_at(&mut out[count..], offset + to_u64(count)) {
                Ok(0) => break,
                Ok(read) => count += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// A file of a share.
#[derive(Debug)]
pub struct ShareBase(pub blocking::File);

impl Base for ShareBase {
    fn len(&self) -> io::Result<u64> {
        self.0.stat().map(|stat| stat.len).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, out).map_err(io::Error::other)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes).map_err(io::Error::other)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len).map_err(io::Error::other)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().map_err(io::Error::other)
    }
}

pub(crate) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).expect("usize fits u64")
}
