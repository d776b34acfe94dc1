//! Places among the connections, and the choice of the connection that is closed when
//! unauthenticated ones fill them.
//!
//! ```text
//!   new connection --ask--> waiting (no session yet) --a user logs on-----------> served
//!                        |      |                                                 ^
//!                        |      +--a guest logs on--> guests --a user logs on ----+
//!                        |                              |
//!                        | oldest, when one more comes  | oldest, when one more comes
//!                        v than may wait                v than there may be guests
//!                     evicted: its connection is closed
//! ```
//!
//! The oldest is evicted, not the newest: an honest client authenticates within milliseconds, so the
//! connection that has waited longest is the least likely to be honest, and a flood of connections that
//! never authenticate cannot keep new ones out. Guests prove no identity either: however many come,
//! they take no places of users, and compete only with other guests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::connections::Link;
use crate::connections::waiting::{Bell, Entered, WaitingRoom};
use crate::service::Core;

/// A place among the connections, given back when dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) core: Arc<Core>,
    bell: Arc<dyn Bell>,
    standing: Standing,
}

/// The kind of user known at the other end, and the place in the room for that kind.
#[derive(Clone, Copy, Debug)]
enum Standing {
    Stranger(u64),
    Guest(u64),
    User,
}

impl Admission {
    /// A place for a connection that ends when `bell` rings.
    ///
    /// `None`: there are too many. Dropping the socket closes it, at the cost of one accept.
    pub(super) fn ask(core: &Arc<Core>, bell: Arc<dyn Bell>) -> Option<Self> {
        let counters = &core.connections.counters;
        let more =
            |count: usize| (count < core.connections.limits.connections_max).then_some(count + 1);
        if counters.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let id = enter(
            core,
            &core.connections.waiting,
            &bell,
            core.connections.limits.unauthenticated_max,
        );
        Some(Self { core: Arc::clone(core), bell, standing: Standing::Stranger(id) })
    }

    /// Whether no user or guest has logged on yet.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.standing, Standing::Stranger(_))
    }

    /// Whether the connection ends when the bell rings.
    pub(super) fn is_evictable(&self) -> bool {
        !matches!(self.standing, Standing::User)
    }

    /// Checks who has logged on meanwhile. A connection over which a user logged on keeps that
    /// standing.
    pub(super) fn look(&mut self, link: &Link) {
        match self.standing {
            Standing::User => {}
            _ if link.has_user() => self.leave(),
            Standing::Stranger(_) if link.channel_count() > 0 => {
                self.leave();
                let max = self.core.connections.limits.guest_connections_max;
                let id = enter(&self.core, &self.core.connections.guests, &self.bell, max);
                self.standing = Standing::Guest(id);
            }
            Standing::Stranger(_) | Standing::Guest(_) => {}
        }
    }

    fn leave(&mut self) {
        match std::mem::replace(&mut self.standing, Standing::User) {
            Standing::Stranger(id) => self.core.connections.waiting.leave(id),
            Standing::Guest(id) => self.core.connections.guests.leave(id),
            Standing::User => {}
        }
    }
}

fn enter(core: &Core, room: &WaitingRoom, bell: &Arc<dyn Bell>, max: usize) -> u64 {
    let Entered { id, evicted } = room.enter(Arc::clone(bell), max);
    if evicted {
        core.connections.counters.refused.fetch_add(1, Ordering::Relaxed);
    }
    id
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.leave();
        self.core.connections.counters.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
