//! A share on a replicated volume whose source is killed: the work of its clients goes on at the next source.
//!
//! ```text
//!   smbclient, a file, a region ----> landfast serve ----> ext4 ----> loop ----> FUSE ----> member alpha ====> beta
//!        |                                               SIGKILL of all of it
//!        '-------------------------> landfast serve ----> ext4 ----> loop ----> FUSE ----> member beta
//! ```
//!
//! The log of persistent opens lies on the replicated file system too, outside of the share's directory.
#![cfg(test)]

mod support;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use client::blocking::{FailoverClient, FailoverFile};
use client::{ConnectOptions, OpenOptions, Region, RegionSettings, SmbUrl};
use rustix::process::geteuid;
use smb::push::{Durability, PushRequest, Rights};
use support::skipped::skip;
use support::{Served, program, until};

/// A group of two, its volume and the two servers of its share.
struct Site {
    directory: tempfile::TempDir,
    ports: [u16; 2],
}

/// A member, killed by its drop.
struct Member(Child);

/// What runs on the volume of a source.
struct Source {
    server: Option<Served>,
    top: PathBuf,
}

impl Site {
    /// `more`: further tables of the group's file.
    fn new(more: &str) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let site = Self { directory, ports: [free_port(), free_port()] };
        let member =
            |name: &str| format!("{name}=127.0.0.1:{},{}", free_port(), site.path(name).display());
        let (alpha, beta) = (member("alpha"), member("beta"));
        let volume = ["--volume", "data=48M", "--log-size", "16M"];
        site.replica("create", &[&volume[..], &["--member", &alpha, "--member", &beta]].concat());
        let group = site.path("db.toml");
        let text = fs::read_to_string(&group).unwrap();
        let more = more.replace("DIRECTORY", site.directory.path().to_str().unwrap());
        fs::write(&group, format!("{text}\n{more}")).unwrap();
        for name in NAMES {
            site.configure(name);
            site.replica("prepare", &[name]);
            for part in ["files", "top"] {
                fs::create_dir(site.path(&format!("{name}-{part}"))).unwrap();
            }
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, what: &str, words: &[&str]) -> Command {
        let group = self.path("db.toml");
        program(&[&["replica", what, group.to_str().unwrap()], words].concat())
    }

    fn replica(&self, what: &str, words: &[&str]) {
        let output = self.command(what, words).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn serve_member(&self, name: &str) -> Member {
        let files = self.path(&format!("{name}-files"));
        let words = [name, "--fuse", files.to_str().unwrap(), "--emulate-persistence"];
        let mut command = self.command("serve", &words);
        // What its units do is for this member.
        command.env("MEMBER", name).env("LANDFAST", env!("CARGO_BIN_EXE_landfast"));
        Member(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn is_in_sync(&self, name: &str) -> bool {
        self.has_in_sync("alpha", name)
    }

    fn has_in_sync(&self, source: &str, name: &str) -> bool {
        let output = self.command("status", &["--at", source, "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["in_sync"].as_array().into_iter().flatten().any(|found| found == name)
    }

    /// Mounts the file system of the source's volume, and serves the share on it.
    fn serve_share(&self, name: &str) -> Source {
        let (volume, top) =
            (self.path(&format!("{name}-files")).join("data"), self.path(&format!("{name}-top")));
        until("the volume is offered", || volume.exists());
        if name == "alpha" {
            run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&volume));
        }
        let mut source = Source { server: None, top };
        run(Command::new("mount").args(["-o", "loop"]).arg(&volume).arg(&source.top));
        let share = source.top.join("share");
        if name == "alpha" {
            fs::create_dir(&share).unwrap();
            fs::File::create(share.join("region")).unwrap().set_len(REGION_LEN).unwrap();
        }
        let config = self.path(&format!("{name}.toml"));
        let command = program(&["serve", "--config", config.to_str().unwrap()]);
        source.server = Some(Served::start(command));
        source
    }

    /// The settings of the server that runs at a source.
    fn configure(&self, name: &str) {
        let config = self.path(&format!("{name}.toml"));
        let port = self.ports[usize::from(name == "beta")];
        let top = self.path(&format!("{name}-top"));
        let (share, opens) = (top.join("share"), top.join("opens"));
        let text = format!(
            "control = \"off\"\nlisten = \"127.0.0.1:{port}\"\nrdma_listen = \"127.0.0.1:0\"\n\
             server_guid = \"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\"\n\
             [[share]]\nname = \"data\"\npath = {share:?}\npersistent_opens = {opens:?}\n\
             write_through = true\n[[user]]\nname = \"alice\"\npassword = \"secret\"\n"
        );
        fs::write(&config, text).unwrap();
        fs::set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
    }

    fn url(&self) -> SmbUrl {
        let [first, second] = self.ports;
        format!("smb://alice:secret@127.0.0.1:{first},127.0.0.1:{second}/data").parse().unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        drop(self.server.take());
        // Lazily: what is below may be gone.
        let _ = Command::new("umount").arg("-l").arg(&self.top).stderr(Stdio::null()).output();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for name in NAMES {
            let files = self.path(&format!("{name}-files"));
            let _ = Command::new("umount").arg("-l").arg(files).stderr(Stdio::null()).output();
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Clients at work until they are told to stop. Each counts what was answered.
struct Work {
    url: SmbUrl,
    ports: [u16; 2],
    directory: PathBuf,
    stops: AtomicBool,
    counts: [AtomicU64; 3],
}

impl Work {
    fn new(site: &Site) -> Self {
        Self {
            url: site.url(),
            ports: site.ports,
            directory: site.directory.path().to_owned(),
            stops: AtomicBool::new(false),
            counts: Default::default(),
        }
    }

    /// Waits until each client was answered some times more than `least`.
    fn goes_on(&self, least: [u64; 3]) {
        until("the clients work", || (0..3).all(|of| self.count(of) > least[of] + 2));
    }

    fn counts(&self) -> [u64; 3] {
        std::array::from_fn(|of| self.count(of))
    }

    fn is_over(&self) -> bool {
        self.stops.load(Ordering::SeqCst)
    }

    fn count(&self, of: usize) -> u64 {
        self.counts[of].load(Ordering::SeqCst)
    }

    fn client(&self) -> FailoverClient {
        FailoverClient::connect(&self.url, &ConnectOptions::default(), PATIENCE).unwrap()
    }

    /// Records of eight bytes, each at its place, each durable when it is answered.
    fn writes_a_file(&self) {
        let file: FailoverFile = self.client().open("file", &OpenOptions::read_write()).unwrap();
        for number in 0_u64.. {
            if self.is_over() {
                break;
            }
            file.write_at(number * 8, &number.to_le_bytes()).unwrap();
            self.counts[0].store(number + 1, Ordering::SeqCst);
        }
        file.close().unwrap();
    }

    /// Records in a region in push mode, in its turn, each committed before it is counted.
    fn writes_a_region(&self) {
        let push = PushRequest {
            rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
            durability: Durability::ANY,
            accept_emulated: true,
            regions_max: 1,
        };
        let options = OpenOptions::read_write().with_push(push);
        let settings = RegionSettings::default();
        let mut region: Region =
            self.client().map("region", &options, 0..REGION_LEN, settings).unwrap();
        assert!(matches!(region.path(), client::Path::Push { .. }), "{:?}", region.path());
        for number in 1_u64.. {
            if self.is_over() {
                break;
            }
            region.write(number * 8 % REGION_LEN, &number.to_le_bytes()).unwrap();
            region.commit(number * 8 % REGION_LEN, 8).unwrap();
            self.counts[1].store(number, Ordering::SeqCst);
        }
    }

    /// Files of smbclient, which knows one server at a time: a put that failed is made again at the other one.
    fn puts_files(&self) {
        let mut at = 0;
        for number in 0_u64.. {
            let local = self.directory.join("put");
            fs::write(&local, format!("file {number}")).unwrap();
            loop {
                if self.is_over() {
                    return;
                }
                let put = format!("put {} put{number}", local.display());
                let mut command = Command::new("smbclient");
                command.args(["//127.0.0.1/data", "-U", "alice%secret", "-t", "5", "-p"]);
                let done = command.arg(self.ports[at].to_string()).args(["-c", &put]).output();
                if done.unwrap().status.success() {
                    break;
                }
                at = 1 - at;
            }
            self.counts[2].store(number + 1, Ordering::SeqCst);
        }
    }
}

/// Ends the work, whatever happens.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn lacking() -> Option<&'static str> {
    let has = |path: &str| Path::new(path).exists();
    let runs = |name: &str| Command::new(name).arg("-V").output().is_ok();
    if !geteuid().is_root() || !has("/dev/fuse") || !has("/dev/loop-control") {
        return Some("a file system on a volume needs root, /dev/fuse and loop devices");
    }
    (!runs("mkfs.ext4") || !runs("smbclient")).then_some("mkfs.ext4 and smbclient are needed")
}

#[test]
fn clients_go_on_at_the_next_source_and_nothing_answered_is_lost() {
    if let Some(why) = lacking() {
        skip(why);
        return;
    }
    let site = Site::new("");
    let (alpha, beta) = (site.serve_member("alpha"), site.serve_member("beta"));
    until("alpha is the source", || {
        let promoted = site.command("promote", &["--at", "alpha", "--force"]).output().unwrap();
        promoted.status.success()
    });
    let source = site.serve_share("alpha");
    until("beta is in sync", || site.is_in_sync("beta"));

    let work = Work::new(&site);
    let source = thread::scope(|scope| {
        let work = &work;
        let _until_here = Stops(&work.stops);
        scope.spawn(|| work.writes_a_file());
        scope.spawn(|| work.writes_a_region());
        scope.spawn(|| work.puts_files());
        work.goes_on([0; 3]);
        // The server, the member, and then what is mounted, which is a ruin.
        let mut source = source;
        drop(source.server.take());
        drop(alpha);
        drop(source);
        let killed = work.counts();
        until("beta is the source", || {
            let promoted = site.command("promote", &["--at", "beta"]).output().unwrap();
            promoted.status.success()
        });
        let source = site.serve_share("beta");
        work.goes_on(killed);
        source
    });

    check(&work, &source.top.join("share"));
    drop((source, beta));
}

/// etcd records the source, and a promoter mounts and serves at the member that it promotes: nobody gives a command.
#[test]
#[ignore = "half a minute: cargo test --release -p landfast --test replicated_share -- --ignored"]
fn a_promoter_brings_a_share_back_by_itself() {
    if let Some(why) = lacking() {
        skip(why);
        return;
    }
    let Ok(etcd) = Etcd::start() else {
        skip("etcd is not installed");
        return;
    };
    let site = Site::new(&format!("{}{UNITS}", etcd.table()));
    fs::write(site.path("start.sh"), START).unwrap();
    fs::write(site.path("stop.sh"), STOP).unwrap();
    let mut members = NAMES.map(|name| Some(site.serve_member(name)));
    let _stopped = Stopped(&site);
    until("alpha is the source", || {
        let promoted = site.command("promote", &["--at", "alpha", "--force"]).output().unwrap();
        promoted.status.success()
    });
    until("beta is in sync", || site.is_in_sync("beta"));
    until("the share is served", || site.is_served(0));
    let work = Work::new(&site);
    thread::scope(|scope| {
        let work = &work;
        let _until_here = Stops(&work.stops);
        scope.spawn(|| work.writes_a_file());
        scope.spawn(|| work.writes_a_region());
        scope.spawn(|| work.puts_files());
        work.goes_on([0; 3]);
        // The server and the source, and back again once the old one is in sync.
        for (gone, next) in [(0, 1), (1, 0)] {
            site.kill_server(NAMES[gone]);
            members[gone] = None;
            work.goes_on(work.counts());
            if next == 1 {
                members[gone] = Some(site.serve_member(NAMES[gone]));
                until("the old source is in sync", || site.has_in_sync(NAMES[next], NAMES[gone]));
            }
        }
    });
    check(&work, &site.path("alpha-top").join("share"));
}

impl Site {
    fn is_served(&self, of: usize) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.ports[of])).is_ok()
    }

    /// As [`STOP`] does at the end of a unit.
    fn kill_server(&self, name: &str) {
        let mut stop = Command::new("sh");
        let _ =
            stop.arg(self.path("stop.sh")).arg(self.directory.path()).env("MEMBER", name).output();
    }
}

/// Ends what units have started.
struct Stopped<'a>(&'a Site);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        NAMES.iter().for_each(|name| self.0.kill_server(name));
    }
}

/// One etcd.
struct Etcd {
    child: Child,
    endpoint: String,
    _directory: tempfile::TempDir,
}

impl Etcd {
    fn start() -> std::io::Result<Self> {
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let (clients, peers) = (free_port(), free_port());
        let endpoint = format!("http://127.0.0.1:{clients}");
        let peers = format!("http://127.0.0.1:{peers}");
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(directory.path());
        command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, endpoint, _directory: directory })
    }

    fn table(&self) -> String {
        format!(
            "[etcd]\nendpoints = [{:?}]\nlease_s = 2\nautomatic = true\npatience_ms = 500\n",
            self.endpoint
        )
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check(work: &Work, share: &Path) {
    let words = |name: &str| -> Vec<u64> {
        let bytes = fs::read(share.join(name)).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let file = words("file");
    let answered = work.count(0);
    assert!((0..answered).all(|number| file[usize::try_from(number).unwrap()] == number));
    let (region, last) = (words("region"), work.count(1));
    for number in (1..=last).rev().take(region.len()) {
        let found = region[usize::try_from(number * 8 % REGION_LEN / 8).unwrap()];
        // The record that was written last may not be answered.
        assert!(found == number || found == last + 1, "{number}: {found}");
    }
    for number in 0..work.count(2) {
        let text = fs::read_to_string(share.join(format!("put{number}"))).unwrap();
        assert_eq!(text, format!("file {number}"));
    }
}

const NAMES: [&str; 2] = ["alpha", "beta"];
const REGION_LEN: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);
const UNITS: &str = "
[[unit]]
start = [\"sh\", \"DIRECTORY/start.sh\", \"DIRECTORY\"]
stop = [\"sh\", \"DIRECTORY/stop.sh\", \"DIRECTORY\"]
";
const START: &str = "\
set -e
cd $1
until [ -e $MEMBER-files/data ]; do sleep 0.1; done
blkid $MEMBER-files/data || mkfs.ext4 -q -F $MEMBER-files/data
mountpoint -q $MEMBER-top || mount -o loop $MEMBER-files/data $MEMBER-top
[ -d $MEMBER-top/share ] || { mkdir $MEMBER-top/share; truncate -s 65536 $MEMBER-top/share/region; }
[ -e $MEMBER.pid ] && kill -0 $(cat $MEMBER.pid) && exit 0
$LANDFAST serve --config $MEMBER.toml > $MEMBER.log 2>&1 &
echo $! > $MEMBER.pid
";
const STOP: &str = "\
cd $1
[ -e $MEMBER.pid ] && kill -9 $(cat $MEMBER.pid)
rm -f $MEMBER.pid
umount -l $MEMBER-top
exit 0
";
