//! What the kernel tells a new program about itself, without what differs from run to run.
//!
//! A kernel gives each program code that reads the clocks without a call (the vDSO). A simulated program has code of
//! ours there, which reads a word of its own stack: this run's time, written there before the program goes on.

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

use crate::calls::{MONOTONIC_START, SECOND, WALL_START};
use crate::chance::Chance;
use crate::failure::Failure;
use crate::tracee::Tracee;

/// The variable of a program's environment whose text is where its time is written.
pub(crate) const CELL_VARIABLE: &str = "LANDFAST_SIM_CLOCK";

/// Text that is long enough for a word at a multiple of eight.
pub(crate) const CELL_TEXT: &str = "................";

/// Gives a program that has made no step this run's clock and random bytes. Returns where its time is written.
///
/// Spec: System V ABI, AMD64 supplement, §3.4.1 (the stack of a new process).
pub(crate) fn hide_what_differs(tracee: &Tracee, entropy: &Chance) -> Result<u64, Failure> {
    let mut at = tracee.stack_pointer()?;
    let word = |at: u64| tracee.read(at).map(u64::from_le_bytes);
    at += 8 * (word(at)? + 2);
    let mut cell = None;
    while word(at)? != 0 {
        let variable = word(at)?;
        let name: [u8; CELL_VARIABLE.len()] = tracee.read(variable)?;
        if name == *CELL_VARIABLE.as_bytes() {
            cell = Some((variable + CELL_VARIABLE.len() as u64 + 1).next_multiple_of(8));
        }
        at += 8;
    }
    let cell =
        cell.ok_or_else(|| Failure::Unknown(format!("a program without {CELL_VARIABLE}")))?;
    at += 8;
    loop {
        match word(at)? {
            AT_NULL => return Ok(cell),
            libc::AT_SYSINFO_EHDR => replace_clocks(tracee, word(at + 8)?, cell)?,
            libc::AT_RANDOM => {
                let mut random = [0; 16];
                entropy.fill(&mut random);
                tracee.write(word(at + 8)?, &random)?;
            }
            _ => {}
        }
        at += 16;
    }
}

const AT_NULL: u64 = 0;

// Spec: Linux, vdso(7), the functions of x86-64.
fn replace_clocks(tracee: &Tracee, base: u64, cell: u64) -> Result<(), Failure> {
    let image = tracee.read_vec(base, VDSO_LEN)?;
    let odd = |error: object::Error| Failure::Unknown(format!("the kernel's vDSO: {error}"));
    let header = FileHeader64::<Endianness>::parse(&*image).map_err(odd)?;
    let endian = header.endian().map_err(odd)?;
    let sections = header.sections(endian, &*image).map_err(odd)?;
    let symbols = sections.symbols(endian, &*image, elf::SHT_DYNSYM).map_err(odd)?;
    for symbol in symbols.iter() {
        let name = symbol.name(endian, symbols.strings()).map_err(odd)?;
        let code = match name {
            b"__vdso_clock_gettime" => clock(cell),
            b"__vdso_gettimeofday" => system_call(libc::SYS_gettimeofday),
            b"__vdso_time" => system_call(libc::SYS_time),
            b"__vdso_clock_getres" => system_call(libc::SYS_clock_getres),
            b"__vdso_getcpu" => system_call(libc::SYS_getcpu),
            // It would keep random bytes in the program.
            b"__vdso_getrandom" => NOT_THERE.to_vec(),
            _ => continue,
        };
        if symbol.st_size(endian) < code.len() as u64 {
            let name = String::from_utf8_lossy(name);
            return Err(Failure::Unknown(format!(
                "the kernel's {name} is shorter than what replaces it"
            )));
        }
        tracee.write(base + symbol.st_value(endian), &code)?;
    }
    Ok(())
}

/// More than any kernel's vDSO has before its section headers end; the last page is not always whole.
const VDSO_LEN: usize = 8192;

/// `mov eax, number; syscall; ret`
fn system_call(number: i64) -> Vec<u8> {
    let number = i32::try_from(number).unwrap_or(-1);
    [&[0xb8], &number.to_le_bytes()[..], &[0x0f, 0x05, 0xc3]].concat()
}

/// `mov eax, -ENOSYS; ret`
const NOT_THERE: [u8; 6] = [0xb8, 0xda, 0xff, 0xff, 0xff, 0xc3];

/// `clock_gettime`: each look at the clock takes [`LOOK_COST`], so a loop that waits for a time ends.
fn clock(cell: u64) -> Vec<u8> {
    let (wall, monotonic) = (WALL_START * SECOND, MONOTONIC_START * SECOND);
    [
        &[0x49, 0xb8], // movabs r8, cell
        &cell.to_le_bytes()[..],
        &[0x49, 0x8b, 0x00],            // mov rax, [r8]
        &[0x48, 0x83, 0xc0, LOOK_COST], // add rax, LOOK_COST
        &[0x49, 0x89, 0x00],            // mov [r8], rax
        &[0x48, 0xb9],                  // movabs rcx, wall
        &wall.to_le_bytes(),
        &[0x85, 0xff, 0x74, 0x0f], // test edi, edi; je +15 (CLOCK_REALTIME)
        &[0x83, 0xff, 0x05, 0x74, 0x0a], // cmp edi, 5; je +10 (CLOCK_REALTIME_COARSE)
        &[0x48, 0xb9],             // movabs rcx, monotonic
        &monotonic.to_le_bytes(),
        &[0x48, 0x01, 0xc8],             // add rax, rcx
        &[0x31, 0xd2],                   // xor edx, edx
        &[0xb9, 0x00, 0xca, 0x9a, 0x3b], // mov ecx, 1_000_000_000
        &[0x48, 0xf7, 0xf1],             // div rcx
        &[0x48, 0x89, 0x06],             // mov [rsi], rax
        &[0x48, 0x89, 0x56, 0x08],       // mov [rsi + 8], rdx
        &[0x31, 0xc0, 0xc3],             // xor eax, eax; ret
    ]
    .concat()
}

/// Nanoseconds that a look at the clock takes.
const LOOK_COST: u8 = 100;
