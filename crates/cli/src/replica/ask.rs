//! The commands that ask a running member, and its answers.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use block::BlockError;
use replica::MemberId;
use replica::core::{News, Wish};
use replica::format::Extent;
use replica::runtime::{Member, ResizeError};
use replica::view::Point;
use serde_json::{Value, json};

use super::ReplicaFailure;
use super::args::{Asked as Options, Mount, Of, ReplicaCommand, To};
use super::control::{self, Asked};
use super::group::Group;
use super::in_force::{How, InForce};
use super::show;
use super::views::Shown;
use crate::failure::Failure;
use crate::output;

/// Asks a member.
pub(super) fn run(command: &ReplicaCommand) -> Result<(), Failure> {
    match command {
        ReplicaCommand::Status(Options { of, json }) => {
            let (group, answer) = ask(of, Asked::Status)?;
            match json {
                true => say_json(&answer),
                false => output::say(&show::status(&group, &answer)),
            }
        }
        ReplicaCommand::Events(events) => {
            let Options { of, json } = &events.asked;
            let (_, answer) = ask(of, Asked::Events { since: events.since })?;
            match json {
                true => say_json(&answer),
                false => output::say(&show::events(&answer)),
            }
        }
        ReplicaCommand::Promote(promote) => tell(
            &promote.of,
            Asked::Promote { was_in_sync: promote.was_in_sync, force: promote.force },
        ),
        ReplicaCommand::Demote(of) => tell(of, Asked::Demote),
        ReplicaCommand::Reverse(to) => tell_of(to, |to| Asked::Reverse { to }),
        ReplicaCommand::Suspend(to) => tell_of(to, |member| Asked::Suspend { member }),
        ReplicaCommand::Resume(to) => tell_of(to, |member| Asked::Resume { member }),
        ReplicaCommand::Sync(to) => tell_of(to, |member| Asked::Sync { member }),
        ReplicaCommand::GoOnWithout(to) => tell_of(to, |member| Asked::GoOnWithout { member }),
        ReplicaCommand::Resize(resize) => {
            let of = Of { file: resize.file.clone(), at: resize.at.clone() };
            let wish = Asked::Resize { volume: resize.volume.clone(), size: resize.size };
            let (_, answer) = ask(&of, wish)?;
            output::say(&format!("volume {} has {} bytes\n", resize.volume, answer["bytes"]))
        }
        ReplicaCommand::Mark(mark) => {
            let of = Of { file: mark.file.clone(), at: mark.at.clone() };
            let (_, answer) = ask(&of, Asked::Mark { name: mark.name.clone() })?;
            output::say(&format!("mark {} at LSN {}\n", mark.name, answer["lsn"]))
        }
        ReplicaCommand::Points(of) => {
            let (_, answer) = ask(of, Asked::Points)?;
            output::say(&show::points(&answer))
        }
        ReplicaCommand::Mount(options) => mount(options),
        ReplicaCommand::Unmount(unmount) => {
            tell(&unmount.of, Asked::Unmount { view: unmount.view })
        }
        ReplicaCommand::Create(_)
        | ReplicaCommand::Prepare(_)
        | ReplicaCommand::Serve(_)
        | ReplicaCommand::Add(_)
        | ReplicaCommand::Remove(_)
        | ReplicaCommand::Export(_)
        | ReplicaCommand::Apply(_)
        | ReplicaCommand::Set(_)
        | ReplicaCommand::Verify(_)
        | ReplicaCommand::TestTopology(_) => Ok(()),
    }
}

fn mount(mount: &Mount) -> Result<(), Failure> {
    let of = Of { file: mount.file.clone(), at: mount.member.clone() };
    let fuse = mount.fuse.as_deref().map(std::path::absolute).transpose();
    let fuse = fuse.map_err(Failure::system("cannot name the directory"))?;
    let wish = Asked::Mount { point: mount.at.clone(), room: mount.room, fuse, loops: mount.loops };
    let (group, answer) = ask_by(&of, "--member", wish)?;
    output::say(&show::view(&group, &answer))
}

fn say_json(value: &Value) -> Result<(), Failure> {
    output::say(&format!("{value:#}\n"))
}

fn tell(of: &Of, wish: Asked) -> Result<(), Failure> {
    ask(of, wish)?;
    Ok(())
}

fn tell_of(to: &To, wish: impl FnOnce(u8) -> Asked) -> Result<(), Failure> {
    let group = Group::read(&to.file)?;
    let number = group.member(&to.member)?.number;
    tell(&Of { file: to.file.clone(), at: to.at.clone() }, wish(number))
}

/// Asks the member that is meant.
pub(super) fn ask(of: &Of, wish: Asked) -> Result<(Group, Value), ReplicaFailure> {
    ask_by(of, "--at", wish)
}

/// Asks the member that is meant by an option of this name.
fn ask_by(of: &Of, option: &'static str, wish: Asked) -> Result<(Group, Value), ReplicaFailure> {
    let group = Group::read(&of.file)?;
    let path = match &of.at {
        Some(name) => {
            let path = group.member(name)?.control();
            if let Err(error) = UnixStream::connect(&path)
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
            {
                return Err(ReplicaFailure::Away { name: name.clone(), path });
            }
            path
        }
        None => {
            let lives = |path: &std::path::PathBuf| UnixStream::connect(path).is_ok();
            let all: Vec<_> = group.file.members.iter().collect();
            let here: Vec<_> = all.iter().filter(|member| lives(&member.control())).collect();
            match &here[..] {
                [one] => one.control(),
                [] => {
                    let paths: Vec<String> =
                        all.iter().map(|it| it.control().display().to_string()).collect();
                    return Err(ReplicaFailure::Nobody(paths.join(", ")));
                }
                several => {
                    let names: Vec<&str> = several.iter().map(|it| &*it.name).collect();
                    return Err(ReplicaFailure::Several { names: names.join(", "), option });
                }
            }
        }
    };
    let answer = control::ask(&path, wish)?;
    Ok((group, answer))
}

/// What a running member answers with.
pub(super) struct Answers {
    member: Arc<Member>,
    in_force: InForce,
    name: String,
    shown: Shown,
    /// Numbers of events by which somebody was told at once that what he wanted is denied.
    answered: Mutex<Vec<u64>>,
}

impl Answers {
    pub(super) const fn new(member: Arc<Member>, group: Group, name: String, shown: Shown) -> Self {
        let in_force = InForce::new(group);
        Self { member, in_force, name, shown, answered: Mutex::new(Vec::new()) }
    }

    // What is wanted of a source is about another member.
    fn names_another(&self, wish: &Asked) -> Result<(), String> {
        let (Asked::Reverse { to: member }
        | Asked::Suspend { member }
        | Asked::Resume { member }
        | Asked::Sync { member }
        | Asked::GoOnWithout { member }
        | Asked::SetMode { member, .. }) = wish
        else {
            return Ok(());
        };
        let is_me = self.in_force.group().name_of(MemberId(*member)) == self.name;
        if is_me && self.member.report().status.is_source {
            return Err(format!("{} is the source itself: name another member", self.name));
        }
        Ok(())
    }

    /// Answers one request.
    pub(super) fn answer(&self, wish: Asked) -> Result<Value, String> {
        self.names_another(&wish)?;
        match wish {
            Asked::Status => {
                let report = self.member.report();
                Ok(show::report(&self.in_force.group(), &self.name, &report, &self.shown.numbers()))
            }
            Asked::Events { since } => {
                let group = self.in_force.group();
                let name = |member| group.name_of(member);
                Ok(self
                    .member
                    .events(since)
                    .iter()
                    .map(|noted| show::event(noted, &name))
                    .collect())
            }
            Asked::Promote { was_in_sync, force } => {
                let before = self.told();
                let wish = self.member.promotion(was_in_sync, force);
                self.wish(wish.map_err(|error| error.to_string())?)?;
                self.wait_until(before, "this member is the source", |status| status.is_ready)
            }
            Asked::Demote => {
                let before = self.told();
                self.wish(Wish::Demote)?;
                let what = "this member is no source any more";
                self.wait_until(before, what, |status| !status.is_source)
            }
            Asked::Reverse { to } => {
                let (before, nonce) = (self.told(), self.nonce()?);
                self.wish(Wish::Reverse { to: MemberId(to), nonce })?;
                let what = "this member is no source any more";
                self.wait_until(before, what, |status| !status.is_source)
            }
            Asked::Suspend { member } => {
                self.kept(Wish::Suspend(MemberId(member)))?;
                self.leaves_behind(MemberId(member))
            }
            Asked::Resume { member } => self.kept(Wish::Resume(MemberId(member))),
            Asked::Sync { member } => self.wish(Wish::Compare(MemberId(member))),
            Asked::GoOnWithout { member } => self.wish(Wish::GoOnWithout(MemberId(member))),
            Asked::SetMode { member, mode } => {
                self.wish(Wish::SetMode(MemberId(member), mode.into()))
            }
            Asked::Verify { volume } => self.verify(volume.as_deref()),
            Asked::Resize { volume, size } => self.resize(volume, size),
            Asked::Mark { name } => {
                check_mark(&name)?;
                let lsn = self.member.mark(&name).map_err(said)?;
                Ok(json!({"lsn": lsn.0}))
            }
            Asked::Points => {
                let (available, marks) =
                    self.member.available().map_err(|error| error.to_string())?;
                Ok(show::points_of(&available, &marks))
            }
            Asked::Mount { point, room, fuse, loops } => {
                let volumes = self.in_force.group().file.volumes;
                let names: Vec<String> = volumes.into_iter().map(|it| it.name).collect();
                self.shown.mount(&self.member, &names, &point, room, (fuse, loops))
            }
            Asked::Unmount { view } => self.shown.unmount(view),
            Asked::Apply { file, dry_run, others_have_it, keys } => {
                let how = How { dry_run, others_have_it, keys };
                self.in_force.take(&self.member, &self.name, *file, &how)
            }
        }
    }

    fn resize(&self, volume: String, size: u64) -> Result<Value, String> {
        let at = self.in_force.group().file.volumes.iter().position(|entry| entry.name == volume);
        let at = at.and_then(|at| u8::try_from(at).ok());
        let at = at.ok_or_else(|| ReplicaFailure::NoVolume(volume).to_string())?;
        let bytes = self.member.resize(at, size).map_err(|error| match error {
            ResizeError::Block(error) => said(error),
            error => error.to_string(),
        })?;
        Ok(json!({"bytes": bytes}))
    }

    fn nonce(&self) -> Result<u64, String> {
        self.member.nonce().map_err(|error| error.to_string())
    }

    // What is not granted at all is told at once, to who asked.
    fn wish(&self, wish: Wish) -> Result<Value, String> {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        match self.member.want_answered(wish) {
            None => Ok(Value::Null),
            Some((number, denial)) => {
                answered.retain(|of| *of + DENIALS_KEPT > number);
                answered.push(number);
                Err(denial.to_string())
            }
        }
    }

    // What was answered is so after a restart.
    fn kept(&self, wish: Wish) -> Result<Value, String> {
        self.wish(wish)?;
        match self.member.is_kept() {
            true => Ok(Value::Null),
            false => {
                Err("the storage of this member failed: it is not kept over a restart".to_owned())
            }
        }
    }

    // A source that ends before waits for the member when it starts again. Where too few would be left it stays in sync.
    fn leaves_behind(&self, member: MemberId) -> Result<Value, String> {
        let mut left = LEFT_WITHIN;
        while self.member.report().status.in_sync.contains(member) {
            if left.is_zero() {
                return Err(STAYS_IN_SYNC.to_owned());
            }
            std::thread::sleep(PAUSE);
            left = left.saturating_sub(PAUSE);
        }
        Ok(Value::Null)
    }

    /// The number of the newest event.
    fn told(&self) -> u64 {
        self.member.events(0).last().map_or(0, |noted| noted.number)
    }

    /// What was denied behind an event, and was no answer to what somebody else wanted.
    fn denied(&self, since: u64) -> Option<String> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        self.member.events(since).iter().find_map(|noted| match noted.news {
            News::Denied(denial) if !answered.contains(&noted.number) => Some(denial.to_string()),
            _ => None,
        })
    }

    // What a witness or another member does not agree to is told as an event later.
    fn wait_until(
        &self,
        before: u64,
        what: &str,
        is_so: impl Fn(&replica::core::Status) -> bool,
    ) -> Result<Value, String> {
        let mut left = WAIT;
        while !left.is_zero() {
            if is_so(&self.member.report().status) {
                return Ok(Value::Null);
            }
            if let Some(denied) = self.denied(before) {
                return Err(denied);
            }
            std::thread::sleep(PAUSE);
            left = left.saturating_sub(PAUSE);
        }
        Err(format!(
            "it is under way, and not yet so that {what}: landfast replica status shows it"
        ))
    }

    fn verify(&self, volume: Option<&str>) -> Result<Value, String> {
        let (before, sizes) = (self.told(), self.member.report().sizes);
        let volumes = self.in_force.group().file.volumes;
        let all = (0..).zip(volumes.iter().zip(sizes));
        let chosen: Vec<(u8, u64)> = all
            .filter(|(_, (entry, _))| volume.is_none_or(|name| name == entry.name))
            .map(|(number, (_, size))| (number, size))
            .collect();
        if let (Some(name), true) = (volume, chosen.is_empty()) {
            return Err(ReplicaFailure::NoVolume(name.to_owned()).to_string());
        }
        let (mut ranges, mut first, mut last) = (0_u64, None, 0);
        for (volume, size) in chosen {
            let mut offset = 0;
            while offset < size {
                let len = VERIFIED.min(size - offset);
                let lsn = self.member.verify(Extent { volume, offset, len }).map_err(said)?;
                first = first.or(Some(lsn.0));
                (ranges, last, offset) = (ranges + 1, lsn.0, offset + len);
            }
        }
        Ok(json!({"ranges": ranges, "first": first, "lsn": last, "event": before}))
    }
}

/// Whether `mount --at NAME` would find a mark of this name, and a terminal shows it as it is.
fn check_mark(name: &str) -> Result<(), String> {
    if output::shown(name) != name {
        return Err("the name of a mark has no signs that a terminal does not show".to_owned());
    }
    match name.parse::<Point>() {
        Ok(Point::Mark(of)) if of == name => Ok(()),
        Ok(point) => Err(format!("{name} is another point than a mark: {point}")),
        Err(_) => Err("a mark has a name of 1 to 255 bytes".to_owned()),
    }
}

fn said(error: BlockError) -> String {
    match error.errno() {
        ESHUTDOWN => "this member is not the source".to_owned(),
        _ => error.to_string(),
    }
}

const ESHUTDOWN: i32 = 108;
/// Bytes that one record has compared.
const VERIFIED: u64 = 4 << 20;
/// How long a change of roles is waited for.
const WAIT: Duration = Duration::from_secs(60);
/// A member is suspended, and too few would be in sync without it, or it has not stored yet that it is not.
const STAYS_IN_SYNC: &str = "the member is suspended, but still in sync: where fewer than least_in_sync would be without it, it \
is sent to until another takes its place, or least_in_sync is less; where the members are slow, status says when it has left";
/// How long a member that is suspended may take to leave the set in sync.
const LEFT_WITHIN: Duration = Duration::from_secs(2);
/// A denial is of interest for so many events.
const DENIALS_KEPT: u64 = 4096;
const PAUSE: Duration = Duration::from_millis(20);
