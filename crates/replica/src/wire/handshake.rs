//! The handshake of TLS, which rustls does, up to the keys of both directions.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{AlertDescription, CertificateError, ExtractedSecrets};

use super::error::LinkError;
use super::identity::Identity;
use super::keys::Fingerprint;
use super::record::{NextKeys, Opener, RECORDS_OF_KEY, Rekey, Sealer};
use super::socket::Socket;
use super::verify::{UnknownKey, server_name};

/// Bytes that a stranger may send before its key is known.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
const READ_LEN: usize = 16 << 10;

/// Both ends have shown that they have keys of the group.
pub(super) struct Secured {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    /// The key of the other end.
    pub(super) key: Fingerprint,
    /// What the other end has sent behind its handshake: data, and bytes that nobody has looked at.
    pub(super) data: Vec<u8>,
    pub(super) unread: Vec<u8>,
}

/// The handshake of the end that has made the connection.
pub(super) fn as_dialer(
    socket: &Socket,
    identity: &Identity,
    until: Instant,
) -> Result<Secured, LinkError> {
    let name = server_name(identity.group);
    let tls = UnbufferedClientConnection::new(Arc::clone(&identity.client), name);
    run(socket, tls.map_err(LinkError::PeerTls)?, until)
}

/// The handshake of the other end.
pub(super) fn as_listener(
    socket: &Socket,
    identity: &Identity,
    until: Instant,
) -> Result<Secured, LinkError> {
    let (config, resolver) = identity.for_one();
    let tls = UnbufferedServerConnection::new(Arc::new(config)).map_err(LinkError::PeerTls)?;
    run(socket, tls, until).map_err(|error| match resolver.other_group() {
        Some(group) => LinkError::PeerGroup(group),
        None => error,
    })
}

/// One of the two ends.
trait End {
    type Data: Send;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn key(&self) -> Option<Fingerprint>;
    fn into_keys(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), rustls::Error>;
}

impl End for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn key(&self) -> Option<Fingerprint> {
        self.peer_certificates()?.first().map(|key| Fingerprint::of(key))
    }

    fn into_keys(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), rustls::Error> {
        self.dangerous_into_kernel_connection()
    }
}

impl End for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn key(&self) -> Option<Fingerprint> {
        self.peer_certificates()?.first().map(|key| Fingerprint::of(key))
    }

    fn into_keys(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), rustls::Error> {
        self.dangerous_into_kernel_connection()
    }
}

/// What the end of one step leaves to do.
enum Next {
    Read,
    GoOn,
    Done,
}

fn run<E: End>(socket: &Socket, mut tls: E, until: Instant) -> Result<Secured, LinkError>
where
    KernelConnection<E::Data>: NextKeys + 'static,
{
    let (mut input, mut output, mut data) = (Vec::new(), Vec::new(), Vec::new());
    let mut arrived = 0;
    loop {
        let UnbufferedStatus { mut discard, state } = tls.process(&mut input);
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(mut encode)) => {
                append(&mut encode, &mut output);
                Next::GoOn
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                write(socket, &mut output, until)?;
                transmit.done();
                Next::GoOn
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(LinkError::PeerTls)?;
                    discard += record.discard;
                    data.extend_from_slice(record.payload);
                }
                Next::GoOn
            }
            Ok(ConnectionState::BlockedHandshake) => Next::Read,
            Ok(ConnectionState::WriteTraffic(_)) => Next::Done,
            Ok(_) => return Err(LinkError::PeerClosed),
            Err(error) => {
                input.drain(..discard);
                say_why(socket, &mut tls, &mut input, until);
                return Err(blame(error));
            }
        };
        input.drain(..discard);
        match next {
            Next::GoOn => {}
            Next::Done => break,
            Next::Read => {
                if arrived >= HANDSHAKE_BYTES_MAX {
                    return Err(LinkError::PeerSlow);
                }
                arrived += read(socket, &mut input, until)?;
            }
        }
    }
    write(socket, &mut output, until)?;
    // The verifiers let no end through that shows none.
    let key = tls.key().ok_or(LinkError::PeerTls(rustls::Error::NoCertificatesPresented))?;
    let (secrets, keys) = tls.into_keys().map_err(LinkError::PeerTls)?;
    let rekey = Rekey::new(Box::new(keys));
    let sealer = Sealer::new(secrets.tx, &rekey, RECORDS_OF_KEY);
    let (Some(sealer), Some(opener)) = (sealer, Opener::new(secrets.rx, &rekey)) else {
        return Err(LinkError::PeerTls(rustls::Error::HandshakeNotComplete));
    };
    Ok(Secured { sealer, opener, key, data, unread: input })
}

fn append<D>(encode: &mut EncodeTlsData<'_, D>, output: &mut Vec<u8>) {
    let begin = output.len();
    let mut room = READ_LEN;
    loop {
        output.resize(begin + room, 0);
        match encode.encode(&mut output[begin..]) {
            Ok(len) => return output.truncate(begin + len),
            Err(EncodeError::InsufficientSize(size)) => room = size.required_size,
            Err(EncodeError::AlreadyEncoded) => return output.truncate(begin),
        }
    }
}

fn read(socket: &Socket, input: &mut Vec<u8>, until: Instant) -> Result<usize, LinkError> {
    let begin = input.len();
    input.resize(begin + READ_LEN, 0);
    let read = socket.limit(Some(until)).and_then(|()| socket.read(&mut input[begin..]));
    input.truncate(begin + read.as_ref().map_or(0, |count| *count));
    match read {
        Ok(0) => Err(ended(socket)),
        Ok(count) => Ok(count),
        Err(error) => Err(failed(socket, error)),
    }
}

fn write(socket: &Socket, output: &mut Vec<u8>, until: Instant) -> Result<(), LinkError> {
    if output.is_empty() {
        return Ok(());
    }
    let written = socket.limit(Some(until)).and_then(|()| socket.write_all(output));
    output.clear();
    written.map_err(|error| failed(socket, error))
}

/// Sends the alert that rustls has for the other end.
fn say_why<E: End>(socket: &Socket, tls: &mut E, input: &mut [u8], until: Instant) {
    let mut output = Vec::new();
    // Messages of the handshake may stand before the alert.
    while let Ok(ConnectionState::EncodeTlsData(mut encode)) = tls.process(input).state {
        append(&mut encode, &mut output);
    }
    let _ = write(socket, &mut output, until);
}

/// The connection has ended.
pub(super) fn ended(socket: &Socket) -> LinkError {
    if socket.is_closed() { LinkError::Closed } else { LinkError::PeerCut }
}

/// Something on the socket has failed.
pub(super) fn failed(socket: &Socket, error: io::Error) -> LinkError {
    match error.kind() {
        _ if socket.is_closed() => LinkError::Closed,
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LinkError::PeerSlow,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => LinkError::PeerCut,
        _ => LinkError::Io(error),
    }
}

fn blame(error: rustls::Error) -> LinkError {
    match &error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.downcast_ref::<UnknownKey>() {
                Some(unknown) => LinkError::PeerKey(unknown.0),
                None => LinkError::PeerTls(error),
            }
        }
        rustls::Error::AlertReceived(alert) if is_of_key(u8::from(*alert)) => {
            LinkError::PeerRefusesKey
        }
        _ => LinkError::PeerTls(error),
    }
}

/// Whether an alert says that the other end does not take a key.
pub(super) fn is_of_key(alert: u8) -> bool {
    [
        AlertDescription::BadCertificate,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::CertificateUnknown,
        AlertDescription::UnknownCA,
        AlertDescription::AccessDenied,
        AlertDescription::DecryptError,
        AlertDescription::CertificateRequired,
    ]
    .into_iter()
    .any(|of_key| u8::from(of_key) == alert)
}
