//! Information classes: what QUERY_INFO, SET_INFO and QUERY_DIRECTORY carry.
//!
//! Each fixed class is one `layout!` declaration; the classes with names or lists have a file of
//! their own.
//!
//! Spec: MS-FSCC §2.4 (files), §2.5 (file systems), §2.6 (attributes); MS-DTYP §2.4 (security).
//! Classes are cited by name: their numbers differ between revisions of MS-FSCC.

mod all;
mod attributes;
mod class;
mod directory;
mod ea;
mod file;
mod file_system;
mod layout;
mod name;
mod posix;
mod rename;
pub mod security;
mod stream;

pub use all::All;
pub use attributes::{FileAttributes, FsAttributes};
pub use class::{FileInfoClass, FsInfoClass, InfoType, SecurityInformation};
pub use directory::{DirectoryEntry, DirectoryWriter, ShortName};
pub use ea::{EA_LIST_MAX, EaNames, FullEa};
pub use file::{
    Access, Alignment, Allocation, AttributeTag, Basic, Compression, Disposition, DispositionEx,
    DispositionFlags, Ea, EndOfFile, Id, Internal, Mode, NetworkOpen, Pipe, PipeLocal, Position,
    Standard, ValidDataLength,
};
pub use file_system::{
    FsAttribute, FsControl, FsDevice, FsFullSize, FsObjectId, FsPosix, FsSectorSize, FsSize,
    FsVolume,
};
pub use name::FileName;
pub use posix::{PosixEntry, PosixInfo, PosixKind};
pub use rename::{Rename, RenameFlags};
pub use stream::Stream;
