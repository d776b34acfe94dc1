//! Clients of the model, and clients that take a pushed file from each other; what befalls their server meanwhile.

use super::{
    CONTESTED, MILLISECOND, PASSWORD, RDMA, SHARE, SMB, Scenario, USER, WORK_MAX, last_line,
};
use crate::failure::Failure;
use crate::machine::ProgramNumber;
use crate::net::KEEP_ALIVE;
use crate::plan::{Plan, Work};

impl Scenario<'_> {
    /// Runs the clients, lets happen what the plan says, and looks whether all has healed and nothing is left.
    pub(super) fn clients(&mut self) -> Result<(), Failure> {
        let work = self.plan.work;
        let rivals = work.has_rivals().then(|| self.start_rivals(self.plan.rounds, &[]));
        let rivals = rivals.transpose()?;
        let model = work.has_model().then(|| self.start_model()).transpose()?;
        if !self.befall(usize::from(rivals.is_some()) + usize::from(model.is_some()))? {
            return Ok(());
        }
        for (program, name) in [(model, MODEL), (rivals, RIVALS)] {
            if let Some(program) = program
                && !self.ends_well(program, name)?
            {
                return Ok(());
            }
        }
        self.machine.net.weather = crate::net::Weather::default();
        self.machine.disk.wear = crate::disk::Wear::default();
        // A server keeps what a client had open that is gone without a word, until it learns of it.
        if self.plan.half_one_in > 0 && !self.pass(self.machine.now + KEEP_ALIVE)? {
            return Ok(());
        }
        // A server is started again to trust a disk that has failed a flush.
        if self.plan.error_one_in > 0 && !self.kill_server(false)? {
            return Ok(());
        }
        if work.has_rivals() {
            let healed = self.start_rivals(1, &["--kind", "yes"])?;
            if !self.ends_well(healed, RIVALS)? {
                return Ok(());
            }
        }
        self.look_for_rests()
    }

    fn start_model(&mut self) -> Result<ProgramNumber, Failure> {
        let Plan { seed, clients, lasts, full_one_in, half_one_in, .. } = *self.plan;
        let seconds = format!("{}.{:03}", lasts / 1_000, lasts % 1_000);
        let share = self.site.join("share").to_string_lossy().into_owned();
        let (clients, seed) = (clients.to_string(), seed.to_string());
        let user = format!("{USER}:{PASSWORD}");
        let mut words = vec![SMB, SHARE, &share, "--direct", RDMA, "--user", &user];
        words.extend(["--clients", &clients, "--seconds", &seconds, "--seed", &seed]);
        if full_one_in > 0 {
            words.extend(["--full", "yes"]);
        }
        if half_one_in > 0 {
            words.extend(["--half-open", "yes"]);
        }
        self.start_other(MODEL, &words)
    }

    fn start_rivals(&mut self, rounds: u64, more: &[&str]) -> Result<ProgramNumber, Failure> {
        let url = format!("smb://{USER}:{PASSWORD}@{SMB}/{SHARE}/{CONTESTED}");
        let (rounds, seed) = (rounds.to_string(), self.plan.seed.to_string());
        let words = [&url, "--rounds", &rounds, "--seed", &seed];
        self.start_other(RIVALS, &[&words[..], more].concat())
    }

    // Kills and pauses the server when the plan says so, until `programs` have ended; false where the server is gone.
    fn befall(&mut self, programs: usize) -> Result<bool, Failure> {
        let began = self.machine.now;
        for (at, befalls) in self.timeline() {
            if !self.pass_until(began + at * MILLISECOND, programs)? {
                return Ok(false);
            }
            if self.ended.len() >= programs {
                break;
            }
            match befalls {
                Befalls::Kill => {
                    let power = self.plan.work == Work::Rivals;
                    if !self.kill_server(power)? {
                        return Ok(false);
                    }
                }
                Befalls::Pause(length) => {
                    let until = self.machine.now + length * MILLISECOND;
                    self.machine.pause(self.server, until);
                }
            }
        }
        Ok(true)
    }

    fn pass_until(&mut self, until: u64, programs: usize) -> Result<bool, Failure> {
        while self.machine.now < until && self.ended.len() < programs {
            if !self.pass(until.min(self.machine.now + 10 * MILLISECOND))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    // What befalls the server, in order.
    fn timeline(&self) -> Vec<(u64, Befalls)> {
        let kills = self.plan.kills.iter().map(|at| (*at, Befalls::Kill));
        let pauses = self.plan.pauses.iter().map(|(at, length)| (*at, Befalls::Pause(*length)));
        let mut all: Vec<_> = kills.chain(pauses).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    // Whether a program ends and has no fault to tell.
    fn ends_well(&mut self, program: ProgramNumber, name: &str) -> Result<bool, Failure> {
        let Some(status) = self.finish(program, name, WORK_MAX)? else { return Ok(false) };
        if status == 0 || status == POISONED && self.plan.error_one_in > 0 {
            return Ok(true);
        }
        let printed = self.printed(name);
        let told = printed.lines().filter(|line| line.starts_with("FAULT")).map(str::to_owned);
        let told: Vec<_> = told.collect();
        if told.is_empty() {
            let said = last_line(&self.said(name));
            self.faults.push(format!("{name} ends with {status}: {said}"));
        }
        self.faults.extend(told);
        Ok(false)
    }
}

#[derive(Clone, Copy, Debug)]
enum Befalls {
    Kill,
    Pause(u64),
}

/// What `rivals` exits with when the disk has failed a flush.
const POISONED: i32 = 3;
const MODEL: &str = "model";
const RIVALS: &str = "rivals";
