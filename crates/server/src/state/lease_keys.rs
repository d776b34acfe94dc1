//! Lease keys in use: a user at a client names one file by a key, whatever share or path it came by.
//!
//! Every open with a lease key claims it for its file and gives the claim up with its place among
//! the file's opens.
//!
//! Spec: MS-SMB2 §3.3.5.9.8, §3.3.5.9.11.

use std::collections::HashMap;
use std::sync::Arc;

use basics::ordered::{Mutex, MutexGuard};
use tree::FileKey;

use super::lease::Owner;
use crate::lock_order as order;

/// Which file each lease key names.
#[derive(Debug, Default)]
pub(crate) struct LeaseKeys {
    files: Mutex<HashMap<Owner, (FileKey, usize)>, order::LeaseKeys>,
}

impl LeaseKeys {
    /// Whether a client has a file under this key that is not `file`; `None` for one yet to be
    /// made.
    pub(crate) fn names_another(&self, owner: Owner, file: Option<FileKey>) -> bool {
        self.lock().get(&owner).is_some_and(|(named, _)| Some(*named) != file)
    }

    /// The file a key names.
    pub(crate) fn file(&self, owner: Owner) -> Option<FileKey> {
        self.lock().get(&owner).map(|(file, _)| *file)
    }

    /// Names `file` by this key, unless it names another. An oplock's owner has no key.
    pub(crate) fn claim(self: &Arc<Self>, owner: Owner, file: FileKey) -> Option<KeyClaim> {
        let counts = matches!(owner, Owner::Lease { .. });
        if counts {
            let mut files = self.lock();
            let (named, count) = files.entry(owner).or_insert((file, 0));
            if *named != file {
                return None;
            }
            *count += 1;
        }
        Some(KeyClaim { keys: Arc::clone(self), owner, counts })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, (FileKey, usize)>, order::LeaseKeys> {
        self.files.lock()
    }
}

/// One open's claim on a key; given up when dropped.
#[derive(Debug)]
pub(crate) struct KeyClaim {
    keys: Arc<LeaseKeys>,
    owner: Owner,
    counts: bool,
}

impl Drop for KeyClaim {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
        let mut files = self.keys.lock();
        if let Some((_, count)) = files.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                files.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Identity;
    use crate::state::OpenSerial;

    const ONE: FileKey = FileKey { device: 1, inode: 1 };
    const TWO: FileKey = FileKey { device: 1, inode: 2 };

    #[test]
    fn a_key_names_one_file_until_its_last_open_is_gone() {
        let keys = Arc::new(LeaseKeys::default());
        let user = Identity::user("user").mark();
        let owner = Owner::Lease { client: [1; 16], key: [2; 16], user };
        let first = keys.claim(owner, ONE).unwrap();
        let second = keys.claim(owner, ONE).unwrap();
        assert!(keys.claim(owner, TWO).is_none() && keys.names_another(owner, None));
        let other = Owner::Lease { client: [3; 16], key: [2; 16], user };
        assert!(keys.claim(other, TWO).is_some(), "another client's key");
        let stranger = Identity::user("another").mark();
        let borrowed = Owner::Lease { client: [1; 16], key: [2; 16], user: stranger };
        assert!(keys.claim(borrowed, TWO).is_some(), "another user's, by the same name");
        drop(first);
        assert!(keys.names_another(owner, Some(TWO)));
        drop(second);
        assert!(keys.claim(owner, TWO).is_some());
    }

    #[test]
    fn oplocks_have_no_key() {
        let keys = Arc::new(LeaseKeys::default());
        let owner = Owner::Open(OpenSerial(1));
        let _one = keys.claim(owner, ONE).unwrap();
        assert!(keys.claim(owner, TWO).is_some());
    }
}
