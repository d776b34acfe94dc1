//! The server over real sockets.

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use block::{BlockDevice, FileDevice, MemoryDevice};
    use nbd::{Address, Export, Exports, Handle, Server};

    fn server(device: Arc<dyn BlockDevice>, addresses: &[Address]) -> Handle {
        let export = Export::new("disk", "", device).unwrap();
        let exports = Exports::new(vec![export]).unwrap();
        Server::new(exports, None).unwrap().listen(addresses).unwrap()
    }

    fn memory() -> Arc<dyn BlockDevice> {
        Arc::new(MemoryDevice::anonymous(1 << 20).unwrap())
    }

    fn negotiate(socket: &mut (impl Read + Write)) {
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        socket.write_all(&[0, 0, 0, 3]).unwrap();
        socket.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk").unwrap();
        let mut answer = [0; 10];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], (1_u64 << 20).to_be_bytes());
    }

    fn request(command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = b"\x25\x60\x95\x13\0\0".to_vec();
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    }

    /// Writes and reads many blocks with all requests under way at once; replies may come in any order.
    fn exchange(socket: &mut (impl Read + Write)) {
        negotiate(socket);
        for number in 0..32_u64 {
            let mut message = request(1, number, number * 4096, 4096);
            message.extend([u8::try_from(number + 1).unwrap(); 4096]);
            socket.write_all(&message).unwrap();
        }
        for _ in 0..32 {
            let mut reply = [0; 16];
            socket.read_exact(&mut reply).unwrap();
            assert_eq!(reply[..8], *b"\x67\x44\x66\x98\0\0\0\0");
        }
        for number in 0..32_u64 {
            socket.write_all(&request(0, number, number * 4096, 4096)).unwrap();
        }
        for _ in 0..32 {
            let mut reply = [0; 16 + 4096];
            socket.read_exact(&mut reply).unwrap();
            let number = reply[15];
            assert!(reply[16..].iter().all(|byte| *byte == number + 1));
        }
        socket.write_all(&request(2, 0, 0, 0)).unwrap();
        assert_eq!(socket.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn a_device_of_memory_is_served_over_tcp_and_a_unix_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let addresses = [Address::Unix(path.clone()), Address::Tcp("127.0.0.1:0".parse().unwrap())];
        let handle = server(memory(), &addresses);
        let Address::Tcp(address) = handle.addresses()[1] else { panic!("an address") };
        exchange(&mut TcpStream::connect(address).unwrap());
        exchange(&mut UnixStream::connect(&path).unwrap());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others may not connect");
        drop(handle);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_is_served_by_more_threads() {
        let directory = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile_in(directory.path()).unwrap();
        file.set_len(1 << 20).unwrap();
        let path = directory.path().join("nbd.sock");
        let device = Arc::new(FileDevice::new(file).unwrap());
        let _handle = server(device, &[Address::Unix(path.clone())]);
        exchange(&mut UnixStream::connect(&path).unwrap());
    }

    #[test]
    fn connections_share_the_device_and_one_that_breaks_off_disturbs_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let _handle = server(memory(), &[Address::Unix(path.clone())]);
        let (mut first, mut second) =
            (UnixStream::connect(&path).unwrap(), UnixStream::connect(&path).unwrap());
        negotiate(&mut first);
        negotiate(&mut second);
        let mut broken = UnixStream::connect(&path).unwrap();
        negotiate(&mut broken);
        broken.write_all(&[0; 64]).unwrap();
        let mut message = request(1, 7, 512, 4);
        message.extend(b"both");
        first.write_all(&message).unwrap();
        first.read_exact(&mut [0; 16]).unwrap();
        second.write_all(&request(0, 8, 512, 4)).unwrap();
        let mut reply = [0; 20];
        second.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[16..], b"both");
        assert_eq!(broken.read(&mut [0; 1]).unwrap_or(0), 0, "garbage ends a connection");
    }

    #[test]
    fn a_connection_beyond_the_limit_is_closed_and_one_that_ends_makes_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let handle = server(memory(), &[Address::Unix(path.clone())]);
        let chosen = || {
            let mut socket = UnixStream::connect(&path).unwrap();
            negotiate(&mut socket);
            // Answered: the server knows that an export was chosen.
            socket.write_all(&request(0, 1, 0, 1)).unwrap();
            socket.read_exact(&mut [0; 17]).unwrap();
            socket
        };
        let is_greeted = || UnixStream::connect(&path).unwrap().read_exact(&mut [0; 18]).is_ok();
        let mut all: Vec<_> = (0..256).map(|_| chosen()).collect();
        assert!(!is_greeted());
        drop(all.pop());
        while handle.connections() == 256 {
            std::thread::yield_now();
        }
        assert!(is_greeted());
    }

    #[test]
    fn strangers_keep_nobody_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let handle = server(memory(), &[Address::Unix(path.clone())]);
        let mut strangers: Vec<_> = (0..256)
            .map(|_| {
                let mut socket = UnixStream::connect(&path).unwrap();
                socket.read_exact(&mut [0; 18]).unwrap();
                socket
            })
            .collect();
        exchange(&mut UnixStream::connect(&path).unwrap());
        assert_eq!(strangers[0].read(&mut [0; 1]).unwrap_or(0), 0, "the oldest gave way");
        assert!(handle.connections() <= 256);
    }

    #[test]
    fn a_client_that_reads_no_replies_delays_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile_in(directory.path()).unwrap();
        file.set_len(1 << 20).unwrap();
        for device in [memory(), Arc::new(FileDevice::new(file).unwrap())] {
            let path = directory.path().join("nbd.sock");
            let handle = server(device, &[Address::Unix(path.clone())]);
            let mut deaf = UnixStream::connect(&path).unwrap();
            negotiate(&mut deaf);
            // More than the socket holds of replies: the server's thread waits in its send.
            for number in 0..16 {
                deaf.write_all(&request(0, number, 0, 1 << 20)).unwrap();
            }
            exchange(&mut UnixStream::connect(&path).unwrap());
            // The server ends, too, while the client still reads nothing.
            drop(handle);
            drop(deaf);
        }
    }

    #[test]
    fn a_server_that_ends_ends_its_connections() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let handle = server(memory(), &[Address::Unix(path.clone())]);
        let mut socket = UnixStream::connect(&path).unwrap();
        negotiate(&mut socket);
        assert_eq!(handle.connections(), 1);
        drop(handle);
        assert_eq!(socket.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn a_socket_that_a_killed_server_left_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let handle = server(memory(), &[Address::Unix(path.clone())]);
        let export = Export::new("disk", "", memory()).unwrap();
        let exports = Exports::new(vec![export]).unwrap();
        let again = Server::new(exports, None).unwrap().listen(&[Address::Unix(path)]);
        again.unwrap_err();
        drop(handle);
    }
}
