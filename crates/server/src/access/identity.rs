//! Who a user is: the owner of sessions, of opens, and of what they hold of the server.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use crate::config::Users;

/// Who a session belongs to.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Identity {
    /// Knows the password, or has shown a ticket: the name of the account, however the client wrote it
    /// ([`Identity::user`]).
    User(Arc<str>),
    /// Has proved nothing, and comes from the machine that says it has this GUID: a guest, who may have said a
    /// name or not. Where being the same user gives a right, guests of other machines have none.
    Guest { client: [u8; 16] },
}

impl Identity {
    /// The user whom a client calls so: neither realm nor case make another one.
    pub(crate) fn user(name: &str) -> Self {
        let name = name.split_once('@').map_or(name, |(name, _realm)| name);
        Self::User(name.to_lowercase().into())
    }

    /// What tells it from all others, in few bytes.
    pub(crate) fn mark(&self) -> IdentityMark {
        // By keys that nobody outside knows, so that nobody finds two names of one mark.
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
        IdentityMark(KEYS.each_ref().map(|key| key.hash_one(self)))
    }

    /// Whether the user may still be logged on.
    pub(crate) fn is_welcome_to(&self, users: &Users) -> bool {
        match self {
            Self::User(user) => users.knows(user),
            Self::Guest { .. } => true,
        }
    }

    pub(crate) fn is_guest(&self) -> bool {
        matches!(self, Self::Guest { .. })
    }
}

/// An [`Identity`] for keys of tables: as long as the process lives, and alike for alike identities alone.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct IdentityMark([u64; 2]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_user_have_one_mark_and_guests_have_others() {
        let marks = [
            Identity::user("alice").mark(),
            Identity::user("bob").mark(),
            Identity::Guest { client: [1; 16] }.mark(),
            Identity::Guest { client: [2; 16] }.mark(),
        ];
        for (at, mark) in marks.iter().enumerate() {
            assert!(!marks[..at].contains(mark));
        }
        assert_eq!(Identity::user("Alice@EXAMPLE.ORG").mark(), marks[0]);
    }
}
