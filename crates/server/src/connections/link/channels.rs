//! The sessions that a connection has a channel of.
//!
//! Spec: MS-SMB2 §3.3.1.7 (Connection.SessionTable), §3.3.1.15.

use std::sync::Arc;

use super::Link;
use crate::access::Identity;
use crate::connections::session::{Channel, Session};

impl Link {
    /// The session of that id, if it was set up on this connection.
    pub(crate) fn channel(&self, session_id: u64) -> Option<Arc<Channel>> {
        self.channels.lock().get(&session_id).cloned()
    }

    pub(crate) fn add_channel(&self, channel: Arc<Channel>) {
        // A guest has as much under way as a stranger.
        if !channel.session.identity.is_guest() {
            self.window().widen(self.shared.limits.credits_max);
        }
        let is_guest = channel.session.identity.is_guest();
        let holder = if is_guest { &self.guests } else { &self.user };
        let _ = holder.set(Arc::clone(&channel.session.account));
        self.channels.lock().insert(channel.session.id, channel);
    }

    pub(crate) fn remove_channel(&self, session_id: u64) -> Option<Arc<Channel>> {
        let channel = self.channels.lock().remove(&session_id)?;
        self.note_past(&channel.session.account);
        let mut ended = self.ended.lock();
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(Arc::clone(&channel));
        Some(channel)
    }

    /// A channel this connection had until its session ended.
    pub(crate) fn ended_channel(&self, session_id: u64) -> Option<Arc<Channel>> {
        let ended = self.ended.lock();
        ended.iter().rev().find(|channel| channel.session.id == session_id).cloned()
    }

    /// The sessions of this connection.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.channels.lock().values().map(|channel| Arc::clone(&channel.session)).collect()
    }

    /// Whether a session of this connection is that user's.
    pub(crate) fn is_of(&self, user: &Identity) -> bool {
        self.channels.lock().values().any(|channel| channel.session.identity == *user)
    }

    /// Whether somebody has proved here who it is, and is still logged on.
    pub(crate) fn has_user(&self) -> bool {
        self.channels.lock().values().any(|channel| !channel.session.identity.is_guest())
    }

    /// A user who has logged on over it; `None`: guests alone.
    pub(crate) fn first_user(&self) -> Option<String> {
        let channels = self.channels.lock();
        channels.values().find_map(|channel| match &channel.session.identity {
            Identity::User(name) => Some(name.to_string()),
            Identity::Guest { .. } => None,
        })
    }

    /// The sessions of guests.
    pub(crate) fn guest_count(&self) -> usize {
        let channels = self.channels.lock();
        channels.values().filter(|channel| channel.session.identity.is_guest()).count()
    }

    pub(crate) fn channel_count(&self) -> usize {
        self.channels.lock().len()
    }

    /// Takes all sessions away, when the connection has ended.
    pub(crate) fn take_channels(&self) -> Vec<Arc<Channel>> {
        self.ended.lock().clear();
        self.channels.lock().drain().map(|(_, channel)| channel).collect()
    }
}

/// Keys of ended sessions a connection keeps: for the requests that were on their way.
const ENDED_MAX: usize = 8;
