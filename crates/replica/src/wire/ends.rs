//! A link: messages both ways between two members that have proved who they are, over one connection or several.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::bundle::{self, Bundle, BundleReceiver, BundleSender};
use super::dial::dial_one_of;
use super::error::LinkError;
use super::identity::Identity;
use super::link::{OneReceiver, OneSender};
use super::options::LinkOptions;
use super::socket::Socket;
use crate::message::Message;
use crate::names::MemberId;

/// A link to a member.
pub struct Link {
    member: MemberId,
    address: SocketAddr,
    closer: Closer,
    sender: Sender,
    receiver: Receiver,
}

impl Link {
    pub(super) fn one(member: MemberId, sender: OneSender, receiver: OneReceiver) -> Self {
        let socket = sender.socket();
        Self {
            member,
            address: socket.peer(),
            closer: Closer(Of::One(Arc::clone(socket))),
            sender: Sender(Of::One(Box::new(sender))),
            receiver: Receiver(Of::One(Box::new(receiver))),
        }
    }

    pub(super) fn several(bundle: &Arc<Bundle>) -> Self {
        Self {
            member: bundle.member(),
            address: bundle.address(),
            closer: Closer(Of::Several(Arc::clone(bundle))),
            sender: Sender(Of::Several(BundleSender::new(bundle))),
            receiver: Receiver(Of::Several(BundleReceiver::new(bundle))),
        }
    }

    /// Who is at the other end.
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// Where the other end is; of several connections, that of the first.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the link from any thread.
    pub fn closer(&self) -> Closer {
        self.closer.clone()
    }

    /// The two directions, each for a thread of its own. When one is dropped the link ends; if that is the sender, and no
    /// frame is under way, the other end is told.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

/// Makes a link to `member`, at the first of `addresses` (`host:port`) where it proves that it is there.
///
/// # Errors
///
/// Why the last address did not lead to the member.
pub fn dial<A: AsRef<str>>(
    addresses: &[A],
    identity: &Identity,
    member: MemberId,
    options: &LinkOptions,
) -> Result<Link, LinkError> {
    if options.connections > 1 {
        let bundle = bundle::dial(addresses, identity, member, options)?;
        return Ok(Link::several(&bundle));
    }
    let (sender, receiver) = dial_one_of(addresses, identity, member, options, None)?;
    Ok(Link::one(member, sender, receiver))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link(to {} at {})", self.member, self.address)
    }
}

/// Ends a link.
#[derive(Clone, Debug)]
pub struct Closer(Of<Arc<Socket>, Arc<Bundle>>);

/// What a link has: of one connection, or of several.
#[derive(Clone, Debug)]
enum Of<One, Several> {
    One(One),
    Several(Several),
}

impl Closer {
    /// Ends the link: whoever waits in one of its halves, or begins to, gets [`LinkError::Closed`].
    pub fn close(&self) {
        match &self.0 {
            Of::One(socket) => socket.close(),
            Of::Several(bundle) => bundle.close(),
        }
    }

    /// The connections that have something to send.
    #[cfg(test)]
    pub(super) fn busy(&self) -> usize {
        match &self.0 {
            Of::One(_) => 0,
            Of::Several(bundle) => bundle.busy(),
        }
    }

    /// The connections of the link that stand.
    pub fn connections(&self) -> usize {
        match &self.0 {
            Of::One(socket) => usize::from(!socket.is_closed()),
            Of::Several(bundle) => bundle.connections(),
        }
    }
}

/// Sends messages.
#[derive(Debug)]
pub struct Sender(Of<Box<OneSender>, BundleSender>);

impl Sender {
    /// Sends a message and the payload beside it, which lies in several parts.
    ///
    /// # Errors
    ///
    /// The link has ended, or ends with this error; but a message that is none, or not that of the payload, leaves the
    /// link as it was: [`LinkError::Frame`].
    pub fn send(&mut self, message: &Message, payload: &[&[u8]]) -> Result<(), LinkError> {
        match &mut self.0 {
            Of::One(sender) => sender.send(message, payload),
            Of::Several(sender) => sender.send(message, payload),
        }
    }

    /// Sends messages without payloads at once.
    ///
    /// # Errors
    ///
    /// Those of [`Self::send`]; after [`LinkError::Frame`] none has been sent, of several connections those before it.
    pub fn send_all(&mut self, messages: &[Message]) -> Result<(), LinkError> {
        match &mut self.0 {
            Of::One(sender) => sender.send_all(messages),
            Of::Several(sender) => {
                messages.iter().try_for_each(|message| sender.send(message, &[]))
            }
        }
    }
}

/// Receives messages.
#[derive(Debug)]
pub struct Receiver(Of<Box<OneReceiver>, BundleReceiver>);

impl Receiver {
    /// Waits for the next message. Its payload is of so many bytes, and has to be taken by [`Self::payload`].
    ///
    /// # Errors
    ///
    /// The link has ended, or ends with this error.
    pub fn receive(&mut self) -> Result<(Message, u32), LinkError> {
        match &mut self.0 {
            Of::One(receiver) => receiver.receive(),
            Of::Several(receiver) => receiver.receive(),
        }
    }

    /// Takes the next bytes of the payload, as many as fit.
    ///
    /// # Errors
    ///
    /// `out` is longer than what is left of the payload, or the link ends; what `out` holds then is nothing.
    pub fn payload(&mut self, out: &mut [u8]) -> Result<(), LinkError> {
        match &mut self.0 {
            Of::One(receiver) => receiver.payload(out),
            Of::Several(receiver) => receiver.payload(out),
        }
    }

    /// The bytes of the payload of the last message that have not been taken.
    pub fn payload_left(&self) -> u32 {
        match &self.0 {
            Of::One(receiver) => receiver.payload_left(),
            Of::Several(receiver) => receiver.payload_left(),
        }
    }
}
