//! The server's half of a Kerberos exchange: one token in, at most one out.
//!
//! ```text
//!            AP-REQ: ticket, authenticator, times, owner, throttle, replay
//!  +-------+ all good: AP-REP                                        +------+
//!  | Fresh |-------------------------------------------------------->| Done |
//!  +-------+                        anything else: denied            +------+
//! ```
//!
//! What is wrong with a ticket is said in the log in full, and to the client by one status.
//!
//! Spec: RFC 4120 §3.2.3, §3.2.4; RFC 4121 §4.1; MS-KILE §3.1.1.2 (the session key).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use zeroize::Zeroizing;

use super::encryption::{BLOCK, KEY_MAX, Key, Usage};
use super::gss::{self, Signer};
use super::keytab::Keytab;
use super::message::{ApReq, Ticket};
use super::names::Principal;
use super::reply::ApRep;
use super::ticket::{Authenticator, TicketPart};
use super::{ReplayCache, TicketFault};
use crate::FileTime;
use crate::auth::{
    Accept, Accepted, Acceptor, DenyReason, Identity, IdentityKind, TOKEN_MAX, UserStore,
};
use crate::crypto::SessionKey;

/// What all exchanges of a server have in common.
#[derive(Debug)]
pub struct KerberosService {
    /// The one service whose tickets are taken; none: all those of the keytab.
    pub principal: Option<Principal>,
    /// Owners of tickets who come in beside those the server has passwords of, in lower case; `*`: all
    /// of the realm.
    pub users: HashSet<String>,
    /// How far apart the client's clock and ours may be.
    pub skew: Duration,
    /// What has been seen of late; shared with whatever takes the place of this.
    pub replays: Arc<ReplayCache>,
}

impl KerberosService {
    /// How far apart clocks may be everywhere: RFC 4120 §8.2 speaks of five minutes.
    pub const SKEW: Duration = Duration::from_secs(300);

    /// Takes tickets for every service of the keytab, from the users the server has.
    pub fn new() -> Self {
        let (users, replays) = (HashSet::new(), Arc::new(ReplayCache::new()));
        Self { principal: None, users, skew: Self::SKEW, replays }
    }

    /// Whether an owner comes in though the server has no password of that user.
    pub fn admits(&self, user: &str) -> bool {
        self.users.contains("*") || self.users.contains(&user.to_lowercase())
    }
}

impl Default for KerberosService {
    fn default() -> Self {
        Self::new()
    }
}

/// What an exchange needs of the world: the time, and random bytes that were used for nothing else.
#[derive(Clone)]
pub struct KerberosFreshness {
    /// Now.
    pub now: FileTime,
    /// For the first block of the AP-REP.
    pub confounder: [u8; BLOCK],
    /// The server's key.
    pub subkey: Zeroizing<[u8; KEY_MAX]>,
    /// The number of the server's first signature.
    pub sequence: u32,
}

impl fmt::Debug for KerberosFreshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KerberosFreshness({:?})", self.now)
    }
}

/// One exchange.
pub struct KerberosAcceptor {
    service: Arc<KerberosService>,
    keytab: Arc<Keytab>,
    users: Arc<dyn UserStore>,
    fresh: Option<KerberosFreshness>,
    signer: Option<Signer>,
}

impl KerberosAcceptor {
    /// Starts an exchange.
    pub fn new(
        service: Arc<KerberosService>,
        keytab: Arc<Keytab>,
        users: Arc<dyn UserStore>,
        fresh: KerberosFreshness,
    ) -> Self {
        Self { service, keytab, users, fresh: Some(fresh), signer: None }
    }

    /// What signs, once the exchange is done.
    pub(in crate::auth) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.signer.as_ref().map(|signer| signer.sign(message))
    }

    /// Whether the client has signed a message, once the exchange is done.
    pub(in crate::auth) fn is_signed(&self, message: &[u8], token: &[u8]) -> bool {
        self.signer.as_ref().is_some_and(|signer| signer.is_signed(message, token))
    }

    fn accept(&mut self, token: &[u8], fresh: &KerberosFreshness) -> Result<Accepted, DenyReason> {
        let request = gss::ap_req(token)?;
        if request.options & ApReq::USE_SESSION_KEY != 0 {
            return Err(TicketFault::PeerForm.into());
        }
        let ticket = open_ticket(&self.keytab, self.service.principal.as_ref(), &request.ticket)?;
        let ticket = TicketPart::parse(&ticket)?;
        let of_owner = |fault: TicketFault| {
            warn!(owner = %ticket.client, service = %request.ticket.service, %fault, "a ticket is refused");
            DenyReason::from(fault)
        };
        let (encryption, key) = &ticket.key;
        let key = key.as_ref().ok_or(TicketFault::PeerEncryption(*encryption)).map_err(of_owner)?;
        let proof = open_authenticator(&request, key, &ticket).map_err(of_owner)?;
        let clock = Clock::new(fresh.now, self.service.skew);
        clock.check(&ticket, proof.time).map_err(of_owner)?;
        let user = owner(&ticket.client, &request.ticket.service).map_err(of_owner)?;
        // Asked in any case: here the throttle says whether this user may try at all.
        let is_known = self.users.lookup(user, &ticket.client.realm).is_some();
        if !is_known && !self.service.admits(user) {
            return Err(of_owner(TicketFault::PeerUser));
        }
        let initiator = match proof.subkey {
            Some((_, Some(subkey))) => subkey,
            Some((encryption, None)) => {
                return Err(of_owner(TicketFault::PeerEncryption(encryption)));
            }
            None => key.clone(),
        };
        // The last check: whoever is not let in takes no room from those who are.
        let until = clock.now + 2 * clock.skew;
        let sealed = request.authenticator.cipher;
        self.service.replays.admit(user, sealed, clock.now, until).map_err(of_owner)?;
        let (mut acceptor, mut sequence, mut token) = (None, proof.sequence, Vec::new());
        if request.options & ApReq::MUTUAL_REQUIRED != 0 {
            let subkey = initiator.sibling(&fresh.subkey);
            // Some clients take the number for a signed one.
            sequence = fresh.sequence >> 1;
            let reply = ApRep { time: proof.time, subkey: &subkey, sequence };
            token = gss::ap_rep(&reply.emit(key, &fresh.confounder));
            acceptor = Some(subkey);
        }
        // MS-KILE §3.1.1.2: what the last message of the exchange brought.
        let session_key = SessionKey::new(acceptor.as_ref().unwrap_or(&initiator).as_bytes());
        let identity = Identity {
            user: user.to_owned(),
            domain: ticket.client.realm.clone(),
            kind: IdentityKind::User,
        };
        self.signer = Some(Signer { initiator, acceptor, sequence });
        let expires = Some(clock.expiry(&ticket));
        Ok(Accepted { token, session_key: Some(session_key), identity, expires })
    }
}

impl Acceptor for KerberosAcceptor {
    fn step(&mut self, token: &[u8]) -> Accept {
        let Some(fresh) = self.fresh.take() else {
            return Accept::Denied(DenyReason::PeerOutOfSequence);
        };
        if token.len() > TOKEN_MAX {
            return Accept::Denied(DenyReason::PeerTokenLength(token.len()));
        }
        self.accept(token, &fresh).map_or_else(Accept::Denied, Accept::Done)
    }
}

impl fmt::Debug for KerberosAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_fresh = self.fresh.is_some();
        f.write_str(if is_fresh { "KerberosAcceptor(fresh)" } else { "KerberosAcceptor(done)" })
    }
}

/// Opens a ticket with the key it says it is sealed with.
pub(super) fn open_ticket(
    keytab: &Keytab,
    only: Option<&Principal>,
    ticket: &Ticket<'_>,
) -> Result<Zeroizing<Vec<u8>>, TicketFault> {
    let refused = |fault: TicketFault| {
        warn!(service = %ticket.service, %fault, "a ticket is refused");
        fault
    };
    let is_ours = |service: &Principal| {
        service.is_same_service(&ticket.service)
            && only.is_none_or(|only| only.is_same_service(service))
    };
    let ours = || keytab.entries.iter().filter(|entry| is_ours(&entry.principal));
    if ours().next().is_none() {
        return Err(refused(TicketFault::PeerService));
    }
    let encryption = ticket.part.encryption;
    if !Key::speaks(encryption) {
        return Err(refused(TicketFault::PeerEncryption(encryption)));
    }
    let fitting = ours()
        .filter(|entry| entry.encryption == encryption && entry.has_version(ticket.part.version));
    // The newest first, which is the likeliest where a ticket does not say.
    let mut keys: Vec<_> =
        fitting.filter_map(|entry| Some((entry.version, entry.key.as_ref()?))).collect();
    keys.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    if keys.is_empty() {
        let version = ticket.part.version.unwrap_or(0);
        return Err(refused(TicketFault::ConfigKey { version, encryption }));
    }
    keys.iter()
        .take(ATTEMPTS_MAX)
        .find_map(|(_, key)| key.open(Usage::TICKET, ticket.part.cipher))
        .ok_or_else(|| refused(TicketFault::PeerSeal))
}

/// RFC 4120 §3.2.3: the authenticator is of the ticket's owner.
pub(super) fn open_authenticator(
    request: &ApReq<'_>,
    key: &Key,
    ticket: &TicketPart,
) -> Result<Authenticator, TicketFault> {
    let sealed = &request.authenticator;
    if sealed.encryption != key.encryption() {
        return Err(TicketFault::PeerAuthenticator);
    }
    let opened = key.open(Usage::AP_REQ, sealed.cipher).ok_or(TicketFault::PeerAuthenticator)?;
    let proof = Authenticator::parse(&opened)?;
    if proof.client != ticket.client {
        return Err(TicketFault::PeerAuthenticator);
    }
    if proof.gss_flags & Authenticator::DCE_STYLE != 0 {
        return Err(TicketFault::PeerForm);
    }
    Ok(proof)
}

/// The user a ticket's owner is here: the one part of its name, if the realm is the service's own.
pub(super) fn owner<'a>(
    client: &'a Principal,
    service: &Principal,
) -> Result<&'a str, TicketFault> {
    if client.realm != service.realm {
        return Err(TicketFault::PeerRealm);
    }
    match &client.components[..] {
        // A name with an @ would lose what follows where users are looked up.
        [user] if !user.is_empty() && !user.contains(['@', '\0']) => Ok(user),
        _ => Err(TicketFault::PeerUser),
    }
}

/// Seconds since 1970, and how many of them the clocks may differ.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) now: i64,
    pub(super) skew: i64,
}

impl Clock {
    pub(super) fn new(now: FileTime, skew: Duration) -> Self {
        let now = i64::try_from(now.to_unix_ns().div_euclid(1_000_000_000)).unwrap_or(i64::MAX / 4);
        let skew = i64::try_from(skew.as_secs()).unwrap_or(SKEW_MAX).min(SKEW_MAX);
        Self { now, skew }
    }

    pub(super) fn check(
        self,
        ticket: &TicketPart,
        (client, _): (i64, u32),
    ) -> Result<(), TicketFault> {
        let apart = self.now.abs_diff(client);
        if apart > self.skew.unsigned_abs() {
            return Err(TicketFault::PeerClock(apart));
        }
        if ticket.flags & TicketPart::INVALID != 0 || ticket.start > self.now + self.skew {
            return Err(TicketFault::PeerNotYet);
        }
        if ticket.end + self.skew < self.now {
            return Err(TicketFault::PeerExpired(self.now.abs_diff(ticket.end)));
        }
        Ok(())
    }

    /// When the session ends: with its ticket. One that ended just now by our clock was let in because the
    /// clocks may differ, and has that time left.
    pub(super) fn expiry(self, ticket: &TicketPart) -> FileTime {
        let end = if ticket.end > self.now { ticket.end } else { ticket.end + self.skew };
        FileTime::from_unix_ns(i128::from(end) * 1_000_000_000)
    }
}

/// Keys that are tried on a ticket that does not say which one it is sealed with.
const ATTEMPTS_MAX: usize = 8;
/// A day: clocks that differ more tell no time.
const SKEW_MAX: i64 = 86_400;
