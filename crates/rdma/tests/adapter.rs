//! Asynchronous events of an adapter end the connections that it carries, with a reason: over
//! provider `verbs`, in the guest (`cargo xtask guest verbs`). Provider `soft` has no adapter.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    use rdma::{AdapterFault, DisconnectReason, QpId};

    use super::support::{End, Pair};

    /// The network card under the adapter, which the guest lets the test switch off.
    fn card() -> Option<String> {
        std::env::var("LANDFAST_RDMA_CARD").ok()
    }

    fn ip(words: &[&str]) {
        assert!(Command::new("ip").args(words).status().unwrap().success(), "ip {words:?}");
    }

    /// Sleeps until the connection ends; an engine that missed the event would sleep on.
    fn end_of(end: &mut End, qp: QpId) -> DisconnectReason {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(reason) = end.disconnected(qp) {
                return reason;
            }
            end.engine.wait(Some(PATIENCE));
            end.engine.poll(&mut end.events);
        }
        panic!("nobody said that the port is down: {:?}", end.events);
    }

    #[test]
    fn a_port_that_goes_down_ends_idle_connections_at_both_ends() {
        let Some(card) = card() else { return };
        let mut pair = Pair::of_any();
        let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
        let (client, server) = (&mut pair.client, &mut pair.server);
        thread::scope(|scope| {
            let ends = [
                scope.spawn(move || end_of(client, client_qp)),
                scope.spawn(move || end_of(server, server_qp)),
            ];
            ip(&["link", "set", &card, "down"]);
            for end in ends {
                let reason = end.join().unwrap();
                assert_eq!(reason, DisconnectReason::HostAdapter(AdapterFault::PortDown));
            }
        });
    }

    const PATIENCE: Duration = Duration::from_secs(60);
}
