//! What each system call of a program becomes.
//!
//! | calls | become |
//! |---|---|
//! | clocks, sleeps, random numbers, processors | answered here |
//! | futexes | kept here: the kernel never lets a thread wait |
//! | waits for descriptors | asked without waiting; who finds nothing waits here |
//! | TCP sockets | sockets whose other end this process holds (`sockets.rs`) |
//! | looks at files | the kernel's, with its dates and inode numbers replaced (`files.rs`) |
//! | all others | the kernel's |

use nix::sys::wait::WaitStatus;
use rustix::event::PollFlags;

use crate::failure::Failure;
use crate::machine::{Machine, State, Until, Wait};
use crate::tracee::{Call, Tracee, low_half};

impl Machine {
    /// Carries out the call that thread `number` has stopped at. The thread computes or waits afterwards.
    pub(crate) fn carry_out(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let name = call.number();
        self.now += self.cost(name);
        self.trace.note(&[self.now, number as u64, name.cast_unsigned()]);
        self.trace.line(|| {
            format!(
                "{:>12} thread {number}: call {name} ({:#x}, {:#x}, {:#x}, {:#x})",
                self.now,
                call.argument(0),
                call.argument(1),
                call.argument(2),
                call.argument(3)
            )
        });
        match name {
            libc::SYS_clock_gettime => self.tell_time(number, call),
            libc::SYS_gettimeofday | libc::SYS_time => {
                Err(Failure::Unknown("gettimeofday and time are of no program here".into()))
            }
            libc::SYS_nanosleep => self.sleep(number, call, call.argument(0), false),
            libc::SYS_clock_nanosleep => {
                self.sleep(number, call, call.argument(2), call.argument(1) & 1 == 1)
            }
            libc::SYS_futex => self.futex(number, call),
            libc::SYS_getrandom => self.fill_random(number, call),
            libc::SYS_sched_yield => {
                self.threads[number].yields = true;
                self.answer(number, call, 0)
            }
            libc::SYS_sched_getaffinity => self.tell_processors(number, call),
            libc::SYS_sched_setaffinity => self.answer(number, call, 0),
            libc::SYS_getpid => self.answer(number, call, self.shown_pid(number)),
            libc::SYS_io_uring_setup => self.answer(number, call, -i64::from(libc::ENOSYS)),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
                self.epoll(number, call)
            }
            libc::SYS_poll | libc::SYS_ppoll => self.poll(number, call),
            libc::SYS_exit_group => {
                let program = self.threads[number].program;
                self.programs[program].is_ending = true;
                Ok(())
            }
            libc::SYS_exit | libc::SYS_gettid | libc::SYS_tgkill => Ok(()),
            libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_fork | libc::SYS_vfork => {
                Err(Failure::Unknown("programs of a run start no others".into()))
            }
            libc::SYS_statx
            | libc::SYS_fstat
            | libc::SYS_newfstatat
            | libc::SYS_lstat
            | libc::SYS_stat => self.look(number, call),
            libc::SYS_open | libc::SYS_openat => self.open(number, call),
            libc::SYS_getdents64 => self.list(number, call),
            _ if self.is_of_sockets(number, call) => self.socket_call(number, call),
            libc::SYS_pwrite64 | libc::SYS_write => self.write_file(number, call),
            libc::SYS_fallocate => self.reserve(number, call),
            libc::SYS_fdatasync | libc::SYS_fsync => self.flush(number, call),
            libc::SYS_statfs | libc::SYS_fstatfs => self.tell_file_system(number, call),
            libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_msync => {
                Err(Failure::Unknown("pwritev and msync are not kept until a flush yet".into()))
            }
            libc::SYS_read
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_accept4
            | libc::SYS_flock => self.read(number, call),
            _ => {
                self.is_stirred = true;
                Ok(())
            }
        }
    }

    fn cost(&self, name: i64) -> u64 {
        let base = match name {
            libc::SYS_clock_gettime | libc::SYS_futex | libc::SYS_getrandom => 100,
            _ => 1_000,
        };
        base + self.jitter.below(base)
    }

    /// Ends the call with `answer`, without the kernel.
    pub(crate) fn answer(
        &mut self,
        number: usize,
        call: &Call,
        answer: i64,
    ) -> Result<(), Failure> {
        self.trace.note(&[answer.cast_unsigned()]);
        Ok(self.threads[number].tracee.end(call, answer)?)
    }

    /// Lets the kernel carry the call out as `call` says, and gives what it answered.
    pub(crate) fn kernel(&mut self, number: usize, call: &Call) -> Result<i64, Failure> {
        let tracee = self.threads[number].tracee.clone();
        tracee.change(call)?;
        tracee.to_end_of_call()?;
        let stop = self.stop_of(tracee.tid)?;
        if !matches!(stop, WaitStatus::PtraceSyscall(_)) {
            return Err(Failure::Unknown(format!("a call that does not end: {call:?}: {stop:?}")));
        }
        let answer = tracee.answer()?;
        self.trace.note(&[answer.cast_unsigned()]);
        self.trace.line(|| format!("{:>12} thread {number}: {answer}", self.now));
        Ok(answer)
    }

    /// Gives the thread its registers back as they were at `call`, which the kernel has carried out with others.
    pub(crate) fn restore(&self, number: usize, call: &Call, answer: i64) -> Result<(), Failure> {
        Ok(self.threads[number].tracee.end(call, answer)?)
    }

    /// Lets a thread wait.
    pub(crate) fn wait(&mut self, number: usize, wait: Wait) {
        let thread = &mut self.threads[number];
        (thread.state, thread.waits_since) = (State::Waits(wait), self.steps);
    }

    fn tracee(&self, number: usize) -> &Tracee {
        &self.threads[number].tracee
    }

    fn tell_time(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let is_wall = matches!(
            low_half(call.argument(0)),
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE
        );
        let base = if is_wall { WALL_START } else { MONOTONIC_START };
        self.tracee(number).write(call.argument(1), &timespec(base, self.now))?;
        self.answer(number, call, 0)
    }

    fn shown_pid(&self, number: usize) -> i64 {
        1_000 + i64::try_from(self.threads[number].program).unwrap_or(0)
    }

    fn tell_processors(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        self.tracee(number).write(call.argument(2), &PROCESSORS.to_le_bytes())?;
        self.answer(number, call, 8)
    }

    fn fill_random(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let len = call.argument(1).min(65_536);
        let mut out = vec![0; usize::try_from(len).unwrap_or(0)];
        self.entropy.fill(&mut out);
        self.tracee(number).write(call.argument(0), &out)?;
        self.answer(number, call, len.cast_signed())
    }

    fn sleep(
        &mut self,
        number: usize,
        call: &Call,
        time: u64,
        is_absolute: bool,
    ) -> Result<(), Failure> {
        let time = nanoseconds(self.tracee(number).read(time)?);
        let deadline =
            if is_absolute { self.moment(time, call.argument(0)) } else { self.now + time };
        self.wait(
            number,
            Wait { call: *call, until: Until::Never, deadline: Some(deadline), late: 0 },
        );
        Ok(())
    }

    /// The moment of this run that a clock shows as `shown`.
    fn moment(&self, shown: u64, clock: u64) -> u64 {
        let is_wall = matches!(low_half(clock), libc::CLOCK_REALTIME);
        shown.saturating_sub(if is_wall { WALL_START } else { MONOTONIC_START } * SECOND)
    }

    fn futex(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let operation = low_half(call.argument(1));
        let address = call.argument(0);
        match operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
            wait @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
                let value = u32::from_le_bytes(self.tracee(number).read(address)?);
                if value != low_half(call.argument(2)).cast_unsigned() {
                    return self.answer(number, call, -i64::from(libc::EAGAIN));
                }
                let is_absolute = wait == libc::FUTEX_WAIT_BITSET;
                let deadline = match call.argument(3) {
                    0 => None,
                    at => {
                        let time = nanoseconds(self.tracee(number).read(at)?);
                        let is_wall = operation & libc::FUTEX_CLOCK_REALTIME != 0;
                        let clock =
                            if is_wall { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
                        let clock = u64::from(clock.cast_unsigned());
                        Some(if is_absolute { self.moment(time, clock) } else { self.now + time })
                    }
                };
                let bits =
                    if is_absolute { low_half(call.argument(5)).cast_unsigned() } else { u32::MAX };
                let until = Until::Woken { address, value, bits };
                self.wait(
                    number,
                    Wait { call: *call, until, deadline, late: -i64::from(libc::ETIMEDOUT) },
                );
                Ok(())
            }
            wake @ (libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET) => {
                let is_chosen = wake == libc::FUTEX_WAKE_BITSET;
                let bits =
                    if is_chosen { low_half(call.argument(5)).cast_unsigned() } else { u32::MAX };
                let most = i64::from(low_half(call.argument(2)));
                let woken = self.wake(self.threads[number].program, address, bits, most)?;
                self.answer(number, call, woken)
            }
            other => {
                Err(Failure::Unknown(format!("futex operation {other} is of no program here")))
            }
        }
    }

    // In the order in which they came: the kernel's.
    fn wake(&mut self, program: usize, address: u64, bits: u32, most: i64) -> Result<i64, Failure> {
        let mut woken = 0;
        while woken < most {
            let waiting = self.threads.iter().enumerate().filter_map(|(number, thread)| {
                match &thread.state {
                    State::Waits(Wait {
                        until: Until::Woken { address: at, bits: wanted, .. },
                        ..
                    }) if thread.program == program && *at == address && wanted & bits != 0 => {
                        Some((thread.waits_since, number))
                    }
                    _ => None,
                }
            });
            let Some((_, first)) = waiting.min() else { break };
            if let State::Waits(wait) = &self.threads[first].state {
                self.threads[first].tracee.end(&wait.call, 0)?;
            }
            self.threads[first].state = State::Computes(None);
            woken += 1;
        }
        Ok(woken)
    }

    fn epoll(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let timeout = if call.number() == libc::SYS_epoll_pwait2 {
            match call.argument(3) {
                0 => None,
                at => Some(nanoseconds(self.tracee(number).read(at)?)),
            }
        } else {
            milliseconds(call.argument(3))
        };
        let of = vec![(call.descriptor(0), PollFlags::IN)];
        self.ask(number, call, timeout, of)
    }

    fn poll(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let is_ppoll = call.number() == libc::SYS_ppoll;
        let timeout = match call.argument(2) {
            0 if is_ppoll => None,
            at if is_ppoll => Some(nanoseconds(self.tracee(number).read(at)?)),
            timeout => milliseconds(timeout),
        };
        let count = usize::try_from(call.argument(1)).unwrap_or(0);
        let list = self.tracee(number).read_vec(call.argument(0), count * 8)?;
        let of = list.chunks_exact(8).map(|entry| {
            let fd = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            (fd, PollFlags::from_bits_retain(u16::from_le_bytes([entry[4], entry[5]])))
        });
        let of = of.filter(|(fd, _)| *fd >= 0).collect();
        self.ask(number, call, timeout, of)
    }

    // Who finds something asks the kernel, which answers at once; who finds nothing is answered, or waits, here.
    fn ask(
        &mut self,
        number: usize,
        call: &Call,
        timeout: Option<u64>,
        of: Vec<(i32, PollFlags)>,
    ) -> Result<(), Failure> {
        let (program, tid) = (self.threads[number].program, self.tracee(number).tid);
        let program = &mut self.programs[program];
        let earlier = program.deadlines.remove(&tid);
        if program.is_ready(&of)? {
            return Ok(());
        }
        if timeout == Some(0) {
            self.found_nothing(number);
            return self.answer(number, call, 0);
        }
        let deadline = earlier.unwrap_or_else(|| timeout.map(|timeout| self.now + timeout));
        self.wait(number, Wait { call: *call, until: Until::Ready(of), deadline, late: 0 });
        Ok(())
    }

    /// A thread has looked for work and found none. Who does so in a loop does it for a time, not for a number of rounds:
    /// each round costs this process a stop.
    pub(crate) fn found_nothing(&mut self, number: usize) {
        self.now += SPIN_COST;
        self.threads[number].yields = true;
    }

    // A read of a descriptor that would let its thread wait in the kernel waits here.
    fn read(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let (program, tid, fd) =
            (self.threads[number].program, self.tracee(number).tid, call.descriptor(0));
        let earlier = self.programs[program].deadlines.remove(&tid).flatten();
        if call.number() == libc::SYS_flock || !self.programs[program].may_wait(fd)? {
            return Ok(());
        }
        let of = vec![(fd, PollFlags::IN)];
        if !self.programs[program].is_ready(&of)? {
            let until = Until::Ready(of);
            self.wait(number, Wait { call: *call, until, deadline: earlier, late: 0 });
        }
        Ok(())
    }
}

/// Nanoseconds in a `timespec` of the kernel's.
fn nanoseconds(time: [u8; 16]) -> u64 {
    let [seconds, nanoseconds] = [&time[..8], &time[8..]].map(|half| {
        let mut word = [0; 8];
        word.copy_from_slice(half);
        i64::from_le_bytes(word).max(0).cast_unsigned()
    });
    seconds.saturating_mul(SECOND).saturating_add(nanoseconds)
}

/// Nanoseconds of a time limit in milliseconds; none where it is negative: for ever.
fn milliseconds(limit: u64) -> Option<u64> {
    u64::try_from(low_half(limit)).ok().map(|limit| limit * 1_000_000)
}

/// A `timespec`: `now` nanoseconds after a clock's start.
fn timespec(start: u64, now: u64) -> Vec<u8> {
    let (seconds, rest) = (start + now / SECOND, now % SECOND);
    [seconds.to_le_bytes(), rest.to_le_bytes()].concat()
}

/// Nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Nanoseconds that a look for work takes that finds none.
const SPIN_COST: u64 = 20_000;

/// What the monotonic clock shows when a run begins, in seconds.
pub(crate) const MONOTONIC_START: u64 = 100_000;

/// What the wall clock shows when a run begins, in seconds: 1 January 2030.
pub(crate) const WALL_START: u64 = 1_893_456_000;

/// The processors that a program sees: two.
const PROCESSORS: u64 = 0b11;
