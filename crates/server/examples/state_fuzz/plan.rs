//! Chooses the steps of a lockstep run.

use std::collections::BTreeMap;

use smb::create::{CreateDisposition as D, LeaseState, OplockLevel};

use crate::link::Key;
use crate::random::Random;
use crate::step::{Act, Caching, DIRECTORY, Outcome, Step, Wanted};

/// What a run is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    /// Names, links, streams, deletion, sharing, attributes, sizes.
    Names,
    /// Byte-range locks.
    Locks,
    /// Leases and oplocks.
    Leases,
}

impl Part {
    /// How many clients take turns.
    pub(crate) fn clients(self) -> usize {
        if self == Self::Leases { 3 } else { 2 }
    }
}

/// A run: what is open at both servers.
pub(crate) struct Plan {
    part: Part,
    opens: BTreeMap<usize, Opened>,
    next: usize,
    /// A file may have several names.
    is_linked: bool,
}

struct Opened {
    client: usize,
    name: String,
    access: u32,
    is_directory: bool,
    /// A deletion was asked for.
    wishes: bool,
    deletes_on_close: bool,
}

impl Plan {
    pub(crate) fn new(part: Part) -> Self {
        Self { part, opens: BTreeMap::new(), next: 0, is_linked: false }
    }

    /// The next step.
    pub(crate) fn next(&mut self, random: &mut Random) -> Step {
        match self.part {
            Part::Names => self.of_names(random),
            Part::Locks => self.of_locks(random),
            Part::Leases => self.of_leases(random),
        }
    }

    /// Takes over what both servers did.
    pub(crate) fn is_done(&mut self, step: &Step, outcome: &Outcome) {
        match step.act {
            Act::Open(Wanted { access, options, .. }) if !outcome.status.is_error() => {
                let (client, name) = (step.client, step.name.clone());
                let is_directory = outcome.said.contains(DIRECTORY);
                let deletes_on_close = options & DELETE_ON_CLOSE != 0;
                let opened =
                    Opened { client, name, access, is_directory, wishes: false, deletes_on_close };
                self.opens.insert(step.open, opened);
            }
            Act::Close => {
                let closed = self.opens.remove(&step.open);
                if closed.is_some_and(|closed| closed.deletes_on_close) {
                    self.note_wish();
                }
            }
            Act::Delete(true) if !outcome.status.is_error() => self.note_wish(),
            Act::Link { .. } if !outcome.status.is_error() => self.is_linked = true,
            _ => {}
        }
    }

    // Of which of the files that are open is not known: names are links, and change.
    fn note_wish(&mut self) {
        self.opens.values_mut().for_each(|open| open.wishes = true);
    }

    fn of_names(&mut self, random: &mut Random) -> Step {
        let Some(open) = self.choose(random, 6, 20) else { return self.open_a_name(random) };
        let Opened { name, access, is_directory, wishes, deletes_on_close, .. } =
            &self.opens[&open];
        let (is_stream, may) = (name.contains(':'), |right: u32| access & right != 0);
        let writes = may(WRITE_DATA) && !is_directory;
        let to = random.pick(PLAIN_NAMES).to_owned();
        let act = match random.below(14) {
            // smbd forgets a wish to delete with a rename, and mixes up streams that are renamed while they are open.
            3..5 if may(DELETE) && !wishes && !is_stream => {
                Act::Rename { to, replace: random.one_in(2) }
            }
            5 if !is_stream => Act::Link { to, replace: false },
            6..8 if may(DELETE) => Act::Delete(*deletes_on_close || !random.one_in(4)),
            8 if writes => Act::Write { offset: random.pick(&[0, 5]), length: 3 },
            9 if writes => Act::Size(random.pick(&[0, 2, 9])),
            10 if may(WRITE_ATTRIBUTES) && !is_stream => {
                Act::Attributes(random.pick(&[0x80, 0x20]))
            }
            11 if may(READ_ATTRIBUTES) => {
                random.pick_of(vec![Act::AskStandard, Act::AskAttributes])
            }
            12 => Act::List,
            13 if random.one_in(2) && may(READ_DATA) => Act::Read { offset: 0, length: 20 },
            13 if !is_stream => Act::AskStreams,
            _ => Act::Close,
        };
        self.about(open, act)
    }

    fn open_a_name(&mut self, random: &mut Random) -> Step {
        let name = random.pick(NAMES);
        let access = random.pick(&[
            0x0012_019f,
            0x0012_0089,
            0x0013_019f,
            0x0011_0080,
            0x80,
            0x0012_0116,
            0x0010_0081,
            0x001f_01ff,
        ]);
        let mut options = random.pick(&[0, 0, 0, 0x40]);
        if !name.contains(':') && random.one_in(4) {
            options = 1;
        }
        if access & DELETE != 0 && random.one_in(4) {
            options |= DELETE_ON_CLOSE;
        }
        let attributes = if name.contains(':') { 0 } else { random.pick(&[0, 0, 0x80, 0x20]) };
        let wanted = Wanted {
            access,
            share: random.pick(&[7, 7, 7, 7, 0, 1, 3, 5, 4, 6]),
            disposition: random.pick(if name.contains(':') {
                STREAM_DISPOSITIONS
            } else {
                DISPOSITIONS
            }),
            options,
            attributes,
            caching: Caching::Nothing,
        };
        self.opening(random.below(2), name, wanted)
    }

    fn of_locks(&mut self, random: &mut Random) -> Step {
        if self.opens.len() < 3 {
            let wanted = plain(Caching::Nothing);
            return self.opening(self.opens.len() % 2, "x", wanted);
        }
        let open = random.pick_of(self.opens.keys().copied().collect());
        let offsets = [0, 1, 2, 5, 8, 10, 16, 20, 30];
        let lengths = [0, 1, 2, 3, 6, 10, 20];
        let (far, long) = ([u64::MAX, i64::MAX as u64], [u64::MAX, u64::MAX - 1]);
        let offset = if random.one_in(8) { random.pick(&far) } else { random.pick(&offsets) };
        let length = if random.one_in(8) { random.pick(&long) } else { random.pick(&lengths) };
        let (near, few) = (random.pick(&offsets), random.pick(&[1, 2, 3, 6, 10, 20]));
        let act = match random.below(8) {
            0..3 => Act::Lock { offset, length, is_exclusive: random.one_in(2) },
            3..5 => Act::Unlock { offset, length },
            5 => Act::Read { offset: near, length: few },
            6 => Act::Write { offset: near, length: few },
            _ if random.one_in(6) => Act::Close,
            _ => Act::Lock { offset: near, length: u64::from(few), is_exclusive: true },
        };
        self.about(open, act)
    }

    fn of_leases(&mut self, random: &mut Random) -> Step {
        let Some(open) = self.choose(random, 5, 12) else {
            let client = random.below(3);
            let at = random.below(LEASED.len());
            let state = LeaseState::from_bits_retain(random.pick(&[1, 3, 5, 7]));
            let mut key = [0; 16];
            key[0] = u8::try_from(client + 1).unwrap();
            key[1] = u8::try_from(at + 1).unwrap();
            let caching = match random.below(5) {
                0 => Caching::Oplock(random.pick(&[
                    OplockLevel::II,
                    OplockLevel::EXCLUSIVE,
                    OplockLevel::BATCH,
                ])),
                _ => Caching::Lease(Key(key), state),
            };
            // smbd grants caching for a look at attributes, for what it empties, and beside opens that cache nothing, by
            // rules of its own.
            let wanted = Wanted {
                access: random.pick(&[0x0012_019f, 0x0012_0089, 0x0013_019f]),
                disposition: random.pick(&[D::OPEN_IF, D::OPEN_IF, D::OPEN]),
                ..plain(caching)
            };
            let wanted = Wanted { share: random.pick(&[7, 7, 7, 7, 3, 1]), ..wanted };
            return self.opening(client, LEASED[at], wanted);
        };
        let may = |right: u32| self.opens[&open].access & right != 0;
        let act = match random.below(8) {
            3..5 if may(WRITE_DATA) => Act::Write { offset: 0, length: 3 },
            5 if may(WRITE_DATA) => Act::Size(random.pick(&[0, 9])),
            6 if may(READ_DATA) => Act::Read { offset: 0, length: 10 },
            0..7 => Act::Close,
            _ => Act::AskStandard,
        };
        self.about(open, act)
    }

    // One of the opens, or `None` where a further one is opened: `share` of `of` times.
    fn choose(&self, random: &mut Random, share: usize, of: usize) -> Option<usize> {
        let opens_anew = random.below(of) < share && self.opens.len() < OPENS_MAX;
        if opens_anew || self.opens.is_empty() {
            return None;
        }
        Some(random.pick_of(self.opens.keys().copied().collect()))
    }

    fn opening(&mut self, client: usize, name: &str, wanted: Wanted) -> Step {
        let open = self.next;
        self.next += 1;
        self.step(client, open, name.to_owned(), Act::Open(wanted))
    }

    fn about(&self, open: usize, act: Act) -> Step {
        let Opened { client, name, .. } = &self.opens[&open];
        self.step(*client, open, name.clone(), act)
    }

    fn step(&self, client: usize, open: usize, name: String, act: Act) -> Step {
        let mut circumstances = Vec::new();
        let base = |name: &str| name.split(':').next().unwrap_or_default().to_uppercase();
        let mut others = self.opens.iter().filter(|(at, _)| **at != open).map(|(_, open)| open);
        if others.clone().any(|other| other.name.contains(':') && base(&other.name) == base(&name))
        {
            circumstances.push("a stream of it is open");
        }
        if others.any(|other| other.name.contains(':')) {
            circumstances.push("a stream is open");
        }
        if self.is_linked {
            circumstances.push("linked");
        }
        Step { client, open, name, act, circumstances }
    }
}

fn plain(caching: Caching) -> Wanted {
    let (access, share, options, attributes) = (0x0012_019f, 7, 0, 0);
    Wanted { access, share, disposition: D::OPEN_IF, options, attributes, caching }
}

const NAMES: &[&str] = &["x", "y", "X", "d", "d\\x", "x:s", "y:s", "e"];
const DISPOSITIONS: &[D] = &[
    D::SUPERSEDE,
    D::OPEN,
    D::OPEN,
    D::OPEN,
    D::CREATE,
    D::OPEN_IF,
    D::OPEN_IF,
    D::OVERWRITE,
    D::OVERWRITE_IF,
];
/// Where smbd opens a stream to overwrite it, and there is none, it makes the file.
const STREAM_DISPOSITIONS: &[D] = &[D::SUPERSEDE, D::OPEN, D::OPEN, D::CREATE, D::OPEN_IF];
const PLAIN_NAMES: &[&str] = &["x", "y", "X", "d", "d\\x", "e"];
const READ_DATA: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;
const DELETE: u32 = 0x0001_0000;
const DELETE_ON_CLOSE: u32 = 0x1000;
const LEASED: &[&str] = &["x", "y"];
/// At once.
const OPENS_MAX: usize = 10;
