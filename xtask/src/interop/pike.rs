//! pike-smb2's own tests of an SMB server, against ours or against smbd.
//!
//! What is known to fail and why is listed in `tests/interop/pike-gaps.txt`; anything else that
//! fails is a failure.

use std::time::Duration;

use crate::deps;
use crate::failure::{Outcome, Tally};
use crate::interop::report;
use crate::landfast::Landfast;
use crate::peer::{Against, PASSWORD, Peer, SHARE, USER};
use crate::process::{Step, tail};
use crate::samba::Samba;
use crate::workspace;

/// All tests, one after the other, against one server.
pub(crate) fn run(against: Against) -> Outcome {
    let interpreter = deps::python()?;
    let scratch = workspace::scratch()?;
    let mut peer = match against {
        // Many of its tests do not sign.
        Against::Landfast => {
            Peer::Landfast(Landfast::start(scratch.path(), &["--signing", "when-asked"])?)
        }
        Against::Smbd => Peer::Smbd(Samba::start_fairly(scratch.path())?),
    };
    let server = peer.address().smb;
    let finished = Step::new(&interpreter)
        .arg(workspace::root().join("tests/interop/pike_client.py"))
        .args(["--host", &server.ip().to_string(), "--port", &server.port().to_string()])
        .args(["--share", SHARE, "--user", USER])
        .secret_env("LANDFAST_PASSWORD", PASSWORD)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .limit(LIMIT)
        .tee()?;
    let mut tally: Tally = report::read(&finished.stdout);
    if !finished.status.success() && tally.failed.is_empty() {
        tally.count("pike", Err(format!("{}{}", finished.status, tail(&finished.stdout))));
    }
    peer.still_runs()?;
    Ok(tally)
}

/// Longest the tests may take together: each has a limit of its own.
const LIMIT: Duration = Duration::from_secs(600);
