//! Trying the cells of one share, one after the other, on files that are made anew once something changed.

use std::fs;
use std::path::PathBuf;

use rustix::fs::XattrFlags;
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
};
use smb::info::FileAttributes;
use smb::{Command, ControlCode, FileId, NtStatus};

use crate::disk::{Change, HOME, Look};
use crate::findings::{Findings, Kind};
use crate::people::{Column, Entry, Person, Share};
use crate::row::{Asked, On, Partner, Row, Verdict};
use crate::site::Site;
use crate::support::{Opened, Wire};

/// Everybody in one share, and what lies there.
pub(crate) struct Bench<'a> {
    site: &'a Site,
    pub(crate) share: Share,
    root: PathBuf,
    keeper: Wire,
    people: Vec<Wire>,
    /// The same on connections that know the POSIX extensions.
    posix_people: Vec<Wire>,
    /// The keeper's open, while there is one.
    kept: Option<(On, FileId)>,
    /// What was there when the files were made. `None`: to be made anew.
    before: Option<Look>,
    has_stream: bool,
    /// Attributes of a read-only file as the server keeps them.
    read_only: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    pub(crate) findings: Findings,
    /// What is being tried: said when a cell cannot be set up.
    now: String,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while {} was tried", self.now);
        }
    }
}

impl<'a> Bench<'a> {
    pub(crate) fn new(site: &'a Site, share: Share) -> Self {
        let keeper = site.keeper(share);
        let enter = |is_posix: bool| {
            let mut wires: Vec<_> =
                Person::ALL.iter().map(|person| site.enter(*person, share, is_posix)).collect();
            for (wire, person) in wires.iter_mut().zip(Person::ALL) {
                if person.entry(share) == Entry::Outside {
                    wire.tree = keeper.tree;
                }
            }
            wires
        };
        let people = enter(false);
        let posix_people = if site.is_ours() { enter(true) } else { Vec::new() };
        Self {
            site,
            share,
            root: site.directory.join(share.name()),
            keeper,
            people,
            posix_people,
            kept: None,
            before: None,
            has_stream: false,
            read_only: None,
            findings: Findings::default(),
            now: String::new(),
        }
    }

    /// Tries a row with everybody and each column.
    pub(crate) fn try_row(&mut self, row: &Row, columns: &[Column]) {
        if row.on.is_posix() && !self.site.is_ours() {
            return;
        }
        for person in Person::ALL {
            let entry = person.entry(self.share);
            let granted = |column: &Column| match entry {
                Entry::Outside => None,
                entry => column.granted(row.on.most(entry)),
            };
            // Whoever is outside opens nothing, whatever the column says.
            let columns = if entry == Entry::Outside { &columns[..1] } else { columns };
            // Those first that the keeper's open would be in the way of.
            let (first, then): (Vec<&Column>, Vec<&Column>) =
                columns.iter().partition(|column| granted(column).is_some());
            for column in first.into_iter().chain(then) {
                self.cell(row, person, *column, granted(column));
            }
        }
    }

    fn cell(&mut self, row: &Row, person: Person, column: Column, granted: Option<AccessMask>) {
        let entry = person.entry(self.share);
        let verdict = match self.share {
            // MS-SMB2 §3.3.5.2.11.
            Share::Clear => Verdict::No,
            _ => row.verdict(granted, entry),
        };
        let cell = say_of(person, self.share, column);
        self.begin(&row.name, &cell);
        self.ready(row.on == On::Stream);
        let kept = match granted {
            Some(_) => {
                self.release();
                None
            }
            None => Some(self.keep(row.on)),
        };
        let (own, opened_wrongly) = match entry {
            Entry::Outside => (None, None),
            _ => {
                let desired = AccessMask::from_bits_retain(column.0);
                let opened = open(self.wire(person, row.on), row.on, |open| {
                    open.desired_access = desired;
                });
                let own = (!opened.status.is_error()).then_some(opened.id);
                let wrong = (own.is_some() != granted.is_some()).then_some(opened.status);
                (own, wrong)
            }
        };
        if let Some(status) = opened_wrongly {
            let kind = if own.is_some() { Kind::Opens } else { Kind::RefusesOpen };
            let row = format!("open of {:?}", row.on);
            self.findings.add(kind, &row, format!("{cell}: {status}"));
        }
        let id = own.or(kept).unwrap_or(FileId::RELATED);
        let (asked, partner) = self.partner(row, person, id, own.is_some(), kept.is_some());
        let is_clear = self.share == Share::Clear;
        let wire = self.wire(person, row.on);
        wire.in_clear = is_clear;
        let answer = ask(wire, row, &asked);
        wire.in_clear = false;
        let status = match answer {
            Some(status) => {
                for id in own.into_iter().chain(partner) {
                    wire.close(id);
                }
                wire.unsolicited.clear();
                status
            }
            None => {
                self.findings.add(Kind::Disconnects, &row.name, cell.clone());
                self.come_back(person, row.on.is_posix());
                NtStatus::NETWORK_NAME_DELETED
            }
        };
        if opened_wrongly.is_none() {
            let explains = |happened: &[Change<'_>]| row.explains(happened);
            self.judge(verdict, status, &row.name, &explains, &cell);
        } else {
            self.before = None;
        }
    }

    /// Says what is tried, in case it cannot be.
    pub(crate) fn begin(&mut self, row: &str, cell: &str) {
        self.now = format!("{row} by {cell}");
    }

    /// Compares what a server did with what the table says.
    pub(crate) fn judge(
        &mut self,
        verdict: Verdict,
        status: NtStatus,
        row: &str,
        explains: &dyn Fn(&[Change<'_>]) -> bool,
        cell: &str,
    ) {
        self.findings.cells += 1;
        self.findings.yes += u64::from(verdict == Verdict::Yes);
        let before = self.before.take().expect("files were made");
        let after = Look::at(&self.root);
        let happened = before.changes(&after);
        let kind = match (verdict, status.is_error()) {
            (Verdict::No, false) => Some(Kind::Allows),
            (Verdict::Yes, true) => Some(Kind::Refuses),
            (_, true) => (!happened.is_empty()).then_some(Kind::ChangesAnyway),
            (_, false) => (!explains(&happened)).then_some(Kind::ChangesOtherwise),
        };
        if let Some(kind) = kind {
            self.findings.add(kind, row, format!("{cell}: {status} {happened:?}"));
        }
        if happened.is_empty() {
            self.before = Some(before);
        }
    }

    fn partner(
        &mut self,
        row: &Row,
        person: Person,
        id: FileId,
        is_own: bool,
        is_kept: bool,
    ) -> (Asked, Option<FileId>) {
        let mut asked = Asked { id, other: id, key: [0; 24] };
        let Some(partner) = row.partner else { return (asked, None) };
        if is_kept && !is_own {
            // The key of somebody else's open.
            asked.key = resume_key(&mut self.keeper, id);
            return (asked, None);
        }
        let wire = self.wire(person, row.on);
        let opened = wire.open("v", |open| {
            open.disposition = CreateDisposition::OPEN;
            open.desired_access = match partner {
                Partner::Source => AccessMask::READ_DATA,
                Partner::Target => AccessMask::READ_DATA | AccessMask::WRITE_DATA,
            };
        });
        let other = (!opened.status.is_error()).then_some(opened.id);
        asked.other = other.unwrap_or(id);
        asked.key = match partner {
            Partner::Source => resume_key(wire, asked.other),
            Partner::Target => resume_key(wire, id),
        };
        (asked, other)
    }

    // A new connection in place of one that the server has ended.
    fn come_back(&mut self, person: Person, is_posix: bool) {
        let mut wire = self.site.enter(person, self.share, is_posix);
        if person.entry(self.share) == Entry::Outside {
            wire.tree = self.keeper.tree;
        }
        let wires = if is_posix { &mut self.posix_people } else { &mut self.people };
        wires[person as usize] = wire;
    }

    fn wire(&mut self, person: Person, on: On) -> &mut Wire {
        let wires = if on.is_posix() { &mut self.posix_people } else { &mut self.people };
        &mut wires[person as usize]
    }

    /// Somebody's connection.
    pub(crate) fn person(&mut self, person: Person) -> &mut Wire {
        self.wire(person, On::File)
    }

    /// The keeper's open of something, with all rights there are.
    pub(crate) fn keep(&mut self, on: On) -> FileId {
        if let Some((of, id)) = self.kept
            && of == on
        {
            return id;
        }
        self.release();
        let opened = open(&mut self.keeper, on, |open| {
            open.desired_access = on.most(Entry::All);
        });
        assert_eq!(opened.status, NtStatus::SUCCESS, "the keeper opens {on:?}");
        self.kept = Some((on, opened.id));
        opened.id
    }

    pub(crate) fn release(&mut self) {
        if let Some((_, id)) = self.kept.take() {
            assert_eq!(self.keeper.close(id), NtStatus::SUCCESS);
        }
    }

    /// Makes the files, unless they are as they were made.
    pub(crate) fn ready(&mut self, with_stream: bool) {
        if self.before.is_some() && self.has_stream == with_stream {
            return;
        }
        self.release();
        self.clear();
        let at = |name: &str| self.root.join(name);
        for (name, bytes) in FILES {
            fs::write(at(name), bytes).unwrap();
        }
        for name in ["d", "t"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("t").join("x"), b"below a directory").unwrap();
        for name in ["f", "d"] {
            rustix::fs::setxattr(at(name), "user.OLD", b"ea", XattrFlags::CREATE).unwrap();
        }
        self.make_read_only();
        self.has_stream = with_stream;
        if with_stream {
            let made = self.keeper.open("f:s", |_| {});
            assert_eq!(made.status, NtStatus::SUCCESS, "a stream is made");
            assert_eq!(self.keeper.write(made.id, b"in a stream"), NtStatus::SUCCESS);
            assert_eq!(self.keeper.close(made.id), NtStatus::SUCCESS);
        }
        self.before = Some(Look::at(&self.root));
    }

    // Once by the server, then as the server has done it.
    fn make_read_only(&mut self) {
        let path = self.root.join("r");
        if let Some(attributes) = &self.read_only {
            fs::write(&path, READ_ONLY_BYTES).unwrap();
            for (name, value) in attributes {
                rustix::fs::setxattr(&path, &name[..], value, XattrFlags::empty()).unwrap();
            }
            return;
        }
        let made = self.keeper.open("r", |open| open.attributes = FileAttributes::READONLY);
        assert_eq!(made.status, NtStatus::SUCCESS, "a read-only file is made");
        assert_eq!(self.keeper.write(made.id, READ_ONLY_BYTES), NtStatus::SUCCESS);
        assert_eq!(self.keeper.close(made.id), NtStatus::SUCCESS);
        rustix::fs::setxattr(&path, "user.OLD", b"ea", XattrFlags::CREATE).unwrap();
        self.read_only = Some(crate::disk::attributes(&path).into_iter().collect());
    }

    fn clear(&self) {
        for entry in fs::read_dir(&self.root).unwrap().flatten() {
            let path = entry.path();
            if entry.file_name() == HOME {
                for below in fs::read_dir(&path).unwrap().flatten() {
                    fs::remove_dir_all(below.path()).unwrap();
                }
            } else if entry.file_type().unwrap().is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

/// Names a cell.
pub(crate) fn say_of(person: Person, share: Share, column: Column) -> String {
    format!("{person:?} in {share:?}, {:#010x}", column.0)
}

fn open(wire: &mut Wire, on: On, change: impl FnOnce(&mut CreateRequest<'_>)) -> Opened {
    wire.open(on.path(), |open| {
        open.disposition = CreateDisposition::OPEN;
        open.options = CreateOptions::OPEN_REPARSE_POINT;
        if on.is_posix() {
            open.contexts.push(CreateRequestContext::Posix { mode: NO_MODE });
        }
        change(open);
    })
}

// The status of the answer; that of the interim one where a request waits for something to happen.
// `None`: the connection ended.
fn ask(wire: &mut Wire, row: &Row, asked: &Asked) -> Option<NtStatus> {
    let id = wire.start(row.command, |out| (row.body)(asked, out));
    loop {
        let (header, _) = wire.receive_if_any()?;
        let is_interim = header.status == NtStatus::PENDING;
        if header.message_id.0 == id && (!is_interim || row.command == Command::CHANGE_NOTIFY) {
            return Some(header.status);
        }
    }
}

fn resume_key(wire: &mut Wire, id: FileId) -> [u8; 24] {
    let (status, output) = wire.control(id, ControlCode::SRV_REQUEST_RESUME_KEY, &[]);
    assert_eq!(status, NtStatus::SUCCESS, "a resume key takes no right");
    output[..24].try_into().unwrap()
}

const FILES: [(&str, &[u8]); 3] = [
    ("f", b"what the file holds: sixty-four bytes, more or less, of text...."),
    ("v", b"another file, the victim, holds this"),
    ("p", b""),
];
const READ_ONLY_BYTES: &[u8] = b"what the read-only file holds";
// No mode to set: what Linux says.
const NO_MODE: u32 = 0xffff;
