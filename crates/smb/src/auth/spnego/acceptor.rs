//! The server's half of SPNEGO around NTLM, and of NTLM without SPNEGO.
//!
//! ```text
//!            NTLMSSP message
//!  +-------+------------------------------------------------> Raw: all to NTLM
//!  | Fresh |
//!  +-------+ NegTokenInit, NTLM first      +---------+  NegTokenResp: MIC right?
//!      |    ------------------------------>| Wrapped |-----------------------------> Done
//!      |                                   +---------+
//!      |     NegTokenInit, NTLM further down    ^  answered with request-mic,
//!      +----------------------------------------+  then a MIC is required
//! ```
//!
//! Spec: RFC 4178 §4 and §5, MS-SPNG §3.3.5.

use std::sync::Arc;

use aws_lc_rs::constant_time;

use super::{NegState, NegTokenInit, NegTokenResp, SpnegoError};
use crate::auth::ntlm::{AcceptorConfig, Freshness, NtlmAcceptor, SIGNATURE, mic_token};
use crate::auth::{Accept, Acceptor, DenyReason, TOKEN_MAX, UserStore};

/// One authentication, in whichever of the two ways the client chose with its first token.
#[derive(Debug)]
pub struct SpnegoAcceptor {
    ntlm: NtlmAcceptor,
    state: State,
}

#[derive(Debug)]
enum State {
    Fresh,
    Raw,
    Wrapped {
        /// The client's list as it encoded it: what the MICs cover.
        mech_list: Vec<u8>,
        /// NTLM was not its first choice.
        mic_required: bool,
    },
    Done,
}

impl SpnegoAcceptor {
    /// Starts an authentication. `fresh` must not have been given to another.
    pub fn new(config: Arc<AcceptorConfig>, users: Arc<dyn UserStore>, fresh: Freshness) -> Self {
        Self { ntlm: NtlmAcceptor::new(config, users, fresh), state: State::Fresh }
    }

    fn first(&mut self, token: &[u8]) -> Result<Accept, DenyReason> {
        if token.starts_with(SIGNATURE) {
            self.state = State::Raw;
            return Ok(self.ntlm.step(token));
        }
        let init = NegTokenInit::parse(token)?;
        if init.mech_list.len() > MECH_LIST_MAX {
            return Err(DenyReason::PeerToken);
        }
        let position = init.ntlm_at.ok_or(DenyReason::PeerMechanisms)?;
        let mic_required = position != 0;
        // RFC 4178 §4.2.1: the token belongs to the first mechanism, so not to us otherwise.
        let ours = init.mech_token.filter(|_| !mic_required);
        let challenge = match ours.map(|token| self.ntlm.step(token)) {
            Some(Accept::Continue(challenge)) => Some(challenge),
            Some(other) => return Ok(other),
            None => None,
        };
        let state = if mic_required { NegState::REQUEST_MIC } else { NegState::INCOMPLETE };
        self.state = State::Wrapped { mech_list: init.mech_list.to_vec(), mic_required };
        let answer = NegTokenResp {
            state: Some(state),
            choose_ntlm: true,
            token: challenge,
            mech_list_mic: None,
        };
        Ok(Accept::Continue(answer.emit()))
    }

    fn wrapped(
        &mut self,
        token: &[u8],
        mech_list: Vec<u8>,
        mic_required: bool,
    ) -> Result<Accept, DenyReason> {
        let resp = NegTokenResp::parse(token)?;
        let inner = resp.token.ok_or(DenyReason::PeerToken)?;
        match self.ntlm.step(&inner) {
            Accept::Continue(challenge) => {
                self.state = State::Wrapped { mech_list, mic_required };
                let state = Some(NegState::INCOMPLETE);
                let answer =
                    NegTokenResp { state, token: Some(challenge), ..NegTokenResp::default() };
                Ok(Accept::Continue(answer.emit()))
            }
            Accept::Done(mut accepted) => {
                let state = Some(NegState::COMPLETED);
                let mech_list_mic =
                    self.exchange_mics(&mech_list, resp.mech_list_mic.as_deref(), mic_required)?;
                let answer = NegTokenResp { state, mech_list_mic, ..NegTokenResp::default() };
                accepted.token = answer.emit();
                Ok(Accept::Done(accepted))
            }
            Accept::Denied(reason) => Err(reason),
        }
    }

    /// Checks the client's MIC and makes ours. Without one there is none, unless it is required.
    fn exchange_mics(
        &self,
        mech_list: &[u8],
        theirs: Option<&[u8]>,
        required: bool,
    ) -> Result<Option<Vec<u8>>, DenyReason> {
        // Guests and anonymous users share no key with us, so neither side can prove anything.
        let Some(key) = self.ntlm.exported_key() else { return Ok(None) };
        let Some(theirs) = theirs else {
            // RFC 4178 §5: someone may have taken better mechanisms out of the list.
            return if required { Err(DenyReason::PeerMessageAltered) } else { Ok(None) };
        };
        constant_time::verify_slices_are_equal(&mic_token(key, false, mech_list), theirs)
            .map_err(|_| DenyReason::PeerMessageAltered)?;
        Ok(Some(mic_token(key, true, mech_list).to_vec()))
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
            State::Raw => {
                self.state = State::Raw;
                Ok(self.ntlm.step(token))
            }
            State::Wrapped { mech_list, mic_required } => {
                self.wrapped(token, mech_list, mic_required)
            }
            State::Done => Err(DenyReason::PeerOutOfSequence),
        };
        outcome.unwrap_or_else(Accept::Denied)
    }
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
