//! Waiting for events, other threads and time, and its cost.

mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use rdma::{EngineConfig, PollPolicy, SoftProvider};

    use crate::support::{End, Pair, flush, memory, write};

    fn end(polling: PollPolicy) -> End {
        End::open(&SoftProvider, EngineConfig { polling, ..EngineConfig::default() })
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over_whatever_the_policy() {
        let policies =
            [PollPolicy::Adaptive, PollPolicy::Spin, PollPolicy::Block, PollPolicy::Fixed(20)];
        for polling in policies {
            let mut end = end(polling);
            let start = Instant::now();
            end.engine.wait(Some(Duration::from_millis(5)));
            assert!(start.elapsed() >= Duration::from_millis(5), "{polling:?}");
            let slept = end.engine.stats().sleeps > 0;
            assert_eq!(slept, polling != PollPolicy::Spin, "{polling:?}");
        }
    }

    #[test]
    fn another_thread_ends_a_wait_whether_it_spins_or_sleeps() {
        for polling in [PollPolicy::Spin, PollPolicy::Block, PollPolicy::Adaptive] {
            let mut end = end(polling);
            let waker = end.engine.waker();
            let (next, go) = channel();
            let caller = thread::spawn(move || {
                while go.recv().is_ok() {
                    waker.wake();
                }
                waker.system_calls()
            });
            for _ in 0..200 {
                next.send(()).unwrap();
                let start = Instant::now();
                end.engine.wait(Some(Duration::from_secs(10)));
                assert!(start.elapsed() < Duration::from_secs(9), "{polling:?} was not woken");
            }
            drop(next);
            let calls = caller.join().unwrap();
            if polling == PollPolicy::Spin {
                assert_eq!(calls, 0, "an engine that spins is woken without a system call");
            }
        }
    }

    #[test]
    fn a_wait_serves_peers_and_ends_only_for_events() {
        let mut pair = Pair::new();
        let medium = memory(4096);
        let region = pair.target(&medium);
        let Pair { mut client, mut server, client_qp, .. } = pair;
        let (stop, stopped) = (
            server.engine.waker(),
            thread::spawn(move || {
                // No event comes until a waker calls.
                server.engine.wait(Some(Duration::from_secs(20)));
                server.engine.poll(&mut server.events);
                (server.events.len(), server.engine.stats())
            }),
        );
        for wr_id in 0..100 {
            client.post(client_qp, 2 * wr_id, write(b"served in wait", region, 0));
            client.post(client_qp, 2 * wr_id + 1, flush(region.rkey, region.remote_addr_base, 14));
            let mut seen = 0;
            while seen < 2 {
                client.engine.wait(Some(Duration::from_secs(20)));
                client.engine.poll(&mut client.events);
                while let Some(completion) = client.completion() {
                    assert!(completion.is_success());
                    seen += 1;
                }
            }
        }
        stop.wake();
        let (events, stats) = stopped.join().unwrap();
        assert_eq!(events, 0);
        assert!(stats.frames_received >= 200);
    }

    #[test]
    fn a_posted_request_is_sent_before_a_wait_sleeps() {
        let mut pair = Pair::new();
        let medium = memory(4096);
        let region = pair.target(&medium);
        pair.post(1, write(b"x", region, 0));
        pair.client.engine.wait(Some(Duration::from_secs(10)));
        pair.client.engine.poll(&mut pair.client.events);
        assert_eq!(pair.client.completion().map(|completion| completion.wr_id), Some(1));
    }
}
