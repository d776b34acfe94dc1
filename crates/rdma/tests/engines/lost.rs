//! Lost connections: a connection whose input the engine does not take must not keep the engine
//! awake.

mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use pmem::Medium;
    use rdma::{
        Access, EngineConfig, MemoryRegion, Operation, Payload, PollPolicy, PostError, WorkRequest,
    };

    use crate::support::slow::{Blocks, Slow};
    use crate::support::{End, Pair, flush, pattern, write};

    /// For an idle engine: how long it is watched, and how often it may wake.
    const WATCHED: Duration = Duration::from_millis(200);
    const WAKES_MAX: u64 = 20;

    fn parked() -> (Pair, Arc<Slow>, std::sync::mpsc::Sender<()>) {
        let blocks = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut pair = Pair::served(blocks);
        let (slow, permit) = Slow::gated(4 << 20, Blocks::ALL);
        let medium: Arc<dyn Medium> = slow.clone();
        let region: MemoryRegion = pair.target(&medium);
        pair.post(0, flush(region.rkey, region.remote_addr_base, 1));
        pair.until(|_, _| {
            (slow.begun.load(std::sync::atomic::Ordering::SeqCst) == 1).then_some(())
        });
        let (bytes, qp, mut posted) = (pattern(4, 32_768), pair.client_qp, 0);
        pair.until(|client, server| {
            while posted < 128 {
                let request =
                    WorkRequest::unsignaled(posted, write(&bytes, region, posted * 32_768));
                if client.engine.post_send(qp, request).is_err() {
                    break;
                }
                posted += 1;
            }
            (server.engine.stats().parks > 0).then_some(())
        });
        (pair, slow, permit)
    }

    /// Closes the client's socket while it holds unread bytes, which resets the connection.
    fn reset(pair: Pair) -> End {
        let Pair { client, mut server, server_qp, .. } = pair;
        let payload = Payload::Inline(b"unread");
        let send = Operation::Send { payload, invalidate: None, solicited: false };
        server.post(server_qp, 7, send);
        while server.completion().is_none() {
            server.engine.poll(&mut server.events);
        }
        drop(client);
        server
    }

    #[test]
    fn a_parked_connection_that_is_reset_ends_and_its_engine_sleeps() {
        let (pair, slow, permit) = parked();
        let qp = pair.server_qp;
        let mut server = reset(pair);
        let region =
            server.engine.register(qp, slow.clone(), 0..4096, Access::LOCAL_WRITE).unwrap();
        // The worker still reads the file: the queue pair ends all the same.
        loop {
            server.engine.wait(Some(Duration::from_millis(10)));
            server.engine.poll(&mut server.events);
            if let Err(error) = server.engine.post_recv(qp, 1, region.slice(0, 8)) {
                assert_eq!(error, PostError::NotConnected(qp));
                break;
            }
            server.completion();
        }
        let before = server.engine.stats();
        server.engine.wait(Some(WATCHED));
        let wakes = (server.engine.stats() - before).wakes;
        assert!(wakes < WAKES_MAX, "{wakes} times awake for a connection that is gone");
        permit.send(()).unwrap();
        while server.disconnected(qp).is_none() {
            server.engine.wait(Some(Duration::from_millis(10)));
            server.engine.poll(&mut server.events);
        }
        assert!(!slow.log().contains('w'), "what waited behind the flush never began");
    }
}
