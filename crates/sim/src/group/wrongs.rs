//! What goes wrong: kinds, and what of each a plan leaves out.

use std::fmt::{self, Display};

use crate::world::What;

/// A kind of what goes wrong. Of each, the first is number 0.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Kind(usize);

/// How often each kind has happened, or would have.
pub(crate) type Counts = [u64; NAMES.len()];

impl Kind {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..NAMES.len()).map(Self)
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES[self.0]
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().position(|of| *of == name).map(Self)
    }

    /// `None` for what goes wrong nowhere.
    pub(crate) fn of(what: &What) -> Option<Self> {
        let name = match what {
            What::Crash => "crash",
            What::Cut => "cut",
            What::Silence => "silence",
            What::Switch => "switch",
            What::Wish => "wish",
            What::OneWay => "one-way",
            What::Stop => "stop",
            What::CutWay => "cut-way",
            What::Jump => "jump",
            What::DiskFails => "disk",
            What::Damage => "damage",
            What::LoseWay(..) => "lose-way",
            What::Falls(..) => "fall",
            _ => return None,
        };
        Self::named(name)
    }

    pub(crate) fn count(self, counts: &Counts) -> u64 {
        counts[self.0]
    }

    pub(crate) fn next(self, counts: &mut Counts) -> u64 {
        let number = counts[self.0];
        counts[self.0] += 1;
        number
    }

    /// The purpose of the draws of the one with this number.
    pub(crate) fn purpose(self, number: u64) -> u64 {
        ((self.0 as u64 + 1) << 48) + number
    }
}

/// What does not happen, from a number of its kind up to before another; in order, and apart from each other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct LeftOut(Vec<(Kind, u64, u64)>);

impl LeftOut {
    pub(crate) fn has(&self, kind: Kind, number: u64) -> bool {
        self.0.iter().any(|(of, from, to)| *of == kind && (*from..*to).contains(&number))
    }

    pub(crate) fn has_all(&self, kind: Kind, from: u64, to: u64) -> bool {
        self.0.iter().any(|(of, begin, end)| *of == kind && *begin <= from && to <= *end)
    }

    pub(crate) fn add(&mut self, kind: Kind, from: u64, to: u64) {
        self.0.push((kind, from, to));
        self.0.sort_unstable();
        let mut merged: Vec<(Kind, u64, u64)> = Vec::new();
        for (kind, from, to) in self.0.drain(..) {
            match merged.last_mut() {
                Some((of, _, end)) if *of == kind && from <= *end => *end = to.max(*end),
                _ => merged.push((kind, from, to)),
            }
        }
        self.0 = merged;
    }

    /// `crash`: all of a kind; `crash:3-5`: numbers 3 and 4.
    pub(crate) fn add_text(&mut self, text: &str) -> Option<()> {
        let (name, range) = text.split_once(':').unwrap_or((text, ""));
        let kind = Kind::named(name)?;
        let (from, to) = match range {
            "" => (0, u64::MAX),
            range => {
                let (from, to) = range.split_once('-')?;
                let to = if to.is_empty() { Some(u64::MAX) } else { to.parse().ok() };
                (from.parse().ok()?, to?)
            }
        };
        self.add(kind, from, to);
        Some(())
    }
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, from, to) in &self.0 {
            let name = kind.name();
            match (*from, *to) {
                (0, u64::MAX) => write!(f, ",no={name}")?,
                (from, u64::MAX) => write!(f, ",no={name}:{from}-")?,
                (from, to) => write!(f, ",no={name}:{from}-{to}")?,
            }
        }
        Ok(())
    }
}

const NAMES: [&str; 13] = [
    "crash", "cut", "silence", "switch", "wish", "one-way", "stop", "cut-way", "jump", "disk",
    "damage", "lose-way", "fall",
];
