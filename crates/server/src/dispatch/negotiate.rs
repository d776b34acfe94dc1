//! NEGOTIATE: dialect, capabilities, algorithms; and the one SMB1 message that is understood.
//!
//! Spec: MS-SMB2 §3.3.5.3 (SMB1), §3.3.5.4 (SMB2).

use smb::Command;
use smb::NtStatus;
use smb::auth::{KERBEROS_HINT, NEGOTIATE_HINT};
use smb::crypto::{Cipher, SigningAlgorithm};
use smb::negotiate::{
    Capabilities, CipherId, Dialect, HashId, NegotiateContext, NegotiateRequest, NegotiateResponse,
    SecurityMode, SigningId,
};
use smb::smb1::Smb1Negotiate;
use smb::{Header, MessageId};
use tracing::debug;

use super::connection::{Connection, Stage, Violation};
use super::frame::{self, Terms};
use crate::config::SigningPolicy;
use crate::connections::{Agreed, Link};
use crate::service::Core;
use crate::time::file_time;

/// Answers an SMB1 NEGOTIATE that offers SMB2; everything else of SMB1 ends the connection.
pub(crate) fn multi_protocol(
    connection: &mut Connection,
    frame: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Violation> {
    if connection.stage != Stage::Fresh {
        return Err(Violation::PeerNegotiatedTwice);
    }
    let offer = Smb1Negotiate::parse(frame)?;
    let dialect = if offer.offers_2_wildcard {
        Dialect::WILDCARD
    } else if offer.offers_2_002 {
        Dialect::SMB_2_0_2
    } else {
        return Err(Violation::PeerNotNegotiated);
    };
    // It has no message id, but the answer has, and the next request continues from there.
    connection.link.window().claim(0, 1)?;
    let request = Header::request(Command::NEGOTIATE, MessageId(0));
    if dialect == Dialect::SMB_2_0_2 {
        let agreed = Agreed {
            dialect,
            client_guid: [0; 16],
            client_capabilities: Capabilities::empty(),
            client_security_mode: SecurityMode::SIGNING_ENABLED,
            server_capabilities: Capabilities::empty(),
            server_security_mode: security_mode(&connection.core),
            signing: SigningAlgorithm::HmacSha256,
            cipher: None,
            posix: false,
        };
        let _ = connection.link.agreed.set(agreed);
        connection.stage = Stage::Negotiated;
    } else {
        connection.stage = Stage::MultiProtocol;
    }
    let response =
        response(&connection.core, &connection.link, dialect, Capabilities::empty(), Vec::new());
    send(connection, &request, &response, out)?;
    Ok(())
}

/// Answers NEGOTIATE.
pub(crate) fn handle(
    connection: &mut Connection,
    header: &Header,
    pdu: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Violation> {
    // MS-SMB2 §3.3.5.4: a second one ends the connection without an answer.
    if connection.stage == Stage::Negotiated {
        return Err(Violation::PeerNegotiatedTwice);
    }
    let link = &connection.link;
    let refuse = |status, out: &mut Vec<u8>| {
        frame::plain_status(link, out, header, status, None, false).map_err(Violation::from)
    };
    let request = match NegotiateRequest::parse(pdu) {
        Ok(request) => request,
        Err(error) => return refuse(error.status(), out),
    };
    let Some(dialect) = choose_dialect(&request.dialects) else {
        return refuse(NtStatus::NOT_SUPPORTED, out);
    };
    let choice = match Choice::make(dialect, &request) {
        Ok(choice) => choice,
        Err(status) => return refuse(status, out),
    };
    let core = &connection.core;
    let capabilities = capabilities(core, dialect, &request, choice.cipher);
    let agreed = Agreed {
        dialect,
        client_guid: request.client_guid.0,
        client_capabilities: request.capabilities,
        client_security_mode: request.security_mode,
        server_capabilities: capabilities,
        server_security_mode: security_mode(core),
        signing: choice.signing,
        cipher: choice.cipher,
        posix: choice.posix,
    };
    debug!(peer = %link.peer, %dialect, signing = ?agreed.signing, cipher = ?agreed.cipher, "negotiated");
    let mut salt = [0; 32];
    core.environment.random.fill(&mut salt).map_err(Violation::HostRandom)?;
    let contexts = choice.contexts(&request, &salt);
    let response = response(core, link, dialect, capabilities, contexts);
    let _ = link.agreed.set(agreed);
    connection.stage = Stage::Negotiated;
    connection.preauth.update(pdu);
    let at = send(connection, header, &response, out)?;
    connection.preauth.update(&out[at..]);
    Ok(())
}

/// What was chosen from the client's contexts.
#[derive(Clone, Copy, Debug)]
struct Choice {
    dialect: Dialect,
    signing: SigningAlgorithm,
    cipher: Option<Cipher>,
    signing_context: bool,
    posix: bool,
}

impl Choice {
    fn make(dialect: Dialect, request: &NegotiateRequest<'_>) -> Result<Self, NtStatus> {
        if dialect < Dialect::SMB_3_0 {
            let (signing, cipher) = (SigningAlgorithm::HmacSha256, None);
            return Ok(Self { dialect, signing, cipher, signing_context: false, posix: false });
        }
        if dialect < Dialect::SMB_3_1_1 {
            let encrypts = request.capabilities.contains(Capabilities::ENCRYPTION);
            let cipher = encrypts.then_some(Cipher::Aes128Ccm);
            let signing = SigningAlgorithm::AesCmac;
            return Ok(Self { dialect, signing, cipher, signing_context: false, posix: false });
        }
        let mut choice = Self {
            dialect,
            signing: SigningAlgorithm::AesCmac,
            cipher: None,
            signing_context: false,
            posix: false,
        };
        let mut hashes_offered = None;
        let mut ciphers_offered = false;
        for context in &request.contexts {
            match context {
                // MS-SMB2 §3.3.5.4: two of a kind are refused.
                NegotiateContext::PreauthIntegrity { .. } if hashes_offered.is_some() => {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                NegotiateContext::Encryption(_) if ciphers_offered => {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                NegotiateContext::Signing(_) if choice.signing_context => {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                // MS-SMB2 §2.2.3.1.1, §2.2.3.1.2, §2.2.3.1.7: a list names at least one.
                NegotiateContext::PreauthIntegrity { hashes, .. } if hashes.is_empty() => {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                NegotiateContext::Encryption(ciphers) if ciphers.is_empty() => {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                NegotiateContext::Signing(algorithms) if algorithms.is_empty() => {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                NegotiateContext::PreauthIntegrity { hashes, .. } => hashes_offered = Some(hashes),
                NegotiateContext::Encryption(ciphers) => {
                    ciphers_offered = true;
                    let offered = |cipher: &Cipher| ciphers.iter().any(|id| id.0 == cipher.id());
                    choice.cipher = Cipher::PREFERENCE.into_iter().find(offered);
                }
                NegotiateContext::Signing(algorithms) => {
                    choice.signing_context = true;
                    let offered = |signing: &SigningAlgorithm| {
                        algorithms.iter().any(|id| id.0 == signing.id())
                    };
                    let found = SigningAlgorithm::PREFERENCE.into_iter().find(offered);
                    choice.signing = found.unwrap_or(SigningAlgorithm::AesCmac);
                }
                NegotiateContext::Posix(version) => {
                    choice.posix = *version == NegotiateContext::POSIX_VERSION;
                }
                // Unknown contexts are ignored: MS-SMB2 §3.3.5.4.
                _ => {}
            }
        }
        match hashes_offered {
            None => Err(NtStatus::INVALID_PARAMETER),
            Some(hashes) if hashes.contains(&HashId::SHA_512) => Ok(choice),
            Some(_) => Err(NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP),
        }
    }

    fn contexts<'a>(
        &self,
        request: &NegotiateRequest<'_>,
        salt: &'a [u8],
    ) -> Vec<NegotiateContext<'a>> {
        if self.dialect != Dialect::SMB_3_1_1 {
            return Vec::new();
        }
        let hashes = vec![HashId::SHA_512];
        let mut contexts = vec![NegotiateContext::PreauthIntegrity { hashes, salt }];
        let asked =
            |context: &NegotiateContext<'_>| matches!(context, NegotiateContext::Encryption(_));
        if request.contexts.iter().any(asked) {
            let id = self.cipher.map_or(0, Cipher::id);
            contexts.push(NegotiateContext::Encryption(vec![CipherId(id)]));
        }
        if self.signing_context {
            let id = SigningId(self.signing.id());
            contexts.push(NegotiateContext::Signing(vec![id]));
        }
        if self.posix {
            contexts.push(NegotiateContext::Posix(NegotiateContext::POSIX_VERSION));
        }
        contexts
    }
}

/// The newest dialect both sides speak.
pub(crate) fn choose_dialect(offered: &[Dialect]) -> Option<Dialect> {
    DIALECTS.into_iter().find(|dialect| offered.contains(dialect))
}

fn capabilities(
    core: &Core,
    dialect: Dialect,
    request: &NegotiateRequest<'_>,
    cipher: Option<Cipher>,
) -> Capabilities {
    let mut ours = Capabilities::empty();
    if dialect >= Dialect::SMB_2_1 {
        ours |= Capabilities::LEASING | Capabilities::LARGE_MTU;
    }
    // MS-SMB2 §3.3.5.4: only to who says it too.
    if dialect >= Dialect::SMB_3_0 {
        ours |= request.capabilities & Capabilities::MULTI_CHANNEL;
    }
    if dialect >= Dialect::SMB_3_0
        && core.files.shares().iter().any(|share| share.keeps_journal())
        && request.capabilities.contains(Capabilities::PERSISTENT_HANDLES)
    {
        ours |= Capabilities::PERSISTENT_HANDLES;
    }
    // MS-SMB2 §2.2.4: 3.1.1 says it in a context instead.
    if dialect >= Dialect::SMB_3_0 && dialect < Dialect::SMB_3_1_1 && cipher.is_some() {
        ours |= Capabilities::ENCRYPTION;
    }
    ours
}

pub(crate) fn security_mode(core: &Core) -> SecurityMode {
    match core.identity.signing {
        SigningPolicy::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
        SigningPolicy::WhenAsked => SecurityMode::SIGNING_ENABLED,
    }
}

fn response<'a>(
    core: &Core,
    link: &Link,
    dialect: Dialect,
    capabilities: Capabilities,
    contexts: Vec<NegotiateContext<'a>>,
) -> NegotiateResponse<'a> {
    // MS-SMB2 §3.3.5.4: 64 KiB where a request cannot take several credits.
    let large = capabilities.contains(Capabilities::LARGE_MTU);
    let size = |large_size: u32| if large { large_size } else { 64 * 1024 };
    NegotiateResponse {
        security_mode: security_mode(core),
        dialect,
        server_guid: core.identity.guid,
        capabilities,
        transact_size_max: size(link.transact_size_max()),
        read_size_max: size(core.connections.limits.io_size_max),
        write_size_max: size(core.connections.limits.io_size_max),
        system_time: file_time(&core.environment.clock),
        // The moment of the last start helps an attacker more than a client.
        start_time: smb::FileTime::ZERO,
        token: if core.identity.users().tickets().is_some() {
            KERBEROS_HINT
        } else {
            NEGOTIATE_HINT
        },
        contexts,
    }
}

fn send(
    connection: &Connection,
    request: &Header,
    response: &NegotiateResponse<'_>,
    out: &mut Vec<u8>,
) -> Result<usize, Violation> {
    let start = frame::begin(out, false);
    let at = frame::begin_pdu(out, request);
    response.emit(out);
    let credits = connection.link.window().grant(request.credits);
    let terms = Terms { credits, session_id: request.session_id, route: None };
    frame::end_pdu(out, at, request, Ok(NtStatus::SUCCESS), terms);
    frame::end(out, start, None)?;
    Ok(at)
}

const DIALECTS: [Dialect; 5] = [
    Dialect::SMB_3_1_1,
    Dialect::SMB_3_0_2,
    Dialect::SMB_3_0,
    Dialect::SMB_2_1,
    Dialect::SMB_2_0_2,
];
