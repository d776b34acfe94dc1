//! Known behaviour of siw and of common adapters at the start and at the end of a connection,
//! played by a peer that follows a script. The bytes of the script are typed from captures of siw
//! of Linux 6.12 and from the specifications; none comes from our own `emit`.
//!
//! ```text
//!   start   the order of the forms of start-up, and how each kind of peer answers them
//!   wake    siw as responder can miss the first frame: it needs a second frame
//!   end     the control word of siw's Terminate has its halves swapped
//! ```

mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread::{JoinHandle, spawn};
    use std::time::{Duration, Instant};

    use rdma::{
        ConnectFailure, DisconnectReason, EngineConfig, Event, Operation, Payload, PollPolicy,
        QpConfig, QpId, Rkey, SoftProvider, TerminateCode, WcStatus, WorkRequest,
    };

    use crate::support::{End, bytes_of, memory};

    /// A peer that follows a script, in a thread of its own.
    fn peer<T: Send + 'static>(
        script: impl FnOnce(Listener) -> T + Send + 'static,
    ) -> (SocketAddr, JoinHandle<T>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        (addr, spawn(move || script(Listener(listener))))
    }

    struct Listener(TcpListener);

    impl Listener {
        /// Takes a connection and its Request: revision, then control flags A to D and depths.
        fn asked(&self) -> (TcpStream, u8, Vec<u8>) {
            let (mut stream, _) = self.0.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut head = [0; 20];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(head[..16], *b"MPA ID Req Frame");
            let mut private_data = vec![0; usize::from(head[19])];
            stream.read_exact(&mut private_data).unwrap();
            (stream, head[17], private_data)
        }
    }

    /// The next frame without its length, pad and CRC, which is checked.
    fn ulpdu(stream: &mut TcpStream) -> Vec<u8> {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let len = usize::from(u16::from_be_bytes(length));
        let mut rest = vec![0; (2 + len).next_multiple_of(4) + 4 - 2];
        stream.read_exact(&mut rest).unwrap();
        let covered = [&length[..], &rest[..rest.len() - 4]].concat();
        assert_eq!(rest[rest.len() - 4..], iwarp::mpa::crc32c(&covered).to_le_bytes());
        rest.truncate(len);
        rest
    }

    fn frame(stream: &mut TcpStream, ulpdu: &[u8]) {
        let mut bytes = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(ulpdu);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let crc = iwarp::mpa::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        stream.write_all(&bytes).unwrap();
    }

    /// A Send of eight bytes, the first or the second (RFC 5041 §4.2, RFC 5040 §4.3).
    fn send(number: u8) -> Vec<u8> {
        let head = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number, 0, 0, 0, 0];
        [&head[..], b"over you"].concat()
    }

    const READY_WRITE: [u8; 14] = [0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Our end, without the announcement of our profile: the peer does not know it.
    struct Ours {
        end: End,
        qp: QpId,
        inbox: std::sync::Arc<dyn pmem::Medium>,
    }

    impl Ours {
        fn dial(addr: SocketAddr) -> Self {
            Self::dial_as(addr, QpConfig { announce: false, ..QpConfig::default() }, &[])
        }

        fn dial_as(addr: SocketAddr, qp: QpConfig, private_data: &[u8]) -> Self {
            let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
            let mut end = End::open(&SoftProvider, config);
            let qp = end.engine.connect(addr, qp, private_data).unwrap();
            Self { end, qp, inbox: memory(4096) }
        }

        fn until<T>(&mut self, mut done: impl FnMut(&mut End) -> Option<T>) -> T {
            let start = Instant::now();
            loop {
                if let Some(found) = done(&mut self.end) {
                    return found;
                }
                assert!(start.elapsed() < PATIENCE, "{:?}", self.end.events);
                self.end.engine.wait(Some(Duration::from_millis(10)));
                self.end.engine.poll(&mut self.end.events);
            }
        }

        fn established(addr: SocketAddr) -> Self {
            let mut ours = Self::dial(addr);
            let qp = ours.qp;
            ours.until(|end| crate::support::established(end, qp));
            ours
        }

        /// Sends a message and receives the answer.
        fn converse(&mut self) {
            let access = rdma::Access::LOCAL_WRITE;
            let region =
                self.end.engine.register(self.qp, self.inbox.clone(), 0..64, access).unwrap();
            self.end.engine.post_recv(self.qp, 1, region.slice(0, 64)).unwrap();
            self.say();
            let heard = self.until(|end| end.completion().filter(|done| done.wr_id == 1));
            assert_eq!((heard.status, heard.len), (WcStatus::Success, 8));
            assert_eq!(bytes_of(&*self.inbox, 0, 8), b"over you");
        }

        fn say(&mut self) {
            let payload = Payload::Inline(b"hello");
            let send = Operation::Send { payload, invalidate: None, solicited: false };
            self.end.engine.post_send(self.qp, WorkRequest::unsignaled(0, send)).unwrap();
        }

        fn ended(&mut self) -> DisconnectReason {
            let qp = self.qp;
            self.until(|end| end.disconnected(qp))
        }
    }

    #[test]
    fn a_peer_that_answers_revision_2_is_dialled_only_once() {
        let (addr, script) = peer(|listener| {
            let (mut stream, revision, word) = listener.asked();
            stream.write_all(b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x01\x00\x01").unwrap();
            // Flag A clear: siw's host would crash if this connection died now (Linux 6.12, iw_cm).
            assert_eq!((revision, word[0] & 0xc0, word[2] & 0xc0), (2, 0, 0));
            let first = ulpdu(&mut stream);
            assert_eq!((first[1], &first[18..]), (0x43, &b"hello"[..]), "no ready message");
            frame(&mut stream, &send(1));
            listener.0.set_nonblocking(true).unwrap();
            assert!(listener.0.accept().is_err(), "one connection is enough");
        });
        Ours::established(addr).converse();
        script.join().unwrap();
    }

    #[test]
    fn a_landfast_server_behind_siw_gets_no_extended_frames() {
        let (addr, script) = peer(|listener| {
            let (mut stream, _, private_data) = listener.asked();
            assert_eq!(private_data[4..8], *b"LFMP", "we announce ourselves");
            stream.write_all(PUSH_ACCEPTED).unwrap();
            let first = ulpdu(&mut stream);
            assert_eq!(
                &first[18..],
                b"hello",
                "nothing that only a peer who announced itself gets"
            );
            frame(&mut stream, &send(1));
        });
        let mut ours = Ours::dial_as(addr, QpConfig::default(), b"token");
        let qp = ours.qp;
        let answer = ours.until(|end| crate::support::established(end, qp));
        assert_eq!(answer, PUSH_ACCEPTED[24..]);
        ours.converse();
        script.join().unwrap();
    }

    #[test]
    fn a_peer_that_chooses_an_empty_write_gets_it_first() {
        let (addr, script) = peer(|listener| {
            let (_, revision, word) = listener.asked();
            assert_eq!((revision, word[0] & 0x80), (2, 0));
            let (mut stream, revision, word) = listener.asked();
            // RFC 6581 §9: A with C and D on offer, B not.
            assert_eq!((revision, word[0] & 0xc0, word[2] & 0xc0), (2, 0x80, 0xc0));
            stream.write_all(b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x01\x80\x01").unwrap();
            assert_eq!(ulpdu(&mut stream), READY_WRITE, "before anything else");
            assert_eq!(ulpdu(&mut stream)[18..], *b"hello");
            frame(&mut stream, &send(1));
        });
        Ours::established(addr).converse();
        script.join().unwrap();
    }

    #[test]
    fn a_peer_that_chooses_an_empty_read_gets_it_first() {
        let (addr, script) = peer(|listener| {
            drop(listener.asked());
            let (mut stream, ..) = listener.asked();
            stream.write_all(b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x01\x40\x01").unwrap();
            let read = ulpdu(&mut stream);
            // RFC 5040 §4.4: opcode 1, queue 1, message 1, and no length.
            assert_eq!((read[1], read[9], read[13], read.len()), (0x41, 1, 1, 46));
            assert_eq!(read[30..34], [0; 4]);
            let mut answer = vec![0xc1, 0x42];
            answer.extend_from_slice(&read[18..30]);
            frame(&mut stream, &answer);
            assert_eq!(ulpdu(&mut stream)[18..], *b"hello");
            frame(&mut stream, &send(1));
        });
        Ours::established(addr).converse();
        script.join().unwrap();
    }

    #[test]
    fn a_peer_that_drops_both_forms_of_revision_2_gets_revision_1() {
        let (addr, script) = peer(|listener| {
            drop(listener.asked());
            drop(listener.asked());
            let (mut stream, revision, private_data) = listener.asked();
            assert_eq!((revision, private_data.len()), (1, 0));
            stream.write_all(b"MPA ID Rep Frame\x40\x01\x00\x00").unwrap();
            assert_eq!(ulpdu(&mut stream)[18..], *b"hello");
            frame(&mut stream, &send(1));
        });
        Ours::established(addr).converse();
        script.join().unwrap();
    }

    #[test]
    fn a_peer_that_rejects_is_not_dialled_in_another_form() {
        let (addr, script) = peer(|listener| {
            let (mut stream, ..) = listener.asked();
            // As siw rejects: R beside S, the depths zero.
            stream.write_all(b"MPA ID Rep Frame\x70\x02\x00\x04\x00\x00\x00\x00").unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            listener.0.set_nonblocking(true).unwrap();
            assert!(rest.is_empty() && listener.0.accept().is_err());
        });
        let mut ours = Ours::dial(addr);
        let reason = ours.until(|end| {
            end.take(|event| match event {
                Event::ConnectFailed { reason, .. } => Some(*reason),
                _ => None,
            })
        });
        assert_eq!(reason, ConnectFailure::PeerRejected);
        script.join().unwrap();
    }

    #[test]
    fn a_responder_that_missed_the_first_frame_is_woken_by_an_empty_write() {
        let (addr, script) = peer(|listener| {
            let (mut stream, ..) = listener.asked();
            stream.write_all(b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x01\x00\x01").unwrap();
            assert_eq!(ulpdu(&mut stream)[18..], *b"hello");
            // siw sleeps, with the frame in its socket, until another frame comes.
            let kick = ulpdu(&mut stream);
            assert_eq!((kick.len(), &kick[..2]), (14, &[0xc1, 0x40][..]), "empty, and a Write");
            frame(&mut stream, &send(1));
            // Once the peer was heard, no further empty write goes to it: the next frame is the
            // owner's.
            loop {
                let next = ulpdu(&mut stream);
                if next.len() != 14 {
                    return next[18..].to_vec();
                }
            }
        });
        let mut ours = Ours::established(addr);
        ours.converse();
        ours.say();
        ours.end.engine.poll(&mut ours.end.events);
        assert_eq!(script.join().unwrap(), b"hello");
    }

    /// A Terminate as a peer sends it, and its meaning.
    struct Told {
        control: [u8; 4],
        /// Bytes of the request that are echoed behind the control word and a length.
        echoed: u8,
        code: TerminateCode,
    }

    const fn told(control: [u8; 4], echoed: u8, layer: u8, etype: u8, code: u8) -> Told {
        Told { control, echoed, code: TerminateCode { layer, etype, code } }
    }

    /// Terminates as siw of Linux 6.12 sends them, those with headers as captured.
    const TERMINATES: [Told; 6] = [
        // A Write to an unknown STag.
        told([0x11, 0x00, 0x03, 0x00], 14, 1, 1, 0),
        // A Read of an unknown STag.
        told([0x10, 0x00, 0x07, 0x00], 46, 0, 1, 0),
        // A Send without a receive, or longer than it.
        told([0x21, 0x02, 0x03, 0x00], 18, 1, 2, 2),
        // A frame too short for its header, which only RFC 5040's order gives a meaning.
        told([0x02, 0x03, 0x00, 0x00], 0, 2, 0, 3),
        // An unknown opcode: in RFC 5040's order this is a start-up error, and the start-up is
        // over.
        told([0x20, 0x06, 0x00, 0x00], 0, 0, 2, 6),
        // In the order of RFC 5040, which adapters use.
        told([0x01, 0x00, 0xe0, 0x00], 46, 0, 1, 0),
    ];

    #[test]
    fn a_terminate_with_swapped_halves_is_reported_with_its_meaning() {
        for Told { control, echoed, code } in TERMINATES {
            let (addr, script) = peer(move |listener| {
                let (mut stream, ..) = listener.asked();
                stream.write_all(b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x01\x00\x01").unwrap();
                let request = ulpdu(&mut stream);
                // A frame comes before the Terminate, because the order of some Terminates depends
                // on that.
                frame(&mut stream, &READY_WRITE);
                let mut terminate =
                    vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
                terminate.extend_from_slice(&control);
                if echoed > 0 {
                    terminate.extend_from_slice(&[0, echoed]);
                    terminate.extend_from_slice(&request[..usize::from(echoed)]);
                }
                frame(&mut stream, &terminate);
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest);
            });
            let mut ours = Ours::established(addr);
            let access = rdma::Access::LOCAL_WRITE;
            let region =
                ours.end.engine.register(ours.qp, ours.inbox.clone(), 0..64, access).unwrap();
            let local = region.slice(0, 8);
            let read = Operation::Read { local, rkey: Rkey(0x1234), remote_addr: 0 };
            ours.end.engine.post_send(ours.qp, WorkRequest::signaled(7, read)).unwrap();
            let done = ours.until(End::completion);
            let memory = code.layer <= 1 && code.etype == 1;
            let status = if memory { WcStatus::RemoteAccess } else { WcStatus::RemoteOperation };
            assert_eq!((done.wr_id, done.status), (7, status));
            assert_eq!(ours.ended(), DisconnectReason::PeerTerminated(code), "{control:02x?}");
            script.join().unwrap();
        }
    }

    /// The answer of siw of Linux 6.12.117 for `landfast serve --rdma-provider verbs`, captured in the
    /// guest: its depths, 128 and 0, then the private data of push mode, whose magic our announcement
    /// once had.
    const PUSH_ACCEPTED: &[u8] = b"MPA ID Rep Frame\x50\x02\x00\x1c\x00\x80\x00\x00\
        LFPR\x01\0\x18\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";

    const PATIENCE: Duration = Duration::from_secs(20);
}
