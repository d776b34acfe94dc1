//! A host without descriptors. The only test of its program: the limit applies to the whole
//! process.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    use rdma::{EngineConfig, PollPolicy, SoftProvider};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::support::{End, address};

    /// How long the engine is watched, and how often it may get up meanwhile.
    const WATCHED: Duration = Duration::from_millis(200);
    const WAKES_MAX: u64 = 20;

    #[test]
    fn a_listener_without_descriptors_lets_its_engine_sleep_and_accepts_later() {
        let blocks = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut server = End::open(&SoftProvider, blocks);
        let addr = server.engine.listen(address()).unwrap();
        // The host completes the connection by itself; only a descriptor for it is missing here.
        let dialled = TcpStream::connect(addr).unwrap();
        let limit = getrlimit(Resource::Nofile);
        let short = Rlimit { current: Some(256), maximum: limit.maximum };
        setrlimit(Resource::Nofile, short).unwrap();
        let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        server.engine.wait(Some(WATCHED));
        let wakes = server.engine.stats().wakes;
        drop(taken);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(wakes < WAKES_MAX, "{wakes} times awake for a connection it cannot take");
        // The bytes are no handshake: the engine closes the connection as soon as it is accepted.
        (&dialled).write_all(&[0; 64]).unwrap();
        dialled.set_nonblocking(true).unwrap();
        let mut byte = [0];
        while (&dialled).read(&mut byte).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            server.engine.wait(Some(Duration::from_millis(10)));
            server.engine.poll(&mut server.events);
        }
    }
}
