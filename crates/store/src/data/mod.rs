//! Structures on regions.
//!
//! | structure | for |
//! |---|---|
//! | [`StreamWriter`], [`StreamReader`] | records appended by one client, read by many |
//! | [`Table`] | values by key, each read by one one-sided read |
//! | [`ShufflePlan`] | runs of many mappers, each written where its reducer reads |

mod shuffle;
mod stream;
mod table;

pub use shuffle::ShufflePlan;
pub use stream::{StreamReader, StreamWriter};
pub use table::{Shape, Table};

fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("a CRC-32C has 32 bits")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
