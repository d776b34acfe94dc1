//! The file that describes a group: the same at every member, so that it can be copied, compared and kept in a repository.

mod check;

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rdma::PollPolicy;
use replica::core::{Config, Congestion};
use replica::one_sided::OneSidedOptions;
use replica::runtime::{Rpo, Settings};
use replica::wire::LinkOptions;
use replica::{GroupId, MemberId};
use serde::{Deserialize, Serialize};

use super::ReplicaFailure;
pub(super) use super::values::{Compression, EntryMode, Full, RdmaProvider, Size, Transport};

/// What the file says.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupFile {
    /// For people.
    pub(crate) name: String,
    /// 32 hexadecimal digits.
    pub(crate) id: String,
    /// Bytes of each member's log.
    pub(crate) log_size: Size,
    /// The secret by which members prove to each other that they belong to the group; relative to the file.
    pub(crate) secret_file: PathBuf,
    /// Writes wait while fewer members than this are in sync.
    #[serde(default = "one")]
    pub(crate) least_in_sync: u32,
    /// A member that is silent for so many milliseconds is taken for gone.
    #[serde(default = "silence")]
    pub(crate) silence_ms: u64,
    /// A source lets read for so many milliseconds after the members in sync have promised not to be the source; 0: always.
    #[serde(default = "read_lease")]
    pub(crate) read_lease_ms: u64,
    /// Bytes on the way to a member at most.
    #[serde(default = "window")]
    pub(crate) window: Size,
    /// Destinations apply records that are older than so many seconds, and can show their volumes at any point since.
    #[serde(default)]
    pub(crate) retention_s: u64,
    /// What happens when the log is full of what a member lacks.
    #[serde(default)]
    pub(crate) congestion: Full,
    /// How payloads are packed.
    #[serde(default)]
    pub(crate) compression: Compression,
    /// A member that lacks more than so many milliseconds of writes is reported.
    #[serde(default)]
    pub(crate) rpo_ms: Option<u64>,
    /// Writers wait while an asynchronous member that is connected lacks more than that.
    #[serde(default)]
    pub(crate) rpo_throttle: bool,
    /// How records go from log to log.
    #[serde(default)]
    pub(crate) transport: Transport,
    /// Nobody but the members reaches the links between them: what goes by RDMA is not encrypted.
    #[serde(default)]
    pub(crate) links_are_private: bool,
    /// Records are sealed in the logs, and so wherever they go, with the secret of the group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) seal_records: bool,
    /// What carries out RDMA.
    #[serde(default)]
    pub(crate) rdma_provider: RdmaProvider,
    /// Bytes that a link carries in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bandwidth: Option<Size>,
    /// Connections of a link; more than one go on when one is cut, and share what is sent.
    #[serde(default = "one_connection", skip_serializing_if = "is_one")]
    pub(crate) connections: usize,
    /// A file that records who is the source, for members on one machine.
    #[serde(default)]
    pub(crate) witness_file: Option<PathBuf>,
    /// etcd, which records who is the source, for members on several machines.
    #[serde(default)]
    pub(crate) etcd: Option<EtcdEntry>,
    /// What runs on the volumes, in the order in which it starts at the source.
    #[serde(default, rename = "unit", skip_serializing_if = "Vec::is_empty")]
    pub(crate) units: Vec<UnitEntry>,
    /// Numbers of members that were removed. Their machines may come back with an older file, so nobody else gets these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) removed: Vec<u8>,
    #[serde(rename = "volume")]
    pub(crate) volumes: Vec<VolumeEntry>,
    #[serde(rename = "member")]
    pub(crate) members: Vec<MemberEntry>,
}

/// A volume.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeEntry {
    pub(crate) name: String,
    pub(crate) size: Size,
}

/// A member.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberEntry {
    pub(crate) name: String,
    /// Its number in the group, which it keeps.
    pub(crate) number: u8,
    /// Where the others reach it: the first one that answers.
    pub(crate) addresses: Vec<String>,
    /// Where it listens [default: the first address].
    #[serde(default)]
    pub(crate) listen: Option<String>,
    /// The address of this machine from which it makes links.
    #[serde(default)]
    pub(crate) from: Option<IpAddr>,
    /// Where its RDMA engine listens [default: any port at the address where it listens for links].
    #[serde(default)]
    pub(crate) rdma: Option<SocketAddr>,
    /// Log, snapshots, control socket, and the volumes unless they are named.
    pub(crate) directory: PathBuf,
    /// When the source answers a write, as far as this member is concerned.
    #[serde(default)]
    pub(crate) mode: EntryMode,
    /// Files or devices of the volumes, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<PathBuf>,
}

/// How etcd is reached, and what it decides.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EtcdEntry {
    /// As `http://10.0.0.9:2379`; the first one that answers is asked.
    pub(crate) endpoints: Vec<String>,
    /// Where etcd has authentication on.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// Its password is all that this file holds; relative to the group's file.
    #[serde(default)]
    pub(crate) password_file: Option<PathBuf>,
    /// Certificates that are believed, in PEM, for `https`.
    #[serde(default)]
    pub(crate) authority_file: Option<PathBuf>,
    /// After so many seconds without a sign of life a member counts as gone.
    #[serde(default = "lease")]
    pub(crate) lease_s: u64,
    /// A member in sync becomes the source by itself when the source is gone.
    #[serde(default)]
    pub(crate) automatic: bool,
    /// The source has to be gone for so many milliseconds before.
    #[serde(default = "patience")]
    pub(crate) patience_ms: u64,
    /// Names of members, the most wanted source first.
    #[serde(default)]
    pub(crate) preference: Vec<String>,
    /// A source hands over to a member that is preferred to it, once that one has been in sync for so many seconds.
    #[serde(default)]
    pub(crate) fails_back_s: Option<u64>,
}

/// Something that runs on the volumes: a unit of systemd, or commands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnitEntry {
    /// As `systemctl` takes it; must not be enabled.
    #[serde(default)]
    pub(crate) systemd: Option<String>,
    /// A program and its arguments.
    #[serde(default)]
    pub(crate) start: Vec<String>,
    /// A program and its arguments.
    #[serde(default)]
    pub(crate) stop: Vec<String>,
}

/// A group as its file describes it, and where the file is.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) path: PathBuf,
    pub(crate) file: GroupFile,
    pub(crate) id: GroupId,
}

impl Group {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ReplicaFailure> {
        let text = fs::read_to_string(path)
            .map_err(|source| ReplicaFailure::File { path: path.to_owned(), source })?;
        Self::of_text(path, &text)
    }

    /// The group that a text describes, which is that of the file or to be.
    pub(super) fn of_text(path: &Path, text: &str) -> Result<Self, ReplicaFailure> {
        let file: GroupFile = toml::from_str(text).map_err(|source| ReplicaFailure::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Self::of_file(path, file)
    }

    /// The group of what a file says, once that is checked.
    pub(super) fn of_file(path: &Path, file: GroupFile) -> Result<Self, ReplicaFailure> {
        let wrong = |why: String| ReplicaFailure::Group { path: path.to_owned(), why };
        let id = parse_id(&file.id)
            .ok_or_else(|| wrong("id: write 32 hexadecimal digits".to_owned()))?;
        file.check().map_err(wrong)?;
        Ok(Self { path: path.to_owned(), file, id })
    }

    /// Writes a new file, or, where `replaces`, another content of one that is there.
    pub(crate) fn write(
        path: &Path,
        file: &GroupFile,
        replaces: bool,
    ) -> Result<(), ReplicaFailure> {
        file.check().map_err(|why| ReplicaFailure::Group { path: path.to_owned(), why })?;
        let text = toml::to_string_pretty(file).expect("a table of plain values");
        Self::write_text(path, &text, replaces)
    }

    /// [`Group::write`], of a text that has been checked. Where it replaces one, the file is [`Group::locked`], and a link to
    /// it stays.
    pub(super) fn write_text(
        path: &Path,
        text: &str,
        replaces: bool,
    ) -> Result<(), ReplicaFailure> {
        let failed = |source| ReplicaFailure::File { path: path.to_owned(), source };
        let real = if replaces { fs::canonicalize(path).map_err(failed)? } else { path.to_owned() };
        let directory = real.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| Path::new("."));
        let mut beside = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
        beside
            .write_all(text.as_bytes())
            .and_then(|()| beside.as_file().sync_all())
            .map_err(failed)?;
        let old = if replaces { Some(fs::metadata(&real).map_err(failed)?) } else { None };
        let new = beside.as_file().metadata().map_err(failed)?;
        if let Some(old) =
            old.as_ref().filter(|old| (old.uid(), old.gid()) != (new.uid(), new.gid()))
        {
            // Who is not root may be unable to give it away; the mode says who reads it.
            let _ = fchown(beside.as_file(), Some(old.uid()), Some(old.gid()));
        }
        let mode = old.map_or(0o644, |old| old.mode() & 0o777);
        beside.as_file().set_permissions(fs::Permissions::from_mode(mode)).map_err(failed)?;
        match replaces {
            true => beside.persist(&real).map_err(|error| failed(error.error))?,
            false => beside.persist_noclobber(&real).map_err(|error| failed(error.error))?,
        };
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
    }

    /// The file, locked against other commands that change it, until what this returns is dropped.
    pub(super) fn locked(path: &Path) -> Result<File, ReplicaFailure> {
        let failed = |source| ReplicaFailure::File { path: path.to_owned(), source };
        loop {
            let file = File::open(path).map_err(failed)?;
            file.lock().map_err(failed)?;
            // Whoever had it before has put another one in its place.
            let (mine, there) =
                (file.metadata().map_err(failed)?, fs::metadata(path).map_err(failed)?);
            if (mine.dev(), mine.ino()) == (there.dev(), there.ino()) {
                return Ok(file);
            }
        }
    }

    /// The member of a name.
    pub(crate) fn member(&self, name: &str) -> Result<&MemberEntry, ReplicaFailure> {
        self.file.members.iter().find(|member| member.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.file.members.iter().map(|it| &*it.name).collect();
            ReplicaFailure::NoMember { name: name.to_owned(), known: names.join(", ") }
        })
    }

    /// The name of a member.
    pub(crate) fn name_of(&self, member: MemberId) -> String {
        let found = self.file.members.iter().find(|it| it.number == member.0);
        found.map_or_else(|| member.to_string(), |found| found.name.clone())
    }

    /// A path that the file names, which is relative to it.
    pub(crate) fn resolved(&self, path: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| path.to_owned(), |parent| parent.join(path))
    }

    /// The secret of the group.
    pub(crate) fn secret(&self) -> Result<Vec<u8>, ReplicaFailure> {
        let path = self.resolved(&self.file.secret_file);
        let failed = |source| ReplicaFailure::File { path: path.clone(), source };
        let mode = fs::metadata(&path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(ReplicaFailure::Open(path));
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        Ok(text.trim().as_bytes().to_vec())
    }

    /// What the core of a member is told.
    pub(crate) fn config(&self, me: &MemberEntry) -> Config {
        let file = &self.file;
        Config {
            group: self.id,
            me: MemberId(me.number),
            my_mode: me.mode.into(),
            others: file
                .members
                .iter()
                .filter(|other| other.number != me.number)
                .map(|other| (MemberId(other.number), other.mode.into()))
                .collect(),
            volumes: file.volumes.iter().map(|volume| volume.size.0).collect(),
            capacity: file.log_size.0,
            least_in_sync: file.least_in_sync,
            has_witness: file.witness_file.is_some() || file.etcd.is_some(),
            congestion: match file.congestion {
                Full::Note => Congestion::DirtyMap,
                Full::Block => Congestion::Block,
            },
            window: file.window.0,
            silence_ns: file.silence_ms.saturating_mul(1_000_000),
            read_lease_ns: file.read_lease_ms.saturating_mul(1_000_000),
            retention_ns: file.retention_s.saturating_mul(1_000_000_000),
            copy_window: COPY_WINDOW,
            seals: file.seal_records,
            key_check: 0,
        }
    }
}

impl Group {
    /// What of a member's settings may change while it runs.
    pub(crate) fn settings(&self, me: &MemberEntry) -> Settings {
        Settings {
            tuning: self.config(me).tuning(),
            compression: self.file.compression.into(),
            rpo: self.rpo(),
            bandwidth: self.file.bandwidth.and_then(|bandwidth| NonZeroU64::new(bandwidth.0)),
        }
    }

    /// How far asynchronous members may be behind.
    pub(crate) fn rpo(&self) -> Option<Rpo> {
        self.file.rpo_ms.map(|ms| Rpo {
            age_ns: ms.saturating_mul(1_000_000),
            throttles: self.file.rpo_throttle,
        })
    }

    /// How a member makes links.
    pub(crate) fn links(&self, me: &MemberEntry) -> LinkOptions {
        let bandwidth = self.file.bandwidth.and_then(|bandwidth| NonZeroU64::new(bandwidth.0));
        let connections = self.file.connections;
        LinkOptions { local: me.from, bandwidth: bandwidth.into(), connections }
    }

    /// How records go from log to log, if by RDMA; `link` is where the member listens for links.
    pub(crate) fn one_sided(&self, me: &MemberEntry, link: SocketAddr) -> Option<OneSidedOptions> {
        let named = |member: &MemberEntry| Some((MemberId(member.number), member.rdma?));
        (self.file.transport == Transport::Rdma).then(|| OneSidedOptions {
            provider: self.file.rdma_provider.into(),
            listen: me.rdma.unwrap_or_else(|| SocketAddr::new(link.ip(), 0)),
            addresses: self.file.members.iter().filter_map(named).collect(),
            polling: PollPolicy::Adaptive,
        })
    }
}

impl MemberEntry {
    /// The address on which this member waits for the others.
    pub(crate) fn listens_at(&self) -> &str {
        let listen = self.listen.as_ref().or_else(|| self.addresses.first());
        listen.map_or("0.0.0.0:0", |address| address)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    pub(crate) fn kept(&self) -> PathBuf {
        self.directory.join("kept")
    }

    /// The file or device of a volume.
    pub(crate) fn volume(&self, number: usize, volume: &VolumeEntry) -> PathBuf {
        let named = self.volumes.get(number).cloned();
        named.unwrap_or_else(|| self.directory.join(format!("{}.volume", volume.name)))
    }

    /// Reads NAME=ADDR:PORT,DIRECTORY.
    pub(crate) fn parse(text: &str, number: u8) -> Result<Self, ReplicaFailure> {
        let wrong = || ReplicaFailure::Written {
            what: "member",
            text: text.to_owned(),
            form: "NAME=ADDR:PORT,DIRECTORY",
        };
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (address, directory) = rest.split_once(',').ok_or_else(wrong)?;
        if name.is_empty() || directory.is_empty() || !address.contains(':') {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            number,
            addresses: vec![address.to_owned()],
            listen: None,
            from: None,
            rdma: None,
            directory: std::path::absolute(directory)
                .map_err(|source| ReplicaFailure::File { path: directory.into(), source })?,
            mode: EntryMode::Sync,
            volumes: Vec::new(),
        })
    }
}

/// Writes the secret of a new group.
pub(crate) fn write_secret(path: &Path) -> Result<(), ReplicaFailure> {
    let failed = |source| ReplicaFailure::File { path: path.to_owned(), source };
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(failed)?;
    writeln!(file, "{}", hex(&bytes)).and_then(|()| file.sync_all()).map_err(failed)
}

/// A new group's id.
pub(crate) fn new_id() -> Result<String, ReplicaFailure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ReplicaFailure::Random(error.to_string()))?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_id(text: &str) -> Option<GroupId> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(GroupId(id))
}

const fn one() -> u32 {
    1
}

pub(crate) const fn one_connection() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_one(connections: &usize) -> bool {
    *connections == 1
}

const fn lease() -> u64 {
    5
}

const fn patience() -> u64 {
    2_000
}

const fn silence() -> u64 {
    5_000
}

pub(crate) const fn read_lease() -> u64 {
    2_000
}

pub(crate) const fn window() -> Size {
    Size(16 << 20)
}

/// Bytes of copies on the way to a member at most.
const COPY_WINDOW: u64 = 8 << 20;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::replica) fn file() -> GroupFile {
        GroupFile {
            name: "db".to_owned(),
            id: "00112233445566778899aabbccddeeff".to_owned(),
            log_size: Size(64 << 20),
            secret_file: "db.toml.secret".into(),
            least_in_sync: 1,
            silence_ms: silence(),
            read_lease_ms: read_lease(),
            window: window(),
            retention_s: 0,
            congestion: Full::Note,
            compression: Compression::None,
            rpo_ms: None,
            rpo_throttle: false,
            transport: Transport::Tcp,
            links_are_private: false,
            seal_records: false,
            rdma_provider: RdmaProvider::Soft,
            bandwidth: None,
            connections: 1,
            witness_file: None,
            etcd: None,
            units: Vec::new(),
            removed: Vec::new(),
            volumes: vec![VolumeEntry { name: "data".to_owned(), size: Size(1 << 30) }],
            members: vec![
                MemberEntry::parse("alpha=127.0.0.1:7445,/srv/a", 0).unwrap(),
                MemberEntry::parse("beta=127.0.0.1:7446,/srv/b", 1).unwrap(),
            ],
        }
    }

    #[test]
    fn a_file_that_was_written_says_the_same_when_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db.toml");
        Group::write(&path, &file(), false).unwrap();
        Group::write(&path, &file(), false).unwrap_err();
        let group = Group::read(&path).unwrap();
        // A person can add tables to it.
        let text = fs::read_to_string(&path).unwrap();
        let with_etcd =
            format!("{text}\n[etcd]\nendpoints = [\"http://a:2379\"]\nautomatic = true\n");
        let with_unit = format!("{with_etcd}\n[[unit]]\nsystemd = \"srv.mount\"\n");
        fs::write(&path, with_unit).unwrap();
        assert_eq!(Group::read(&path).unwrap().file.units.len(), 1);
        assert_eq!(group.id.to_string(), file().id);
        assert_eq!(group.file.volumes[0].size, Size(1 << 30));
        assert_eq!(group.member("beta").unwrap().number, 1);
        group.member("gamma").unwrap_err();
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        type Change = fn(&mut GroupFile);
        let wrong: [(&str, Change); 13] = [
            ("connections: 1 to 8", |file| file.connections = 9),
            ("links_are_private", |file| file.transport = Transport::Rdma),
            ("1M at least", |file| file.bandwidth = Some(Size(1))),
            ("two have this name", |file| file.members[1].name = "alpha".to_owned()),
            ("two have one number", |file| file.members[1].number = 0),
            ("numbers are below", |file| file.members[1].number = 9),
            ("multiple of 4096", |file| file.volumes[0].size = Size(5000)),
            ("least_in_sync", |file| file.least_in_sync = 3),
            ("log_size", |file| file.log_size = Size(1)),
            ("log_size: 4M at least", |file| file.log_size = Size(1 << 20)),
            ("letters", |file| file.volumes[0].name = "../x".to_owned()),
            // `export` writes it into a script.
            ("group", |file| file.name = "x; touch y".to_owned()),
            ("read_lease_ms", |file| file.read_lease_ms = 1),
        ];
        for (words, change) in wrong {
            let mut file = file();
            change(&mut file);
            let why = file.check().unwrap_err();
            assert!(why.contains(words), "{words}: {why}");
        }
    }

    #[test]
    fn sizes_are_written_as_people_write_them() {
        for (bytes, text) in [(1 << 30, "1G"), (5 << 20, "5M"), (4096, "4K"), (0, "0"), (7, "7")] {
            assert_eq!(Size(bytes).text(), text);
        }
    }
}
