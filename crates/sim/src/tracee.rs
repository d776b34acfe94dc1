//! One stopped thread: its registers, its memory, and how it goes on.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// A call that a thread has begun, as its registers say it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    registers: libc::user_regs_struct,
}

impl Call {
    /// The call's number.
    pub(crate) fn number(&self) -> i64 {
        self.registers.orig_rax.cast_signed()
    }

    /// Argument `at`, of six.
    pub(crate) fn argument(&self, at: usize) -> u64 {
        let registers = &self.registers;
        let all = [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ];
        all[at]
    }

    /// Argument `at` as a descriptor: the kernel looks at its low half alone.
    pub(crate) fn descriptor(&self, at: usize) -> i32 {
        low_half(self.argument(at))
    }

    /// The call with another argument `at`.
    pub(crate) fn with(mut self, at: usize, value: u64) -> Self {
        let registers = &mut self.registers;
        let place = match at {
            0 => &mut registers.rdi,
            1 => &mut registers.rsi,
            2 => &mut registers.rdx,
            3 => &mut registers.r10,
            4 => &mut registers.r8,
            _ => &mut registers.r9,
        };
        *place = value;
        self
    }

    /// Memory of the thread's stack that nothing uses: below what a function may use without moving the stack pointer.
    pub(crate) fn scratch(&self) -> u64 {
        (self.registers.rsp - 4096) & !63
    }
}

/// The low half of a register, with its sign.
#[expect(clippy::cast_possible_truncation, reason = "the kernel looks at this half alone")]
pub(crate) fn low_half(value: u64) -> i32 {
    (value as u32).cast_signed()
}

/// A thread of a traced program.
#[derive(Clone, Debug)]
pub(crate) struct Tracee {
    pub(crate) tid: Pid,
    memory: Rc<File>,
}

impl Tracee {
    /// A thread of the process `process`.
    pub(crate) fn new(tid: Pid, memory: Rc<File>) -> Self {
        Self { tid, memory }
    }

    /// The memory of a process, which is another one after it has become another program.
    pub(crate) fn open_memory(process: Pid) -> io::Result<Rc<File>> {
        File::options().read(true).write(true).open(format!("/proc/{process}/mem")).map(Rc::new)
    }

    /// Where the thread's stack begins.
    pub(crate) fn stack_pointer(&self) -> nix::Result<u64> {
        Ok(ptrace::getregs(self.tid)?.rsp)
    }

    /// The call that the thread is stopped at.
    pub(crate) fn call(&self) -> nix::Result<Call> {
        Ok(Call { registers: ptrace::getregs(self.tid)? })
    }

    /// Lets the call happen as `call` says.
    pub(crate) fn change(&self, call: &Call) -> nix::Result<()> {
        ptrace::setregs(self.tid, call.registers)
    }

    /// What the kernel answered, at the end of a call; the error as a negative number.
    pub(crate) fn answer(&self) -> nix::Result<i64> {
        Ok(ptrace::getregs(self.tid)?.rax.cast_signed())
    }

    /// Ends `call` with `answer`, whether the thread is stopped before the kernel has carried it out, which it then
    /// never does, or after it.
    pub(crate) fn end(&self, call: &Call, answer: i64) -> nix::Result<()> {
        let mut registers = call.registers;
        registers.orig_rax = u64::MAX;
        registers.rax = answer.cast_unsigned();
        ptrace::setregs(self.tid, registers)
    }

    /// Lets the thread make `call` once more, when it goes on from behind it.
    pub(crate) fn again(&self, call: &Call) -> nix::Result<()> {
        let mut registers = call.registers;
        registers.rip -= SYSCALL_INSTRUCTION;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
        ptrace::setregs(self.tid, registers)
    }

    /// Lets the thread go on to the next stop: of a call that is traced, a signal, a new thread, an end.
    pub(crate) fn go_on(&self, signal: Option<Signal>) -> nix::Result<()> {
        ptrace::cont(self.tid, signal)
    }

    /// Lets the thread go on to the end of the call that it is stopped at the beginning of.
    pub(crate) fn to_end_of_call(&self) -> nix::Result<()> {
        ptrace::syscall(self.tid, None)
    }

    /// Carries out the instruction that the thread is stopped at, if it reads the processor's counter of cycles, which
    /// shows `now` then; whether it does.
    pub(crate) fn counts(&self, now: u64) -> nix::Result<bool> {
        let mut registers = ptrace::getregs(self.tid)?;
        let code: [u8; 3] = self.read(registers.rip).unwrap_or_default();
        let len = match code {
            [0x0f, 0x31, _] => 2,    // rdtsc
            [0x0f, 0x01, 0xf9] => 3, // rdtscp
            _ => return Ok(false),
        };
        (registers.rax, registers.rdx) = (now & 0xffff_ffff, now >> 32);
        if len == 3 {
            registers.rcx = 0;
        }
        registers.rip += len;
        ptrace::setregs(self.tid, registers)?;
        Ok(true)
    }

    /// Reads a word of the memory of a thread that is stopped. A file of its memory would take longer: the kernel copies
    /// through a page of its own.
    pub(crate) fn read_word(&self, address: u64) -> nix::Result<u64> {
        ptrace::read(self.tid, pointer(address)).map(i64::cast_unsigned)
    }

    /// Writes a word of the memory of a thread that is stopped.
    pub(crate) fn write_word(&self, address: u64, word: u64) -> nix::Result<()> {
        ptrace::write(self.tid, pointer(address), word.cast_signed())
    }

    /// Reads the thread's memory.
    pub(crate) fn read<const LEN: usize>(&self, address: u64) -> io::Result<[u8; LEN]> {
        let mut out = [0; LEN];
        self.memory.read_exact_at(&mut out, address)?;
        Ok(out)
    }

    /// Reads `len` bytes of the thread's memory.
    pub(crate) fn read_vec(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut out = vec![0; len];
        self.memory.read_exact_at(&mut out, address)?;
        Ok(out)
    }

    /// Writes the thread's memory.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }
}

// Of the other process: nothing here looks there.
fn pointer(address: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// Bytes of the instruction `syscall`.
const SYSCALL_INSTRUCTION: u64 = 2;
