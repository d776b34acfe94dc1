//! TLS: the server's certificate, and the authority whose clients may come in.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Where the files are, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signs the certificates of clients. Without it any client may come in.
    pub client_authority: Option<PathBuf>,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds nothing of what it should.
    #[error("{}: {source}", path.display())]
    ConfigFile {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The files do not fit together.
    #[error("certificate and key: {0}")]
    ConfigPair(#[source] rustls::Error),
    /// The authority's certificate is of no use.
    #[error("the authority of clients: {0}")]
    ConfigAuthority(#[source] rustls::server::VerifierBuilderError),
}

impl TlsFiles {
    pub(super) fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| {
            TlsError::ConfigFile { path: self.key.clone(), source: io::Error::other(error) }
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::ConfigPair)?;
        let builder = match &self.client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(TlsError::ConfigPair)?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(TlsError::ConfigAuthority)?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        builder.with_single_cert(chain, key).map(Arc::new).map_err(TlsError::ConfigPair)
    }
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::ConfigFile { path: path.clone(), source };
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(io::Error::other(error)))?;
    match read.is_empty() {
        true => Err(failed(io::Error::new(io::ErrorKind::InvalidData, "there is no certificate"))),
        false => Ok(read),
    }
}
