//! The plan of a benchmark: block size, mix, offsets and turns.

use std::time::Duration;

use rdma::ProviderChoice;

use crate::args::{Bench, Mode, Placement, Poll, Protected};
use crate::failure::Failure;

/// One benchmark, with checked options.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) modes: Vec<Mode>,
    pub(crate) block: usize,
    pub(crate) threads: usize,
    pub(crate) outstanding: usize,
    pub(crate) write_percent: u8,
    pub(crate) uncommitted: bool,
    pub(crate) protection: Protected,
    pub(crate) think: Duration,
    pub(crate) random: bool,
    pub(crate) file_size: u64,
    pub(crate) existing: bool,
    pub(crate) slices: u32,
    pub(crate) slice: Duration,
    pub(crate) rdma_provider: ProviderChoice,
    pub(crate) poll: Poll,
    pub(crate) placement: Placement,
}

impl Plan {
    /// Refuses options that cannot be measured.
    pub(crate) fn new(options: &Bench) -> Result<Self, Failure> {
        let refused = |what, value: String, why| Failure::ConfigValue { what, value, why };
        let block = usize::try_from(options.block).unwrap_or(usize::MAX);
        if block == 0 || block > BLOCK_MAX {
            return Err(refused("-b", options.block.to_string(), "a block has 1 byte to 1 MiB"));
        }
        let threads_fit = (1..=THREADS_MAX).contains(&options.threads);
        let depth_fits = (1..=OUTSTANDING_MAX).contains(&options.outstanding);
        if !threads_fit || !depth_fits {
            let value = format!("{} x {}", options.threads, options.outstanding);
            return Err(refused("-t x -o", value, "1 to 64 threads, 1 to 256 outstanding"));
        }
        if options.file_size < options.block {
            let value = options.file_size.to_string();
            return Err(refused("--file-size", value, "smaller than one block"));
        }
        if options.think > 0 && options.mode != [Mode::Push] {
            let value = options.think.to_string();
            return Err(refused("--think", value, "only push mode pauses: add --mode push"));
        }
        let is_smb = |mode: &Mode| matches!(mode, Mode::Smb | Mode::SmbDirect);
        if options.uncommitted && !options.mode.iter().all(is_smb) {
            let why = "only the SMB modes: add --mode smb,smb-direct";
            return Err(refused("--uncommitted", "set".into(), why));
        }
        if !(options.duration_s > 0.0 && options.duration_s <= DURATION_S_MAX) {
            return Err(refused("-d", options.duration_s.to_string(), "up to 86,400 seconds"));
        }
        let total = Duration::from_secs_f64(options.duration_s);
        let slices =
            (options.duration_s / SLICE.as_secs_f64()).ceil().clamp(1.0, f64::from(u32::MAX));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped above"
        )]
        let slices = slices as u32;
        Ok(Self {
            modes: options.mode.clone(),
            block,
            threads: options.threads,
            outstanding: options.outstanding,
            write_percent: options.write_percent,
            uncommitted: options.uncommitted,
            protection: options.protection,
            think: Duration::from_micros(options.think.into()),
            random: options.random,
            file_size: options.file_size,
            existing: options.existing,
            slices,
            slice: total / slices,
            rdma_provider: options.rdma_provider,
            poll: options.poll,
            placement: options.placement,
        })
    }

    /// The operations of one thread.
    pub(crate) fn operations(&self, thread: usize) -> Operations {
        let block = u64::try_from(self.block).expect("a usize fits a u64 on every target");
        let thread = u64::try_from(thread).expect("a usize fits a u64 on every target");
        Operations {
            block,
            blocks: self.file_size / block,
            next: 0,
            random: self.random,
            write_percent: u64::from(self.write_percent),
            dice: Dice::new(thread),
        }
    }
}

/// An endless, reproducible series of operations.
#[derive(Clone, Debug)]
pub(crate) struct Operations {
    block: u64,
    blocks: u64,
    next: u64,
    random: bool,
    write_percent: u64,
    dice: Dice,
}

/// One operation on one block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operation {
    /// Write the block at this offset and commit it.
    WriteCommit(u64),
    /// Read the block at this offset.
    Read(u64),
}

impl Operations {
    /// The operation to issue next.
    pub(crate) fn draw(&mut self) -> Operation {
        let index = if self.random { self.dice.throw() % self.blocks } else { self.next };
        self.next = (self.next + 1) % self.blocks;
        let offset = index * self.block;
        if self.dice.throw() % 100 < self.write_percent {
            Operation::WriteCommit(offset)
        } else {
            Operation::Read(offset)
        }
    }
}

/// SplitMix64: enough to spread offsets, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    /// A series of its own for each `stream`.
    pub(crate) fn new(stream: u64) -> Self {
        Self { state: SEED ^ stream }
    }

    fn throw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// More than 0, at most 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        let drawn = u32::try_from(self.throw() >> 32).expect("32 bits");
        (f64::from(drawn) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }
}

const BLOCK_MAX: usize = 1 << 20;
const THREADS_MAX: usize = 64;
const OUTSTANDING_MAX: usize = 256;
const DURATION_S_MAX: f64 = 86_400.0;
// Short enough that a noisy minute of the machine affects every mode.
const SLICE: Duration = Duration::from_millis(500);
const SEED: u64 = 0x4c61_6e64_6661_7374;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stays_in_the_file() {
        let plan = Plan {
            modes: vec![Mode::Push],
            block: 4096,
            threads: 1,
            outstanding: 1,
            write_percent: 50,
            uncommitted: false,
            protection: Protected::Signed,
            think: Duration::ZERO,
            random: true,
            file_size: 100 * 4096 + 17,
            existing: false,
            slices: 1,
            slice: Duration::from_secs(1),
            rdma_provider: ProviderChoice::Soft,
            poll: Poll::Adaptive,
            placement: Placement::Free,
        };
        let mut operations = plan.operations(0);
        for _ in 0..1000 {
            let (Operation::Read(offset) | Operation::WriteCommit(offset)) = operations.draw();
            assert!(offset + 4096 <= plan.file_size && offset % 4096 == 0);
        }
    }
}
