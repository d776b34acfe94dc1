//! Admits push connections, and cleans up when a push connection is gone.
//!
//! Spec: docs/push-mode.md, "Push connection".

use std::sync::{Arc, Weak};

use remote::host::{Gate, PushConnection, Request, Verdict};
use smb::push::{PushAccept, PushConnect, PushConnectionId};
use smb::{NtStatus, ParseError};
use tracing::{debug, info};

use super::token::Bearer;
use super::wanted::{Wanted, refusal, wanted};
use super::{Push, PushPeer, recall};

/// What the engine threads ask about connections. Push holds the handle of the threads, and these hold the gate: so
/// the gate holds push weakly.
#[derive(Debug)]
pub(crate) struct PushGate(Weak<Push>);

impl PushGate {
    /// The gate of a server.
    pub(crate) fn new(push: &Arc<Push>) -> Self {
        Self(Arc::downgrade(push))
    }
}

impl Gate for PushGate {
    fn admit(&self, request: &Request, connection: PushConnection) -> Verdict {
        match wanted(&request.private_data, request.is_same_host) {
            Wanted::SmbDirect => Verdict::NotPush,
            Wanted::Refuse(status) => {
                info!(peer = %request.peer, %status, "push connection refused");
                Verdict::Refuse(refusal(status))
            }
            Wanted::Push => {
                let Some(push) = self.0.upgrade() else {
                    return Verdict::Refuse(refusal(NtStatus::SERVER_UNAVAILABLE));
                };
                match push.admit(&request.private_data, connection) {
                    Ok(answer) => Verdict::Admit(answer),
                    Err(answer) => Verdict::Refuse(answer),
                }
            }
        }
    }

    fn gone(&self, connection: PushConnection) {
        if let Some(push) = self.0.upgrade() {
            gone(&push, connection);
        }
    }

    fn no_room(&self) -> Vec<u8> {
        refusal(NtStatus::INSUFFICIENT_RESOURCES)
    }
}

impl Push {
    /// Checks the private data of a connection request; returns the private data of the accept or
    /// of the rejection.
    pub(crate) fn admit(
        &self,
        private_data: &[u8],
        engine: PushConnection,
    ) -> Result<Vec<u8>, Vec<u8>> {
        let answer = self.check(private_data, engine);
        let mut bytes = Vec::with_capacity(PushAccept::LEN);
        let (status, id) = match answer {
            Ok(id) => (NtStatus::SUCCESS, id),
            Err(status) => (status, PushConnectionId(0)),
        };
        PushAccept { status, push_connection_id: id }.emit(&mut bytes);
        if answer.is_ok() {
            return Ok(bytes);
        }
        info!(%status, "push connection refused");
        Err(bytes)
    }

    fn check(
        &self,
        private_data: &[u8],
        engine: PushConnection,
    ) -> Result<PushConnectionId, NtStatus> {
        let asked = PushConnect::parse(private_data).map_err(|error| match error {
            ParseError::PeerPushVersion(_) => NtStatus::REVISION_MISMATCH,
            _ => NtStatus::INVALID_PARAMETER,
        })?;
        let id = PushConnectionId(self.next_id());
        let mut tables = self.lock();
        let now = self.clock.now();
        let bearer = tables.tokens.bearer(&asked.proof, now).ok_or(NtStatus::ACCESS_DENIED)?;
        // Checked before the token is spent: the token stays valid for another attempt.
        if !tables.places.may_take(&bearer.holder) {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let Bearer { session_id, holder } =
            tables.tokens.spend(&asked.proof, now).ok_or(NtStatus::ACCESS_DENIED)?;
        tables.add_connection(id, PushPeer { session_id, holder, engine });
        debug!(connection = id.0, session = session_id, "push connection accepted");
        Ok(id)
    }
}

/// Handles the end of a push connection whose regions the engine no longer touches.
fn gone(push: &Arc<Push>, engine: PushConnection) {
    let regions = {
        let mut tables = push.lock();
        tables.remove_connection(engine);
        tables.regions.of_connection(engine)
    };
    for region in regions {
        recall::end_in_background(push, region);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::{Duration, Instant};

    use basics::Clock;
    use smb::push::{PushAddress, PushToken};
    use tokio::runtime::Handle;

    use super::*;
    use crate::access::Identity;
    use crate::config::PushPolicy;

    const HERE: PushAddress =
        PushAddress::Network(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1));
    const ENGINE: PushConnection = PushConnection(1);

    fn push(connections_max: u32) -> (Push, Vec<u8>) {
        let policy = PushPolicy { connections_max, ..PushPolicy::default() };
        let push = Push::new(policy, Clock::host(), Handle::current());
        let now = Instant::now();
        let expires = now + Duration::from_secs(30);
        let bearer = Bearer { session_id: 7, holder: Identity::user("user") };
        let token = push.lock().tokens.issue([3; 32], &[HERE], bearer, now, expires).unwrap();
        let mut request = Vec::new();
        PushConnect { proof: token.proof(HERE) }.emit(&mut request);
        (push, request)
    }

    fn status(answer: Result<Vec<u8>, Vec<u8>>) -> NtStatus {
        let (Ok(bytes) | Err(bytes)) = answer;
        PushAccept::parse(&bytes).unwrap().status
    }

    #[tokio::test]
    async fn a_token_opens_one_connection() {
        let (push, request) = push(8);
        push.admit(&request, ENGINE).unwrap();
        assert_eq!(status(push.admit(&request, ENGINE)), NtStatus::ACCESS_DENIED);
        assert_eq!(push.counts(), (0, 1));
    }

    #[tokio::test]
    async fn wrong_tokens_and_garbage_get_the_documented_statuses() {
        let (push, request) = push(8);
        let mut wrong = Vec::new();
        PushConnect { proof: PushToken::new([4; 32]).proof(HERE) }.emit(&mut wrong);
        assert_eq!(status(push.admit(&wrong, ENGINE)), NtStatus::ACCESS_DENIED);
        assert_eq!(status(push.admit(&request[..20], ENGINE)), NtStatus::INVALID_PARAMETER);
        assert_eq!(status(push.admit(&[], ENGINE)), NtStatus::INVALID_PARAMETER);
        let mut newer = request.clone();
        newer[4] = 9;
        assert_eq!(status(push.admit(&newer, ENGINE)), NtStatus::REVISION_MISMATCH);
        push.admit(&request, ENGINE).expect("none of them spent the token");
    }

    #[tokio::test]
    async fn a_full_server_does_not_spend_the_token() {
        let (push, request) = push(0);
        assert_eq!(status(push.admit(&request, ENGINE)), NtStatus::INSUFFICIENT_RESOURCES);
        let proof = PushToken::new([3; 32]).proof(HERE);
        assert!(push.lock().tokens.spend(&proof, Instant::now()).is_some());
    }

    #[tokio::test]
    async fn a_user_with_its_maximum_of_connections_leaves_some_to_others() {
        let policy = PushPolicy { connections_max: 8, ..PushPolicy::default() };
        let push = Push::new(policy, Clock::host(), Handle::current());
        let dial = |number: u8, name: &str| {
            let now = Instant::now();
            let bearer = Bearer { session_id: 7, holder: Identity::user(name) };
            let expires = now + Duration::from_secs(30);
            let token =
                push.lock().tokens.issue([number; 32], &[HERE], bearer, now, expires).unwrap();
            let mut request = Vec::new();
            PushConnect { proof: token.proof(HERE) }.emit(&mut request);
            push.admit(&request, PushConnection(number.into())).is_ok()
        };
        assert_eq!((0..8).filter(|number| dial(*number, "user")).count(), 4);
        assert_eq!((8..16).filter(|number| dial(*number, "other")).count(), 2);
        push.lock().remove_connection(PushConnection(0));
        push.lock().remove_connection(PushConnection(1));
        assert!(dial(16, "user"));
    }
}
