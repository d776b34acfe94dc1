//! Who a user is: the owner of sessions, of opens, and of what they hold of the server.

use std::sync::Arc;

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
