//! A log of records, written once for any memory.
//!
//! ```text
//!   0 | number of records 8 | 64 | record 1 (64 bytes) | record 2 | ...
//! ```
//! The one store that commits a record is that of the number.

use pmem::Memory;

pub(crate) const RECORD: u64 = 64;
pub(crate) const RECORDS: u64 = 60;
pub(crate) const LEN: u64 = RECORD * (RECORDS + 1);

/// How a log appends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Care {
    /// The record is durable before the number names it.
    Careful,
    /// A fault: the number is stored while no commit has covered the record that it names.
    Careless,
}

/// Appends a record; on `Ok` it is durable.
pub(crate) fn append<S: Memory>(memory: &mut S, number: u64, care: Care) -> Result<(), S::Error> {
    let at = number * RECORD;
    match care {
        Care::Careful => {
            memory.place(at, &record(number))?;
            memory.commit(at, RECORD)?;
            memory.atomic_write(0, number)?;
        }
        Care::Careless => {
            memory.atomic_write(0, number)?;
            memory.place(at, &record(number))?;
            memory.commit(at, RECORD)?;
        }
    }
    memory.commit(0, 8)
}

/// The number of records, all of which are whole.
pub(crate) fn recover<S: Memory>(memory: &mut S) -> Result<u64, S::Error> {
    let mut word = [0; 8];
    memory.read(0, &mut word)?;
    let count = u64::from_le_bytes(word);
    for number in 1..=count {
        let mut bytes = [0; 64];
        memory.read(number * RECORD, &mut bytes)?;
        assert_eq!(bytes, record(number), "record {number} of {count}");
    }
    Ok(count)
}

/// What a crash may leave: the records that were acknowledged, perhaps one more, and each whole.
pub(crate) fn check(image: &[u8], acknowledged: u64) -> Result<(), String> {
    let (head, _) = image.split_first_chunk().ok_or("no head")?;
    let count = u64::from_le_bytes(*head);
    if !(acknowledged..=acknowledged + 1).contains(&count) {
        return Err(format!("{count} records, {acknowledged} were acknowledged"));
    }
    for (number, bytes) in (1..=count).zip(image.chunks(64).skip(1)) {
        if bytes != record(number) {
            return Err(format!("record {number} of {count} holds {bytes:02x?}"));
        }
    }
    Ok(())
}

fn record(number: u64) -> [u8; 64] {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let mut bytes = [0; 64];
    bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
    bytes
}
