//! A Kerberos realm of our own: MIT's KDC on a private database, on loopback, as an ordinary user.
//!
//! Nothing of the machine's own Kerberos is touched: the configuration, the database and every ticket are below one
//! directory, and each program is told so by its environment.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::peer::{free_port, wait_for_port};
use crate::process::{Running, Step};
use crate::workspace;

/// A running KDC. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Realm {
    directory: PathBuf,
    _running: Running,
}

impl Realm {
    /// Makes a realm in an empty directory and starts its KDC.
    pub(crate) fn start(directory: &Path) -> Result<Self, Failure> {
        let port = free_port()?;
        let files =
            [("krb5.conf", client_settings(port)), ("kdc.conf", kdc_settings(directory, port))];
        for (name, text) in files {
            let path = directory.join(name);
            fs::write(&path, text).map_err(Failure::io("writing", &path))?;
        }
        told(directory, Step::new(program("kdb5_util")))
            .args(["create", "-s", "-r", REALM, "-P", "of no use to anybody"])
            .output()?;
        let log = workspace::kept("logs")?.join("krb5kdc.log");
        let mut running =
            told(directory, Step::new(program("krb5kdc")).arg("-n")).serve(&log, false)?;
        wait_for_port(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), || match running.ended() {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("krb5kdc ended with {status}"))
                .remedy(format!("read {}", log.display()))),
        })?;
        Ok(Self { directory: directory.to_owned(), _running: running })
    }

    /// A command that lives in this realm.
    pub(crate) fn told(&self, step: Step) -> Step {
        told(&self.directory, step)
    }

    /// Lets the administrator do something.
    pub(crate) fn administer(&self, query: &str) -> Result<(), Failure> {
        let step = Step::new(program("kadmin.local")).args(["-r", REALM, "-q", query]);
        let finished = self.told(step).finish()?;
        // It ends with 0 whatever happened; what went wrong it says on standard error, after its own name.
        let complaint =
            finished.stderr.lines().find(|line| line.contains(": ") && line.contains("while"));
        match complaint {
            Some(complaint) => Err(Failure::new(format!("kadmin.local {query}: {complaint}"))),
            None => Ok(()),
        }
    }

    /// Makes a user with random keys, which are kept in a keytab of the user's own.
    pub(crate) fn add_user(&self, name: &str) -> Result<(), Failure> {
        self.administer(&format!("addprinc -randkey {name}"))?;
        let keytab = self.path(&format!("{name}.keytab"));
        self.administer(&format!("ktadd -norandkey -k {} {name}", keytab.display()))
    }

    /// Gives the user tickets in the file `cache`, one for `service` among them, and names its path.
    pub(crate) fn log_in(&self, user: &str, service: &str, cache: &str) -> Result<String, Failure> {
        let (keytab, cache) = (self.path(&format!("{user}.keytab")), self.path(cache));
        let cache = cache.display().to_string();
        let kinit = Step::new("kinit").args(["-c", &cache, "-k", "-t"]).arg(keytab).arg(user);
        self.told(kinit).output()?;
        self.told(Step::new("kvno").args(["-c", &cache, service])).output()?;
        Ok(cache)
    }

    /// A file of the realm.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn told(directory: &Path, step: Step) -> Step {
    let path = |name: &str| directory.join(name).display().to_string();
    step.env("KRB5_CONFIG", path("krb5.conf")).env("KRB5_KDC_PROFILE", path("kdc.conf"))
}

/// The KDC's programs live in /usr/sbin, which an ordinary user's PATH leaves out.
fn program(name: &str) -> PathBuf {
    let installed = Path::new("/usr/sbin").join(name);
    if installed.exists() { installed } else { name.into() }
}

fn client_settings(port: u16) -> String {
    format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
         dns_canonicalize_hostname = false\n rdns = false\n qualify_shortname = \"\"\n \
         udp_preference_limit = 1\n\
         [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n\
         [domain_realm]\n localhost = {REALM}\n .landfast.test = {REALM}\n"
    )
}

fn kdc_settings(directory: &Path, port: u16) -> String {
    let path = |name: &str| directory.join(name).display().to_string();
    format!(
        "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
         [realms]\n {REALM} = {{\n  database_name = {}\n  key_stash_file = {}\n  acl_file = {}\n  \
         supported_enctypes = aes256-cts:normal aes128-cts:normal aes256-sha2:normal aes128-sha2:normal\n }}\n",
        path("principal"),
        path("stash"),
        path("kadm5.acl"),
    )
}

/// The realm of every run.
pub(crate) const REALM: &str = "LANDFAST.TEST";
