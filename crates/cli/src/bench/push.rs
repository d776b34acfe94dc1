//! The push arm: one-sided RDMA Write and Flush, and RDMA Read, on a mapped region.

use std::collections::VecDeque;
use std::time::Instant;

use client::{Region, RegionSettings, SmbUrl};
use pmem::DurabilityClass;

use super::arm::{Arm, Recording};
use super::pace::Pace;
use super::plan::{Operation, Operations, Plan};
use crate::failure::Failure;
use crate::remote;

/// One mapped file.
#[derive(Debug)]
pub(crate) struct Push {
    region: Region,
    pace: Pace,
    /// The arm will commit.
    writes: bool,
    payload: Vec<u8>,
    answer: Vec<u8>,
    issued: VecDeque<Instant>,
}

impl Push {
    /// Opens the file, maps all of it, and requires push mode: a measurement of the SMB fallback
    /// under the name of this arm would be wrong.
    pub(crate) fn connect(url: &SmbUrl, plan: &Plan) -> Result<Self, Failure> {
        let settings = RegionSettings {
            provider: plan.rdma_provider,
            // The report names the provider that was asked for.
            same_host: false,
            polling: plan.poll.policy(),
            outstanding_max: plan.outstanding,
            ..RegionSettings::default()
        };
        let region = remote::map(url, 0..plan.file_size, settings)?;
        let push = Self {
            region,
            writes: plan.write_percent > 0,
            pace: Pace::new(plan.outstanding, plan.think),
            payload: vec![0x5a; plan.block],
            answer: vec![0; plan.block],
            issued: VecDeque::with_capacity(plan.outstanding),
        };
        push.insist()?;
        Ok(push)
    }

    fn insist(&self) -> Result<(), Failure> {
        match self.region.path() {
            client::Path::Push { class: DurabilityClass::Volatile, is_emulated: false, .. }
                if self.writes =>
            {
                Err(Failure::NotDurable)
            }
            client::Path::Push { .. } => Ok(()),
            other => Err(Failure::NotPush(other.to_string())),
        }
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Failure> {
        match operation {
            Operation::WriteCommit(offset) => {
                self.region.submit_write_commit(offset, &self.payload)?;
            }
            Operation::Read(offset) => {
                let len = u32::try_from(self.answer.len()).expect("a block has at most 1 MiB");
                self.region.submit_read(offset, len)?;
            }
        }
        Ok(())
    }
}

impl Arm for Push {
    fn run(
        &mut self,
        operations: &mut Operations,
        until: Instant,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        loop {
            let mut now = Instant::now();
            while now < until && self.pace.take(now) {
                self.submit(operations.draw())?;
                self.issued.push_back(now);
                now = Instant::now();
            }
            let patience = self.pace.until_next(now);
            if self.issued.is_empty() {
                if now >= until {
                    break;
                }
                // A pause of microseconds: a sleep would take longer.
                std::hint::spin_loop();
                continue;
            }
            let is_over = match patience {
                None => self.region.finish(&mut self.answer).map(Some)?,
                Some(_) => self.region.try_finish(&mut self.answer)?,
            };
            if is_over.is_some() {
                let issued = self.issued.pop_front().expect("as many as the region has");
                recording.finished(issued, self.payload.len());
                self.pace.give_back(Instant::now());
            } else if let Some(patience) = patience {
                self.region.wait(patience);
            }
        }
        self.insist()
    }

    fn durability(&self) -> String {
        self.region.path().to_string()
    }

    fn commit(&self) -> &'static str {
        match self.region.path() {
            client::Path::Push { has_flush: true, is_adapter: true, .. } => "native-rdma-flush",
            client::Path::Push { has_flush: true, .. } => "rdma-flush",
            client::Path::Push { has_flush: false, .. } => "message",
            client::Path::Messages { .. } => "smb2-flush",
        }
    }
}
