//! Debian's smbclient against the server: list, put and get one hundred files, encrypted and
//! signed, checksums equal on both sides.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Outcome, Tally};
use crate::interop::samples::{self, Spread};
use crate::peer::{Address, Against, GUESTS, Peer, SHARE};
use crate::process::Step;
use crate::workspace;

/// The whole run under both protections.
pub(crate) fn run(against: Against, spread: Spread) -> Outcome {
    let scratch = workspace::scratch()?;
    let [source, share] = ["source", "share"].map(|name| scratch.path().join(name));
    for dir in [&source, &share] {
        fs::create_dir(dir).map_err(Failure::io("creating", dir))?;
    }
    let checksums = scratch.path().join("SHA256SUMS");
    let total = samples::write(&source, &checksums, spread)?;
    println!("  100 files, {} MiB in {}", total >> 20, source.display());

    let mut peer = Peer::start(against, &share)?;
    let credentials = peer.address().write_credentials(scratch.path())?;
    let mut tally = Tally::default();
    for protection in ["encrypt", "sign"] {
        let session = Session {
            address: peer.address().clone(),
            credentials: &credentials,
            protection,
            source: &source,
            checksums: &checksums,
        };
        let part = session.exchange(scratch.path(), total)?;
        tally.add(part);
        peer.still_runs()?;
    }
    drop(peer);
    let mut peer = Peer::start_for_guests(against, &share)?;
    for (who, name) in [("without a name", "%"), ("with a name of no account", "mallory%x")] {
        tally.count(&format!("smbclient as a guest {who}"), guest(peer.address(), &source, name)?);
    }
    peer.still_runs()?;
    Ok(tally)
}

/// One protection's turn: its own directory in the share.
struct Session<'a> {
    address: Address,
    credentials: &'a Path,
    protection: &'static str,
    source: &'a Path,
    checksums: &'a Path,
}

impl Session<'_> {
    fn exchange(&self, scratch: &Path, total: u64) -> Outcome {
        let remote = format!("by-{}", self.protection);
        let behind = self.address.directory.join(&remote);
        let back = scratch.join(&remote);
        fs::create_dir(&back).map_err(Failure::io("creating", &back))?;
        let host = self.address.smb.ip().to_string();
        let mut tally = Tally::default();
        let count = |tally: &mut Tally, what: &str, result| {
            tally.count(&format!("smbclient {} {what}", self.protection), result);
        };

        count(&mut tally, "list of shares", self.browse(&["smbclient", "--list", &host])?);
        let calls = "srvinfo; netshareenum 1; netsharegetinfo share 1";
        let asked = self.browse(&["rpcclient", "--command", calls, &host])?;
        count(&mut tally, "server and shares by rpcclient", asked);

        let begin = Instant::now();
        let put = format!("mkdir {remote}; cd {remote}; lcd {}; mput *", self.source.display());
        count(&mut tally, "put", self.smbclient(&put)?.map(drop));
        let put_rate = rate(total, begin);
        count(&mut tally, "checksums on the server", equal(&behind, self.checksums)?);

        let listing = self.smbclient(&format!("cd {remote}; ls"))?;
        count(&mut tally, "list", listing.and_then(|text| self.listed(&text)));

        count(&mut tally, "rename", self.rename(&remote, &behind)?);

        let begin = Instant::now();
        let get = format!("cd {remote}; lcd {}; mget *", back.display());
        count(&mut tally, "get", self.smbclient(&get)?.map(drop));
        let get_rate = rate(total, begin);
        count(&mut tally, "checksums of what came back", equal(&back, self.checksums)?);

        let delete = self.smbclient(&format!("cd {remote}; del *; cd ..; rmdir {remote}"))?;
        let gone = delete.and_then(|_| match behind.exists() {
            true => Err(format!("{} is still there", behind.display())),
            false => Ok(()),
        });
        count(&mut tally, "delete", gone);
        fs::remove_dir_all(&back).map_err(Failure::io("removing", &back))?;
        tally.note = format!("{}: put {put_rate}, get {get_rate} MiB/s", self.protection);
        println!("  {}", tally.note);
        Ok(tally)
    }

    /// Renames a file into a directory and back; each time it is where it should be, and nowhere else.
    fn rename(&self, remote: &str, behind: &Path) -> Result<Result<(), String>, Failure> {
        let [here, there] = [samples::name(0, 0), "moved\\another name.bin".to_owned()];
        let [at_home, away] = [behind.join(&here), behind.join("moved/another name.bin")];
        let into = format!("cd {remote}; mkdir moved; rename {here} \"{there}\"");
        let back = format!("cd {remote}; rename \"{there}\" {here}; rmdir moved");
        for (commands, from, to) in [(into, &at_home, &away), (back, &away, &at_home)] {
            if let Err(complaint) = self.smbclient(&commands)? {
                return Ok(Err(complaint));
            }
            if from.exists() || !to.exists() {
                return Ok(Err(format!("{} is not at {}", from.display(), to.display())));
            }
        }
        Ok(Ok(()))
    }

    /// Runs smbclient commands. The inner error is what smbclient complained of: it ends with 0
    /// even when a command in the middle failed, so its words decide.
    fn smbclient(&self, commands: &str) -> Result<Result<String, String>, Failure> {
        let finished = Step::new("smbclient")
            .arg(self.address.unc())
            .args(["--port", &self.address.smb.port().to_string()])
            .arg("--authentication-file")
            .arg(self.credentials)
            .arg(format!("--client-protection={}", self.protection))
            .args(["--configfile", "/dev/null", "--timeout", "120"])
            .args(["--command", &format!("prompt off; {commands}")])
            .limit(SESSION_LIMIT)
            .finish()?;
        let text = finished.stdout + &finished.stderr;
        let complaint = text.lines().find(|line| line.contains("NT_STATUS_"));
        Ok(match complaint {
            Some(complaint) => Err(complaint.to_owned()),
            None if !finished.status.success() => Err(format!("{}: {text}", finished.status)),
            None => Ok(text),
        })
    }

    /// Runs one of Samba's programs that ask what there is; the share must be in its answer.
    fn browse(&self, command: &[&str]) -> Result<Result<(), String>, Failure> {
        let [program, arguments @ ..] = command else { return Ok(Ok(())) };
        let finished = Step::new(program)
            .args(arguments)
            .args(["--port", &self.address.smb.port().to_string()])
            .arg("--authentication-file")
            .arg(self.credentials)
            .arg(format!("--client-protection={}", self.protection))
            .args(["--configfile", "/dev/null"])
            .limit(SESSION_LIMIT)
            .finish()?;
        let text = finished.stdout + &finished.stderr;
        let is_refused = text.contains("NT_STATUS_") || text.contains("WERR_");
        let is_there = text.lines().any(|line| line.split_whitespace().any(|word| word == SHARE));
        Ok(if is_refused || !is_there { Err(text) } else { Ok(()) })
    }

    /// Every file stands in the listing with its size.
    fn listed(&self, text: &str) -> Result<(), String> {
        let listed = parse_listing(text);
        let sums = fs::read_to_string(self.checksums).map_err(|error| error.to_string())?;
        for name in sums.lines().filter_map(|line| line.split_whitespace().nth(1)) {
            let size = self.source.join(name).metadata().map_err(|error| error.to_string())?.len();
            if listed.get(name) != Some(&size) {
                return Err(format!("{name}: {size} bytes, listed as {:?}", listed.get(name)));
            }
        }
        Ok(())
    }
}

/// A guest reads a file of the share that is for guests, changes nothing there, and enters no other.
fn guest(address: &Address, source: &Path, user: &str) -> Result<Result<(), String>, Failure> {
    let sample = samples::name(0, 0);
    fs::copy(source.join(&sample), address.directory.join("shown"))
        .map_err(Failure::io("copying", source))?;
    let ask = |share: &str, commands: &str| {
        let finished = Step::new("smbclient")
            .arg(format!("//{}/{share}", address.smb.ip()))
            .args(["--port", &address.smb.port().to_string(), "--user", user])
            .args(["--configfile", "/dev/null", "--command", commands])
            .limit(SESSION_LIMIT)
            .finish()?;
        Ok::<_, Failure>(finished.stdout + &finished.stderr)
    };
    let back = address.directory.with_extension("of-a-guest");
    let read = ask(GUESTS, &format!("get shown {}", back.display()))?;
    let is_same = fs::read(&back).ok() == fs::read(source.join(&sample)).ok();
    let refused = [ask(GUESTS, &format!("put {} new", back.display()))?, ask(SHARE, "ls")?];
    let _ = fs::remove_file(&back);
    Ok(match refused.iter().find(|text| !text.contains("NT_STATUS_ACCESS_DENIED")) {
        _ if !is_same => Err(format!("what came back is not what is there: {read}")),
        Some(text) => Err(format!("not refused: {text}")),
        None => Ok(()),
    })
}

/// Name and size of each line such as `  001-1.bin    A        1  Fri Nov 20 11:34:32 2026`.
fn parse_listing(text: &str) -> BTreeMap<String, u64> {
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The date takes five words; before it the size; attributes may be absent altogether.
        let size = words.len().checked_sub(6)?;
        Some((words.first()?.to_string(), words.get(size)?.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

fn equal(dir: &Path, checksums: &Path) -> Result<Result<(), String>, Failure> {
    let bad = samples::verify(dir, checksums)?;
    Ok(if bad.is_empty() { Ok(()) } else { Err(bad.join(", ")) })
}

fn rate(bytes: u64, begin: Instant) -> u64 {
    let millis = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    (bytes >> 20) * 1000 / millis
}

/// Longest one smbclient session may take: 1.2 GiB at 2 MiB/s.
const SESSION_LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    /// Captured from smbclient 4.17.12.
    const LISTING: &str = "\
  .                                   D        0  Fri Nov 20 11:50:01 2026
  ..                                  D        0  Fri Nov 20 11:50:01 2026
  007-511.bin                         A      511  Fri Nov 20 11:50:01 2026
  099-268435456.bin                   N 268435456  Fri Nov 20 11:50:03 2026

\t\t264212084 blocks of size 1024. 76233852 blocks available
";

    #[test]
    fn a_listing_gives_names_and_sizes() {
        let listed = parse_listing(LISTING);
        assert_eq!(listed.get("007-511.bin"), Some(&511));
        assert_eq!(listed.get("099-268435456.bin"), Some(&(256 << 20)));
    }
}
