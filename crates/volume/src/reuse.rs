//! A block is not written while somebody reads it; and a volume that forgot its readers would be found.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use block::{BlockDevice, Survives};
use pmem::{Medium, OpenOptions, anonymous_with};

use crate::hooked::Hooked;
use crate::{Access, Format, Volume, create};

/// The first read of a block stops in the middle: it says so, and goes on when it is told.
fn stopping_medium(stopped: Sender<()>, go_on: Receiver<()>) -> Arc<dyn Medium> {
    let options = OpenOptions { emulate_persistence: true };
    let memory = anonymous_with(64 << 10, options).unwrap();
    create(&memory, Format { lanes: 2, ..Format::linux(512, [1; 16]) }).unwrap();
    let mut medium = Hooked::new(memory);
    let gate = Mutex::new(Some((stopped, go_on)));
    medium.on_read = Box::new(move |memory, offset, out| {
        let gate = if out.len() == 512 { gate.lock().unwrap().take() } else { None };
        let (first, second) = out.split_at_mut(out.len() / 2);
        memory.read(offset, first)?;
        if let Some((stopped, go_on)) = gate {
            stopped.send(()).unwrap();
            go_on.recv().unwrap();
        }
        memory.read(offset + u64::try_from(first.len()).unwrap(), second)
    });
    Arc::new(medium)
}

/// Writes sector 0 until its old block would have been used again, while a reader is in the middle of it. Gives what
/// the reader found.
fn read_across_writes(forget: bool) -> Vec<u8> {
    let ((say_stopped, stopped), (go, go_on)) = (channel(), channel());
    let volume = Volume::open(stopping_medium(say_stopped, go_on), Access::ReadWrite).unwrap();
    volume.write(0, &[1; 512], Survives::Durable).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = vec![0; 512];
            volume.read(0, &mut bytes).unwrap();
            bytes
        });
        stopped.recv().unwrap();
        if forget {
            volume.arenas().for_each(|arena| arena.readers().forget_all());
        }
        for version in 2..20 {
            volume.write(0, &[version; 512], Survives::Durable).unwrap();
        }
        go.send(()).unwrap();
        reader.join().unwrap()
    })
}

#[test]
fn a_block_in_the_middle_of_a_read_is_not_written() {
    assert_eq!(read_across_writes(false), [1; 512]);
}

#[test]
fn a_volume_that_forgets_its_readers_gives_torn_sectors() {
    let found = read_across_writes(true);
    assert_eq!(found[..256], [1; 256]);
    assert_ne!(found[256..], [1; 256], "the fault went unnoticed");
}
