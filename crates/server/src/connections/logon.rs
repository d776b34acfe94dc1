//! One client proving who it is, as often as the throttle lets it.
//!
//! The name comes with the proof, in one token, so the throttle is asked where the acceptor looks
//! the user up: for a refused attempt there is no such user, and it takes the time of any other. It is asked
//! for the owner of a ticket too, once the ticket is known to be genuine: nobody guesses those, but whoever
//! is kept out is kept out by every door.
//!
//! Where the throttle wants an answer held back, what came of the attempt is known here at once and to nobody
//! else before its time: no session begins or ends before.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use basics::Clock;
use basics::ordered::Mutex;
use smb::auth::kerberos::KerberosAcceptor;
use smb::auth::ntlm::{AcceptorConfig, Freshness};
use smb::auth::{
    Accept, Acceptor, Credentials, DenyReason, IdentityKind, SpnegoAcceptor, UserStore,
};

use super::throttle::{Attempt, Held, Throttle, TooMany};
use crate::kerberos::OneTicket;
use crate::lock_order as order;

/// What a token came to.
#[derive(Debug)]
pub(crate) enum Decision {
    /// To be answered now.
    Now(Accept),
    /// To be answered later.
    Later(Later),
}

/// What a token came to, which is nobody's to know yet.
#[derive(Debug)]
pub(crate) struct Later {
    pub(crate) answer_at: Instant,
    accept: Accept,
    attempt: Attempt,
    throttle: Arc<Throttle>,
    clock: Clock,
    _held: Held,
}

impl Later {
    /// Its time has come.
    pub(crate) fn open(self) -> Accept {
        settle(&self.throttle, self.attempt, &self.accept, self.clock.now());
        self.accept
    }
}

/// One authentication.
#[derive(Debug)]
pub(crate) struct Logon {
    acceptor: SpnegoAcceptor,
    users: Arc<Throttled>,
}

impl Logon {
    /// An authentication by a client at `source`.
    pub(crate) fn new(
        config: AcceptorConfig,
        users: Arc<dyn UserStore>,
        fresh: Freshness,
        ticket: Option<OneTicket>,
        (throttle, source): (Arc<Throttle>, IpAddr),
        clock: Clock,
    ) -> Self {
        let (asked, name) = (Mutex::default(), Mutex::default());
        let users = Arc::new(Throttled { users, throttle, clock, source, asked, name });
        let store = Arc::clone(&users) as Arc<dyn UserStore>;
        let mut acceptor = SpnegoAcceptor::new(Arc::new(config), Arc::clone(&store), fresh);
        if let Some((service, keytab, fresh)) = ticket {
            let kerberos = KerberosAcceptor::new(service, keytab, store, fresh);
            acceptor = acceptor.with_kerberos(kerberos);
        }
        Self { acceptor, users }
    }

    /// Who the client says it is, fit for a log; empty if it has not said so.
    pub(crate) fn name(&self) -> String {
        self.users.name.lock().clone()
    }

    /// Takes the client's next token.
    pub(crate) fn step(&mut self, token: &[u8]) -> Decision {
        let accept = self.acceptor.step(token);
        let asked = self.users.asked.lock().take();
        let throttle = &self.users.throttle;
        let attempt = match asked {
            None => return Decision::Now(accept),
            Some(Err(TooMany)) => return Decision::too_many(),
            Some(Ok(attempt)) => attempt,
        };
        let answer_at = attempt.answer_at;
        // More tokens are to come: nothing has been told yet.
        let now = self.users.clock.now();
        if answer_at <= now || matches!(accept, Accept::Continue(_)) {
            settle(throttle, attempt, &accept, now);
            return Decision::Now(accept);
        }
        let Some(held) = throttle.hold() else {
            throttle.undecided(attempt);
            return Decision::too_many();
        };
        let (throttle, clock) = (Arc::clone(throttle), self.users.clock.clone());
        Decision::Later(Later { answer_at, accept, attempt, throttle, clock, _held: held })
    }
}

/// What a client wrote, on one line, without control characters, and short.
fn loggable(text: &str) -> String {
    let mut shown: String = text.chars().take(LOGGED_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(LOGGED_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

impl Decision {
    fn too_many() -> Self {
        Self::Now(Accept::Denied(DenyReason::PeerTooManyFailures))
    }
}

fn settle(throttle: &Throttle, attempt: Attempt, accept: &Accept, now: Instant) {
    match accept {
        Accept::Done(accepted) if accepted.identity.kind == IdentityKind::User => {
            throttle.succeeded(attempt, now);
        }
        // The one that is left as it was taken: a failure.
        Accept::Denied(DenyReason::PeerCredentials) => {}
        // A guest has shown nothing that speaks for the address.
        Accept::Done(_) | Accept::Denied(_) | Accept::Continue(_) => throttle.undecided(attempt),
    }
}

/// Users, for whom the throttle lets through.
#[derive(Debug)]
struct Throttled {
    users: Arc<dyn UserStore>,
    throttle: Arc<Throttle>,
    clock: Clock,
    source: IpAddr,
    /// What the throttle said in this step.
    asked: Mutex<Option<Result<Attempt, TooMany>>, order::Connection>,
    /// Who the client last said it was, fit for a log.
    name: Mutex<String, order::Connection>,
}

impl UserStore for Throttled {
    fn lookup(&self, user: &str, domain: &str) -> Option<Credentials> {
        *self.name.lock() = loggable(user);
        let answer = self.throttle.begin(self.source, user, self.clock.now());
        *self.asked.lock() = Some(answer);
        answer.ok().and_then(|_| self.users.lookup(user, domain))
    }
}

// Longer than any account's name; a client may send 64 KiB.
const LOGGED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_log_is_one_short_line_without_controls() {
        assert_eq!(loggable("alice"), "alice");
        assert_eq!(
            loggable("a\nlogon by root\u{1b}[2J\u{202e}"),
            "a\\nlogon by root\\u{1b}[2J\\u{202e}"
        );
        assert_eq!(loggable(&"x".repeat(70_000)).len(), LOGGED_MAX + 3);
        assert_eq!(loggable(&"x".repeat(LOGGED_MAX)).len(), LOGGED_MAX);
    }
}
