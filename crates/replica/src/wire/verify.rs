//! What TLS asks about keys: whose key the other end shows, and that it has it.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme,
};

use super::keys::{Fingerprint, Keys};
use crate::names::GroupId;

/// The other end has shown a key that counts for nothing here.
#[derive(Debug, thiserror::Error)]
#[error("the key {0} is none of the group's")]
pub(super) struct UnknownKey(pub(super) Fingerprint);

/// Looks whether a key counts, and whether the other end has it. When a certificate ends or whom it names does not matter.
#[derive(Debug)]
struct Verifier {
    keys: Arc<Keys>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn check_key(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        let key = Fingerprint::of(key);
        match self.keys.knows(key) {
            true => Ok(()),
            false => {
                let unknown = OtherError(Arc::new(UnknownKey(key)));
                Err(Error::InvalidCertificate(CertificateError::Other(unknown)))
            }
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.keys.is_shared() {
            true => {
                let key = SubjectPublicKeyInfoDer::from(key.as_ref());
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            false => verify_tls13_signature(message, key, signature, &self.algorithms),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_key(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.keys.is_shared()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check_key(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.keys.is_shared()
    }
}

fn no_tls12() -> Error {
    Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered)
}

/// The cryptography of links: one cipher suite, which the machines that have memory to replicate have in hardware.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384],
        ..rustls::crypto::aws_lc_rs::default_provider()
    }
}

/// What both ends of a link are, as far as TLS is concerned. Sessions are not resumed: each link proves its keys anew.
pub(super) fn configs(
    keys: &Arc<Keys>,
    own: &Arc<CertifiedKey>,
) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Error> {
    let provider = Arc::new(provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(Verifier { keys: Arc::clone(keys), algorithms });
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>);
    let mut client = match keys.is_shared() {
        true => client.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
            Arc::clone(own),
        ))),
        false => client
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::clone(own)))),
    };
    client.resumption = Resumption::disabled();
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.enable_secret_extraction = true;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::clone(own))));
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.enable_secret_extraction = true;
    Ok((Arc::new(client), Arc::new(server)))
}

/// Shows a member's key to whoever asks for its group, and remembers which group another one asked for.
#[derive(Debug)]
pub(super) struct ForGroup {
    group: GroupId,
    own: Arc<CertifiedKey>,
    is_raw: bool,
    asked: OnceLock<GroupId>,
}

impl ForGroup {
    pub(super) fn new(group: GroupId, own: &Arc<CertifiedKey>, keys: &Keys) -> Self {
        Self { group, own: Arc::clone(own), is_raw: keys.is_shared(), asked: OnceLock::new() }
    }

    /// The group that the other end asked for, if it is not the own one.
    pub(super) fn other_group(&self) -> Option<GroupId> {
        self.asked.get().copied().filter(|asked| *asked != self.group)
    }
}

impl ResolvesServerCert for ForGroup {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = group_of(hello.server_name()?)?;
        let asked = self.asked.get_or_init(|| asked);
        (*asked == self.group).then(|| Arc::clone(&self.own))
    }

    fn only_raw_public_keys(&self) -> bool {
        self.is_raw
    }
}

/// The name by which a member asks for a group. It goes over the network in the clear.
pub(super) fn server_name(group: GroupId) -> ServerName<'static> {
    ServerName::try_from(format!("{group}{DOMAIN}")).expect("digits and a domain are a name")
}

fn group_of(name: &str) -> Option<GroupId> {
    let digits = name.strip_suffix(DOMAIN).filter(|digits| digits.len() == 32)?;
    let mut group = [0; 16];
    for (byte, pair) in group.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(GroupId(group))
}

const DOMAIN: &str = ".landfast-replica";
const PROTOCOL: &[u8] = b"landfast-replica/1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_group_is_read_as_the_group() {
        let group = GroupId([0x5a; 16]);
        let ServerName::DnsName(name) = server_name(group) else { panic!("a name") };
        assert_eq!(group_of(name.as_ref()), Some(group));
        let other = ["", ".landfast-replica", "5a.landfast-replica", "example.org"];
        assert!(other.iter().all(|name| group_of(name).is_none()));
        assert_eq!(group_of(&name.as_ref().replace("5a5a", "5aé")), None);
    }
}
