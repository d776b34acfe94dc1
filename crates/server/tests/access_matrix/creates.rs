//! CREATE: each disposition, option, attribute and context, of what is there and of what is not.
//!
//! Spec: MS-SMB2 §2.2.13, §3.3.5.9; MS-FSA §2.1.5.1 (phases), §2.1.5.1.1 (creation), §2.1.5.1.2 (existing files).

use smb::Guid;
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    DurableRequestV2, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
};
use smb::info::FileAttributes;

use crate::bench::{Bench, say_of};
use crate::disk::{Change, STREAMS};
use crate::people::{Column, Entry, MAXIMUM_ALLOWED, Person, Share};
use crate::row::{Verdict, explains};

/// What is opened or made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Target {
    File,
    ReadOnly,
    Directory,
    Stream,
    Root,
    NewFile,
    NewDirectory,
    /// Of a file that is there.
    NewStream,
    /// Of a file that is not there either.
    NewStreamOfNewFile,
    /// Below a directory that is not there.
    BelowNothing,
    /// By a path that climbs out of the share.
    Outside,
}

impl Target {
    const ALL: [Self; 11] = [
        Self::File,
        Self::ReadOnly,
        Self::Directory,
        Self::Stream,
        Self::Root,
        Self::NewFile,
        Self::NewDirectory,
        Self::NewStream,
        Self::NewStreamOfNewFile,
        Self::BelowNothing,
        Self::Outside,
    ];

    fn path(self) -> &'static str {
        match self {
            Self::File => "f",
            Self::ReadOnly => "r",
            Self::Directory => "d",
            Self::Stream => "f:s",
            Self::Root => "",
            Self::NewFile | Self::NewDirectory => "new",
            Self::NewStream => "f:n",
            Self::NewStreamOfNewFile => "new:s",
            Self::BelowNothing => "nothing\\new",
            Self::Outside => "t\\..\\..\\outside",
        }
    }

    fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::NewStream)
    }
}

/// One way to ask for it.
struct Way {
    name: String,
    target: Target,
    disposition: u32,
    deletes: bool,
    /// A server may refuse what is asked beside that; but nobody gets more by it.
    is_optional: bool,
    change: Box<dyn Fn(&mut CreateRequest<'_>) + Send + Sync>,
    columns: Vec<Column>,
}

/// What the table says of a cell: the verdict, and what has to change on the disk, and may.
struct Said(Verdict, Vec<Change<'static>>, Vec<Change<'static>>);

pub(crate) fn try_all(bench: &mut Bench<'_>) {
    for way in ways() {
        for person in Person::ALL {
            let outside = person.entry(bench.share) == Entry::Outside;
            let columns = if outside { Column::BRIEF } else { &way.columns };
            for column in columns {
                cell(bench, &way, person, *column);
            }
        }
    }
}

fn cell(bench: &mut Bench<'_>, way: &Way, person: Person, column: Column) {
    let cell = say_of(person, bench.share, column);
    bench.begin(&way.name, &cell);
    bench.ready(way.target.is_stream());
    let Said(verdict, wanted, allowed) = way.said(person.entry(bench.share), column);
    let is_clear = bench.share == Share::Clear;
    let verdict = if is_clear { Verdict::No } else { verdict };
    let wire = bench.person(person);
    wire.in_clear = is_clear;
    let opened = wire.open(way.target.path(), |open| {
        open.disposition = CreateDisposition(way.disposition);
        open.desired_access = AccessMask::from_bits_retain(column.0);
        if way.target == Target::NewDirectory {
            open.options = CreateOptions::DIRECTORY_FILE;
        }
        if way.deletes {
            open.options |= CreateOptions::DELETE_ON_CLOSE;
        }
        (way.change)(open);
    });
    wire.in_clear = false;
    if !opened.status.is_error() {
        wire.close(opened.id);
    }
    let explains = |happened: &[Change<'_>]| explains(&wanted, &allowed, happened);
    bench.judge(verdict, opened.status, &way.name, &explains, &cell);
}

impl Way {
    fn new(target: Target, disposition: u32, deletes: bool, columns: &[Column]) -> Self {
        let name = DISPOSITIONS.get(disposition as usize).copied().unwrap_or("unknown");
        let deletes_too = if deletes { " DELETE_ON_CLOSE" } else { "" };
        Self {
            name: format!("CREATE {name} {target:?}{deletes_too}"),
            target,
            disposition,
            deletes,
            is_optional: false,
            change: Box::new(|_| {}),
            columns: columns.to_vec(),
        }
    }

    /// The same with something else, which need not be known, and gives nobody more.
    fn with(
        self,
        what: String,
        change: impl Fn(&mut CreateRequest<'_>) + Send + Sync + 'static,
    ) -> Self {
        let name = format!("{} {what}", self.name);
        Self { name, is_optional: true, change: Box::new(change), ..self }
    }

    fn said(&self, entry: Entry, column: Column) -> Said {
        let Said(verdict, mut wanted, mut allowed) = self.said_plainly(entry, column);
        if !self.is_optional || verdict == Verdict::No {
            return Said(verdict, wanted, allowed);
        }
        allowed.append(&mut wanted);
        Said(Verdict::Open, wanted, allowed)
    }

    fn said_plainly(&self, entry: Entry, column: Column) -> Said {
        use Target as T;
        let no = || Said(Verdict::No, Vec::new(), Vec::new());
        let yes = |wanted: &[Change<'static>], allowed: &[Change<'static>]| {
            Said(Verdict::Yes, wanted.to_vec(), allowed.to_vec())
        };
        let most = match (self.target, entry) {
            (_, Entry::Outside) => return no(),
            // MS-FSA §2.1.5.1.2: no data of a read-only file is written.
            (T::ReadOnly, entry) => {
                entry.rights() - (AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)
            }
            (_, entry) => entry.rights(),
        };
        let Some(granted) = column.granted(most) else { return no() };
        let (overwrites, makes) =
            (matches!(self.disposition, 0 | 4 | 5), matches!(self.disposition, 0 | 2 | 3 | 5));
        let is_full = entry == Entry::All;
        // MS-SMB2 §3.3.5.9: who deletes on close is granted DELETE.
        if self.disposition > 5 || (self.deletes && !granted.contains(AccessMask::DELETE)) {
            return no();
        }
        let path = self.target.path();
        match self.target {
            T::BelowNothing | T::Outside => no(),
            T::NewDirectory if overwrites => no(),
            T::NewFile | T::NewDirectory | T::NewStream | T::NewStreamOfNewFile
                if !makes || !is_full =>
            {
                no()
            }
            // It comes and goes.
            T::NewFile | T::NewDirectory | T::NewStream if self.deletes => yes(&[], &[STREAM]),
            T::NewFile | T::NewDirectory => yes(&[Change::New("new")], &[]),
            T::NewStream => yes(&[STREAM], &[]),
            T::NewStreamOfNewFile => yes(&[Change::New("new")], &[STREAM]),
            // What is there from here on.
            _ if self.disposition == 2 => no(),
            T::ReadOnly | T::Directory | T::Root if overwrites => no(),
            T::ReadOnly | T::Root if self.deletes => no(),
            _ if overwrites && !is_full => no(),
            T::Stream if self.deletes || overwrites => yes(&[STREAM], &[]),
            _ if self.deletes => yes(&[Change::Gone(path)], &[STREAM]),
            _ if overwrites => yes(&[Change::Contents(path)], &[STREAM]),
            _ => yes(&[], &[]),
        }
    }
}

fn ways() -> Vec<Way> {
    let columns = Column::all();
    let mut ways = Vec::new();
    for target in Target::ALL {
        for disposition in 0..=6 {
            for deletes in [false, true] {
                ways.push(Way::new(target, disposition, deletes, &columns));
            }
        }
    }
    // With all rights, and with a look at attributes alone.
    let few = [MAXIMUM_ALLOWED, 0x80].map(Column);
    for target in [Target::File, Target::NewFile, Target::ReadOnly] {
        for disposition in [1, 2, 3, 5] {
            let way = || Way::new(target, disposition, false, &few);
            for option in (0..32).map(|bit| 1 << bit) {
                // These decide what is made or goes, and have cells of their own.
                if matches!(option, 0x0000_0001 | 0x0000_1000) {
                    continue;
                }
                ways.push(way().with(format!("option {option:#x}"), move |open| {
                    open.options |= CreateOptions::from_bits_retain(option);
                }));
            }
            for attribute in (0..32).map(|bit| 1 << bit) {
                ways.push(way().with(format!("attribute {attribute:#x}"), move |open| {
                    open.attributes = FileAttributes::from_bits_retain(attribute);
                }));
            }
            ways.extend(with_contexts(way));
        }
    }
    ways
}

fn with_contexts(way: impl Fn() -> Way) -> Vec<Way> {
    let context = |name: &str, make: fn() -> CreateRequestContext<'static>| {
        way().with(format!("context {name}"), move |open| open.contexts.push(make()))
    };
    let cached = |level: OplockLevel| {
        way().with(format!("oplock {level:?}"), move |open| open.oplock_level = level)
    };
    let leased = way().with("context RqLs".to_owned(), |open| {
        open.oplock_level = OplockLevel::LEASE;
        let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let key = LeaseKey([3; 16]);
        let lease = Lease { key, state, break_in_progress: false, version };
        open.contexts.push(CreateRequestContext::Lease(lease));
    });
    vec![
        context("ExtA", || CreateRequestContext::ExtendedAttributes(EA)),
        context("SecD", || CreateRequestContext::SecurityDescriptor(DESCRIPTOR)),
        context("AlSi", || CreateRequestContext::AllocationSize(1 << 16)),
        context("MxAc", || CreateRequestContext::MaximalAccess(None)),
        context("QFid", || CreateRequestContext::QueryOnDiskId),
        context("DHnQ", || CreateRequestContext::Durable),
        context("DH2Q", || {
            let durable =
                DurableRequestV2 { timeout_ms: 1000, persistent: true, create_guid: Guid([9; 16]) };
            CreateRequestContext::DurableV2(durable)
        }),
        context("AppInstanceId", || CreateRequestContext::AppInstanceId(Guid([8; 16]))),
        context("POSIX", || CreateRequestContext::Posix { mode: 0o777 }),
        context("unknown", || CreateRequestContext::Unknown { name: b"none", data: b"of ours" }),
        cached(OplockLevel::II),
        cached(OplockLevel::EXCLUSIVE),
        cached(OplockLevel::BATCH),
        leased,
    ]
}

const STREAM: Change<'static> = Change::Contents(STREAMS);
// MS-SMB2 §2.2.13, by number.
const DISPOSITIONS: [&str; 6] =
    ["SUPERSEDE", "OPEN", "CREATE", "OPEN_IF", "OVERWRITE", "OVERWRITE_IF"];
// MS-FSCC §2.4.15: next, flags, two lengths, name, value.
const EA: &[u8] = b"\0\0\0\0\0\x03\x02\0NEW\0ea";
// MS-DTYP §2.4.6: revision 1, self-relative, with a DACL that is empty.
const DESCRIPTOR: &[u8] = b"\x01\0\x04\x80\0\0\0\0\0\0\0\0\0\0\0\0\x14\0\0\0\x02\0\x08\0\0\0\0\0";
