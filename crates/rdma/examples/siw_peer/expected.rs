//! How a connection of each scenario must end.

use rdma::{ConnectFailure, DisconnectReason, TerminateCode};

use crate::Asks;

/// How a connection ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Nothing, if it never began.
    pub(crate) reason: Option<DisconnectReason>,
    pub(crate) not_connected: Option<ConnectFailure>,
    /// What went otherwise than the scenario says.
    pub(crate) fault: Option<String>,
    /// Requests of ours that had not succeeded when it ended.
    pub(crate) unfinished: usize,
}

/// What an end may do that the other answers with a Terminate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misdeed {
    pub(crate) name: &'static str,
    /// What provider `soft` says of it (RFC 5040 §4.8, RFC 5041 §7.2).
    ours: TerminateCode,
    /// What siw says of it, but for [`PASSES`].
    siws: TerminateCode,
}

const fn misdeed(name: &'static str, ours: [u8; 3], siws: [u8; 3]) -> Misdeed {
    const fn of(code: [u8; 3]) -> TerminateCode {
        TerminateCode { layer: code[0], etype: code[1], code: code[2] }
    }
    Misdeed { name, ours: of(ours), siws: of(siws) }
}

/// Each of them.
pub(crate) const MISDEEDS: [Misdeed; 9] = [
    misdeed("write-key", [1, 1, 0], [1, 1, 0]),
    misdeed("read-key", [0, 1, 0], [0, 1, 0]),
    misdeed("write-bounds", [1, 1, 1], [1, 1, 1]),
    misdeed("read-bounds", [0, 1, 1], [0, 1, 1]),
    // RFC 5041 has no code for it; both say that there is no such region.
    misdeed("write-right", [1, 1, 0], [1, 1, 0]),
    misdeed("read-right", [0, 1, 2], [0, 1, 2]),
    // siw looks for a receive that is long enough and finds none.
    misdeed("send-long", [1, 2, 5], [1, 2, 2]),
    misdeed("send-none", [1, 2, 2], [1, 2, 2]),
    // Nobody's deed: a byte of the first frame arrives changed.
    misdeed("crc", [2, 0, 2], [2, 0, 2]),
];

/// siw of 6.12 reads for its peer whatever it may read itself: it never looks whether the memory was
/// registered for that.
pub(crate) const PASSES: &str = "read-right";

/// Whether siw lets pass what we do here.
pub(crate) fn passes(name: &str, asks: Asks) -> bool {
    let acting = if asks == Asks::We { "i-" } else { "r-" };
    name.strip_prefix(acting) == Some(PASSES)
}

/// Whether a connection ended as it should.
pub(crate) fn verdict(name: &str, asks: Asks, ended: &Ended) -> Result<(), String> {
    if let Some(fault) = &ended.fault {
        return Err(format!("{fault}, {:?}", ended.reason));
    }
    let as_due = match name.split_once('-') {
        Some(("die", stage)) => died(stage, asks, ended),
        Some((actor @ ("i" | "r"), what)) => {
            let we_act = (actor == "i") == (asks == Asks::We);
            let misdeed = MISDEEDS.iter().find(|misdeed| misdeed.name == what);
            let misdeed = misdeed.ok_or_else(|| format!("{what} is no misdeed"))?;
            ended.reason
                == Some(if passes(name, asks) {
                    DisconnectReason::Local
                } else if we_act {
                    DisconnectReason::PeerTerminated(misdeed.siws)
                } else {
                    DisconnectReason::PeerViolation(misdeed.ours)
                })
        }
        _ => {
            let reason = match asks {
                Asks::We => DisconnectReason::Local,
                Asks::Peer => DisconnectReason::PeerClosed,
            };
            ended.reason == Some(reason) && ended.unfinished == 0
        }
    };
    if as_due { Ok(()) } else { Err(format!("{ended:?}")) }
}

/// The peer was killed: its connection is closed or reset, and nothing succeeded that could not.
fn died(stage: &str, asks: Asks, ended: &Ended) -> bool {
    let gone = matches!(
        ended.reason,
        Some(DisconnectReason::PeerClosed | DisconnectReason::HostIo { .. })
    );
    match (stage, asks) {
        // siw rejects what nobody can answer any more.
        ("asked", Asks::We) => matches!(
            ended.not_connected,
            Some(ConnectFailure::PeerRejected | ConnectFailure::PeerClosed)
        ),
        // A request that is withdrawn never becomes a connection.
        ("asked", Asks::Peer) => ended.reason.is_none(),
        // Of a Send or Write a peer that is slow to die has taken all.
        ("h-read", _) => gone && ended.unfinished > 0,
        _ => gone,
    }
}
