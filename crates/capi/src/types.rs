//! The structures and constants of the header.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use client::{FileStat, Path, RegionSettings};
use pmem::DurabilityClass;
use rdma::{PollPolicy, ProviderChoice};
use smb::push::{Durability, PushRequest, Rights};

use crate::fault::Fault;
use crate::status::Status;

/// What a commit survives. Ordered: a server that keeps a class keeps those below it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Class {
    /// Not known: the region works over SMB, and the server says nothing of its medium.
    Unknown = 0,
    /// Memory: gone with power.
    Volatile = 1,
    /// A file on a disk file system: durable after the server's fdatasync.
    Storage = 2,
    /// Persistent memory: durable after write-back and a fence.
    Pmem = 3,
}

impl From<DurabilityClass> for Class {
    fn from(class: DurabilityClass) -> Self {
        match class {
            DurabilityClass::Volatile => Self::Volatile,
            DurabilityClass::Storage => Self::Storage,
            DurabilityClass::Pmem => Self::Pmem,
        }
    }
}

/// The path that the operations of a region take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Mode {
    /// SMB READ, WRITE and FLUSH.
    Smb = 0,
    /// One-sided RDMA.
    Push = 1,
}

/// To read.
pub const LANDFAST_READ: u32 = 1;
/// To write.
pub const LANDFAST_WRITE: u32 = 2;
/// Make the file if it does not exist.
pub const LANDFAST_CREATE: u32 = 4;
/// Empty the file.
pub const LANDFAST_TRUNCATE: u32 = 8;
/// Fail if the file exists; with `LANDFAST_CREATE`.
pub const LANDFAST_EXCLUSIVE: u32 = 16;

/// Take persistence that the server only emulates: a commit then survives the server's process, not its machine.
pub const LANDFAST_MAP_ACCEPT_EMULATED: u32 = 1;
/// Fail with `LANDFAST_STATUS_NO_PUSH` where the server does not push, instead of working over SMB.
pub const LANDFAST_MAP_REQUIRE_PUSH: u32 = 2;
/// Dial over the network also where the server is on this host.
pub const LANDFAST_MAP_NO_SAME_HOST: u32 = 4;

/// A commit is an RDMA Flush; without the flag it is a message to the server.
pub const LANDFAST_REGION_FLUSHES: u32 = 1;
/// Persistence is emulated: a commit does not survive a loss of power.
pub const LANDFAST_REGION_EMULATED: u32 = 2;
/// The server has asked for the region back: the next call gives it back and goes on over SMB.
pub const LANDFAST_REGION_RECALLED: u32 = 4;
/// An earlier failure broke the region.
pub const LANDFAST_REGION_BROKEN: u32 = 8;
/// An RDMA adapter carries the operations.
pub const LANDFAST_REGION_ADAPTER: u32 = 16;
/// The server orders atomic writes behind commits by itself: `landfast_region_atomic_write` does not wait.
pub const LANDFAST_REGION_ORDERS_ATOMICS: u32 = 32;

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct FileInfo {
    /// Length in bytes.
    pub size: u64,
    /// Bytes reserved on the medium.
    pub allocated: u64,
    /// Creation, in nanoseconds since 1970.
    pub created_ns: i64,
    /// Last change of data, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Whether it is a directory: 1 or 0.
    pub is_directory: u32,
    /// 0.
    pub reserved: u32,
}

impl From<FileStat> for FileInfo {
    fn from(stat: FileStat) -> Self {
        Self {
            size: stat.len,
            allocated: stat.allocation_size,
            created_ns: nanoseconds(stat.creation_time),
            modified_ns: nanoseconds(stat.last_write_time),
            is_directory: u32::from(stat.is_directory()),
            reserved: 0,
        }
    }
}

pub(crate) fn nanoseconds(time: smb::FileTime) -> i64 {
    i64::try_from(time.to_unix_ns()).unwrap_or(0)
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Entry {
    /// The name, without its directory; it lives until the function returns.
    pub name: *const c_char,
    /// What is known of the file.
    pub info: FileInfo,
}

/// Called once for each entry of a directory, on the calling thread; anything but 0 ends the listing. May be null, which is
/// an error. The function must return: it must neither throw nor jump out.
pub type EntryFunction =
    Option<unsafe extern "C" fn(user_data: *mut c_void, entry: *const Entry) -> c_int>;

/// How to map a region. `landfast_map_options_init` sets each member to its default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct MapOptions {
    /// `sizeof(landfast_map_options)` of the program, so that later versions may append members.
    pub struct_size: usize,
    /// `LANDFAST_MAP_` flags; 0.
    pub flags: u32,
    /// The least `landfast_class` that push mode must keep, 0 for any; `LANDFAST_CLASS_STORAGE`. A server that keeps less does
    /// not push, and the region works over SMB.
    pub class_min: u32,
    /// Operations submitted and not waited for, 1 to 65536; 256.
    pub outstanding_max: u32,
    /// How long the server may be silent on the push connection, in milliseconds; 30000.
    pub answer_timeout_ms: u32,
    /// Bytes of writes kept until a commit confirms them, 4096 to 1 GiB; 4 MiB. A write that exceeds them commits first.
    pub unconfirmed_bytes: u64,
    /// 0 software over TCP or shared memory, 1 shared memory, 2 an RDMA adapter; 0.
    pub provider: u32,
    /// How a wait waits: 0 adapts, 1 never sleeps, 2 sleeps at once; 0.
    pub polling: u32,
}

impl Default for MapOptions {
    fn default() -> Self {
        let settings = RegionSettings::default();
        Self {
            struct_size: size_of::<Self>(),
            flags: 0,
            class_min: Durability::STORAGE.0,
            outstanding_max: u32::try_from(settings.outstanding_max).expect("256"),
            answer_timeout_ms: u32::try_from(settings.answer_timeout.as_millis()).expect("30000"),
            unconfirmed_bytes: u64::try_from(settings.unconfirmed_bytes).expect("4 MiB"),
            provider: 0,
            polling: 0,
        }
    }
}

impl MapOptions {
    /// Refuses what no version knows.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let refuse = |what, value, why| Err(Fault::Value { what, value, why });
        let size = u64::try_from(self.struct_size).unwrap_or(u64::MAX);
        if self.struct_size != size_of::<Self>() {
            return refuse("options.struct_size", size, "set it by landfast_map_options_init");
        }
        if self.flags & !FLAGS_KNOWN != 0 {
            return refuse(
                "options.flags",
                self.flags.into(),
                "there are LANDFAST_MAP_ flags 1, 2 and 4",
            );
        }
        if self.class_min > Durability::PMEM.0 {
            return refuse("options.class_min", self.class_min.into(), "choose a landfast_class");
        }
        if self.provider > 2 {
            return refuse("options.provider", self.provider.into(), "choose 0, 1 or 2");
        }
        if self.polling > 2 {
            return refuse("options.polling", self.polling.into(), "choose 0, 1 or 2");
        }
        Ok(())
    }

    pub(crate) fn requires_push(&self) -> bool {
        self.flags & LANDFAST_MAP_REQUIRE_PUSH != 0
    }

    pub(crate) fn request(&self) -> PushRequest {
        PushRequest {
            rights: Rights::READ
                | Rights::WRITE
                | Rights::FLUSH
                | Rights::ATOMIC_WRITE
                | Rights::VERIFY,
            durability: Durability(self.class_min),
            accept_emulated: self.flags & LANDFAST_MAP_ACCEPT_EMULATED != 0,
            regions_max: 1,
        }
    }

    pub(crate) fn settings(&self) -> RegionSettings {
        RegionSettings {
            unconfirmed_bytes: usize::try_from(self.unconfirmed_bytes).unwrap_or(usize::MAX),
            outstanding_max: usize::try_from(self.outstanding_max).unwrap_or(usize::MAX),
            provider: match self.provider {
                1 => ProviderChoice::Shm,
                2 => ProviderChoice::Verbs,
                _ => ProviderChoice::Soft,
            },
            same_host: self.flags & LANDFAST_MAP_NO_SAME_HOST == 0,
            polling: match self.polling {
                1 => PollPolicy::Spin,
                2 => PollPolicy::Block,
                _ => PollPolicy::Adaptive,
            },
            answer_timeout: Duration::from_millis(self.answer_timeout_ms.into()),
            shared: None,
        }
    }
}

/// What a region is now. It may change with each call: ask again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct RegionInfo {
    /// Length in bytes.
    pub size: u64,
    /// The path that operations take.
    pub mode: Mode,
    /// What a commit survives, whatever way it goes; unknown where the server does not say. A file of class volatile without
    /// `LANDFAST_REGION_EMULATED` takes no commits.
    pub durability: Class,
    /// `LANDFAST_REGION_` flags.
    pub flags: u32,
    /// Operations submitted and not waited for.
    pub outstanding: u32,
    /// Ranges that `landfast_region_lost` names.
    pub lost: u32,
    /// 0.
    pub reserved: u32,
}

/// The mode, the class and the flags of a path.
pub(crate) fn path_info(path: &Path) -> (Mode, Class, u32) {
    match path {
        Path::Push { class, is_emulated, has_flush, is_adapter, .. } => {
            let flags = [
                (*has_flush, LANDFAST_REGION_FLUSHES),
                (*is_emulated, LANDFAST_REGION_EMULATED),
                (*is_adapter, LANDFAST_REGION_ADAPTER),
            ];
            let flags = flags.iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).sum();
            (Mode::Push, Class::from(*class), flags)
        }
        Path::Messages { promise: None, .. } => (Mode::Smb, Class::Unknown, 0),
        Path::Messages { promise: Some(promise), .. } => {
            let flags = if promise.is_emulated { LANDFAST_REGION_EMULATED } else { 0 };
            (Mode::Smb, Class::from(promise.class), flags)
        }
    }
}

/// A submitted operation that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Completion {
    /// The number that the submitting call gave.
    pub ticket: u64,
    /// What the submitting call was given.
    pub user_data: u64,
    /// The number of bytes of a read, 0 for a commit.
    pub value: u64,
    /// How the operation ended; `landfast_error_text` has the reason.
    pub status: Status,
    /// 0.
    pub reserved: u32,
}

/// Bytes that were written and that no commit had confirmed when a region broke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Lost {
    /// Where they begin, from the beginning of the region.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

const FLAGS_KNOWN: u32 =
    LANDFAST_MAP_ACCEPT_EMULATED | LANDFAST_MAP_REQUIRE_PUSH | LANDFAST_MAP_NO_SAME_HOST;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_options_pass_and_each_unknown_value_is_refused_by_name() {
        MapOptions::default().check().unwrap();
        MapOptions::default().settings().check().unwrap();
        let refused = |change: fn(&mut MapOptions)| {
            let mut options = MapOptions::default();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(refused(|options| options.struct_size = 8).contains("landfast_map_options_init"));
        assert!(refused(|options| options.flags = 8).contains("options.flags"));
        assert!(refused(|options| options.class_min = 4).contains("options.class_min"));
        assert!(refused(|options| options.provider = 3).contains("options.provider"));
        assert!(refused(|options| options.polling = 3).contains("options.polling"));
    }
}
