//! A loop device of the kernel on a file.
//!
//! Spec: loop(4), Linux `uapi/linux/loop.h`.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// A loop device, which goes when this is dropped and nobody else has it open: a file system that is mounted on it keeps
/// it until it is unmounted.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _device: File,
}

impl LoopDevice {
    /// Attaches a free loop device to a file. Its requests are multiples of `block` bytes (512 to 4,096) and reach the file
    /// without the page cache in between.
    ///
    /// # Errors
    ///
    /// The user may not make loop devices, or there is none.
    pub fn attach(file: &File, block: u32, is_read_only: bool) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        let mut last = None;
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", free(&control)?));
            let device = OpenOptions::new().read(true).write(!is_read_only).open(&path)?;
            match configure(&device, file, block, is_read_only) {
                Ok(()) => return Ok(Self { path, _device: device }),
                // Another program took it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::ResourceBusy.into()))
    }

    /// Its path, as in `/dev/loop0`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

// The number of a device that nobody uses.
fn free(control: &File) -> io::Result<u32> {
    // SAFETY: this request takes no argument and changes no memory of this process.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

fn configure(device: &File, file: &File, block: u32, is_read_only: bool) -> io::Result<()> {
    let read_only = if is_read_only { LO_FLAGS_READ_ONLY } else { 0 };
    let config = LoopConfig {
        fd: u32::try_from(file.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?,
        block_size: block.clamp(512, 4096),
        info: LoopInfo {
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO | read_only,
            ..LoopInfo::default()
        },
        reserved: [0; 8],
    };
    // SAFETY: the request reads one `struct loop_config`, and `LoopConfig` is laid out as that.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `struct loop_info64`. What is zero the kernel ignores or chooses.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl Default for LoopInfo {
    fn default() -> Self {
        Self {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

const CONTROL: &str = "/dev/loop-control";
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// How often another program may be faster.
const TRIES: usize = 16;
