//! A session that comes back: where a connection is lost, the servers of the URL are asked again and again, in their
//! order, until one of them serves the share.
//!
//! ```text
//!   call --> session n --- lost ---> connect to a server of the URL --> session n+1 --> handles back --> call again
//!                                      |  none answers: pause, again, until the patience is over
//!                                      '--> the error of the last attempt
//! ```
//!
//! The client keeps its GUID over all its sessions, by which a server gives a handle with a lease back.
//!
//! What is asked again is a READ, or a change whose repetition changes nothing: the same bytes at the same place, a length,
//! a flush. The handle is persistent, so nobody else could open the file meanwhile in a way that its share mode or its
//! lease forbids, and every change that was answered is durable: a flush at the next server has nothing left of the last
//! one to promise. Where the share mode lets others write, a WRITE whose answer was lost may be carried out twice, with
//! another client's write between the two: open a file alone where that matters.

mod coming_back;
mod file;
mod map;
mod session;

pub use self::file::FailoverFile;
pub use self::session::FailoverClient;
