//! The workstation service: what machine this is.
//!
//! Spec: MS-WKST §3.2.4.1.

use super::host::Host;
use super::ndr::{Input, Output};
use super::pdu::Fault;
use super::srvsvc::{PLATFORM_NT, VERSION_MAJOR, VERSION_MINOR};

/// Carries out a call.
pub(super) fn call(opnum: u16, stub: &[u8], host: &Host) -> Result<Vec<u8>, Fault> {
    if opnum != GET_INFO {
        return Err(Fault::NO_SUCH_CALL);
    }
    let mut input = Input::new(stub);
    input.optional_string()?;
    let level = input.u32()?;
    let mut output = Output::default();
    output.u32(level);
    if level != 100 {
        output.u32(0);
        output.u32(if matches!(level, 101 | 102) { ACCESS_DENIED } else { INVALID_LEVEL });
        return Ok(output.into_bytes());
    }
    output.pointer();
    output.u32(PLATFORM_NT);
    output.string_pointer(&host.name);
    output.string_pointer(WORKGROUP);
    output.u32(VERSION_MAJOR);
    output.u32(VERSION_MINOR);
    output.deferred();
    output.u32(SUCCESS);
    Ok(output.into_bytes())
}

const GET_INFO: u16 = 0;
// A server that is in no domain.
const WORKGROUP: &str = "WORKGROUP";
const SUCCESS: u32 = 0;
const ACCESS_DENIED: u32 = 5;
const INVALID_LEVEL: u32 = 124;
