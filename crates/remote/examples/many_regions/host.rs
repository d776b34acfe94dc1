//! The process that hosts: one medium, which every peer maps whole.

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use basics::Environment;
use pmem::OpenOptions;
use rdma::{Access, EngineConfig, SoftProvider};
use remote::host::{HostOptions, OpenHost, PushConnection, PushOnly, Registration, TokenGate};

use crate::Failure;

/// The argument that starts it.
pub(crate) const SERVE: &str = "serve";
/// Length of the medium.
pub(crate) const LEN: u64 = 1 << 20;

/// Answers each line of standard input with a line: `invite` with a token, `map CONNECTION` with a registration.
pub(crate) fn serve() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let open = OpenHost::open(HostOptions {
        listen: "127.0.0.1:0".parse()?,
        same_host: None,
        provider: Arc::new(SoftProvider),
        engine: EngineConfig::default(),
        threads: 1,
        runtime: runtime.handle().clone(),
        stop_grace: Duration::from_secs(1),
    })?;
    let handle = open.handle().clone();
    let gate = Arc::new(TokenGate::new(&Environment::host(), Duration::from_secs(60), 4096));
    let asked = Arc::clone(&gate);
    let _host = open.run(asked, |_| PushOnly)?;
    let medium = pmem::anonymous_with(LEN, OpenOptions { emulate_persistence: true })?;
    medium.prepare(0, LEN)?;
    println!("{}", handle.address());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some(number) = line.strip_prefix("map ") else {
            let token = gate.issue(())?;
            println!("{}", token.expose().map(|byte| format!("{byte:02x}")).concat());
            continue;
        };
        let (connection, shared) = (PushConnection(number.parse()?), Arc::clone(&medium));
        let region = Registration::<()>::new(Arc::new(handle.clone()), connection, shared, 0..LEN);
        let memory = runtime.block_on(region.register(Access::PUSH, medium.class()))?;
        println!("{} {} {}", memory.rkey.0, memory.remote_addr_base, memory.offers.bits());
    }
    Ok(())
}
