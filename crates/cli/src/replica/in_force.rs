//! The file that a running member goes by, and what becomes of another one that it is told to take.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError, RwLock};

use replica::runtime::Member;
use serde_json::{Value, json};

use super::differences::{Difference, Way, between};
use super::group::{EntryMode, Group, GroupFile};

/// See the module.
#[derive(Debug)]
pub(super) struct InForce {
    group: RwLock<Group>,
    /// One file is taken at a time.
    taking: Mutex<()>,
}

impl InForce {
    pub(super) const fn new(group: Group) -> Self {
        Self { group: RwLock::new(group), taking: Mutex::new(()) }
    }

    pub(super) fn group(&self) -> Group {
        self.group.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what may change now of another file, and says what came of each difference.
    pub(super) fn take(
        &self,
        member: &Member,
        name: &str,
        file: GroupFile,
        how: &How,
    ) -> Result<Value, String> {
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.group();
        let new = Group::of_file(&group.path, file).map_err(|error| error.to_string())?;
        let me = group.member(name).map_err(|error| error.to_string())?.clone();
        let has = Group { file: how.runs_by(&group.file, member), ..group.clone() };
        let found = between(&has.file, &new.file, me.number);
        let judge =
            Judge { member, has: &has.file, new: &new.file, others_have_it: how.others_have_it };
        let never = found.iter().any(|it| matches!(judge.of(it), Outcome::Left("refused", _)));
        let (mut taken, mut in_force) = (has.clone(), group);
        let mut outcomes = Vec::new();
        for difference in &found {
            let mut outcome = judge.of(difference);
            // A file that cannot be this group's is taken in no part.
            if never && outcome.is_now() {
                outcome = Outcome::Left("refused", NOT_IN_PART.to_owned());
            }
            if outcome.is_now() && !how.dry_run {
                outcome = match judge.grows(difference) {
                    Err(why) => Outcome::Left("failed", why),
                    Ok(()) => Outcome::Now("changed"),
                };
            }
            if outcome == Outcome::Now("changed") {
                take_over(&mut taken.file, &new.file, difference);
                take_over(&mut in_force.file, &new.file, difference);
            }
            outcomes.push(outcome.shown(difference));
        }
        if !how.dry_run {
            // What concerns nobody's work but has to be the same for the next comparison.
            if !never {
                in_force.file.removed.clone_from(&new.file.removed);
            }
            let settings = |of: &Group| of.member(name).map(|entry| of.settings(entry));
            let before = settings(&has).map_err(|error| error.to_string())?;
            let mut settings = settings(&taken).map_err(|error| error.to_string())?;
            // A mode that is not changed stays what an operator has made of it meanwhile.
            settings.tuning.modes.retain(|mode| !before.tuning.modes.contains(mode));
            member.configure(&settings);
            *self.group.write().unwrap_or_else(PoisonError::into_inner) = in_force;
            // What it has been told it remembers.
            if !member.is_kept() {
                return Err("the changes are in force, and could not be made durable".to_owned());
            }
        }
        Ok(json!({ "member": name, "changes": outcomes }))
    }
}

/// How a file is to be taken.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) dry_run: bool,
    pub(super) others_have_it: bool,
    /// See [`super::control::Asked::Apply`].
    pub(super) keys: Vec<String>,
}

impl How {
    /// What the member runs by: its file, but for modes that an operator has changed since and that are meant now.
    fn runs_by(&self, file: &GroupFile, member: &Member) -> GroupFile {
        let (mut file, modes) = (file.clone(), member.report().modes);
        for entry in &mut file.members {
            let key = format!("member {}: mode", entry.name);
            let is_meant = self.keys.is_empty() || self.keys.contains(&key);
            let mode = modes.iter().find(|(of, _)| of.0 == entry.number);
            if let Some((_, mode)) = mode.filter(|_| is_meant) {
                entry.mode = (*mode).into();
            }
        }
        file
    }
}

/// What becomes of a difference.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Outcome {
    Now(&'static str),
    Left(&'static str, String),
}

impl Outcome {
    const fn is_now(&self) -> bool {
        matches!(self, Self::Now(_))
    }

    fn shown(&self, difference: &Difference) -> Value {
        let (outcome, why) = match self {
            Self::Now(outcome) => (*outcome, None),
            Self::Left(outcome, why) => (*outcome, Some(why)),
        };
        let Difference { key, from, to, .. } = difference;
        json!({ "key": key, "from": from, "to": to, "outcome": outcome, "why": why })
    }
}

/// Decides what may change at a member as it is now.
struct Judge<'j> {
    member: &'j Member,
    /// What the member runs by.
    has: &'j GroupFile,
    new: &'j GroupFile,
    others_have_it: bool,
}

impl Judge<'_> {
    fn of(&self, difference: &Difference) -> Outcome {
        let now = Outcome::Now("would-change");
        match difference.way {
            Way::Now => now,
            Way::Restart(why) => Outcome::Left("restart", why.to_owned()),
            Way::Never(why) => Outcome::Left("refused", why.to_owned()),
            Way::LeastInSync => self.least_in_sync(difference),
            Way::Size { volume, bytes } => {
                let has = self.member.report().sizes.get(usize::from(volume)).copied();
                let has = has.unwrap_or_default();
                let is_source = self.member.report().status.is_source;
                match () {
                    () if bytes == has => now,
                    () if bytes < has => Outcome::Left(
                        "refused",
                        format!("the volume has {has} bytes, and only grows"),
                    ),
                    () if is_source => now,
                    () => Outcome::Left(
                        "elsewhere",
                        "the source makes a volume longer, at all members: apply it there"
                            .to_owned(),
                    ),
                }
            }
        }
    }

    // A member of an earlier version lets itself be promoted after a restart without a question where its file says that no write
    // is answered without it: it must not say so while the source does otherwise.
    fn least_in_sync(&self, difference: &Difference) -> Outcome {
        let numbers = |file: &GroupFile| -> BTreeSet<u8> {
            file.members.iter().map(|entry| entry.number).collect()
        };
        // With other members the same number means something else, and members change with the next start alone.
        if numbers(self.has) != numbers(self.new) {
            return Outcome::Left("order", NOT_WITH_MEMBERS.to_owned());
        }
        let all = self.has.members.len().to_string();
        let is_source = self.member.report().status.is_source;
        let why = match (is_source, difference.from == all, difference.to == all) {
            (true, true, false) => "the other members have to have it before the source",
            (false, false, true) => "the source has to have it before the other members",
            _ => return Outcome::Now("would-change"),
        };
        match self.others_have_it {
            true => Outcome::Now("would-change"),
            false => Outcome::Left(
                "order",
                format!("{why}: apply it there, then here with --others-have-it"),
            ),
        }
    }

    /// Makes a volume longer, if that is the difference and it is not so long.
    fn grows(&self, difference: &Difference) -> Result<(), String> {
        let Way::Size { volume, bytes } = difference.way else { return Ok(()) };
        let has = self.member.report().sizes.get(usize::from(volume)).copied();
        match has == Some(bytes) {
            true => Ok(()),
            false => self.member.resize(volume, bytes).map(drop).map_err(|error| error.to_string()),
        }
    }
}

/// The value of one key that may change.
fn take_over(of: &mut GroupFile, new: &GroupFile, difference: &Difference) {
    if let Way::Size { volume, .. } = difference.way {
        let number = usize::from(volume);
        of.volumes[number].size = new.volumes[number].size;
        return;
    }
    match &*difference.key {
        "least_in_sync" => of.least_in_sync = new.least_in_sync,
        "silence_ms" => of.silence_ms = new.silence_ms,
        "window" => of.window = new.window,
        "retention_s" => of.retention_s = new.retention_s,
        "congestion" => of.congestion = new.congestion,
        "compression" => of.compression = new.compression,
        "rpo_ms" => of.rpo_ms = new.rpo_ms,
        "rpo_throttle" => of.rpo_throttle = new.rpo_throttle,
        "bandwidth" => of.bandwidth = new.bandwidth,
        "removed" => of.removed.clone_from(&new.removed),
        _ => {
            let mode_of = |name: &str| -> Option<EntryMode> {
                new.members.iter().find(|it| it.name == name).map(|it| it.mode)
            };
            let named =
                difference.key.strip_prefix("member ").and_then(|it| it.strip_suffix(": mode"));
            let entry = named.and_then(|name| of.members.iter_mut().find(|it| it.name == name));
            if let Some(entry) = entry {
                entry.mode = mode_of(&entry.name).unwrap_or(entry.mode);
            }
        }
    }
}

const NOT_WITH_MEMBERS: &str = "a file that changes the members as well is taken in two steps: this first, at all members, or the members first";
const NOT_IN_PART: &str = "a file of which something can never be this group's is taken in no part";
