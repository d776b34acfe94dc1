//! The server service: lists of shares, and what the server is.
//!
//! ```text
//!  NetrShareEnum in:   name ptr | level u32 | level u32 | container ptr | {count u32, array ptr} | max u32 | resume ptr
//!                out:  level u32 | level u32 | ptr | count u32 | ptr | count u32, entries, strings | total u32 |
//!                      resume ptr (null) | result u32
//! ```
//!
//! Where on the server's disk a share lies is nobody's business: levels 2 and 502 say `C:\` and its name, which
//! clients show and nobody can use. They name neither a password nor a security descriptor.
//!
//! Spec: MS-SRVS §3.1.4.

use super::host::{Host, SharedResource};
use super::ndr::{Input, Output};
use super::pdu::Fault;

/// Carries out a call.
pub(super) fn call(opnum: u16, stub: &[u8], host: &Host) -> Result<Vec<u8>, Fault> {
    let mut input = Input::new(stub);
    match opnum {
        SHARE_ENUM | SHARE_ENUM_STICKY => share_enum(&mut input, host),
        SHARE_GET_INFO => share_get_info(&mut input, host),
        SERVER_GET_INFO => server_get_info(&mut input, host),
        REMOTE_TOD => remote_tod(&mut input, host),
        _ => Err(Fault::NO_SUCH_CALL),
    }
}

// MS-SRVS §3.1.4.8.
fn share_enum(input: &mut Input<'_>, host: &Host) -> Result<Vec<u8>, Fault> {
    input.optional_string()?;
    let (level, _union) = (input.u32()?, input.u32()?);
    if input.is_there()? {
        let count = input.u32()?;
        // Nobody sends entries to be overwritten.
        if input.is_there()? && (input.u32()? != 0 || count != 0) {
            return Err(Fault::BAD_STUB_DATA);
        }
    }
    let _preferred_max = input.u32()?;
    let mut output = Output::default();
    output.u32(level);
    output.u32(level);
    let result = readable(level);
    let listed = if result == SUCCESS { host.shares.as_slice() } else { &[] };
    let count = u32::try_from(listed.len()).expect("far fewer shares than 2^32");
    output.pointer();
    output.u32(count);
    if count == 0 {
        output.u32(0);
    } else {
        output.pointer();
        output.u32(count);
        listed.iter().for_each(|share| entry(&mut output, level, share));
        output.deferred();
    }
    output.u32(count);
    output.u32(0);
    output.u32(result);
    Ok(output.into_bytes())
}

// MS-SRVS §3.1.4.10.
fn share_get_info(input: &mut Input<'_>, host: &Host) -> Result<Vec<u8>, Fault> {
    input.optional_string()?;
    let (name, level) = (input.string()?, input.u32()?);
    let share = host.shares.iter().find(|share| share.name.eq_ignore_ascii_case(&name));
    let mut output = Output::default();
    output.u32(level);
    match (readable(level), share) {
        (SUCCESS, Some(share)) => {
            output.pointer();
            entry(&mut output, level, share);
            output.deferred();
            output.u32(SUCCESS);
        }
        (refused, share) => {
            output.u32(0);
            output.u32(if share.is_none() { NO_SUCH_SHARE } else { refused });
        }
    }
    Ok(output.into_bytes())
}

// MS-SRVS §3.1.4.17.
fn server_get_info(input: &mut Input<'_>, host: &Host) -> Result<Vec<u8>, Fault> {
    input.optional_string()?;
    let level = input.u32()?;
    let mut output = Output::default();
    output.u32(level);
    if !matches!(level, 100 | 101) {
        output.u32(0);
        output.u32(if level == 102 { ACCESS_DENIED } else { INVALID_LEVEL });
        return Ok(output.into_bytes());
    }
    output.pointer();
    output.u32(PLATFORM_NT);
    output.string_pointer(&host.name);
    if level == 101 {
        [VERSION_MAJOR, VERSION_MINOR, TYPE_SERVER].into_iter().for_each(|n| output.u32(n));
        output.string_pointer(&host.comment);
    }
    output.deferred();
    output.u32(SUCCESS);
    Ok(output.into_bytes())
}

// MS-SRVS §3.1.4.21: what `net time` asks for.
fn remote_tod(input: &mut Input<'_>, host: &Host) -> Result<Vec<u8>, Fault> {
    input.optional_string()?;
    let at = host.now.civil();
    let seconds = host.now.to_unix_ns().max(0) / 1_000_000_000;
    let mut output = Output::default();
    output.pointer();
    // MS-SRVS §2.2.4.105. Counters go round.
    output.u32(low(seconds.unsigned_abs()));
    output.u32(low(host.uptime.as_millis()));
    [at.hour, at.minute, at.second, at.hundredth]
        .into_iter()
        .for_each(|n| output.u32(low(n.into())));
    // All of this is UTC, and so says the zone.
    output.u32(0);
    output.u32(CLOCK_TICK);
    [at.day, at.month, at.year, at.weekday].into_iter().for_each(|n| output.u32(low(n.into())));
    output.u32(SUCCESS);
    Ok(output.into_bytes())
}

fn low(number: u128) -> u32 {
    u32::try_from(number & u128::from(u32::MAX)).expect("masked")
}

/// MS-SRVS §2.2.4.22 to §2.2.4.26: the fixed part, its strings deferred.
fn entry(output: &mut Output, level: u32, share: &SharedResource) {
    output.string_pointer(&share.name);
    if level != 0 {
        output.u32(share.kind);
        output.string_pointer(&share.comment);
    }
    if level == 501 {
        output.u32(0);
    }
    if matches!(level, 2 | 502) {
        // Permissions (of shares before Windows NT), how many may come in, how many have.
        [0, UNLIMITED, 0].into_iter().for_each(|number| output.u32(number));
        let is_directory = share.kind == SharedResource::DIRECTORY;
        let path = if is_directory { format!("C:\\{}", share.name) } else { String::new() };
        output.string_pointer(&path);
        output.u32(0);
    }
    if level == 502 {
        [0, 0].into_iter().for_each(|number| output.u32(number));
    }
}

/// Whether anybody may read shares at a level.
fn readable(level: u32) -> u32 {
    match level {
        0..=2 | 501 | 502 => SUCCESS,
        503 => ACCESS_DENIED,
        _ => INVALID_LEVEL,
    }
}

const SHARE_ENUM: u16 = 15;
const SHARE_GET_INFO: u16 = 16;
const SERVER_GET_INFO: u16 = 21;
const REMOTE_TOD: u16 = 28;
const SHARE_ENUM_STICKY: u16 = 36;

// MS-ERREF §2.2.
const SUCCESS: u32 = 0;
const ACCESS_DENIED: u32 = 5;
const INVALID_LEVEL: u32 = 124;
const NO_SUCH_SHARE: u32 = 2310;

// In units of 0.1 ms: what Windows and Samba say.
const CLOCK_TICK: u32 = 310;
// MS-SRVS §2.2.2.4: SHI_USES_UNLIMITED.
const UNLIMITED: u32 = u32::MAX;
// MS-SRVS §2.2.2.6 and §2.2.2.7.
pub(super) const PLATFORM_NT: u32 = 500;
const TYPE_SERVER: u32 = 0x0000_0002;
// Windows 10 and Samba say so too; older ones make clients think of older ways.
pub(super) const VERSION_MAJOR: u32 = 10;
pub(super) const VERSION_MINOR: u32 = 0;
