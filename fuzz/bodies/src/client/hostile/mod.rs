//! A hostile server drives the whole client, through every call, on virtual time.
//!
//! ```text
//!   drive ---- calls, each with a limit ----> client ==== frames in memory ==== server
//!                                                                                |
//!                            what it does with each request:  Plan::next --> Misdeed
//! ```
//!
//! Whatever the server does: no call outlives its limit, and none succeeds by an answer that no key has proven.
//! Who runs this counts the memory. The fuzz target reads the misdeeds from bytes; the stories of
//! `fuzz/bodies/tests/hostile.rs` go through the table [`Misdeed::TABLE`], a misdeed for each command.

mod drive;
mod honest;
mod misdeed;
mod server;
mod wire;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use smb::Command;
use smb::negotiate::Dialect;
use tokio::runtime::Builder;

pub use drive::{LISTING_BYTES_MAX, Seen};
pub use misdeed::{Misdeed, Plan};

use crate::Input;

/// What the server is to the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// It does not have the session's key, and the client asks for signatures.
    Stranger,
    /// It lets the client in as a guest, and the client wants no signatures.
    Guest,
    /// It has the session's key.
    Member,
    /// As before, and the client wants everything sealed.
    Sealed,
}

/// One conversation. Returns what happened, which says that all promises were kept.
///
/// # Panics
/// The client broke a promise.
pub fn run(standing: Standing, dialect: Dialect, plan: Box<dyn Plan>) -> Seen {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let unproven = Arc::new(AtomicBool::new(false));
    TRAP.with(|trap| {
        let address = trap.local_addr().expect("it is bound");
        let seen = runtime.block_on(async {
            let (transport, ends) = wire::pair();
            let honest = honest::Honest::new(standing, dialect, address);
            let server = server::Server::new(standing, honest, plan, Arc::clone(&unproven));
            let serving = tokio::spawn(server.serve(ends));
            let seen = drive::drive(standing, transport, unproven).await;
            // The client is gone, and the server ends.
            serving.await.expect("the server does what its plan says");
            seen
        });
        let came = trap.accept().map_err(|error| error.kind());
        assert!(matches!(came, Err(ErrorKind::WouldBlock)), "the client dials what it is told");
        seen
    })
}

thread_local! {
    /// Another service of the client's machine, which a server would like to reach.
    static TRAP: TcpListener = {
        let trap = TcpListener::bind("127.0.0.1:0").expect("a free port");
        trap.set_nonblocking(true).expect("a socket");
        trap
    };
}

/// The target: a byte for what the server is, a byte for the dialect, then what it does with each request.
pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let standing = match input.byte() % 4 {
        0 => Standing::Stranger,
        1 => Standing::Guest,
        2 => Standing::Member,
        _ => Standing::Sealed,
    };
    let dialect = DIALECTS[usize::from(input.byte()) % DIALECTS.len()];
    run(standing, dialect, Box::new(Bytes(input.rest().to_vec(), 0)));
}

/// Misdeeds as the bytes say; honest where they end.
#[derive(Debug)]
struct Bytes(Vec<u8>, usize);

impl Plan for Bytes {
    fn next(&mut self, _command: Command) -> Misdeed {
        let mut input = Input::new(&self.0[self.1..]);
        if input.is_empty() {
            return Misdeed::None;
        }
        let (which, number) = (input.byte(), input.byte());
        self.1 = (self.1 + 2).min(self.0.len());
        let table = Misdeed::TABLE;
        // Half of the answers are honest, so that conversations go far.
        match usize::from(which).checked_sub(128).map(|which| which % (table.len() + 2)) {
            None => Misdeed::None,
            Some(0) => {
                let body = input.bytes(usize::from(number)).to_vec();
                self.1 = (self.1 + body.len()).min(self.0.len());
                Misdeed::Body(body)
            }
            Some(1) => Misdeed::Cut(usize::from(number)),
            Some(which) => table[which - 2].clone(),
        }
    }
}

/// The dialects of the conversations.
pub const DIALECTS: [Dialect; 4] =
    [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_0_2, Dialect::SMB_3_1_1];
