//! The lives of programs and their threads: how they begin, stop and end.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::PidfdFlags;

use crate::auxiliary;
use crate::failure::Failure;
use crate::machine::{Machine, ProgramNumber, State, Thread, Until, Wait};
use crate::program::{Program, Socket};
use crate::tracee::Tracee;

impl Machine {
    /// Starts a program, which has made no step when this returns. What it prints goes to two files.
    pub(crate) fn start(
        &mut self,
        words: &[OsString],
        output: &Path,
        errors: &Path,
    ) -> Result<ProgramNumber, Failure> {
        let [output, errors] = [output, errors].map(|path| {
            let opened = File::options().create(true).append(true).open(path);
            opened.map_err(|error| Failure::io("writing", path, error))
        });
        let own = std::env::current_exe()?;
        let mut stage = Command::new(own);
        stage
            .arg("stage")
            .arg("--")
            .args(words)
            .stdin(Stdio::null())
            .stdout(output?)
            .stderr(errors?);
        stage.env_clear().env("PATH", "/usr/bin:/bin").env("RUST_BACKTRACE", "1");
        stage.env(basics::ordered::VARIABLE, "panic");
        stage.env(auxiliary::CELL_VARIABLE, auxiliary::CELL_TEXT);
        stage.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let child = stage.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        if waitpid(pid, Some(WaitPidFlag::__WALL))? != WaitStatus::Stopped(pid, Signal::SIGSTOP) {
            return Err(Failure::Unknown(
                "a program could not be traced; its output says why".into(),
            ));
        }
        ptrace::setoptions(pid, OPTIONS)?;
        loop {
            ptrace::cont(pid, None)?;
            match waitpid(pid, Some(WaitPidFlag::__WALL))? {
                WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_SECCOMP) => {}
                WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXEC) => break,
                other => {
                    return Err(Failure::Unknown(format!("{words:?} does not start: {other:?}")));
                }
            }
        }
        let memory = Tracee::open_memory(pid)?;
        let handle = rustix::process::pidfd_open(rustix_pid(pid)?, PidfdFlags::empty())?;
        let number = self.programs.len();
        let tracee = Tracee::new(pid, memory.clone());
        let clock = auxiliary::hide_what_differs(&tracee, &self.entropy)?;
        self.programs.push(Program::new(pid, handle, memory, clock));
        self.threads.push(Thread {
            tracee,
            program: number,
            state: State::Computes(None),
            yields: false,
            waits_since: 0,
        });
        self.trace.line(|| format!("{:>12} program {number} starts: {words:?}", self.now));
        Ok(number)
    }

    /// Gives no thread of a program the processor until then.
    pub(crate) fn pause(&mut self, program: ProgramNumber, until: u64) {
        self.trace.line(|| format!("{:>12} program {program} is paused until {until}", self.now));
        self.programs[program].paused_until = until;
    }

    /// Ends a program as SIGKILL does, at whatever it is doing.
    pub(crate) fn kill(&mut self, program: ProgramNumber) -> Result<(), Failure> {
        self.trace.line(|| format!("{:>12} program {program} is killed", self.now));
        kill(self.programs[program].pid, Signal::SIGKILL)?;
        self.reap(program)
    }

    /// Waits for the next stop of a thread that is there.
    pub(crate) fn stop_of(&mut self, tid: Pid) -> Result<WaitStatus, Failure> {
        match self.early.remove(&tid) {
            Some(stop) => Ok(stop),
            None => Ok(waitpid(tid, Some(WaitPidFlag::__WALL))?),
        }
    }

    /// Waits for the next stop of a thread, or its end. The kernel looks at all threads for that.
    pub(crate) fn stop_of_any(&mut self, tid: Pid) -> Result<WaitStatus, Failure> {
        if let Some(stop) = self.early.remove(&tid) {
            return Ok(stop);
        }
        // A leader is not seen to end before the other threads of its program have been.
        loop {
            let stop = waitpid(None, Some(WaitPidFlag::__WALL))?;
            match stop.pid() {
                Some(other) if other != tid => drop(self.early.insert(other, stop)),
                _ => return Ok(stop),
            }
        }
    }

    /// What a thread's stop means.
    pub(crate) fn stopped(&mut self, number: usize, stop: WaitStatus) -> Result<(), Failure> {
        let thread = &mut self.threads[number];
        match stop {
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_SECCOMP) => {
                thread.state = State::Calls(thread.tracee.call()?);
            }
            WaitStatus::PtraceEvent(tid, _, libc::PTRACE_EVENT_CLONE) => {
                let program = thread.program;
                self.adopt(tid, program)?;
            }
            WaitStatus::Stopped(_, signal) => {
                let is_counter = signal == Signal::SIGSEGV && thread.tracee.counts(self.now)?;
                thread.state = State::Computes((!is_counter).then_some(signal));
            }
            WaitStatus::Exited(tid, _) | WaitStatus::Signaled(tid, ..) => {
                thread.state = State::Ended;
                let number = thread.program;
                if tid == self.programs[number].pid {
                    return self.note_end(number, stop);
                }
                if self.programs[number].is_ending || matches!(stop, WaitStatus::Signaled(..)) {
                    return self.reap(number);
                }
                self.wake_who_joins(number)?;
            }
            other => {
                return Err(Failure::Unknown(format!(
                    "a stop that no simulation knows: {other:?}"
                )));
            }
        }
        Ok(())
    }

    fn adopt(&mut self, parent: Pid, program: ProgramNumber) -> Result<(), Failure> {
        let tid = Pid::from_raw(i32::try_from(ptrace::getevent(parent)?).unwrap_or(0));
        let tracee = Tracee::new(tid, self.programs[program].memory.clone());
        self.stop_of(tid)?;
        self.threads.push(Thread {
            tracee,
            program,
            state: State::Computes(None),
            yields: false,
            waits_since: 0,
        });
        Ok(())
    }

    // The kernel clears the word that a joiner waits at, and wakes it by itself.
    fn wake_who_joins(&mut self, program: ProgramNumber) -> Result<(), Failure> {
        for thread in self.threads.iter_mut().filter(|thread| thread.program == program) {
            if let State::Waits(Wait { call, until: Until::Woken { address, value, .. }, .. }) =
                &thread.state
                && u32::from_le_bytes(thread.tracee.read(*address)?) != *value
            {
                thread.tracee.end(call, 0)?;
                thread.state = State::Computes(None);
            }
        }
        Ok(())
    }

    /// Waits for the end of all threads of a program that ends.
    pub(crate) fn reap(&mut self, number: ProgramNumber) -> Result<(), Failure> {
        let leader = self.programs[number].pid;
        for thread in 0..self.threads.len() {
            let Thread { tracee, program, state, .. } = &self.threads[thread];
            let (tid, is_there) =
                (tracee.tid, *program == number && !matches!(state, State::Ended));
            if is_there && tid != leader {
                self.end_of(tid)?;
            }
            if is_there {
                self.threads[thread].state = State::Ended;
            }
        }
        if self.programs[number].has_ended {
            return Ok(());
        }
        let stop = self.end_of(leader)?;
        self.note_end(number, stop)
    }

    // Stops that the thread had reached before come first.
    fn end_of(&mut self, tid: Pid) -> Result<WaitStatus, Failure> {
        loop {
            let stop = self.stop_of_any(tid)?;
            if matches!(stop, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                return Ok(stop);
            }
        }
    }

    fn note_end(&mut self, number: ProgramNumber, stop: WaitStatus) -> Result<(), Failure> {
        let program = &mut self.programs[number];
        program.has_ended = true;
        program.status = if let WaitStatus::Exited(_, status) = stop { Some(status) } else { None };
        program.copies.clear();
        let status = program.status;
        self.trace.line(|| format!("{:>12} program {number} has ended: {status:?}", self.now));
        for socket in std::mem::take(&mut self.programs[number].sockets).into_values() {
            match socket {
                Socket::Listens(port) => self.net.forget_listener(port),
                Socket::Connected(connection, side) => self.net.collect(self.now, connection, side),
                Socket::Fresh | Socket::Refused => {}
            }
        }
        self.is_stirred = true;
        self.reap(number)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for number in 0..self.programs.len() {
            if !self.programs[number].has_ended {
                // The kernel ends what is left with this process (PTRACE_O_EXITKILL).
                let _ = self.kill(number);
            }
        }
    }
}

fn rustix_pid(pid: Pid) -> Result<rustix::process::Pid, Failure> {
    rustix::process::Pid::from_raw(pid.as_raw())
        .ok_or_else(|| Failure::Unknown(format!("no process: {pid}")))
}

const OPTIONS: Options = Options::PTRACE_O_TRACESYSGOOD
    .union(Options::PTRACE_O_TRACESECCOMP)
    .union(Options::PTRACE_O_TRACEEXEC)
    .union(Options::PTRACE_O_TRACECLONE)
    .union(Options::PTRACE_O_EXITKILL);
