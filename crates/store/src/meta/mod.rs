//! Where a store keeps what it knows of itself: keys with values and versions, changed only where they are as expected.
//!
//! ```text
//!   regions/NAME   a RegionRecord     servers/NAME   a ServerRecord     clients/ID   a ClientRecord
//!   store          a StoreRecord
//! ```
//!
//! Correctness rests on [`Meta::swap`] alone. No value is a secret: the key of the store is elsewhere.

mod etcd;
mod file;
mod interface;
pub mod record;

use std::path::PathBuf;
use std::sync::Arc;

pub use etcd::EtcdMeta;
pub use file::FileMeta;
pub use interface::{Change, ENDPOINTS_MAX, Entry, Meta, MetaError};

/// Opens the metadata of a store: a directory's path, or `etcd://HOST:PORT[,HOST:PORT...]/NAME`.
///
/// # Errors
/// The text names neither, or the directory cannot be made.
pub fn open(place: &str) -> Result<Arc<dyn Meta>, MetaError> {
    match place.strip_prefix("etcd://") {
        Some(rest) => {
            let (hosts, name) = rest.split_once('/').unwrap_or((rest, "default"));
            let endpoints: Vec<String> =
                hosts.split(',').map(|host| format!("http://{host}")).collect();
            if hosts.is_empty() || endpoints.len() > ENDPOINTS_MAX || !crate::ids::is_name(name) {
                return Err(MetaError::ConfigPlace { place: place.to_owned() });
            }
            Ok(Arc::new(EtcdMeta::new(endpoints, name)))
        }
        None if place.contains("://") => Err(MetaError::ConfigPlace { place: place.to_owned() }),
        None => Ok(Arc::new(FileMeta::open(&PathBuf::from(place))?)),
    }
}
