//! Logging on by NTLM: to the end, or as far as a test wants.

use std::io::Write as _;
use std::sync::Arc;

use smb::auth::{ClientFreshness, Initiate, Initiator as _, NtlmInitiator};
use smb::crypto::{KeySchedule, Role, SessionKeys, SigningAlgorithm};
use smb::negotiate::{Capabilities, SecurityMode};
use smb::{
    Command, Empty, NtStatus, SessionFlags, SessionId, SessionSetupRequest, SessionSetupResponse,
};

use super::{Wire, sign_with};

impl Wire {
    pub(crate) fn log_on(&mut self) {
        self.log_on_as("user", "secret");
    }

    pub(crate) fn log_on_as(&mut self, user: &str, password: &str) {
        assert_eq!(self.try_log_on_as(user, password), NtStatus::SUCCESS);
    }

    pub(crate) fn try_log_on_as(&mut self, user: &str, password: &str) -> NtStatus {
        self.set_up(user, password, None)
    }

    /// Sends the last leg of a logon and, at once behind it, an ECHO. The message id of the logon, and its
    /// answer where that comes before that of the ECHO: else it is held back.
    pub(crate) fn try_password(&mut self, user: &str, password: &str) -> (u64, Option<NtStatus>) {
        let pdu = match self.leg(1, user, password) {
            Ok(pdu) => pdu,
            Err((id, status)) => return (id, Some(status)),
        };
        let id = self.next_id - 1;
        let session = std::mem::take(&mut self.session);
        let (echo_id, echo) = (self.next_id, self.pdu(Command::ECHO, |out| Empty.emit(out)));
        self.session = session;
        // In one piece: nothing keeps the second from being read when the first one is.
        let mut both = Vec::new();
        for pdu in [&pdu, &echo] {
            both.extend_from_slice(&u32::try_from(pdu.len()).unwrap().to_be_bytes());
            both.extend_from_slice(pdu);
        }
        self.stream.write_all(&both).unwrap();
        self.answer_to(echo_id);
        let at = self.unsolicited.iter().position(|(header, _)| header.message_id.0 == id);
        (id, at.map(|at| self.unsolicited.remove(at).0.status))
    }

    /// The SESSION_SETUP of a leg of a logon, 0 or 1, unsent. If the leg before it was refused: its message
    /// id and what it came to.
    pub(crate) fn leg(
        &mut self,
        leg: usize,
        user: &str,
        password: &str,
    ) -> Result<Vec<u8>, (u64, NtStatus)> {
        let mut initiator = initiator(user, password);
        let mut token: Option<Vec<u8>> = None;
        self.session = 0;
        for turn in 0.. {
            let Initiate::Send(next) = initiator.step(token.as_deref()).unwrap() else { break };
            let previous_session_id = SessionId(self.previous);
            let request = SessionSetupRequest { previous_session_id, ..session_setup(&next) };
            let id = self.next_id;
            let pdu = self.pdu(Command::SESSION_SETUP, |out| request.emit(out));
            if turn == leg {
                return Ok(pdu);
            }
            self.send_frame(&pdu);
            let (header, answer) = self.answer_to(id);
            if header.status != NtStatus::MORE_PROCESSING_REQUIRED {
                return Err((id, header.status));
            }
            self.session = header.session_id.0;
            token = Some(SessionSetupResponse::parse(&answer).unwrap().token.to_vec());
        }
        unreachable!("a logon has two legs")
    }

    /// Becomes another channel of the session of `first`.
    pub(crate) fn join(&mut self, first: &Self, (user, password): (&str, &str)) -> NtStatus {
        self.session = first.session;
        let status = self.set_up(user, password, first.keys.as_deref());
        self.tree = first.tree;
        status
    }

    /// A logon that says no name, as `smbclient -N` does it. What it came to.
    pub(crate) fn log_on_without_name(&mut self) -> NtStatus {
        self.log_on_by_tokens(&without_name())
    }

    /// A logon with a name of any length, and with a proof that no password makes. What it came to.
    pub(crate) fn log_on_unproven(&mut self, user: &str) -> NtStatus {
        self.log_on_by_tokens(&[NTLM_NEGOTIATE.to_vec(), ntlm_unproven(user)])
    }

    fn log_on_by_tokens(&mut self, tokens: &[Vec<u8>]) -> NtStatus {
        let mut status = NtStatus::SUCCESS;
        self.session = 0;
        for token in tokens {
            let request = session_setup(token);
            let (header, answer) = self.ask(Command::SESSION_SETUP, |out| request.emit(out));
            self.session = header.session_id.0;
            if header.status == NtStatus::SUCCESS {
                self.flags = SessionSetupResponse::parse(&answer).unwrap().flags;
            }
            status = header.status;
        }
        status
    }

    /// The legs of a SESSION_SETUP; bound and signed with the keys `of` a session, if there are.
    fn set_up(&mut self, user: &str, password: &str, of: Option<&SessionKeys>) -> NtStatus {
        let mut initiator = initiator(user, password);
        let mut hash = self.preauth;
        let mut token: Option<Vec<u8>> = None;
        loop {
            let step = initiator.step(token.as_deref()).unwrap();
            let Initiate::Send(next) = step else { break };
            let request = SessionSetupRequest {
                binding: of.is_some(),
                previous_session_id: SessionId(self.previous),
                ..session_setup(&next)
            };
            let mut pdu = self.pdu(Command::SESSION_SETUP, |out| request.emit(out));
            if let Some(keys) = of {
                sign_with(keys, &mut pdu);
            }
            hash.update(&pdu);
            self.send_frame(&pdu);
            let (header, mut answer) = self.receive();
            self.session = header.session_id.0;
            if header.status.is_error() && header.status != NtStatus::MORE_PROCESSING_REQUIRED {
                return header.status;
            }
            let response = SessionSetupResponse::parse(&answer).unwrap();
            token = Some(response.token.to_vec());
            if header.status == NtStatus::SUCCESS {
                self.flags = response.flags;
                let _ = initiator.step(token.as_deref());
                break;
            }
            assert_eq!(header.status, NtStatus::MORE_PROCESSING_REQUIRED);
            hash.update(&answer);
            if let Some(keys) = of.filter(|_| self.signing != SigningAlgorithm::AesGmac) {
                keys.signing.verify(&mut answer).expect("signed as the question was");
            }
        }
        if self.flags.intersects(SessionFlags::GUEST | SessionFlags::NULL) {
            self.keys = None;
            return NtStatus::SUCCESS;
        }
        let key = initiator.session_key().unwrap();
        let (signing, cipher) = (self.signing, self.cipher);
        let schedule = KeySchedule::Smb311 { preauth: hash, signing, cipher };
        self.keys = Some(Arc::new(schedule.derive(&key, Role::Client)));
        NtStatus::SUCCESS
    }
}

/// A SESSION_SETUP of a new session.
pub(crate) fn session_setup(token: &[u8]) -> SessionSetupRequest<'_> {
    SessionSetupRequest {
        binding: false,
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::empty(),
        previous_session_id: SessionId(0),
        token,
    }
}

/// The two tokens of a logon that says no name.
pub(crate) fn without_name() -> [Vec<u8>; 2] {
    [NTLM_NEGOTIATE.to_vec(), ntlm_anonymous()]
}

/// What a logon begins with.
pub(crate) fn first_token(user: &str, password: &str) -> Vec<u8> {
    let Initiate::Send(token) = initiator(user, password).step(None).unwrap() else {
        panic!("it begins")
    };
    token
}

// MS-NLMP §2.2.1.3: no user, no responses, and the two flags that say Unicode and anonymous.
fn ntlm_anonymous() -> Vec<u8> {
    let mut message = b"NTLMSSP\0\x03\0\0\0".to_vec();
    message.resize(64, 0);
    message[60..].copy_from_slice(&0x0000_0801_u32.to_le_bytes());
    message
}

// MS-NLMP §2.2.1.3: a name, and an NTLMv2 response of zeros around the two version bytes (§2.2.2.7). Clients of ours
// send no name that is longer than a name can be.
fn ntlm_unproven(user: &str) -> Vec<u8> {
    let mut response = [0; 48];
    response[16..18].copy_from_slice(&[1, 1]);
    let name: Vec<u8> = user.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut message = ntlm_anonymous();
    for (field, bytes) in [(20, &response[..]), (36, &name)] {
        let (len, at) =
            (u16::try_from(bytes.len()).unwrap(), u32::try_from(message.len()).unwrap());
        message[field..field + 2].copy_from_slice(&len.to_le_bytes());
        message[field + 2..field + 4].copy_from_slice(&len.to_le_bytes());
        message[field + 4..field + 8].copy_from_slice(&at.to_le_bytes());
        message.extend_from_slice(bytes);
    }
    message[60..64].copy_from_slice(&0x0000_0201_u32.to_le_bytes());
    message
}

// MS-NLMP §2.2.1.1: what Windows 7 begins with, without names.
const NTLM_NEGOTIATE: &[u8] = b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06\x03\x80\x25\0\0\0\x0f";

fn initiator(user: &str, password: &str) -> NtlmInitiator {
    let fresh = ClientFreshness::new(&[7; 24], 0);
    NtlmInitiator::with_password(user, "", password, "127.0.0.1", fresh).unwrap()
}
