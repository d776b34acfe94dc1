//! One client proving who it is, as often as the throttle lets it.
//!
//! The name comes with the proof, in one token, so the throttle is asked where the acceptor looks
//! the user up: for a refused attempt there is no such user, and it takes the time of any other. It is asked
//! for the owner of a ticket too, once the ticket is known to be genuine: nobody guesses those, but whoever
//! is kept out is kept out by every door.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use smb::auth::kerberos::KerberosAcceptor;
use smb::auth::ntlm::{AcceptorConfig, Freshness};
use smb::auth::{Accept, Acceptor, Credentials, DenyReason, SpnegoAcceptor, UserStore};

use super::throttle::{Attempt, Throttle, TooMany};
use crate::kerberos::OneTicket;

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
    ) -> Self {
        let users = Arc::new(Throttled { users, throttle, source, asked: Mutex::default() });
        let store = Arc::clone(&users) as Arc<dyn UserStore>;
        let mut acceptor = SpnegoAcceptor::new(Arc::new(config), Arc::clone(&store), fresh);
        if let Some((service, keytab, fresh)) = ticket {
            let kerberos = KerberosAcceptor::new(service, keytab, store, fresh);
            acceptor = acceptor.with_kerberos(kerberos);
        }
        Self { acceptor, users }
    }

    /// Takes the client's next token.
    pub(crate) fn step(&mut self, token: &[u8]) -> Accept {
        let accept = self.acceptor.step(token);
        let asked = self.users.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let throttle = &self.users.throttle;
        match (asked, &accept) {
            (Some(Err(TooMany)), _) => return Accept::Denied(DenyReason::PeerTooManyFailures),
            (Some(Ok(attempt)), Accept::Done(_)) => throttle.succeeded(attempt, Instant::now()),
            // The one that is left as it was taken: a failure.
            (Some(Ok(_)), Accept::Denied(DenyReason::PeerCredentials)) | (None, _) => {}
            (Some(Ok(attempt)), Accept::Denied(_) | Accept::Continue(_)) => {
                throttle.undecided(attempt);
            }
        }
        accept
    }
}

/// Users, for whom the throttle lets through.
#[derive(Debug)]
struct Throttled {
    users: Arc<dyn UserStore>,
    throttle: Arc<Throttle>,
    source: IpAddr,
    /// What the throttle said in this step.
    asked: Mutex<Option<Result<Attempt, TooMany>>>,
}

impl UserStore for Throttled {
    fn lookup(&self, user: &str, domain: &str) -> Option<Credentials> {
        let answer = self.throttle.begin(self.source, user, Instant::now());
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        answer.ok().and_then(|_| self.users.lookup(user, domain))
    }
}
