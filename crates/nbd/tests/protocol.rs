//! Whole conversations in the bytes of the specification.

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::{BlockDevice, FileDevice, MemoryDevice, Survives};
    use nbd::protocol::{
        Agreed, Event, Handshake, OPTION_LEN_MAX, Output, PAYLOAD_MAX, PeerError, Request, Session,
        Step, TlsPolicy,
    };
    use nbd::{Export, Exports};

    const SIZE: u64 = 1 << 20;

    fn exports() -> Arc<Exports> {
        let device = |size| Arc::new(MemoryDevice::anonymous(size).unwrap());
        let first = Export::new("disk", "a disk", device(SIZE)).unwrap();
        let second = Export::new("other", "", device(4096)).unwrap();
        Arc::new(Exports::new(vec![first, second]).unwrap())
    }

    /// Hexadecimal digits; a text in quotes stands for its bytes.
    fn bytes(text: &str) -> Vec<u8> {
        let part = |(at, part): (usize, &str)| match at % 2 {
            1 => part.as_bytes().to_vec(),
            _ => {
                let digits: Vec<u8> = part.bytes().filter(u8::is_ascii_hexdigit).collect();
                let pair = |pair: &[u8]| {
                    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()
                };
                digits.chunks(2).map(pair).collect()
            }
        };
        text.split('"').enumerate().flat_map(part).collect()
    }

    struct Peer {
        handshake: Handshake,
        output: Output,
    }

    impl Peer {
        /// After the greeting and the client's flags.
        fn new(tls: TlsPolicy) -> Self {
            let mut output = Output::new();
            let handshake = Handshake::new(exports(), tls, &mut output);
            assert_eq!(output.as_bytes(), bytes("\"NBDMAGICIHAVEOPT\" 0003"));
            output.clear();
            let mut peer = Self { handshake, output };
            peer.send(&bytes("0000 0003")).unwrap();
            peer
        }

        fn send(&mut self, message: &[u8]) -> Result<Event, PeerError> {
            self.output.clear();
            for end in 0..message.len() {
                let (len, event) = self.handshake.handle(&message[..end], &mut self.output)?;
                assert!(len == 0 && matches!(event, Event::NeedsMore), "{end} bytes are a part");
            }
            let (len, event) = self.handshake.handle(message, &mut self.output)?;
            assert_eq!(len, message.len());
            Ok(event)
        }

        fn option(&mut self, number: u32, data: &[u8]) -> Result<Event, PeerError> {
            let len = u32::try_from(data.len()).unwrap();
            let head = [b"IHAVEOPT", &number.to_be_bytes()[..], &len.to_be_bytes(), data].concat();
            self.send(&head)
        }

        fn answers(&mut self, number: u32, data: &[u8], expected: &str) -> Event {
            let event = self.option(number, data).unwrap();
            assert_eq!(self.output.as_bytes(), bytes(expected), "option {number}");
            event
        }

        fn go(mut self) -> Agreed {
            match self.option(7, &bytes("00000004 \"disk\" 0000")).unwrap() {
                Event::Transmit(agreed) => agreed,
                other => panic!("{other:?}"),
            }
        }
    }

    const REPLY: &str = "0003e889045565a9";

    #[test]
    fn a_client_chooses_an_export_and_is_told_what_it_asked_for() {
        let mut peer = Peer::new(TlsPolicy::Off);
        let wanted = bytes("00000004 \"disk\" 0003 0001 0002 0003");
        let expected = format!(
            "{REPLY} 00000007 00000003 0000000c 0000 0000000000100000 016d
             {REPLY} 00000007 00000003 00000006 0001 \"disk\"
             {REPLY} 00000007 00000003 00000008 0002 \"a disk\"
             {REPLY} 00000007 00000003 0000000e 0003 00000200 00001000 02000000
             {REPLY} 00000007 00000001 00000000"
        );
        let event = peer.answers(7, &wanted, &expected);
        assert!(matches!(event, Event::Transmit(agreed) if agreed.export.name() == "disk"));
    }

    #[test]
    fn the_old_way_of_choosing_an_export_works_and_pads_unless_told_not_to() {
        let mut peer = Peer::new(TlsPolicy::Off);
        peer.answers(1, b"", "0000000000100000 016d");
        let mut output = Output::new();
        let mut handshake = Handshake::new(exports(), TlsPolicy::Off, &mut output);
        handshake.handle(&bytes("0000 0001"), &mut output).unwrap();
        output.clear();
        let option = bytes("\"IHAVEOPT\" 00000001 00000005 \"other\"");
        handshake.handle(&option, &mut output).unwrap();
        assert_eq!(output.len(), 8 + 2 + 124);
        let unknown = Peer::new(TlsPolicy::Off).option(1, b"none").unwrap_err();
        assert_eq!(unknown, PeerError::PeerNoExport);
    }

    #[test]
    fn options_are_answered_by_the_book() {
        let mut peer = Peer::new(TlsPolicy::Off);
        let list = format!(
            "{REPLY} 00000003 00000002 0000000e 00000004 \"diska disk\"
             {REPLY} 00000003 00000002 00000009 00000005 \"other\"
             {REPLY} 00000003 00000001 00000000"
        );
        peer.answers(3, b"", &list);
        peer.answers(3, b"x", &format!("{REPLY} 00000003 80000003 00000000"));
        peer.answers(5, b"", &format!("{REPLY} 00000005 80000001 00000000"));
        peer.answers(99, b"any", &format!("{REPLY} 00000063 80000001 00000000"));
        let none = bytes("00000004 \"none\" 0000");
        peer.answers(6, &none, &format!("{REPLY} 00000006 80000006 00000000"));
        let cut = bytes("00000009 \"none\" 0000");
        peer.answers(6, &cut, &format!("{REPLY} 00000006 80000003 00000000"));
        let event = peer.answers(2, b"", &format!("{REPLY} 00000002 00000001 00000000"));
        assert!(matches!(event, Event::Aborted));
    }

    #[test]
    fn the_context_of_allocation_counts_for_the_export_it_was_chosen_for() {
        let query = bytes("00000004 \"disk\" 00000001 0000000f \"base:allocation\"");
        let mut peer = Peer::new(TlsPolicy::Off);
        let refused = format!("{REPLY} 0000000a 80000003 00000000");
        peer.answers(10, &query, &refused);
        peer.answers(8, b"", &format!("{REPLY} 00000008 00000001 00000000"));
        let chosen = format!(
            "{REPLY} 0000000a 00000004 00000013 00000001 \"base:allocation\"
             {REPLY} 0000000a 00000001 00000000"
        );
        peer.answers(10, &query, &chosen);
        let agreed = peer.go();
        assert!(agreed.has_allocation && agreed.has_structured_replies);

        let mut peer = Peer::new(TlsPolicy::Off);
        peer.option(8, b"").unwrap();
        let other = bytes("00000005 \"other\" 00000001 0000000f \"base:allocation\"");
        peer.option(10, &other).unwrap();
        assert!(!peer.go().has_allocation);
        let mut peer = Peer::new(TlsPolicy::Off);
        peer.option(8, b"").unwrap();
        let listed = format!(
            "{REPLY} 00000009 00000004 00000013 00000000 \"base:allocation\"
             {REPLY} 00000009 00000001 00000000"
        );
        peer.answers(9, &bytes("00000004 \"disk\" 00000000"), &listed);
        peer.answers(9, &bytes("00000004 \"disk\" 00000001 00000005 \"base:\""), &listed);
        let foreign = bytes("00000004 \"disk\" 00000001 00000003 \"x:y\"");
        peer.answers(9, &foreign, &format!("{REPLY} 00000009 00000001 00000000"));
    }

    #[test]
    fn nothing_is_told_before_tls_where_it_is_required_and_nothing_is_kept() {
        let mut peer = Peer::new(TlsPolicy::Required);
        for number in [3, 6, 7, 8, 9, 10, 99] {
            let required = format!("{REPLY} {number:08x} 80000005 00000000");
            peer.answers(number, b"", &required);
        }
        assert_eq!(
            Peer::new(TlsPolicy::Required).option(1, b"disk").unwrap_err(),
            PeerError::PeerNoExport
        );
        let event = peer.answers(5, b"", &format!("{REPLY} 00000005 00000001 00000000"));
        assert!(matches!(event, Event::StartTls));
        peer.handshake = peer.handshake.after_tls();
        peer.answers(5, b"", &format!("{REPLY} 00000005 80000003 00000000"));
        assert!(!peer.go().has_structured_replies);
    }

    #[test]
    fn bytes_in_the_clear_after_the_request_for_tls_end_the_connection() {
        let mut peer = Peer::new(TlsPolicy::Required);
        let both = bytes("\"IHAVEOPT\" 00000005 00000000 \"IHAVEOPT\" 00000003 00000000");
        let outcome = peer.handshake.handle(&both, &mut peer.output);
        assert_eq!(outcome.unwrap_err(), PeerError::PeerClearBytes);
    }

    #[test]
    fn a_client_that_breaks_the_protocol_is_given_up() {
        let mut output = Output::new();
        let mut handshake = Handshake::new(exports(), TlsPolicy::Off, &mut output);
        let flags = handshake.handle(&bytes("0000 0007"), &mut output).unwrap_err();
        assert_eq!(flags, PeerError::PeerFlags { flags: 7 });
        let mut peer = Peer::new(TlsPolicy::Off);
        let magic = peer.handshake.handle(b"IHAVEOPX", &mut peer.output).unwrap_err();
        assert!(matches!(magic, PeerError::PeerMagic { .. }));
        let long = [b"IHAVEOPT", &3_u32.to_be_bytes()[..], &(OPTION_LEN_MAX + 1).to_be_bytes()];
        let long = peer.handshake.handle(&long.concat(), &mut peer.output).unwrap_err();
        assert!(matches!(long, PeerError::PeerOptionTooLong { option: 3, .. }));
        let mut peer = Peer::new(TlsPolicy::Off);
        let endless = (0..1000).find_map(|_| peer.option(3, b"").err());
        assert_eq!(endless, Some(PeerError::PeerTooManyOptions));
    }

    fn session(structured: bool) -> Session {
        let mut peer = Peer::new(TlsPolicy::Off);
        if structured {
            peer.option(8, b"").unwrap();
            let query = bytes("00000004 \"disk\" 00000001 0000000f \"base:allocation\"");
            peer.option(10, &query).unwrap();
        }
        Session::new(peer.go())
    }

    fn answer(session: &Session, message: &str) -> Vec<u8> {
        let message = bytes(message);
        for end in 0..message.len() {
            assert!(matches!(session.next(&message[..end]), Ok(Step::NeedsMore(_))));
        }
        let Ok(Step::Request(request, data)) = session.next(&message) else { panic!("whole") };
        assert_eq!(data.end, message.len());
        assert_eq!(request.emit(), message[..28]);
        let mut output = Output::new();
        session.carry_out(&request, &message[data], &mut output);
        output.as_bytes().to_vec()
    }

    const MAGIC: &str = "25609513";
    const COOKIE: &str = "0102030405060708";

    #[test]
    fn requests_get_simple_replies_unless_others_were_agreed_on() {
        let session = session(false);
        let write = format!("{MAGIC} 0001 0001 {COOKIE} 0000000000000200 00000004 \"data\"");
        assert_eq!(answer(&session, &write), bytes(&format!("67446698 00000000 {COOKIE}")));
        let read = format!("{MAGIC} 0000 0000 {COOKIE} 0000000000000201 00000003");
        let expected = format!("67446698 00000000 {COOKIE} \"ata\"");
        assert_eq!(answer(&session, &read), bytes(&expected));
        let flush = format!("{MAGIC} 0000 0003 {COOKIE} 0000000000000000 00000000");
        assert_eq!(answer(&session, &flush), bytes(&format!("67446698 00000000 {COOKIE}")));
        let zero = format!("{MAGIC} 0003 0006 {COOKIE} 0000000000000201 00000001");
        assert_eq!(answer(&session, &zero), bytes(&format!("67446698 00000000 {COOKIE}")));
        let read = format!("{MAGIC} 0000 0000 {COOKIE} 0000000000000200 00000004");
        let expected = format!("67446698 00000000 {COOKIE} 64006174");
        let expected = expected.replace("64006174", "64 00 74 61");
        assert_eq!(answer(&session, &read), bytes(&expected));
        let leave = format!("{MAGIC} 0000 0002 {COOKIE} 0000000000000000 00000000");
        assert_eq!(session.next(&bytes(&leave)), Ok(Step::Disconnected));
    }

    #[test]
    fn reads_and_questions_get_structured_replies_where_agreed_on() {
        let session = session(true);
        let read = format!("{MAGIC} 0004 0000 {COOKIE} 0000000000000000 00000002");
        let expected = format!("668e33ef 0001 0001 {COOKIE} 0000000a 0000000000000000 0000");
        assert_eq!(answer(&session, &read), bytes(&expected));
        let status = format!("{MAGIC} 0008 0007 {COOKIE} 0000000000000000 00100000");
        let expected = format!("668e33ef 0001 0005 {COOKIE} 0000000c 00000001 00100000 00000000");
        assert_eq!(answer(&session, &status), bytes(&expected));
        let beyond = format!("{MAGIC} 0000 0000 {COOKIE} 00000000000fffff 00000002");
        let found = answer(&session, &beyond);
        assert_eq!(found[..16], bytes(&format!("668e33ef 0001 8001 {COOKIE}")));
        assert_eq!(found[20..24], [0, 0, 0, 22]);
    }

    #[test]
    fn no_request_reaches_outside_of_its_export() {
        let session = session(false);
        let cases = [
            // command, offset, length, error: reads are invalid, changes have no room.
            ("0000", "0000000000100000", "00000001", 22),
            ("0000", "ffffffffffffffff", "00000002", 22),
            ("0004", "00000000000fffff", "00000002", 28),
            ("0006", "ffffffffffffffff", "ffffffff", 28),
            ("0004", "0000000000000000", "ffffffff", 28),
        ];
        for (command, offset, len, error) in cases {
            let request = format!("{MAGIC} 0000 {command} {COOKIE} {offset} {len}");
            let expected = format!("67446698 {error:08x} {COOKIE}");
            assert_eq!(answer(&session, &request), bytes(&expected), "{request}");
        }
        let write = format!("{MAGIC} 0000 0001 {COOKIE} 00000000000fffff 00000002 \"xx\"");
        assert_eq!(answer(&session, &write), bytes(&format!("67446698 0000001c {COOKIE}")));
    }

    #[test]
    fn unknown_commands_and_flags_are_invalid() {
        let session = session(false);
        for (flags, command) in [
            ("0000", "0005"),
            ("0000", "0007"),
            ("0000", "0063"),
            ("0004", "0000"),
            ("0002", "0004"),
            ("0010", "0006"),
            ("8000", "0003"),
        ] {
            let zeroes = "0000000000000000 00000000";
            let request = format!("{MAGIC} {flags} {command} {COOKIE} {zeroes}");
            let expected = format!("67446698 00000016 {COOKIE}");
            assert_eq!(answer(&session, &request), bytes(&expected), "{request}");
        }
        let flush = format!("{MAGIC} 0000 0003 {COOKIE} 0000000000000000 00000001");
        assert_eq!(answer(&session, &flush), bytes(&format!("67446698 00000016 {COOKIE}")));
    }

    #[test]
    fn a_write_too_long_to_wait_for_ends_the_connection_and_a_read_is_refused() {
        let session = session(false);
        let len = PAYLOAD_MAX + 1;
        let write = bytes(&format!("{MAGIC} 0000 0001 {COOKIE} 0000000000000000 {len:08x}"));
        assert_eq!(session.next(&write), Err(PeerError::PeerPayloadTooLong { len }));
        let read = format!("{MAGIC} 0000 0000 {COOKIE} 0000000000000000 {len:08x}");
        assert_eq!(answer(&session, &read), bytes(&format!("67446698 00000016 {COOKIE}")));
        let garbage = session.next(&[0; 28]);
        assert_eq!(garbage, Err(PeerError::PeerMagic { magic: 0 }));
    }

    #[test]
    fn a_device_for_reading_says_so_and_takes_no_changes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let device = FileDevice::new(std::fs::File::open(file.path()).unwrap()).unwrap();
        assert!(device.write(0, &[0; 512], Survives::Placed).is_err());
        let export = Export::new("", "", Arc::new(device)).unwrap();
        let exports = Arc::new(Exports::new(vec![export.clone()]).unwrap());
        let mut output = Output::new();
        let mut handshake = Handshake::new(exports, TlsPolicy::Off, &mut output);
        handshake.handle(&bytes("0000 0003"), &mut output).unwrap();
        output.clear();
        let option = bytes("\"IHAVEOPT\" 00000001 00000000");
        handshake.handle(&option, &mut output).unwrap();
        assert_eq!(output.as_bytes(), bytes("0000000000001000 010f"));
        let agreed = Agreed { export, has_structured_replies: false, has_allocation: false };
        let session = Session::new(agreed);
        let trim = format!("{MAGIC} 0000 0004 {COOKIE} 0000000000000000 00000200");
        assert_eq!(answer(&session, &trim), bytes(&format!("67446698 00000001 {COOKIE}")));
        assert_eq!(Request::LEN, 28);
    }
}
