//! The Python clients smbprotocol and impacket against the server, by scripts of ours that print
//! one line a check; smbprotocol over TCP and over an SMB Direct written for this purpose.

use std::time::Duration;

use crate::deps;
use crate::failure::{Outcome, Tally};
use crate::interop::report;
use crate::peer::{Against, PASSWORD, Peer, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// All scripts, one after the other, against one server.
pub(crate) fn run(against: Against) -> Outcome {
    let interpreter = deps::python()?;
    let scratch = workspace::scratch()?;
    let mut peer = Peer::start(against, scratch.path())?;
    let mut tally = Tally::default();
    let (smb, rdma) = (peer.address().smb, peer.address().rdma);
    for (script, port) in SCRIPTS {
        let Some(server) = (match port {
            Port::Smb => Some(smb),
            Port::Rdma => rdma,
        }) else {
            tally.skipped.push(format!("{script}: this server has no RDMA port"));
            continue;
        };
        let finished = Step::new(&interpreter)
            .arg(workspace::root().join("tests/interop").join(script))
            .args(["--host", &server.ip().to_string(), "--port", &server.port().to_string()])
            .args(["--share", SHARE, "--user", USER])
            .secret_env("LANDFAST_PASSWORD", PASSWORD)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .limit(Duration::from_secs(180))
            .tee()?;
        let found = report::read(&finished.stdout);
        if !finished.status.success() && found.failed.is_empty() {
            let evidence = format!("{}{}", finished.status, tail(&finished.stdout));
            tally.count(script, Err(evidence));
        }
        tally.add(found);
        peer.still_runs()?;
    }
    tally.note = format!("{} scripts", SCRIPTS.len());
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
