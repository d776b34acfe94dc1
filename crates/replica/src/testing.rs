//! What the tests of several files need.

use std::sync::Arc;

use block::{BlockDevice, FileDevice};

/// A sequence that depends on the seed alone (splitmix64).
#[derive(Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn index(&mut self, count: usize) -> usize {
        len(self.below(u64::try_from(count).unwrap()))
    }

    pub(crate) fn byte(&mut self) -> u8 {
        low(self.next())
    }
}

/// A length in memory.
pub(crate) fn len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

/// The low byte.
pub(crate) fn low(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// Everything on a device.
pub(crate) fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0xee; len(device.geometry().size)];
    device.read(0, &mut bytes).unwrap();
    bytes
}

/// A hole of a file.
pub(crate) fn file(size: u64) -> Arc<FileDevice> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(size).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}
