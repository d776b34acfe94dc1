//! Peers whose machine or network is gone.

mod tests {
    use std::time::Duration;

    use rdma::{Access, DisconnectReason, EngineConfig, PollPolicy, QpConfig, SoftProvider};

    use crate::support::network::alone;
    use crate::support::{End, Pair, memory, write};

    const SILENCE: Duration = Duration::from_secs(2);

    fn pair() -> Pair {
        let config = EngineConfig {
            polling: PollPolicy::Block,
            silence_max: Some(SILENCE),
            ..EngineConfig::default()
        };
        let end = || End::open(&SoftProvider, config.clone());
        Pair::between(end(), end(), QpConfig::default(), QpConfig::default())
    }

    fn is_timed_out(reason: DisconnectReason) -> bool {
        // ETIMEDOUT, or EHOSTUNREACH if the host knows why no answer comes.
        matches!(reason, DisconnectReason::HostIo { errno: 110 | 113 })
    }

    #[test]
    fn each_end_of_an_idle_connection_detects_the_loss_of_its_peer() {
        alone(
            "vanished::tests::each_end_of_an_idle_connection_detects_the_loss_of_its_peer",
            |net| {
                let mut pair = pair();
                let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
                net.cut();
                let reason = pair.until(|client, _| client.disconnected(client_qp));
                assert!(is_timed_out(reason), "{reason:?}");
                let reason = pair.until(|_, server| server.disconnected(server_qp));
                assert!(is_timed_out(reason), "{reason:?}");
            },
        );
    }

    #[test]
    fn unacknowledged_bytes_end_their_connection() {
        alone("vanished::tests::unacknowledged_bytes_end_their_connection", |net| {
            let mut pair = pair();
            let medium = memory(4096);
            let range = 0..medium.len();
            let engine = &mut pair.server.engine;
            let region =
                engine.register(pair.server_qp, medium, range, Access::REMOTE_WRITE).unwrap();
            net.cut();
            pair.post(1, write(b"lost", region, 0));
            let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
            let reason = pair.until(|client, _| client.disconnected(client_qp));
            assert!(is_timed_out(reason), "{reason:?}");
            pair.until(|_, server| server.disconnected(server_qp));
        });
    }
}
