//! The Python clients smbprotocol and impacket against the server, by scripts of ours that print
//! one line a check; smbprotocol over TCP and over an SMB Direct written for this purpose.

use std::time::Duration;

use crate::deps;
use crate::failure::{Outcome, Tally};
use crate::interop::report;
use crate::peer::{Against, GUESTS, PASSWORD, Peer, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// All scripts, one after the other, against one server; that of the guests against one that takes them.
pub(crate) fn run(against: Against) -> Outcome {
    let scratch = workspace::scratch()?;
    let mut tally = Tally::default();
    let mut peer = Peer::start(against, scratch.path())?;
    for (script, port) in SCRIPTS {
        tally.add(carry_out(script, port, &mut peer)?);
    }
    drop(peer);
    let mut peer = Peer::start_for_guests(against, scratch.path())?;
    tally.add(carry_out("guests_client.py", Port::Smb, &mut peer)?);
    tally.note = format!("{} scripts", SCRIPTS.len() + 1);
    Ok(tally)
}

fn carry_out(script: &str, port: Port, peer: &mut Peer) -> Outcome {
    let address = peer.address();
    let Some(server) = (match port {
        Port::Smb => Some(address.smb),
        Port::Rdma => address.rdma,
    }) else {
        let mut tally = Tally::default();
        tally.skipped.push(format!("{script}: this server has no RDMA port"));
        return Ok(tally);
    };
    let finished = Step::new(deps::python()?)
        .arg(workspace::root().join("tests/interop").join(script))
        .args(["--host", &server.ip().to_string(), "--port", &server.port().to_string()])
        .args(["--share", SHARE, "--guests", GUESTS, "--user", USER])
        .secret_env("LANDFAST_PASSWORD", PASSWORD)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .limit(Duration::from_secs(180))
        .tee()?;
    let mut tally = report::read(&finished.stdout);
    if !finished.status.success() && tally.failed.is_empty() {
        tally.count(script, Err(format!("{}{}", finished.status, tail(&finished.stdout))));
    }
    peer.still_runs()?;
    Ok(tally)
}

/// Which of a server's ports a script talks to.
#[derive(Clone, Copy, Debug)]
enum Port {
    Smb,
    Rdma,
}

/// The scripts, in tests/interop.
const SCRIPTS: [(&str, Port); 4] = [
    ("smbprotocol_client.py", Port::Smb),
    ("impacket_client.py", Port::Smb),
    ("smbdirect_client.py", Port::Rdma),
    ("violations_client.py", Port::Rdma),
];
