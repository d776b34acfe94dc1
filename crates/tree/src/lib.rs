//! A share: one directory tree, exported under a name and confined to itself.
//!
//! The files import downwards. From the top:
//!
//! * operations on names: [`creation`], [`emptying`]; [`change`], [`removal`], [`hard_link`], [`overlap`]: remove, rename, link; [`streams`], [`homes`]: alternate
//!   data streams; [`sweep`]: streams without a file; [`posix`], [`links`]: permissions, owners, symbolic links; [`take_over`]: after an earlier server;
//! * facts: [`directory`]: enumeration; [`volume`], [`place`], [`admission`]: of the share; [`remembered`]: of a file that had the name before;
//!   [`durable_names`]: what a crash leaves of names;
//! * [`opening`]: from a path to an entry; [`share`]: the share, which [`config`] and [`policy`] describe;
//! * of an open file: [`modified`] with [`marks`]: what a change does to its facts; [`remainder`], [`ranges`], [`extended`], [`little_work`]; [`entry`]: the open file itself;
//! * [`lookup`]: from path to inode, inside the share only; [`devices`], [`shown`]: nodes and files that stand for bytes elsewhere; [`body`]: what the bytes of a file are;
//! * what a share remembers: [`names`] with [`forgetting`], [`tunnel`], [`unsynced`], [`name_locks`], [`journal`] and [`left_over`] with [`identity`];
//! * what the kernel knows of an inode: [`metadata`], [`attributes`], [`binding`], [`mounts`] with [`probe`], [`mounted_part`], [`set_id`], [`xattr`], [`inode`], [`file_time`];
//! * words without the kernel: [`name`], [`short`], [`stream_name`], [`pattern`], [`inline`], [`rights`], [`limits`], [`error`].
//!
//! Every function here may block unless its name starts with `try_`; callers are on the blocking
//! pool. The confinement relies on the kernel (`openat2`), not on string checks.

mod admission;
mod attributes;
mod binding;
mod body;
mod change;
mod config;
mod creation;
mod devices;
mod directory;
mod disk_clock;
mod durable_names;
mod emptying;
mod entry;
mod error;
mod extended;
mod file_time;
mod forgetting;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handle;
mod hard_link;
mod homes;
mod identity;
mod inline;
mod inode;
pub mod journal;
pub mod left_over;
pub mod limits;
mod links;
mod little_work;
pub mod lock_order;
mod lookup;
mod marks;
mod may_wait;
mod metadata;
mod modified;
mod mounted_part;
mod mounts;
mod name;
mod name_locks;
mod names;
mod opening;
mod overlap;
mod pattern;
mod place;
mod policy;
mod posix;
mod probe;
mod ranges;
mod remainder;
mod remembered;
mod removal;
mod residency;
pub mod rights;
mod set_id;
mod share;
mod short;
mod shown;
mod stream_name;
mod streams;
mod sweep;
mod take_over;
mod top;
mod tunnel;
mod unsynced;
mod volume;
mod xattr;

pub use attributes::DosAttributes;
pub use body::{Body, DeviceError, Flushes, MapFailure, MapRefusal, Mappable, Span};
pub use change::Replace;
pub use config::{Admission, ShareConfig, ShareOpenError, Shown};
pub use creation::{New, NewName};
pub use directory::{Enumeration, Listed, Looks, Next};
pub use emptying::Anew;
pub use entry::{BasicChange, Entry};
pub use error::ShareError;
pub use extended::{EA_NAME_MAX, ExtendedAttribute};
pub use identity::FileIdentity;
pub use inline::{InlineIo, is_much};
pub use inode::FileKey;
pub use lookup::{Found, Located, Reach};
pub use may_wait::MayWait;
pub use metadata::{Metadata, PosixFacts};
pub use name::{Naming, SEPARATORS, SharePath};
pub use opening::OpenMode;
pub use pattern::{Matcher, Pattern, folded};
pub use ranges::COPY_MAX;
pub use remainder::Remainder;
pub use remembered::Remembered;
pub use residency::Residency;
pub use rights::Writing;
pub use set_id::withhold_set_id;
pub use share::{CommonNames, Share};
pub use short::{is_short, short_name};
pub use stream_name::{StreamName, StreamPart};
pub use streams::{FoundStream, STREAM_DESCRIPTORS, StreamFacts};
pub use sweep::{SweepError, SweepOptions, Swept};
pub use volume::{VolumeAttributes, VolumeSize};

#[cfg(test)]
mod tests;

#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
