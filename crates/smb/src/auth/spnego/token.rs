//! The tokens of SPNEGO.
//!
//! ```text
//!  NegTokenInit   60 { 06 spnego-oid, a0 { 30 {
//!                   a0 { 30 { 06 mech, 06 mech, .. } }      <- mechListMIC covers this 30 {..}
//!                   a1 { flags }  a2 { 04 mechToken }  a3 { 04 mechListMIC or hints } } } }
//!  NegTokenResp   a1 { 30 {
//!                   a0 { 0a negState }  a1 { 06 mech }  a2 { 04 token }  a3 { 04 mechListMIC } } }
//! ```
//!
//! Spec: RFC 4178 §4.2, MS-SPNG §2.2.1.

use thiserror::Error;

use crate::auth::der::{
    APPLICATION_0, ENUMERATED, Element, OBJECT_ID, OCTET_STRING, SEQUENCE, context, expect, split,
    wrap,
};
use crate::auth::kerberos::{KERBEROS_OID, MICROSOFT_OID};

/// The client's first token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NegTokenInit<'a> {
    /// The mechanism list exactly as it was encoded.
    pub mech_list: &'a [u8],
    /// The list, first choice first.
    pub mechanisms: Vec<Mechanism>,
    /// Token of the first mechanism.
    pub mech_token: Option<&'a [u8]>,
}

impl<'a> NegTokenInit<'a> {
    /// Reads a token that begins with the tag of the GSS frame.
    ///
    /// # Errors
    /// It is malformed, or lists more mechanisms than [`MECHANISMS_MAX`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SpnegoError> {
        let frame = expect(bytes, APPLICATION_0).ok_or(SpnegoError::PeerMalformed)?;
        let oid = expect(frame.content, OBJECT_ID).ok_or(SpnegoError::PeerMalformed)?;
        if oid.content != SPNEGO_OID {
            return Err(SpnegoError::PeerMechanism);
        }
        let init = unwrap_two(oid.rest, context(0), SEQUENCE)?;
        let list = unwrap_one(init.content, context(0))?;
        let encoded = expect(list.content, SEQUENCE).ok_or(SpnegoError::PeerMalformed)?;
        let mechanisms = mechanisms(encoded.content)?;
        let mut mech_token = None;
        let mut fields = list.rest;
        while let Some(field) = split(fields) {
            if field.tag == context(2) {
                mech_token = Some(unwrap_one(field.content, OCTET_STRING)?.content);
            }
            fields = field.rest;
        }
        if !fields.is_empty() {
            return Err(SpnegoError::PeerMalformed);
        }
        Ok(Self { mech_list: encoded.whole, mechanisms, mech_token })
    }
}

/// Every token after the first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NegTokenResp {
    /// How far the sender is; clients often leave it out.
    pub state: Option<NegState>,
    /// Which mechanism was chosen. Only emitted; a server does not choose again.
    pub choice: Option<Mechanism>,
    /// Token of the mechanism.
    pub token: Option<Vec<u8>>,
    /// Signature over the mechanism list.
    pub mech_list_mic: Option<Vec<u8>>,
}

impl NegTokenResp {
    /// Reads a token.
    ///
    /// # Errors
    /// It is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, SpnegoError> {
        let sequence = unwrap_two(bytes, context(1), SEQUENCE)?;
        let mut out = Self::default();
        let mut fields = sequence.content;
        while let Some(field) = split(fields) {
            let value = split(field.content).ok_or(SpnegoError::PeerMalformed)?;
            match (field.tag, value.tag, value.content) {
                (0xa0, ENUMERATED, [state]) => out.state = Some(NegState(*state)),
                (0xa1, OBJECT_ID, oid) => out.choice = Mechanism::of(oid),
                (0xa2, OCTET_STRING, token) => out.token = Some(token.to_vec()),
                (0xa3, OCTET_STRING, mic) => out.mech_list_mic = Some(mic.to_vec()),
                _ => return Err(SpnegoError::PeerMalformed),
            }
            fields = field.rest;
        }
        if !fields.is_empty() {
            return Err(SpnegoError::PeerMalformed);
        }
        Ok(out)
    }

    /// The whole token.
    pub fn emit(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        if let Some(NegState(state)) = self.state {
            fields.extend(wrap(context(0), &wrap(ENUMERATED, &[state])));
        }
        if let Some(choice) = self.choice {
            fields.extend(wrap(context(1), &wrap(OBJECT_ID, choice.oid())));
        }
        if let Some(token) = &self.token {
            fields.extend(wrap(context(2), &wrap(OCTET_STRING, token)));
        }
        if let Some(mic) = &self.mech_list_mic {
            fields.extend(wrap(context(3), &wrap(OCTET_STRING, mic)));
        }
        wrap(context(1), &wrap(SEQUENCE, &fields))
    }
}

/// How far a negotiation is. Unknown values survive.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NegState(pub u8);

impl NegState {
    /// The context is established.
    pub const COMPLETED: Self = Self(0);
    /// More tokens are needed.
    pub const INCOMPLETE: Self = Self(1);
    /// It failed.
    pub const REJECT: Self = Self(2);
    /// Not the client's first choice: it has to prove its list.
    pub const REQUEST_MIC: Self = Self(3);
}

/// What a client may authenticate with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Mechanism {
    /// NTLMSSP.
    Ntlm,
    /// Kerberos.
    Kerberos,
    /// Kerberos, by the identifier that Windows 2000 gave it.
    KerberosOfMicrosoft,
    /// One that we do not speak.
    Other,
}

impl Mechanism {
    /// Whether it is Kerberos by either name.
    pub fn is_kerberos(self) -> bool {
        matches!(self, Self::Kerberos | Self::KerberosOfMicrosoft)
    }

    fn of(oid: &[u8]) -> Option<Self> {
        [Self::Ntlm, Self::Kerberos, Self::KerberosOfMicrosoft]
            .into_iter()
            .find(|mechanism| mechanism.oid() == oid)
    }

    /// # Panics
    /// It is [`Mechanism::Other`], which nobody chooses.
    fn oid(self) -> &'static [u8] {
        match self {
            Self::Ntlm => NTLM_OID,
            Self::Kerberos => KERBEROS_OID,
            Self::KerberosOfMicrosoft => MICROSOFT_OID,
            Self::Other => unreachable!("only what we speak is chosen"),
        }
    }
}

/// Reads the content of a list.
fn mechanisms(mut list: &[u8]) -> Result<Vec<Mechanism>, SpnegoError> {
    let mut found = Vec::new();
    while !list.is_empty() {
        if found.len() == MECHANISMS_MAX {
            return Err(SpnegoError::PeerMechanisms);
        }
        let mechanism = expect(list, OBJECT_ID).ok_or(SpnegoError::PeerMalformed)?;
        found.push(Mechanism::of(mechanism.content).unwrap_or(Mechanism::Other));
        list = mechanism.rest;
    }
    Ok(found)
}

fn unwrap_one(bytes: &[u8], tag: u8) -> Result<Element<'_>, SpnegoError> {
    expect(bytes, tag).ok_or(SpnegoError::PeerMalformed)
}

fn unwrap_two(bytes: &[u8], outer: u8, inner: u8) -> Result<Element<'_>, SpnegoError> {
    unwrap_one(unwrap_one(bytes, outer)?.content, inner)
}

/// Why bytes are not a SPNEGO token.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SpnegoError {
    /// Not the structure RFC 4178 describes.
    #[error("peer's SPNEGO token is malformed")]
    PeerMalformed,
    /// The GSS frame is about another mechanism than SPNEGO.
    #[error("peer's GSS token is not SPNEGO")]
    PeerMechanism,
    /// A longer list of mechanisms than anyone needs.
    #[error("peer lists more than {MECHANISMS_MAX} mechanisms")]
    PeerMechanisms,
}

/// Windows lists five.
const MECHANISMS_MAX: usize = 32;

/// 1.3.6.1.5.5.2.
const SPNEGO_OID: &[u8] = &[0x2b, 6, 1, 5, 5, 2];
/// 1.3.6.1.4.1.311.2.2.10.
const NTLM_OID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0a];

/// The list of a client that speaks NTLMSSP alone, as it is encoded.
pub(in crate::auth) const NTLM_LIST: &[u8] = NEGOTIATE_HINT.split_at(16).1;

/// The first token of a client that speaks NTLMSSP alone.
pub(in crate::auth) fn first_token(negotiate: &[u8]) -> Vec<u8> {
    let list = wrap(context(0), NTLM_LIST);
    let token = wrap(context(2), &wrap(OCTET_STRING, negotiate));
    let init = wrap(context(0), &wrap(SEQUENCE, &[list, token].concat()));
    wrap(APPLICATION_0, &[wrap(OBJECT_ID, SPNEGO_OID), init].concat())
}

/// What a NEGOTIATE response carries: "we speak NTLMSSP", and nothing else.
///
/// MS-SPNG §2.2.1: a NegTokenInit2 may leave its negHints out. Their one use is to carry the name
/// `not_defined_in_RFC4178@please_ignore`, and they stand where RFC 4178 §4.2.1 has the
/// mechListMIC, for which readers of the RFC (tshark) take them. impacket's server sends none either.
pub const NEGOTIATE_HINT: &[u8; 30] = b"\x60\x1c\x06\x06\x2b\x06\x01\x05\x05\x02\xa0\x12\x30\x10\
    \xa0\x0e\x30\x0c\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x02\x02\x0a";

/// The same of a server that takes tickets too: Kerberos by both its names before NTLMSSP, as Windows
/// lists them.
pub const KERBEROS_HINT: &[u8; 52] = b"\x60\x32\x06\x06\x2b\x06\x01\x05\x05\x02\xa0\x28\x30\x26\
    \xa0\x24\x30\x22\x06\x09\x2a\x86\x48\x82\xf7\x12\x01\x02\x02\x06\x09\x2a\x86\x48\x86\xf7\x12\
    \x01\x02\x02\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x02\x02\x0a";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::hex;
    use crate::crypto::vectors::PREAUTH_MESSAGES;

    /// From a PDU of Microsoft's published 3.1.1 conversation: what follows `skip` bytes.
    fn token(message: usize, skip: usize) -> Vec<u8> {
        hex(PREAUTH_MESSAGES[message]).split_off(skip)
    }

    #[test]
    fn a_windows_client_s_first_token_parses() {
        let bytes = token(2, 88);
        let init = NegTokenInit::parse(&bytes).unwrap();
        assert_eq!(init.mechanisms, [Mechanism::Ntlm]);
        assert_eq!(init.mech_list, hex("300c060a2b06010401823702020a"));
        assert!(init.mech_token.unwrap().starts_with(b"NTLMSSP\0\x01"));
    }

    #[test]
    fn our_client_s_first_token_is_that_of_a_windows_client() {
        let bytes = token(2, 88);
        let init = NegTokenInit::parse(&bytes).unwrap();
        assert_eq!(init.mech_list, NTLM_LIST);
        assert_eq!(first_token(init.mech_token.unwrap()), bytes);
    }

    #[test]
    fn a_windows_server_s_answer_parses_and_comes_out_of_emit() {
        let bytes = token(3, 72);
        let resp = NegTokenResp::parse(&bytes).unwrap();
        assert_eq!(resp.state, Some(NegState::INCOMPLETE));
        assert!(
            resp.choice == Some(Mechanism::Ntlm)
                && resp.token.is_some()
                && resp.mech_list_mic.is_none()
        );
        // Windows writes the two inner lengths in two bytes where one would do for the outer.
        assert_eq!(NegTokenResp::parse(&resp.emit()), Ok(resp.clone()));
        assert_eq!(resp.emit(), bytes);
    }

    #[test]
    fn a_windows_client_s_second_token_carries_its_mic() {
        let resp = NegTokenResp::parse(&token(4, 88)).unwrap();
        assert_eq!(resp.mech_list_mic.unwrap(), hex("0100000063775a9a5fd97f0600000000"));
    }

    #[test]
    fn our_hints_are_lists_of_mechanisms_and_nothing_else() {
        let init = NegTokenInit::parse(NEGOTIATE_HINT).unwrap();
        assert_eq!((&init.mechanisms[..], init.mech_token), (&[Mechanism::Ntlm][..], None));
        assert!(NEGOTIATE_HINT.ends_with(init.mech_list), "no negHints behind the list");
        let init = NegTokenInit::parse(KERBEROS_HINT).unwrap();
        let all = [Mechanism::KerberosOfMicrosoft, Mechanism::Kerberos, Mechanism::Ntlm];
        assert_eq!((&init.mechanisms[..], init.mech_token), (&all[..], None));
        assert!(KERBEROS_HINT.ends_with(init.mech_list));
    }

    #[test]
    fn no_truncation_and_no_flipped_bit_panics() {
        for bytes in [token(2, 88), token(3, 72), token(4, 88)] {
            for len in 0..bytes.len() {
                NegTokenInit::parse(&bytes[..len]).unwrap_err();
                NegTokenResp::parse(&bytes[..len]).unwrap_err();
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[at] ^= 1 << bit;
                    let _ = (NegTokenInit::parse(&changed), NegTokenResp::parse(&changed));
                }
            }
        }
    }
}
