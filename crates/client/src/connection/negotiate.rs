//! NEGOTIATE from the client's side, and its outcome.
//!
//! Spec: MS-SMB2 §3.2.4.2.2.2, §3.2.5.2, §3.2.5.5 (validation).

use smb::crypto::{Cipher, PreauthHash, SigningAlgorithm};
use smb::negotiate::{
    self as wire, Capabilities, Dialect, HashId, NegotiateContext, NegotiateRequest,
    NegotiateResponse, SecurityMode,
};
use smb::{Command, Guid, Name};

use super::{Connection, Request};
use crate::error::ClientError;
use crate::options::{ConnectOptions, Protection};

/// What both sides agreed on.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// The dialect.
    pub dialect: Dialect,
    /// The GUID by which the server identifies itself.
    pub server_guid: Guid,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// Signing algorithm.
    pub signing: SigningAlgorithm,
    /// Cipher, if encryption is possible.
    pub cipher: Option<Cipher>,
    /// Whether the server insists on signatures.
    pub server_requires_signing: bool,
    /// Whether both know the rules of POSIX, where that was asked for ([`ConnectOptions::posix`]).
    pub posix: bool,
    read_size_max: u32,
    write_size_max: u32,
    transact_size_max: u32,
    preauth: PreauthHash,
    offer: Offer,
    server_security_mode: SecurityMode,
}

/// The client's offer, for the validation of older dialects.
#[derive(Clone, Debug)]
struct Offer {
    security_mode: SecurityMode,
    capabilities: Capabilities,
    client_guid: Guid,
    dialects: Vec<Dialect>,
}

impl Negotiated {
    /// Largest READ in bytes.
    pub fn read_size_max(&self) -> u32 {
        self.read_size_max
    }

    /// Largest WRITE in bytes.
    pub fn write_size_max(&self) -> u32 {
        self.write_size_max
    }

    /// Largest buffer of a query or control.
    pub fn transact_size_max(&self) -> u32 {
        self.transact_size_max
    }

    /// The dialect is 3.1.1.
    pub fn is_3_1_1(&self) -> bool {
        self.dialect == Dialect::SMB_3_1_1
    }

    /// Requests above 64 KiB are allowed, and credits are counted by size.
    pub fn large_mtu(&self) -> bool {
        self.dialect >= Dialect::SMB_2_1 && self.capabilities.contains(Capabilities::LARGE_MTU)
    }

    /// The hash over the negotiation, with which the hash of a session begins.
    pub(crate) fn preauth(&self) -> PreauthHash {
        self.preauth
    }
}

/// Negotiates and keeps the outcome with the connection.
pub(crate) async fn negotiate(
    connection: &Connection,
    options: &ConnectOptions,
    host: &str,
) -> Result<(), ClientError> {
    let (offer, salt) = Offer::new(options)?;
    let request = NegotiateRequest {
        security_mode: offer.security_mode,
        capabilities: offer.capabilities,
        client_guid: offer.client_guid,
        dialects: offer.dialects.clone(),
        contexts: contexts(options, &salt, host),
    };
    let (sent, response) = connection
        .exchange_recorded(Request::new(Command::NEGOTIATE), |out| request.emit(out))
        .await?;
    let response = response.success()?;
    let mut preauth = PreauthHash::new();
    preauth.update(&sent);
    preauth.update(response.pdu());
    let answer = response.parse(NegotiateResponse::parse)?;
    let negotiated = agree(&answer, options, offer, preauth)?;
    connection.shared.negotiated.set(negotiated).map_err(|_| ClientError::PeerNegotiation)
}

impl Offer {
    fn new(options: &ConnectOptions) -> Result<(Self, [u8; 32]), ClientError> {
        let mut random = [0; 48];
        options.environment.random.fill(&mut random).map_err(|_| ClientError::HostRandom)?;
        let (guid, salt) = random.split_first_chunk().expect("16 of 48");
        let mut security_mode = SecurityMode::SIGNING_ENABLED;
        if options.signing == Protection::Required {
            security_mode |= SecurityMode::SIGNING_REQUIRED;
        }
        let mut capabilities = Capabilities::LEASING | Capabilities::LARGE_MTU;
        if options.dialects.iter().any(|dialect| *dialect >= Dialect::SMB_3_0) {
            capabilities |= Capabilities::ENCRYPTION;
        }
        if options.client_guid.is_some() {
            capabilities |= Capabilities::PERSISTENT_HANDLES;
        }
        let client_guid = options.client_guid.unwrap_or(Guid(*guid));
        let dialects = options.dialects.clone();
        let offer = Self { security_mode, capabilities, client_guid, dialects };
        Ok((offer, salt.try_into().expect("32 of 48")))
    }
}

fn contexts<'a>(options: &ConnectOptions, salt: &'a [u8], host: &str) -> Vec<NegotiateContext<'a>> {
    let ciphers: Vec<_> =
        options.ciphers.iter().map(|cipher| wire::CipherId(cipher.id())).collect();
    let signing = options.signing_algorithms.iter();
    let signing: Vec<_> = signing.map(|algorithm| wire::SigningId(algorithm.id())).collect();
    let hashes = vec![HashId::SHA_512];
    let mut contexts = vec![NegotiateContext::PreauthIntegrity { hashes, salt }];
    // MS-SMB2 §2.2.3.1.2, §2.2.3.1.7: an empty list is not sent.
    if !ciphers.is_empty() {
        contexts.push(NegotiateContext::Encryption(ciphers));
    }
    if !signing.is_empty() {
        contexts.push(NegotiateContext::Signing(signing));
    }
    if let Ok(host) = Name::try_from(host) {
        contexts.push(NegotiateContext::Netname(host));
    }
    if options.posix {
        contexts.push(NegotiateContext::Posix(NegotiateContext::POSIX_VERSION));
    }
    contexts
}

fn agree(
    answer: &NegotiateResponse<'_>,
    options: &ConnectOptions,
    offer: Offer,
    preauth: PreauthHash,
) -> Result<Negotiated, ClientError> {
    let dialect = answer.dialect;
    if !offer.dialects.contains(&dialect) {
        return Err(ClientError::PeerDialect(dialect));
    }
    let (mut signing, mut cipher) = match dialect {
        Dialect::SMB_2_0_2 | Dialect::SMB_2_1 => (SigningAlgorithm::HmacSha256, None),
        _ => (SigningAlgorithm::AesCmac, None),
    };
    let encryption = answer.capabilities.contains(Capabilities::ENCRYPTION);
    if (Dialect::SMB_3_0..Dialect::SMB_3_1_1).contains(&dialect) && encryption {
        cipher = Some(Cipher::Aes128Ccm);
    }
    // MS-SMB2 §3.2.5.2: exactly one hash, and of the rest only algorithms that the client offered.
    let mut hash_agreed = dialect != Dialect::SMB_3_1_1;
    let mut posix = false;
    for context in &answer.contexts {
        match context {
            NegotiateContext::PreauthIntegrity { hashes, .. } => {
                hash_agreed = hashes[..] == [HashId::SHA_512];
            }
            NegotiateContext::Encryption(chosen) => {
                cipher = chosen_of(&chosen[..], &options.ciphers, |id| Cipher::from_id(id.0))?;
            }
            NegotiateContext::Signing(chosen) => {
                let offered = &options.signing_algorithms;
                let chosen = chosen_of(chosen, offered, |id| SigningAlgorithm::from_id(id.0))?;
                signing = chosen.ok_or(ClientError::PeerNegotiation)?;
            }
            NegotiateContext::Posix(_) => posix = options.posix,
            _ => {}
        }
    }
    if !hash_agreed {
        return Err(ClientError::PeerNegotiation);
    }
    // MS-SMB2 §3.2.5.2: a server that takes less says nothing that makes sense. A small file would be a million
    // requests.
    let sizes = [answer.read_size_max, answer.write_size_max, answer.transact_size_max];
    if sizes.iter().any(|size| *size < IO_SIZE_MIN) {
        return Err(ClientError::PeerNegotiation);
    }
    let cut = |size: u32| size.min(IO_SIZE_MAX);
    Ok(Negotiated {
        dialect,
        server_guid: answer.server_guid,
        capabilities: answer.capabilities,
        signing,
        cipher,
        server_requires_signing: answer.security_mode.contains(SecurityMode::SIGNING_REQUIRED),
        posix,
        read_size_max: cut(answer.read_size_max),
        write_size_max: cut(answer.write_size_max),
        transact_size_max: cut(answer.transact_size_max),
        preauth,
        offer,
        server_security_mode: answer.security_mode,
    })
}

/// The one algorithm a server chose, which must be one of ours; `None` for "none in common".
fn chosen_of<W: Copy, T: Copy + PartialEq>(
    chosen: &[W],
    offered: &[T],
    known: impl Fn(W) -> Option<T>,
) -> Result<Option<T>, ClientError> {
    let [chosen] = chosen else { return Err(ClientError::PeerNegotiation) };
    match known(*chosen) {
        None => Ok(None),
        Some(known) if offered.contains(&known) => Ok(Some(known)),
        Some(_) => Err(ClientError::PeerNegotiation),
    }
}

/// Input of FSCTL_VALIDATE_NEGOTIATE_INFO, and the only output that is correct.
///
/// ```text
///  input:  capabilities u32 | client guid[16] | mode u16 | count u16 | dialects u16..
///  output: capabilities u32 | server guid[16] | mode u16 | dialect u16
/// ```
pub(crate) fn validate_input(negotiated: &Negotiated) -> (Vec<u8>, Vec<u8>) {
    let Offer { security_mode, capabilities, client_guid, dialects } = &negotiated.offer;
    let mut input = capabilities.bits().to_le_bytes().to_vec();
    input.extend(client_guid.0);
    input.extend(security_mode.bits().to_le_bytes());
    let count = u16::try_from(dialects.len()).expect("there are five dialects");
    input.extend(count.to_le_bytes());
    dialects.iter().for_each(|dialect| input.extend(dialect.0.to_le_bytes()));

    let mut output = negotiated.capabilities.bits().to_le_bytes().to_vec();
    output.extend(negotiated.server_guid.0);
    output.extend(negotiated.server_security_mode.bits().to_le_bytes());
    output.extend(negotiated.dialect.0.to_le_bytes());
    (input, output)
}

/// The least that a server moves per request, in bytes.
const IO_SIZE_MIN: u32 = 4096;
/// Larger requests gain nothing and cost memory on both sides; TCP frames end at 16 MiB.
const IO_SIZE_MAX: u32 = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use smb::FileTime;

    use super::*;

    fn answer(dialect: Dialect) -> NegotiateResponse<'static> {
        let contexts = match dialect == Dialect::SMB_3_1_1 {
            true => vec![NegotiateContext::PreauthIntegrity {
                hashes: vec![HashId::SHA_512],
                salt: &[],
            }],
            false => Vec::new(),
        };
        NegotiateResponse {
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialect,
            server_guid: Guid([1; 16]),
            capabilities: Capabilities::LARGE_MTU | Capabilities::ENCRYPTION,
            transact_size_max: IO_SIZE_MIN,
            read_size_max: IO_SIZE_MAX,
            write_size_max: IO_SIZE_MAX + 1,
            system_time: FileTime(0),
            start_time: FileTime(0),
            token: &[],
            contexts,
        }
    }

    fn agreed(answer: &NegotiateResponse<'_>) -> Result<Negotiated, ClientError> {
        let options = ConnectOptions::default();
        let (offer, _) = Offer::new(&options).unwrap();
        agree(answer, &options, offer, PreauthHash::new())
    }

    #[test]
    fn each_dialect_signs_and_seals_by_its_own_algorithms_unless_others_are_agreed() {
        let (hmac, cmac) = (SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac);
        let ccm = Some(Cipher::Aes128Ccm);
        for (dialect, signing, cipher) in [
            (Dialect::SMB_2_0_2, hmac, None),
            (Dialect::SMB_2_1, hmac, None),
            (Dialect::SMB_3_0, cmac, ccm),
            (Dialect::SMB_3_0_2, cmac, ccm),
            (Dialect::SMB_3_1_1, cmac, None),
        ] {
            let agreed = agreed(&answer(dialect)).unwrap();
            assert_eq!((agreed.signing, agreed.cipher), (signing, cipher), "{dialect:?}");
        }
        let mut unable = answer(Dialect::SMB_3_0);
        unable.capabilities = Capabilities::LARGE_MTU;
        assert_eq!(agreed(&unable).unwrap().cipher, None, "the server cannot seal");
    }

    #[test]
    fn a_server_moves_4_kib_at_least_and_8_mib_at_most_are_asked_for() {
        let taken = agreed(&answer(Dialect::SMB_3_0)).unwrap();
        assert_eq!((taken.transact_size_max, taken.read_size_max), (IO_SIZE_MIN, IO_SIZE_MAX));
        assert_eq!(taken.write_size_max, IO_SIZE_MAX);
        for change in [
            |answer: &mut NegotiateResponse<'_>| answer.transact_size_max = IO_SIZE_MIN - 1,
            |answer: &mut NegotiateResponse<'_>| answer.read_size_max = IO_SIZE_MIN - 1,
            |answer: &mut NegotiateResponse<'_>| answer.write_size_max = 0,
        ] {
            let mut small = answer(Dialect::SMB_3_0);
            change(&mut small);
            assert!(matches!(agreed(&small), Err(ClientError::PeerNegotiation)));
        }
    }

    #[test]
    fn a_dialect_that_was_not_offered_and_no_hash_of_3_1_1_are_refused() {
        let foreign = agreed(&answer(Dialect(0x0400)));
        assert!(matches!(foreign, Err(ClientError::PeerDialect(Dialect(0x0400)))));
        let mut bare = answer(Dialect::SMB_3_1_1);
        bare.contexts.clear();
        assert!(matches!(agreed(&bare), Err(ClientError::PeerNegotiation)));
    }

    #[test]
    fn an_algorithm_that_was_not_offered_is_not_taken() {
        let options = ConnectOptions {
            ciphers: vec![Cipher::Aes128Gcm],
            signing_algorithms: vec![SigningAlgorithm::AesCmac],
            ..ConnectOptions::default()
        };
        let chosen = |context| {
            let mut answer = answer(Dialect::SMB_3_1_1);
            answer.contexts.push(context);
            let (offer, _) = Offer::new(&options).unwrap();
            agree(&answer, &options, offer, PreauthHash::new())
        };
        let cipher =
            |cipher: Cipher| NegotiateContext::Encryption(vec![wire::CipherId(cipher.id())]);
        let agreed = chosen(cipher(Cipher::Aes128Gcm)).unwrap();
        assert_eq!(agreed.cipher, Some(Cipher::Aes128Gcm));
        let refused = chosen(cipher(Cipher::Aes128Ccm));
        assert!(matches!(refused, Err(ClientError::PeerNegotiation)));
        let signing = |algorithm: SigningAlgorithm| {
            NegotiateContext::Signing(vec![wire::SigningId(algorithm.id())])
        };
        assert_eq!(
            chosen(signing(SigningAlgorithm::AesCmac)).unwrap().signing,
            SigningAlgorithm::AesCmac
        );
        let refused = chosen(signing(SigningAlgorithm::HmacSha256));
        assert!(matches!(refused, Err(ClientError::PeerNegotiation)));
    }

    #[test]
    fn posix_semantics_are_agreed_where_both_sides_name_them() {
        for (asked, named) in [(true, true), (true, false), (false, true)] {
            let options = ConnectOptions { posix: asked, ..ConnectOptions::default() };
            let mut answer = answer(Dialect::SMB_3_1_1);
            if named {
                answer.contexts.push(NegotiateContext::Posix(NegotiateContext::POSIX_VERSION));
            }
            let (offer, _) = Offer::new(&options).unwrap();
            let agreed = agree(&answer, &options, offer, PreauthHash::new()).unwrap();
            assert_eq!(agreed.posix, asked && named, "asked {asked}, named {named}");
        }
    }
}
