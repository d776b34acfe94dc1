//! The server's half of SPNEGO around NTLM and Kerberos, and of both without SPNEGO.
//!
//! ```text
//!            NTLMSSP message, Kerberos token
//!  +-------+-------------------------------------------------> Raw: all to the mechanism
//!  | Fresh |
//!  +-------+ NegTokenInit, ours is first   +---------+  NegTokenResp: MIC right?
//!      |    ------------------------------>| Wrapped |-----------------------------> Done
//!      |                                   +---------+                                ^
//!      |     NegTokenInit, ours further down  ^  |  MIC required, the client cannot   |
//!      +--------------------------------------+  v  sign yet: answered with ours      |
//!             answered with request-mic,   +-----------+                             |
//!             then a MIC is required       | AwaitsMic |------------------------------+
//!                                          +-----------+  MIC right?
//! ```
//!
//! A ticket in the first token ends it at once.
//!
//! Spec: RFC 4178 §4 and §5, MS-SPNG §3.3.5.

use std::sync::Arc;

use aws_lc_rs::constant_time;

use super::{Mechanism, NegState, NegTokenInit, NegTokenResp, SpnegoError};
use crate::auth::kerberos::{KerberosAcceptor, is_kerberos};
use crate::auth::ntlm::{AcceptorConfig, Freshness, NtlmAcceptor, SIGNATURE, mic_token};
use crate::auth::{Accept, Accepted, Acceptor, DenyReason, TOKEN_MAX, UserStore};

/// One authentication, in whichever of its ways the client chose with its first token.
#[derive(Debug)]
pub struct SpnegoAcceptor {
    ntlm: NtlmAcceptor,
    /// None: tickets are not taken.
    kerberos: Option<KerberosAcceptor>,
    state: State,
}

#[derive(Debug)]
enum State {
    Fresh,
    Raw(Way),
    Wrapped {
        way: Way,
        /// The client's list as it encoded it: what the MICs cover.
        mech_list: Vec<u8>,
        /// Ours was not its first choice.
        mic_required: bool,
    },
    /// All is proven but that the list is the client's.
    AwaitsMic {
        accepted: Accepted,
        way: Way,
        mech_list: Vec<u8>,
    },
    Done,
}

/// Which mechanism.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Ntlm,
    Kerberos,
}

impl SpnegoAcceptor {
    /// Starts an authentication. `fresh` must not have been given to another.
    pub fn new(config: Arc<AcceptorConfig>, users: Arc<dyn UserStore>, fresh: Freshness) -> Self {
        let ntlm = NtlmAcceptor::new(config, users, fresh);
        Self { ntlm, kerberos: None, state: State::Fresh }
    }

    /// Takes tickets too.
    #[must_use]
    pub fn with_kerberos(self, kerberos: KerberosAcceptor) -> Self {
        Self { kerberos: Some(kerberos), ..self }
    }

    fn first(&mut self, token: &[u8]) -> Result<Accept, DenyReason> {
        if token.starts_with(SIGNATURE) {
            return Ok(self.raw(Way::Ntlm, token));
        }
        if self.kerberos.is_some() && is_kerberos(token) {
            return Ok(self.raw(Way::Kerberos, token));
        }
        let init = NegTokenInit::parse(token)?;
        if init.mech_list.len() > MECH_LIST_MAX {
            return Err(DenyReason::PeerToken);
        }
        let mut choices = init.mechanisms.iter().enumerate();
        let chosen = choices.find_map(|(at, choice)| Some((at, *choice, self.way(*choice)?)));
        let (position, choice, way) = chosen.ok_or(DenyReason::PeerMechanisms)?;
        let mic_required = position != 0;
        // RFC 4178 §4.2.1: the token belongs to the first mechanism, so not to us otherwise.
        let ours = init.mech_token.filter(|_| !mic_required);
        let mech_list = init.mech_list.to_vec();
        let choice = Some(choice);
        match ours.map(|token| self.inner(way, token)) {
            None => {
                let state = if mic_required { NegState::REQUEST_MIC } else { NegState::INCOMPLETE };
                self.state = State::Wrapped { way, mech_list, mic_required };
                let answer = NegTokenResp { state: Some(state), choice, ..NegTokenResp::default() };
                Ok(Accept::Continue(answer.emit()))
            }
            Some(Accept::Continue(challenge)) => {
                self.state = State::Wrapped { way, mech_list, mic_required };
                let answer = NegTokenResp {
                    state: Some(NegState::INCOMPLETE),
                    choice,
                    token: Some(challenge),
                    mech_list_mic: None,
                };
                Ok(Accept::Continue(answer.emit()))
            }
            // RFC 4178 §5: the client's own first choice was taken, so nobody gains by changing the list.
            Some(Accept::Done(accepted)) => Ok(Accept::Done(complete(accepted, choice, None))),
            Some(Accept::Denied(reason)) => Err(reason),
        }
    }

    fn wrapped(
        &mut self,
        token: &[u8],
        way: Way,
        mech_list: Vec<u8>,
        mic_required: bool,
    ) -> Result<Accept, DenyReason> {
        let resp = NegTokenResp::parse(token)?;
        let inner = resp.token.ok_or(DenyReason::PeerToken)?;
        match self.inner(way, &inner) {
            Accept::Continue(challenge) => {
                self.state = State::Wrapped { way, mech_list, mic_required };
                let state = Some(NegState::INCOMPLETE);
                let answer =
                    NegTokenResp { state, token: Some(challenge), ..NegTokenResp::default() };
                Ok(Accept::Continue(answer.emit()))
            }
            Accept::Done(mut accepted) => {
                let ours = self.sign(way, &mech_list);
                let mech_list_mic = match (resp.mech_list_mic, ours) {
                    // Guests and anonymous users share no key with us: neither side can prove anything.
                    (_, None) => None,
                    (Some(theirs), ours) => {
                        self.verify(way, &mech_list, &theirs)?;
                        ours
                    }
                    (None, Some(_)) if !mic_required => None,
                    // RFC 4178 §5: someone may have taken better mechanisms out of the list. Who waits for
                    // an AP-REP has no key to show the contrary with until it is there.
                    (None, ours) if way == Way::Kerberos => {
                        let answer = NegTokenResp {
                            state: Some(NegState::INCOMPLETE),
                            token: Some(std::mem::take(&mut accepted.token)),
                            mech_list_mic: ours,
                            choice: None,
                        };
                        self.state = State::AwaitsMic { accepted, way, mech_list };
                        return Ok(Accept::Continue(answer.emit()));
                    }
                    (None, Some(_)) => return Err(DenyReason::PeerMessageAltered),
                };
                Ok(Accept::Done(complete(accepted, None, mech_list_mic)))
            }
            Accept::Denied(reason) => Err(reason),
        }
    }

    fn last(
        &self,
        token: &[u8],
        accepted: Accepted,
        way: Way,
        mech_list: &[u8],
    ) -> Result<Accept, DenyReason> {
        let resp = NegTokenResp::parse(token)?;
        let theirs = resp.mech_list_mic.ok_or(DenyReason::PeerMessageAltered)?;
        self.verify(way, mech_list, &theirs)?;
        Ok(Accept::Done(complete(accepted, None, None)))
    }

    fn raw(&mut self, way: Way, token: &[u8]) -> Accept {
        self.state = State::Raw(way);
        self.inner(way, token)
    }

    fn way(&self, mechanism: Mechanism) -> Option<Way> {
        match mechanism {
            Mechanism::Ntlm => Some(Way::Ntlm),
            Mechanism::Kerberos | Mechanism::KerberosOfMicrosoft => {
                self.kerberos.as_ref().map(|_| Way::Kerberos)
            }
            Mechanism::Other => None,
        }
    }

    fn inner(&mut self, way: Way, token: &[u8]) -> Accept {
        match (way, &mut self.kerberos) {
            (Way::Kerberos, Some(kerberos)) => kerberos.step(token),
            (Way::Kerberos, None) => Accept::Denied(DenyReason::PeerMechanisms),
            (Way::Ntlm, _) => self.ntlm.step(token),
        }
    }

    /// Our MIC of the client's list; none without a key.
    fn sign(&self, way: Way, mech_list: &[u8]) -> Option<Vec<u8>> {
        match way {
            Way::Ntlm => {
                self.ntlm.exported_key().map(|key| mic_token(key, true, mech_list).to_vec())
            }
            Way::Kerberos => self.kerberos.as_ref()?.sign(mech_list),
        }
    }

    fn verify(&self, way: Way, mech_list: &[u8], theirs: &[u8]) -> Result<(), DenyReason> {
        let is_right = match way {
            Way::Ntlm => self.ntlm.exported_key().is_some_and(|key| {
                let expected = mic_token(key, false, mech_list);
                constant_time::verify_slices_are_equal(&expected, theirs).is_ok()
            }),
            Way::Kerberos => {
                self.kerberos.as_ref().is_some_and(|one| one.is_signed(mech_list, theirs))
            }
        };
        if is_right { Ok(()) } else { Err(DenyReason::PeerMessageAltered) }
    }
}

impl Acceptor for SpnegoAcceptor {
    fn step(&mut self, token: &[u8]) -> Accept {
        if token.len() > TOKEN_MAX {
            self.state = State::Done;
            return Accept::Denied(DenyReason::PeerTokenLength(token.len()));
        }
        let outcome = match std::mem::replace(&mut self.state, State::Done) {
            State::Fresh => self.first(token),
            State::Raw(way) => Ok(self.raw(way, token)),
            State::Wrapped { way, mech_list, mic_required } => {
                self.wrapped(token, way, mech_list, mic_required)
            }
            State::AwaitsMic { accepted, way, mech_list } => {
                self.last(token, accepted, way, &mech_list)
            }
            State::Done => Err(DenyReason::PeerOutOfSequence),
        };
        outcome.unwrap_or_else(Accept::Denied)
    }
}

/// Wraps the mechanism's last token, if it has one, in ours.
fn complete(
    mut accepted: Accepted,
    choice: Option<Mechanism>,
    mech_list_mic: Option<Vec<u8>>,
) -> Accepted {
    let token = std::mem::take(&mut accepted.token);
    let token = Some(token).filter(|token| !token.is_empty());
    let state = Some(NegState::COMPLETED);
    accepted.token = NegTokenResp { state, choice, token, mech_list_mic }.emit();
    accepted
}

impl From<SpnegoError> for DenyReason {
    fn from(error: SpnegoError) -> Self {
        match error {
            SpnegoError::PeerMalformed | SpnegoError::PeerMechanism => Self::PeerToken,
            SpnegoError::PeerMechanisms => Self::PeerMechanisms,
        }
    }
}

/// 32 mechanisms of 12 bytes, generously.
const MECH_LIST_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::UserList;
    use crate::auth::der::{APPLICATION_0, OBJECT_ID, OCTET_STRING, SEQUENCE, context, wrap};
    use crate::auth::ntlm::{AcceptorConfig, Freshness, NtlmClient};
    use crate::auth::spnego::NTLM_LIST;

    /// A first token whose encoded list has so many bytes: NTLM, and one that nobody knows.
    fn token(list_len: usize) -> Vec<u8> {
        let ntlm = &NTLM_LIST[2..];
        let head = wrap(SEQUENCE, &[0; 256]).len() - 256;
        let unknown = wrap(OBJECT_ID, &vec![0x2a; list_len - 2 * head - ntlm.len()]);
        let list = wrap(SEQUENCE, &[ntlm, &unknown].concat());
        assert_eq!(list.len(), list_len);
        let list = wrap(context(0), &list);
        let negotiate = wrap(context(2), &wrap(OCTET_STRING, &NtlmClient::negotiate()));
        let init = wrap(context(0), &wrap(SEQUENCE, &[list, negotiate].concat()));
        wrap(APPLICATION_0, &[wrap(OBJECT_ID, SPNEGO), init].concat())
    }

    #[test]
    fn a_list_of_mechanisms_longer_than_any_is_refused() {
        for (len, is_taken) in
            [(MECH_LIST_MAX, true), (MECH_LIST_MAX + 1, false), (MECH_LIST_MAX + 2, false)]
        {
            let fresh = Freshness { challenge: [1; 8], now_filetime: 0x01dd_0000_0000_0000 };
            let config = Arc::new(AcceptorConfig::new("landfast"));
            let mut server = SpnegoAcceptor::new(config, Arc::new(UserList::new()), fresh);
            let answer = server.step(&token(len));
            assert_eq!(matches!(answer, Accept::Continue(_)), is_taken, "{len} bytes");
        }
    }

    const SPNEGO: &[u8] = &[0x2b, 6, 1, 5, 5, 2];
}
