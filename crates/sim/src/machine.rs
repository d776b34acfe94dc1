//! The machine that programs believe to run on: one thread at a time, a clock that this file moves, and nothing that
//! happens by itself.
//!
//! ```text
//! step: deliver what the network owes -> wake whose time has come -> wake who has something to read
//!    -> choose a thread -> carry out the call it stopped at -> let it compute to its next call
//! ```
//!
//! A thread stops where it makes a system call, before the kernel sees it. Which thread goes on there is the only
//! choice that a kernel makes for a program that is correct, so a run over all such choices is a run over all schedules
//! of its calls. Races of plain memory between two calls are not explored.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use crate::chance::Chance;
use crate::disk::{Disk, Flush, Wear};
use crate::failure::Failure;
use crate::net::{Net, Side, Weather};
use crate::program::Program;
use crate::trace::Trace;
use crate::tracee::{Call, Tracee};
use crate::watch::Watch;

/// The number of a program in the order of starts.
pub(crate) type ProgramNumber = usize;

/// A machine with its programs, network and clock.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Nanoseconds since the run began.
    pub(crate) now: u64,
    pub(crate) net: Net,
    pub(crate) disk: Disk,
    pub(crate) trace: Trace,
    /// Variables that programs find in their environment, beside those of every run.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) programs: Vec<Program>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) entropy: Chance,
    /// How long each call takes.
    pub(crate) jitter: Chance,
    pub(crate) inodes: BTreeMap<u64, u64>,
    /// Wall-clock seconds when the run began: what the kernel itself dates is later, and shown as the run's start.
    pub(crate) began: i64,
    /// Something has happened that a thread may have waited for.
    pub(crate) is_stirred: bool,
    /// The connection that the call under way writes to.
    pub(crate) written: Option<(usize, Side)>,
    schedule: Chance,
    switch_one_in: u64,
    current: usize,
    // Stops of threads other than the one that runs: ends, and beginnings.
    pub(crate) early: BTreeMap<Pid, WaitStatus>,
    /// Steps made.
    pub(crate) steps: u64,
    watch: Watch,
}

/// One thread of a program.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tracee: Tracee,
    pub(crate) program: ProgramNumber,
    pub(crate) state: State,
    /// It looked for work and found none: others go first.
    pub(crate) yields: bool,
    /// The step in which it began to wait.
    pub(crate) waits_since: u64,
}

/// What a thread does next.
#[derive(Debug)]
pub(crate) enum State {
    /// Computes, with a signal first.
    Computes(Option<Signal>),
    /// Makes this call.
    Calls(Call),
    /// Waits inside this call.
    Waits(Wait),
    Ended,
}

/// What a thread waits for.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) call: Call,
    pub(crate) until: Until,
    pub(crate) deadline: Option<u64>,
    /// What the call answers when the deadline has come.
    pub(crate) late: i64,
}

/// What ends a wait, but for its deadline.
#[derive(Debug)]
pub(crate) enum Until {
    /// Somebody wakes who waits at this address, which had this value.
    Woken { address: u64, value: u32, bits: u32 },
    /// One of these descriptors has something: the call is made again.
    Ready(Vec<(i32, rustix::event::PollFlags)>),
    /// Nothing.
    Never,
    /// A flush is over; its deadline says when.
    Flushed(Flush),
    /// A slow disk takes the call; its deadline says when, and it is made again.
    Taken,
}

/// How a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A program has ended, with this status.
    Ended(ProgramNumber, Option<i32>),
    /// The time that was asked for has come.
    Time,
    /// Nothing will ever happen again: all wait without a deadline.
    Stuck,
}

/// What of a run its seed has decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    pub(crate) seed: u64,
    /// At a call the machine goes on with another thread, one time in so many.
    pub(crate) switch_one_in: u64,
    pub(crate) weather: Weather,
    pub(crate) wear: Wear,
}

impl Machine {
    /// A machine without programs. `name` is no other's at this time.
    pub(crate) fn new(
        name: String,
        conditions: Conditions,
        lines: Option<File>,
    ) -> Result<Self, Failure> {
        let Conditions { seed, switch_one_in, weather, wear } = conditions;
        let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let began = began.map_or(0, |since| since.as_secs().cast_signed());
        Ok(Self {
            now: 0,
            net: Net::new(name, Chance::new(seed, 1), weather)?,
            disk: Disk::new(Chance::new(seed, 5), wear),
            trace: Trace::new(lines),
            variables: Vec::new(),
            programs: Vec::new(),
            threads: Vec::new(),
            entropy: Chance::new(seed, 2),
            jitter: Chance::new(seed, 4),
            inodes: BTreeMap::new(),
            began: began - 1,
            is_stirred: false,
            written: None,
            schedule: Chance::new(seed, 3),
            switch_one_in,
            current: 0,
            early: BTreeMap::new(),
            steps: 0,
            watch: Watch::begin(),
        })
    }

    /// Runs until something happens that the caller decides on, or the time is `until`.
    pub(crate) fn run(&mut self, until: u64) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.ended_program() {
                return Ok(event);
            }
            if self.now >= until {
                return Ok(Event::Time);
            }
            self.is_stirred |= self.net.deliver(self.now, &mut self.trace);
            self.wake_the_late()?;
            if std::mem::take(&mut self.is_stirred) {
                self.wake_the_ready()?;
            }
            let mut chosen = self.choose();
            if chosen.is_none() {
                // Calls that stop nobody may have made something ready.
                self.wake_the_ready()?;
                chosen = self.choose();
            }
            let Some(chosen) = chosen else {
                let nobody = self.programs.iter().all(|program| program.has_ended);
                let Some(next) = self.next_moment().or_else(|| nobody.then_some(until)) else {
                    return Ok(Event::Stuck);
                };
                self.now = self.now.max(next.min(until));
                continue;
            };
            self.current = chosen;
            self.steps += 1;
            self.step(chosen)?;
        }
    }

    fn ended_program(&mut self) -> Option<Event> {
        let number =
            self.programs.iter().position(|program| program.has_ended && !program.is_told)?;
        self.programs[number].is_told = true;
        Some(Event::Ended(number, self.programs[number].status))
    }

    fn choose(&mut self) -> Option<usize> {
        let now = self.now;
        let is_able = |thread: &Thread| {
            matches!(thread.state, State::Computes(_) | State::Calls(_))
                && self.programs[thread.program].paused_until <= now
        };
        let here = self.threads.get(self.current).filter(|thread| is_able(thread));
        if here.is_some_and(|thread| !thread.yields)
            && !self.schedule.happens(1, self.switch_one_in)
        {
            return Some(self.current);
        }
        let mut able: Vec<usize> = Vec::with_capacity(self.threads.len());
        able.extend(
            self.threads
                .iter()
                .enumerate()
                .filter(|(_, thread)| is_able(thread))
                .map(|(number, _)| number),
        );
        if able.iter().any(|number| !self.threads[*number].yields) {
            able.retain(|number| !self.threads[*number].yields);
        } else {
            able.iter().for_each(|number| self.threads[*number].yields = false);
        }
        (!able.is_empty()).then(|| able[self.schedule.index(able.len())])
    }

    fn next_moment(&self) -> Option<u64> {
        let deadlines = self.threads.iter().filter_map(|thread| match &thread.state {
            State::Waits(wait) => wait.deadline,
            _ => None,
        });
        let paused = self
            .programs
            .iter()
            .filter(|program| !program.has_ended)
            .map(|program| program.paused_until);
        let paused = paused.filter(|until| *until > self.now);
        deadlines.chain(self.net.next_at()).chain(paused).min()
    }

    fn wake_the_late(&mut self) -> Result<(), Failure> {
        for thread in &mut self.threads {
            if let State::Waits(wait) = &thread.state
                && wait.deadline.is_some_and(|deadline| deadline <= self.now)
            {
                if let Until::Flushed(flush) = &wait.until {
                    self.disk.ends_flush(flush);
                }
                if matches!(wait.until, Until::Taken) {
                    thread.tracee.again(&wait.call)?;
                } else {
                    thread.tracee.end(&wait.call, wait.late)?;
                }
                thread.state = State::Computes(None);
            }
        }
        Ok(())
    }

    // The kernel is asked about all descriptors at once, from here: no thread is woken for nothing.
    fn wake_the_ready(&mut self) -> Result<(), Failure> {
        let mut asked: Vec<(usize, &OwnedFd, rustix::event::PollFlags)> = Vec::new();
        for (number, thread) in self.threads.iter().enumerate() {
            if let State::Waits(Wait { until: Until::Ready(of), .. }) = &thread.state {
                let program = &self.programs[thread.program];
                asked.extend(
                    of.iter()
                        .filter_map(|(fd, what)| Some((number, program.copies.get(fd)?, *what))),
                );
            }
        }
        let mut polled: Vec<_> =
            asked.iter().map(|(_, copy, what)| rustix::event::PollFd::new(copy, *what)).collect();
        if polled.is_empty() {
            return Ok(());
        }
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default()))?;
        let is_ready = |fd: &rustix::event::PollFd<'_>| !fd.revents().is_empty();
        let ready: Vec<bool> = polled.iter().map(is_ready).collect();
        let ready = asked.iter().zip(ready).filter(|(_, is_ready)| *is_ready);
        let ready: Vec<usize> = ready.map(|((number, ..), _)| *number).collect();
        for number in ready {
            let thread = &mut self.threads[number];
            if let State::Waits(wait) = &thread.state {
                let program = &mut self.programs[thread.program];
                program.deadlines.insert(thread.tracee.tid, wait.deadline);
                // It still stands before its call, and asks once more when its turn comes: another may have been faster.
                thread.state = State::Calls(wait.call);
            }
        }
        Ok(())
    }

    fn step(&mut self, number: usize) -> Result<(), Failure> {
        let state = std::mem::replace(&mut self.threads[number].state, State::Computes(None));
        let mut may_end = false;
        let signal = match state {
            State::Calls(call) => {
                may_end = ENDS.contains(&call.number());
                self.carry_out(number, &call)?;
                if !matches!(self.threads[number].state, State::Computes(_)) {
                    return Ok(());
                }
                None
            }
            State::Computes(signal) => signal,
            waiting => {
                self.threads[number].state = waiting;
                return Ok(());
            }
        };
        let (tracee, clock) = self.at_clock(number);
        tracee.write_word(clock, self.now)?;
        let process = self.programs[self.threads[number].program].pid;
        self.watch.goes_on(self.steps, process);
        tracee.go_on(signal)?;
        // A leader that is killed is not seen to end before the others are.
        let stop = match may_end || signal.is_some() || tracee.tid == process {
            true => self.stop_of_any(tracee.tid)?,
            false => self.stop_of(tracee.tid)?,
        };
        self.watch.stops();
        // A program that has ended has no memory.
        self.now = tracee.read_word(clock).map_or(self.now, |shown| shown.max(self.now));
        if let Some((connection, side)) = self.written.take() {
            self.net.collect(self.now, connection, side);
        }
        self.stopped(number, stop)
    }

    fn at_clock(&self, number: usize) -> (Tracee, u64) {
        let Thread { tracee, program, .. } = &self.threads[number];
        (tracee.clone(), self.programs[*program].clock)
    }
}

/// Calls behind which a thread may not be there any more.
const ENDS: [i64; 4] =
    [libc::SYS_exit, libc::SYS_exit_group, libc::SYS_tgkill, libc::SYS_rt_sigreturn];
