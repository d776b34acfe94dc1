//! One-sided ways between members: how they come about, and how they end.
//!
//! ```text
//!   source                                         destination
//!                                            <---    Invite (after Following, and again while there is no way)
//!     a thread dials the engine, shows the ticket
//!     Map                                    --->    registers the ring on that connection
//!     records go by the way from here on     <---    Mapped
//!     There, now and then                    --->    takes the records into its order
//!                                                  the connection of messages ends:
//!                                                    revokes, takes in what came, and only then it is lost
//! ```

use std::net::SocketAddr;

use super::hub::Hub;
use super::inner::Inner;
use crate::core::{Action, Entry, Event, News};
use crate::format::check_sequence;
use crate::message::{Message, Peer};
use crate::names::MemberId;
use crate::one_sided::{Channel, OneSidedError, Target};

impl Inner {
    /// Whether records may go by one-sided ways here.
    pub(super) fn has_ways(&self) -> bool {
        self.one_sided.is_some()
    }

    /// Lets the source at the other end of a connection write into the ring.
    pub(super) fn invite(&self, peer: Peer, send: impl FnOnce(Message)) {
        let Some(hosting) = &self.hosting else { return };
        match hosting.invite(peer) {
            Ok(ticket) => send(Message::Invite { port: hosting.address().port(), ticket }),
            Err(error) => {
                tracing::warn!(member = %peer.member, %error, "no one-sided way is offered");
            }
        }
    }

    /// [`Inner::invite`] of a source that has no way yet.
    pub(super) fn invite_again(&self) {
        let Some(hosting) = &self.hosting else { return };
        let mut state = self.hub.lock();
        let Some(peer) = state.core.streaming_from().filter(|peer| !hosting.is_mapped(*peer))
        else {
            return;
        };
        self.invite(peer, |invitation| {
            self.hub.take(&mut state, vec![Action::Send(peer, invitation)]);
        });
    }

    /// What belongs to the making of ways.
    pub(super) fn hear_of_ways(&self, peer: Peer, is_ours: bool, message: Message) {
        let hub = &self.hub;
        match message {
            Message::Invite { port, ticket } if is_ours && self.has_ways() => {
                let mut state = hub.lock();
                let is_known = state.ways.dialed.contains_key(&peer.member);
                if !state.ways.is_used(peer.member) && !is_known {
                    state.ways.invited.insert(peer.member, (peer, port, ticket));
                    hub.dialers.notify_all();
                }
            }
            Message::Map { connection } if !is_ours => {
                let answer = self.map(peer, connection);
                hub.take(&mut hub.lock(), vec![Action::Send(peer, answer)]);
            }
            Message::Mapped { key, address } if is_ours => {
                let mut state = hub.lock();
                let Some((of, mut channel)) = state.ways.dialed.remove(&peer.member) else {
                    return;
                };
                if of != peer {
                    return;
                }
                channel.attach(Target { key, address });
                state.ways.failures.remove(&peer.member);
                state.ways.used.insert(peer.member, peer);
                state.ways.ready.insert(peer.member, (peer, channel));
                hub.note(&mut state, News::OneSided(peer.member));
            }
            Message::NotMapped if is_ours => {
                let mut state = hub.lock();
                if state.ways.dialed.remove(&peer.member).is_some() {
                    no_way(hub, &mut state, peer.member, &OneSidedError::NotMapped);
                }
            }
            // What comes late, or is none of this member's.
            _ => {}
        }
    }

    fn map(&self, peer: Peer, connection: u64) -> Message {
        let follows = || self.hub.lock().core.streaming_from() == Some(peer);
        let Some(hosting) = self.hosting.as_ref().filter(|_| follows()) else {
            return Message::NotMapped;
        };
        match hosting.map(peer, connection, &self.ring) {
            // Only its own reader revokes what this one, its reader, maps.
            Ok(Target { key, address }) => Message::Mapped { key, address },
            Err(error) => {
                tracing::warn!(member = %peer.member, %error, "the log is not mapped");
                Message::NotMapped
            }
        }
    }

    /// Takes records in that one-sided operations have put into the ring, and of which the source tells.
    pub(super) fn receive_there(&self, peer: Peer, message: &Message) -> Option<Event> {
        let Message::There { epoch, from, to, committed } = *message else { return None };
        let mut state = self.hub.lock();
        let is_mapped = self.hosting.as_ref().is_some_and(|hosting| hosting.is_mapped(peer));
        let allowed = state.core.may_receive(peer, epoch, from, to);
        let Some(chain) = allowed.ok().filter(|_| is_mapped) else {
            self.refuse(&mut state, peer);
            return None;
        };
        let history = state.core.history().clone();
        drop(state);
        let mut bytes = vec![0; usize::try_from(to.since(from)).expect("bounded by the wire")];
        if let Err(error) = self.ring.read(from, &mut bytes) {
            tracing::error!(%error, "the ring cannot be read");
            self.hub.step(Event::StorageFailed);
            return Some(Event::NotReceived(peer));
        }
        let keys = self.ring.keys();
        match check_sequence(&self.ring.group(), &history, from, chain, &bytes, keys) {
            Ok(found) if self.takes(&history, from, &found, &bytes) => {
                let entries = found.iter().map(|it| Entry::of(&it.record, it.sum)).collect();
                Some(Event::Received { peer, entries, committed, are_durable: true })
            }
            Ok(_) => Some(Event::NotReceived(peer)),
            Err(error) => {
                tracing::warn!(member = %peer.member, %error, "what is in the ring is not sound");
                Some(Event::NotReceived(peer))
            }
        }
    }

    /// Ends what the peer of a connection may do, and takes in what it has put into the ring: for its reader, which reads no
    /// more, before anybody hears that the connection is lost.
    pub(super) fn withdraw(&self, peer: Peer) {
        let Some(hosting) = self.hosting.as_ref() else { return };
        let was_mapped = hosting.is_mapped(peer);
        hosting.revoke(peer);
        if !was_mapped {
            return;
        }
        let mut state = self.hub.lock();
        let Some(from) = state.core.may_adopt(peer) else { return };
        let (label, start) = (state.core.label().clone(), state.core.kept().0);
        drop(state);
        let found = match self.ring.find_behind(&label, start, from) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "the ring cannot be read");
                self.hub.step(Event::StorageFailed);
                return;
            }
        };
        let sound = found.iter().take_while(|it| self.volumes.takes(&it.record));
        let entries: Vec<Entry> = sound.map(|it| Entry::of(&it.record, it.sum)).collect();
        if !entries.is_empty() {
            tracing::info!(member = %peer.member, records = entries.len(), "found in the log");
        }
        let committed = log::Lsn(0);
        self.hub.step(Event::Received { peer, entries, committed, are_durable: true });
    }
}

/// Makes ways to a member that has invited.
pub(super) fn dial(inner: &Inner, member: MemberId) {
    let hub = &inner.hub;
    let Some(options) = &inner.one_sided else { return };
    loop {
        let mut state = hub.lock();
        let (peer, port, ticket) = loop {
            if state.ends {
                return;
            }
            if let Some(invited) = state.ways.invited.remove(&member) {
                break invited;
            }
            state = hub.dialers.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        let Some(link) = state.links.get_mut(peer).map(|connected| connected.address) else {
            continue;
        };
        drop(state);
        let named = options.addresses.iter().find(|(of, _)| *of == member);
        let address =
            named.map_or_else(|| SocketAddr::new(link.ip(), port), |(_, address)| *address);
        let dialed = Channel::dial(options, &hub.environment, &inner.ring, address, &ticket);
        let mut state = hub.lock();
        if state.links.get_mut(peer).is_none() {
            continue;
        }
        match dialed {
            Ok((channel, connection)) => {
                state.ways.dialed.insert(member, (peer, Box::new(channel)));
                state.ways.invited.remove(&member);
                hub.take(&mut state, vec![Action::Send(peer, Message::Map { connection })]);
            }
            Err(error) => no_way(hub, &mut state, member, &error),
        }
    }
}

// It is tried again when the member invites again; that is told once.
fn no_way(hub: &Hub, state: &mut super::hub::State, member: MemberId, error: &OneSidedError) {
    tracing::warn!(%member, %error, "records do not go by RDMA");
    let is_known = state.ways.failure(member).is_some();
    state.ways.failed(member, error.to_string());
    if !is_known {
        hub.note(state, News::NotOneSided(member));
    }
}
