//! What the kernel tells a new program about itself, without what differs from run to run.

use crate::chance::Chance;
use crate::failure::Failure;
use crate::tracee::Tracee;

/// Takes from a program that has made no step the clock that it would read without a call, and gives it other
/// random bytes.
///
/// Spec: System V ABI, AMD64 supplement, §3.4.1 (the stack of a new process).
pub(crate) fn hide_what_differs(tracee: &Tracee, entropy: &Chance) -> Result<(), Failure> {
    let mut at = tracee.stack_pointer()?;
    let word = |at: u64| tracee.read(at).map(u64::from_ne_bytes);
    let arguments = word(at)?;
    at += 8 * (arguments + 2);
    while word(at)? != 0 {
        at += 8;
    }
    at += 8;
    loop {
        match word(at)? {
            AT_NULL => return Ok(()),
            libc::AT_SYSINFO_EHDR => tracee.write(at, &AT_IGNORE.to_ne_bytes())?,
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
const AT_IGNORE: u64 = 1;
