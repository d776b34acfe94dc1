//! The NBD protocol: what a client may send before and after it has chosen an export.

use std::sync::{Arc, Mutex, PoisonError};

use block::{BlockDevice, BlockError, Extent, Geometry, State, Survives, Zeroing};
use nbd::protocol::{Agreed, Event, Handshake, Output, Request, Session, Step, TlsPolicy};
use nbd::{Export, Exports};

/// A negotiation, and the requests after it. The first byte chooses the policy of TLS.
pub(crate) fn handshake(data: &[u8]) {
    let Some((policy, mut bytes)) = data.split_first() else { return };
    let policy = if policy & 1 == 0 { TlsPolicy::Off } else { TlsPolicy::Required };
    let (exports, mut output) = (exports(), Output::new());
    let mut handshake = Handshake::new(exports, policy, &mut output);
    loop {
        let before = output.len();
        let Ok((len, event)) = handshake.handle(bytes, &mut output) else { return };
        assert!(len <= bytes.len());
        // A reply names each export once: it does not grow with what was asked.
        assert!(output.len() - before < 1024, "{} bytes of reply", output.len() - before);
        bytes = &bytes[len..];
        match event {
            Event::Answered => assert!(len > 0),
            Event::NeedsMore => {
                assert_eq!(len, 0);
                return;
            }
            Event::StartTls => {
                assert!(policy == TlsPolicy::Required && bytes.is_empty());
                return;
            }
            Event::Transmit(agreed) => {
                assert!(policy == TlsPolicy::Off, "nothing is given before TLS");
                return requests(&Session::new(agreed), bytes);
            }
            Event::Aborted => return,
        }
    }
}

/// Requests to a device of 4096 bytes. The first byte chooses what was agreed on.
pub(crate) fn session(data: &[u8]) {
    let Some((agreed, bytes)) = data.split_first() else { return };
    let export = exports().find(b"").cloned().expect("the first export");
    let (has_structured_replies, has_allocation) = (agreed & 1 != 0, agreed & 3 == 3);
    requests(&Session::new(Agreed { export, has_structured_replies, has_allocation }), bytes);
}

fn requests(session: &Session, mut bytes: &[u8]) {
    let mut output = Output::new();
    while let Ok(Step::Request(request, range)) = session.next(bytes) {
        assert_eq!(Request::parse(&request.emit()), Ok(Some(request)));
        let (end, before) = (range.end, output.len());
        session.carry_out(&request, &bytes[range], &mut output);
        let reply = &output.as_bytes()[before..];
        assert!(reply.len() >= 16 && reply.len() < 16 << 10, "{} bytes of reply", reply.len());
        assert_eq!(reply[8..16], request.cookie.to_be_bytes());
        bytes = &bytes[end..];
        output.clear();
    }
}

fn exports() -> Arc<Exports> {
    let fenced = |block| Fenced { block, bytes: Mutex::new(vec![0; 4096]) };
    let export =
        |name, block| Export::new(name, "a disk", Arc::new(fenced(block))).expect("a name");
    Arc::new(Exports::new(vec![export("disk", 512), export("other", 1)]).expect("two exports"))
}

/// A device that is never asked for what it does not have.
#[derive(Debug)]
struct Fenced {
    block: u32,
    bytes: Mutex<Vec<u8>>,
}

impl Fenced {
    fn with<T>(&self, offset: u64, len: u64, run: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let block = u64::from(self.block);
        assert!(offset.is_multiple_of(block) && len.is_multiple_of(block), "{len} at {offset}");
        let index = |at: u64| usize::try_from(at).expect("inside of the device");
        let end = offset.checked_add(len).expect("inside of the device");
        run(&mut bytes[index(offset)..index(end)])
    }
}

impl BlockDevice for Fenced {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: 4096,
            block: self.block,
            is_atomic: false,
            is_read_only: false,
            class: pmem::DurabilityClass::Volatile,
            may_wait: false,
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let len = u64::try_from(out.len()).expect("a short buffer");
        self.with(offset, len, |bytes| out.copy_from_slice(bytes));
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8], _survives: Survives) -> Result<(), BlockError> {
        let len = u64::try_from(from.len()).expect("a short buffer");
        self.with(offset, len, |bytes| bytes.copy_from_slice(from));
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        _zeroing: Zeroing,
        _survives: Survives,
    ) -> Result<(), BlockError> {
        self.with(offset, len, |bytes| bytes.fill(0));
        Ok(())
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        assert!(len > 0);
        // Each block in a state of its own: the most extents there can be.
        let block = u64::from(self.block);
        let state = if (offset / block).is_multiple_of(2) { State::Data } else { State::Hole };
        self.with(offset, len, |_| Ok(Extent { len: block, state }))
    }

    fn resize(&self, _size: u64) -> Result<u64, BlockError> {
        Err(BlockError::ConfigFixedSize)
    }
}
