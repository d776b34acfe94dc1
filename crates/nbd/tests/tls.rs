//! TLS over real sockets: clients that end it in ways that no library would.

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use block::MemoryDevice;
    use nbd::{Address, Export, Exports, Handle, Server, TlsFiles};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    fn certify(directory: &Path) -> TlsFiles {
        let (certificate, key) = (directory.join("server.pem"), directory.join("server.key"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"])
            .args(["subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        TlsFiles { certificate, key, client_authority: None }
    }

    fn server(files: &TlsFiles) -> Handle {
        let device = Arc::new(MemoryDevice::anonymous(1 << 20).unwrap());
        let exports = Exports::new(vec![Export::new("disk", "", device).unwrap()]).unwrap();
        let address = Address::Tcp("127.0.0.1:0".parse().unwrap());
        Server::new(exports, Some(files)).unwrap().listen(&[address]).unwrap()
    }

    // A connection that has started TLS, and the client's side of it after the handshake.
    fn secured(handle: &Handle, files: &TlsFiles) -> (TcpStream, ClientConnection) {
        let Address::Tcp(address) = &handle.addresses()[0] else { panic!("it listens on TCP") };
        let mut socket = TcpStream::connect(address).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
        let mut answer = [0; 20];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[8..16], *b"\0\0\0\x05\0\0\0\x01", "TLS is granted");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).unwrap();
        }
        (socket, tls)
    }

    // A thread that spins would never leave: this ends the test all the same.
    fn has_no_connection(handle: &Handle) -> bool {
        let end = Instant::now() + Duration::from_secs(30);
        while handle.connections() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        handle.connections() == 0
    }

    #[test]
    fn bytes_behind_a_goodbye_end_the_connection() {
        let directory = tempfile::tempdir().unwrap();
        let files = certify(directory.path());
        for (behind, is_apart) in [(1, true), (1, false), (12_000, false)] {
            let handle = server(&files);
            let (mut socket, mut tls) = secured(&handle, &files);
            tls.send_close_notify();
            let mut goodbye = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut goodbye).unwrap();
            }
            let rest = vec![b'x'; behind];
            if is_apart {
                socket.write_all(&goodbye).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                // The server may have closed its side already.
                let _ = socket.write_all(&rest);
            } else {
                let _ = socket.write_all(&[goodbye, rest].concat());
            }
            assert!(has_no_connection(&handle), "{behind} bytes, apart: {is_apart}");
        }
    }

    #[test]
    fn a_client_that_sends_a_byte_now_and_then_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let files = certify(directory.path());
        let handle = server(&files);
        let Address::Tcp(address) = &handle.addresses()[0] else { panic!("it listens on TCP") };
        let mut socket = TcpStream::connect(address).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
        socket.read_exact(&mut [0; 20]).unwrap();
        // The beginning of a record that says it is long; one byte of it at a time, more often than the server's 15 s.
        let record = [0x16, 3, 1, 0x40, 0].into_iter().chain(std::iter::repeat(0));
        for byte in record.take(200) {
            if handle.connections() == 0 || socket.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(has_no_connection(&handle));
    }
}
