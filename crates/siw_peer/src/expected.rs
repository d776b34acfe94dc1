//! How a connection of each scenario must end.

use rdma::{ConnectFailure, DisconnectReason, TerminateCode};

use crate::host::Asks;

/// How a connection ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// `None`, if the connection never began.
    pub(crate) reason: Option<DisconnectReason>,
    pub(crate) not_connected: Option<ConnectFailure>,
    /// What happened that the scenario does not expect.
    pub(crate) fault: Option<String>,
    /// Our requests that had not succeeded when the connection ended.
    pub(crate) unfinished: usize,
}

/// A forbidden operation, which the other end answers with a Terminate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misdeed {
    pub(crate) name: &'static str,
    /// The code with which provider `soft` answers it (RFC 5040 §4.8, RFC 5041 §7.2).
    ours: TerminateCode,
    /// The code with which siw answers it, except for [`PASSES`].
    siws: TerminateCode,
}

const fn misdeed(name: &'static str, ours: [u8; 3], siws: [u8; 3]) -> Misdeed {
    const fn of(code: [u8; 3]) -> TerminateCode {
        TerminateCode { layer: code[0], etype: code[1], code: code[2] }
    }
    Misdeed { name, ours: of(ours), siws: of(siws) }
}

/// Every misdeed.
pub(crate) const MISDEEDS: [Misdeed; 9] = [
    misdeed("write-key", [1, 1, 0], [1, 1, 0]),
    misdeed("read-key", [0, 1, 0], [0, 1, 0]),
    misdeed("write-bounds", [1, 1, 1], [1, 1, 1]),
    misdeed("read-bounds", [0, 1, 1], [0, 1, 1]),
    // RFC 5041 has no code for this fault; both ends report that there is no such region.
    misdeed("write-right", [1, 1, 0], [1, 1, 0]),
    misdeed("read-right", [0, 1, 2], [0, 1, 2]),
    // siw looks for a receive that is long enough and finds none.
    misdeed("send-long", [1, 2, 5], [1, 2, 2]),
    misdeed("send-none", [1, 2, 2], [1, 2, 2]),
    // No end is to blame: a byte of the first frame arrives changed.
    misdeed("crc", [2, 0, 2], [2, 0, 2]),
];

/// siw of Linux 6.12 lets its peer read every region that siw itself may read: it does not check
/// whether the memory was registered for reads of the peer.
pub(crate) const PASSES: &str = "read-right";

/// Whether siw lets pass our misdeed.
pub(crate) fn passes(name: &str, asks: Asks) -> bool {
    let acting = if asks == Asks::We { "i-" } else { "r-" };
    name.strip_prefix(acting) == Some(PASSES)
}

/// Whether a connection ended as its scenario requires.
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

/// The peer was killed: the connection must be closed or reset, and no request may have succeeded
/// that could not.
fn died(stage: &str, asks: Asks, ended: &Ended) -> bool {
    let gone = matches!(
        ended.reason,
        Some(DisconnectReason::PeerClosed | DisconnectReason::HostIo { .. })
    );
    match (stage, asks) {
        // siw rejects a request that its program can no longer answer.
        ("asked", Asks::We) => matches!(
            ended.not_connected,
            Some(ConnectFailure::PeerRejected | ConnectFailure::PeerClosed)
        ),
        // A request that is withdrawn never becomes a connection.
        ("asked", Asks::Peer) => ended.reason.is_none(),
        // A peer that takes long to end has taken all of a Send or Write.
        ("h-read", _) => gone && ended.unfinished > 0,
        _ => gone,
    }
}
