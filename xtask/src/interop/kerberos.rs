//! Logons by Kerberos ticket, with a real KDC: Debian's smbclient (Heimdal), smbprotocol with MIT's libgssapi,
//! impacket.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::deps;
use crate::failure::{Failure, Outcome, Tally};
use crate::interop::report;
use crate::landfast::Landfast;
use crate::peer::{SHARE, USER};
use crate::process::{Step, tail};
use crate::realm::{REALM, Realm};
use crate::workspace;

/// Everything against one server with a keytab.
pub(crate) fn run() -> Outcome {
    let scratch = workspace::scratch()?;
    let [kerberos, served] = ["kerberos", "served"].map(|name| scratch.path().join(name));
    for dir in [&kerberos, &served] {
        fs::create_dir(dir).map_err(Failure::io("creating", dir))?;
    }
    let realm = Realm::start(&kerberos)?;
    realm.add_user(USER)?;
    realm.add_user(STRANGER)?;
    let [keytab, other] =
        ["cifs.keytab", "other.keytab"].map(|name| realm.path(name).display().to_string());
    realm.administer(&format!("addprinc -randkey {SERVICE}"))?;
    // A ticket for a key that the service has no longer when the server's keytab is written.
    realm.administer(&format!("ktadd -k {other} {SERVICE}"))?;
    let other_key = realm.log_in(USER, SERVICE, "other")?;
    realm.administer(&format!("ktadd -k {keytab} {SERVICE}"))?;
    realm.administer(&format!("addprinc -randkey {NAMED_SERVICE}"))?;
    realm.administer(&format!("ktadd -k {keytab} {NAMED_SERVICE}"))?;
    let tickets = realm.log_in(USER, SERVICE, "user")?;
    let stranger = realm.log_in(STRANGER, SERVICE, "stranger")?;

    let server = Landfast::start(&served, &["--keytab", &keytab])?;
    let mut tally = smbclient(&realm, &server, &tickets, scratch.path())?;
    let smb = server.address.smb;
    let script = Step::new(deps::python()?)
        .arg(workspace::root().join("tests/interop/kerberos_client.py"))
        .args(["--host", "localhost", "--port", &smb.port().to_string()])
        .args(["--share", SHARE, "--user", USER])
        .env("LANDFAST_REALM", REALM)
        .env("LANDFAST_TICKETS", tickets)
        .env("LANDFAST_STRANGER", stranger)
        .env("LANDFAST_KEYTAB", realm.path(&format!("{USER}.keytab")).display().to_string())
        .env("LANDFAST_OTHER_KEY", other_key)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .secret_env("LANDFAST_PASSWORD", "none is asked for")
        .limit(Duration::from_secs(120));
    let finished = realm.told(script).tee()?;
    let found = report::read(&finished.stdout);
    if !finished.status.success() && found.failed.is_empty() {
        let evidence = format!("{}{}", finished.status, tail(&finished.stdout));
        tally.count("kerberos_client.py", Err(evidence));
    }
    tally.add(found);
    tally.count("the log says why each was refused", explained(&server.log));
    Ok(tally)
}

/// Debian's smbclient: list, put and get, with each protection; and who its user is, by rpcclient.
fn smbclient(realm: &Realm, server: &Landfast, tickets: &str, scratch: &Path) -> Outcome {
    let mut tally = Tally::default();
    let [source, back] = ["source.bin", "back.bin"].map(|name| scratch.join(name));
    let bytes: Vec<u8> = (0..300_001_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&source, &bytes).map_err(Failure::io("writing", &source))?;
    for protection in ["sign", "encrypt"] {
        let commands = format!(
            "put {} a.bin; ls a.bin; get a.bin {}; del a.bin",
            source.display(),
            back.display()
        );
        let step = Step::new("smbclient")
            .args([&format!("//{HOST}/{SHARE}"), "--ip-address", "127.0.0.1"])
            .args(["--use-kerberos=required", "--realm", REALM])
            .env("KRB5CCNAME", format!("FILE:{tickets}"))
            .args(["--port", &server.address.smb.port().to_string()])
            .arg(format!("--client-protection={protection}"))
            .args(["--configfile", "/dev/null", "--timeout", "60", "--command", &commands])
            .limit(Duration::from_secs(60));
        let finished = realm.told(step).finish()?;
        let text = finished.stdout + &finished.stderr;
        let came_back = fs::read(&back).is_ok_and(|found| found == bytes);
        let is_right = finished.status.success() && !text.contains("NT_STATUS_") && came_back;
        let result = if is_right { Ok(()) } else { Err(tail(&text)) };
        tally.count(&format!("kerberos smbclient {protection}"), result);
        let _ = fs::remove_file(&back);
    }
    let step = Step::new("rpcclient")
        .args([HOST, "-I", "127.0.0.1", "--use-kerberos=required", "--realm", REALM])
        .env("KRB5CCNAME", format!("FILE:{tickets}"))
        .args(["--port", &server.address.smb.port().to_string(), "--configfile", "/dev/null"])
        .args(["--command", "getusername"])
        .limit(Duration::from_secs(60));
    let finished = realm.told(step).finish()?;
    let is_right = finished.stdout.contains(&format!("Account Name: {USER}"));
    let result = if is_right { Ok(()) } else { Err(tail(&(finished.stdout + &finished.stderr))) };
    tally.count("kerberos rpcclient getusername", result);
    Ok(tally)
}

// The server writes its log behind its answers.
fn explained(log: &Path) -> Result<(), String> {
    let until = Instant::now() + LOG_PATIENCE;
    loop {
        let text = fs::read_to_string(log).map_err(|error| error.to_string())?;
        let wanted = ["came before", "no user of this server", "not in the keytab"];
        match wanted.into_iter().find(|reason| !text.contains(reason)) {
            None => return Ok(()),
            Some(reason) if Instant::now() >= until => {
                return Err(format!("{}: nothing {reason:?}", log.display()));
            }
            Some(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

const LOG_PATIENCE: Duration = Duration::from_secs(10);

/// Of the realm, and no user of the server.
const STRANGER: &str = "stranger";
/// The server, by the name that clients on this machine call it.
const SERVICE: &str = "cifs/localhost";
/// And by the one that smbclient is told, which asks for no ticket for this machine.
const HOST: &str = "files.landfast.test";
const NAMED_SERVICE: &str = "cifs/files.landfast.test";
