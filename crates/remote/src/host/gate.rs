//! The seam to the program that decides about push connections.

use std::fmt::Debug;

use super::handle::PushConnection;
use super::request::Request;

/// The answer of a [`Gate`] to a connection request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The peer gets a push connection, and this private data with the answer.
    Admit(Vec<u8>),
    /// The peer gets no connection, and this private data with the rejection.
    Refuse(Vec<u8>),
    /// The peer asks for no push connection: the [`super::Handler`] of the thread decides.
    NotPush,
}

/// Decides which peers get a push connection. Called on the engine threads: must not wait, and
/// must not call back into an engine except through [`super::HostHandle`] from another task.
pub trait Gate: Debug + Send + Sync {
    /// Decides about a peer that asks for a connection, by the token in its private data.
    /// `connection` is the name of the connection if the peer is admitted.
    fn admit(&self, request: &Request, connection: PushConnection) -> Verdict;

    /// An admitted connection has ended, or was never established. No operation of its peer touches
    /// registered memory any more, and all its regions are gone.
    fn gone(&self, connection: PushConnection);

    /// The private data of a rejection, for an admitted peer whose connection the engine has no room for.
    fn no_room(&self) -> Vec<u8> {
        Vec::new()
    }
}
