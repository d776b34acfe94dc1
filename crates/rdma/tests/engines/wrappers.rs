//! Providers around a provider: their logs, faults and captures.

mod tests {
    use std::process::Command;

    use rdma::{
        DisconnectReason, Event, FaultPlan, Faults, Operation, Payload, Pcap, PostError, Provider,
        QpConfig, SoftProvider, TerminateCode, Tracer,
    };

    use crate::support::{Pair, bytes_of, flush, memory, pattern, write};

    fn pair(client: &dyn Provider, server: &dyn Provider) -> Pair {
        Pair::of(client, server, QpConfig::default(), QpConfig::default())
    }

    #[test]
    fn a_traced_engine_behaves_like_the_engine() {
        let traced = Tracer::new(SoftProvider);
        let mut pair = pair(&traced, &traced);
        let medium = memory(4096);
        let region = pair.target(&medium);
        pair.post(1, write(b"seen", region, 0));
        pair.post(2, flush(region.rkey, region.remote_addr_base, 4));
        assert_eq!((pair.completion().wr_id, pair.completion().wr_id), (1, 2));
        assert_eq!(bytes_of(&*medium, 0, 4), b"seen");
        assert_eq!(traced.name(), "soft");
    }

    /// Posts as soon as there is room, unless the connection is over.
    fn post_or_end(pair: &mut Pair, wr_id: u64, operation: Operation<'_>) {
        let qp = pair.client_qp;
        let request = rdma::WorkRequest::unsignaled(wr_id, operation);
        pair.until(|client, _| match client.engine.post_send(qp, request) {
            Err(PostError::QueueFull) => None,
            _ => Some(()),
        });
    }

    #[test]
    fn a_flipped_bit_is_caught_by_the_crc_and_places_nothing() {
        // Both announcements pass, then the first frames meet the flipped bit.
        for seed in 0..20 {
            let plan = FaultPlan { seed, corrupt_every: 60_000, ..FaultPlan::default() };
            let faults = Faults::new(SoftProvider, plan);
            let mut pair = pair(&SoftProvider, &faults);
            let medium = memory(1 << 20);
            let region = pair.target(&medium);
            let server_qp = pair.server_qp;
            let bytes = vec![0x77; 4096];
            for i in 0..100 {
                post_or_end(&mut pair, i, write(&bytes, region, 4096 * i));
            }
            let crc = TerminateCode { layer: 2, etype: 0, code: 2 };
            let reason = pair.until(|_, server| server.disconnected(server_qp));
            // A flipped length makes the next frame begin in the wrong place: the CRC detects that
            // as well, unless the longer frame never arrives whole.
            assert_eq!(reason, DisconnectReason::PeerViolation(crc), "seed {seed}");
            let placed = bytes_of(&*medium, 0, 1 << 20);
            let wrong = placed.iter().any(|byte| *byte != 0 && *byte != 0x77);
            assert!(!wrong, "seed {seed} placed bytes nobody sent");
        }
    }

    #[test]
    fn a_connection_cut_by_faults_ends_on_both_sides() {
        let plan = FaultPlan { seed: 3, cut_after: 50_000, ..FaultPlan::default() };
        let faults = Faults::new(SoftProvider, plan);
        let mut pair = pair(&SoftProvider, &faults);
        let medium = memory(1 << 20);
        let region = pair.target(&medium);
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        for i in 0..30 {
            let bytes = pattern(1, 4096);
            post_or_end(&mut pair, i, write(&bytes, region, 4096 * i));
        }
        let reason = pair.until(|_, server| server.disconnected(server_qp));
        assert!(matches!(reason, DisconnectReason::HostIo { .. }));
        pair.until(|client, _| client.disconnected(client_qp));
    }

    #[test]
    fn delayed_events_come_late_and_in_order() {
        let plan = FaultPlan { seed: 1, delay_polls_max: 9, ..FaultPlan::default() };
        let faults = Faults::new(SoftProvider, plan);
        let mut pair = pair(&faults, &SoftProvider);
        let medium = memory(4096);
        let region = pair.target(&medium);
        for wr_id in 0..50 {
            pair.post(wr_id, flush(region.rkey, region.remote_addr_base, 1));
        }
        let order: Vec<_> = (0..50).map(|_| pair.completion().wr_id).collect();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }

    /// The fields of each frame that tshark finds; empty if the host has no tshark.
    fn tshark(file: &std::path::Path, arguments: &[&str]) -> Option<String> {
        let output = Command::new("tshark")
            // tshark takes any message for the protocol it hopes for, and then finds it malformed.
            .args(["--disable-protocol", "rpcordma", "-r"])
            .arg(file)
            .args(arguments)
            .output()
            .ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn a_capture_is_readable_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rdma.pcap");
        let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        drop(Pcap::create(SoftProvider, &file).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let capture = Pcap::create(SoftProvider, &file).unwrap();
        let config = QpConfig::default();
        drop(Pair::of(&SoftProvider, &capture, config, config));
        drop(capture);
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn who_captures_nothing_leaves_the_file_of_the_capture_as_it_was() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("rdma.pcap"), folder.path().join("other"));
        std::fs::write(&other, "precious").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).unwrap();
        Pcap::create(SoftProvider, &other).unwrap_err();
        assert_eq!(std::fs::read(&other).unwrap(), b"precious");
        assert_eq!(std::fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o644);

        let capture = Pcap::create(SoftProvider, &file).unwrap();
        let busy = Pcap::create(SoftProvider, &file).unwrap_err();
        assert!(busy.to_string().contains("another process"), "{busy}");
        let config = QpConfig::default();
        drop(Pair::of(&SoftProvider, &capture, config, config));
        drop(capture);
        let captured = std::fs::read(&file).unwrap();
        assert!(captured.len() > 24, "{}", captured.len());
        drop(Pcap::create(SoftProvider, &file).unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), captured);
    }

    #[test]
    fn a_capture_ends_where_the_reader_of_its_pipe_takes_nothing() {
        use std::os::unix::fs::OpenOptionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        let alone = Pcap::create(SoftProvider, &pipe).unwrap_err();
        assert!(alone.to_string().contains("nobody reads the pipe"), "{alone}");
        let waits_not = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut options = std::fs::OpenOptions::new();
        let _reader = options.read(true).custom_flags(waits_not).open(&pipe).unwrap();
        let capture = Pcap::create(SoftProvider, &pipe).unwrap();
        let mut pair = pair(&SoftProvider, &capture);
        let medium = memory(1 << 20);
        let region = pair.target(&medium);
        for number in 0..8 {
            pair.post(number, write(&pattern(1, 60_000), region, number * 60_000));
            pair.post(number, flush(region.rkey, region.remote_addr_base, 60_000));
            assert!(pair.completion().is_success() && pair.completion().is_success());
        }
    }

    #[test]
    fn tshark_dissects_a_capture_down_to_the_operations() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rdma.pcap");
        {
            let capture = Pcap::create(SoftProvider, &file).unwrap();
            // Plain iWARP: tshark 4.0 knows neither our profile nor the draft's opcodes.
            let plain = QpConfig { announce: false, ..QpConfig::default() };
            let mut pair = Pair::of(&SoftProvider, &capture, plain, plain);
            let (there, here) = (memory(1 << 20), memory(1 << 20));
            let (region, local) = (pair.target(&there), pair.local(&here));
            let inbox = pair.target(&memory(4096));
            let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
            pair.server.engine.post_recv(server_qp, 1, inbox.slice(0, 4096)).unwrap();
            let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
            pair.post(1, write(&pattern(1, 20_000), region, 0));
            let payload = Payload::Inline(b"a message");
            pair.post(2, Operation::Send { payload, invalidate: None, solicited: false });
            pair.post(3, Operation::Read { local: local.slice(0, 9000), rkey, remote_addr });
            for _ in 0..3 {
                assert!(pair.completion().is_success());
            }
            pair.client.engine.disconnect(client_qp);
            pair.until(|_, server| server.disconnected(server_qp));
            for _ in 0..200 {
                pair.until(|_, _| Some(()));
            }
        }
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes[..4], [0xa1, 0xb2, 0x3c, 0x4d]);
        let Some(frames) = tshark(&file, &["-T", "fields", "-e", "frame.protocols"]) else {
            return;
        };
        assert!(frames.contains("iwarp_mpa"), "{frames}");
        let text = tshark(&file, &["-V"]).unwrap();
        for expected in ["Write (0x0)", "Send (0x3)", "Read Request (0x1)", "Read Response (0x2)"] {
            assert!(text.contains(expected), "{expected} is missing:\n{text}");
        }
        assert_eq!(text.matches("(Good CRC32)").count(), 4, "{text}");
        let bad = tshark(&file, &["-Y", "_ws.malformed || tcp.analysis.flags"]).unwrap();
        assert_eq!(bad, "", "no frame is malformed, no sequence number wrong");
    }

    #[test]
    fn a_capture_of_two_engines_shows_extended_streams_as_tcp() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.pcap");
        {
            let capture = Pcap::create(SoftProvider, &file).unwrap();
            let mut pair = pair(&capture, &capture);
            let medium = memory(1 << 17);
            let region = pair.target(&medium);
            pair.post(1, write(&pattern(1, 60_000), region, 0));
            pair.post(2, flush(region.rkey, region.remote_addr_base, 60_000));
            assert_eq!((pair.completion().wr_id, pair.completion().wr_id), (1, 2));
            assert!(
                !pair.client.events.iter().any(|event| matches!(event, Event::Disconnected { .. }))
            );
        }
        if let Some(bad) = tshark(&file, &["-Y", "_ws.malformed"]) {
            assert_eq!(bad, "");
        }
    }
}
