//! The SMB arms: WRITE and FLUSH, and READ, over TCP or over SMB Direct.

use std::cell::RefCell;
use std::time::Instant;

use client::transport::direct::{self, DirectConfig};
use client::{Client, ClientError, File, OpenOptions, SmbUrl};
use futures_util::future::try_join_all;
use tokio::runtime::{Builder, Runtime};

use super::arm::{Arm, Recording};
use super::plan::{Operation, Operations, Plan};
use crate::failure::Failure;
use crate::remote;

/// A session of its own with an open file, driven from the calling thread, so that the measurement
/// includes no hand-over between threads.
#[derive(Debug)]
pub(crate) struct Smb {
    // Before the runtime: closing the file needs it.
    file: File,
    client: Client,
    runtime: Runtime,
    outstanding: usize,
    block: usize,
    uncommitted: bool,
    transport: &'static str,
}

impl Smb {
    /// Connects over TCP.
    pub(crate) fn over_tcp(url: &SmbUrl, plan: &Plan) -> Result<Self, Failure> {
        let runtime = runtime()?;
        let client = runtime.block_on(Client::connect(url, &plan.protection.options()))?;
        Self::new(runtime, client, url, plan, "TCP")
    }

    /// Connects over SMB Direct, to the RDMA listener that the server announces in a push grant.
    pub(crate) fn over_smb_direct(url: &SmbUrl, plan: &Plan) -> Result<Self, Failure> {
        let runtime = runtime()?;
        let address = runtime.block_on(remote::rdma_address(url))?;
        let client = runtime.block_on(async {
            let provider = plan.rdma_provider.provider();
            let transport = direct::connect(&*provider, address, DirectConfig::default());
            let transport = transport.await.map_err(ClientError::from)?;
            let options = plan.protection.options();
            let mut initiator = client::initiator(url, &options.environment)?;
            Client::over(transport, &mut initiator, &url.host, &url.share, &options).await
        })?;
        Self::new(runtime, client, url, plan, "SMB Direct (payload by RDMA, below signatures)")
    }

    fn new(
        runtime: Runtime,
        client: Client,
        url: &SmbUrl,
        plan: &Plan,
        transport: &'static str,
    ) -> Result<Self, Failure> {
        let file = runtime.block_on(client.open(&url.path, &OpenOptions::read_write()))?;
        let (outstanding, block) = (plan.outstanding, plan.block);
        let uncommitted = plan.uncommitted;
        Ok(Self { file, client, runtime, outstanding, block, uncommitted, transport })
    }
}

impl Arm for Smb {
    fn run(
        &mut self,
        operations: &mut Operations,
        until: Instant,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        let shared = RefCell::new((operations, recording));
        let lane = async || -> Result<(), Failure> {
            let mut bytes = vec![0x5a; self.block];
            while Instant::now() < until {
                let operation = shared.borrow_mut().0.draw();
                let issued = Instant::now();
                match operation {
                    Operation::WriteCommit(offset) => {
                        self.file.write_at(offset, &bytes).await?;
                        if !self.uncommitted {
                            self.file.flush().await?;
                        }
                    }
                    Operation::Read(offset) => {
                        self.file.read_at(offset, &mut bytes).await?;
                    }
                }
                shared.borrow_mut().1.finished(issued, self.block);
            }
            Ok(())
        };
        let lanes = (0..self.outstanding).map(|_| lane());
        self.runtime.block_on(try_join_all(lanes)).map(|_| ())
    }

    fn commit(&self) -> &'static str {
        if self.uncommitted { "none" } else { "smb2-flush" }
    }

    fn durability(&self) -> String {
        let negotiated = self.client.negotiated();
        let protection = if self.client.is_encrypted() {
            "encrypted"
        } else if self.client.is_protected() {
            "signed"
        } else {
            "plain"
        };
        let commit = if self.uncommitted { "nothing committed" } else { "commit by SMB2 FLUSH" };
        format!("SMB {} over {}, {protection}, {commit}", negotiated.dialect, self.transport)
    }
}

pub(super) fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().map_err(Failure::system("cannot start the runtime"))
}
