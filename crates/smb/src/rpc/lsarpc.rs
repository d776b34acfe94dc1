//! The local security authority: whose SID is this, and who am I.
//!
//! ```text
//!  policy handle:  0 u32 | number, 16 bytes
//!  LookupSids in:  handle | count u32, array ptr | [count u32, ptrs, SIDs] | names: count u32, ptr | level u16 | mapped u32
//!            out:  domains ptr | [count, ptr, max | [count, {name, SID ptr}, names and SIDs]] |
//!                  count u32, ptr | [count, {kind u16, name, domain i32}, names] | mapped u32 | status u32
//! ```
//!
//! Enough for clients that show who owns a file: nothing can be changed through it. LookupNames4 and LookupSids3
//! belong to the secure channel of a domain, which there is none of.
//!
//! Spec: MS-LSAD §3.1.4.4 (policies), MS-LSAT §3.1.4 (lookups).

use super::host::Host;
use super::names::{self, Kind, Named};
use super::ndr::{Input, Output};
use super::pdu::Fault;
use crate::info::security::Sid;
use crate::status::NtStatus;

/// The policies a client has opened: handles, and nothing behind them.
#[derive(Debug, Default)]
pub(super) struct Policies {
    open: Vec<u64>,
    next: u64,
}

impl Policies {
    /// Carries out a call.
    pub(super) fn call(&mut self, opnum: u16, stub: &[u8], host: &Host) -> Result<Vec<u8>, Fault> {
        let mut input = Input::new(stub);
        let mut output = Output::default();
        let status = match opnum {
            CLOSE => self.close(&mut input, &mut output)?,
            OPEN_POLICY | OPEN_POLICY_2 => self.open_policy(&mut output),
            GET_USER_NAME => get_user_name(&mut input, &mut output, host)?,
            QUERY_POLICY | QUERY_POLICY_2 => {
                self.check(&mut input)?;
                query_policy(&mut input, &mut output, host)?
            }
            LOOKUP_SIDS | LOOKUP_SIDS_2 => {
                self.check(&mut input)?;
                lookup_sids(&mut input, &mut output, host, opnum == LOOKUP_SIDS_2)?
            }
            LOOKUP_NAMES | LOOKUP_NAMES_2 | LOOKUP_NAMES_3 => {
                self.check(&mut input)?;
                lookup_names(&mut input, &mut output, host, opnum)?
            }
            _ => return Err(Fault::NO_SUCH_CALL),
        };
        output.u32(status.0);
        Ok(output.into_bytes())
    }

    // MS-LSAD §3.1.4.4.1. Whatever access is asked for, there is nothing to be done with it.
    fn open_policy(&mut self, output: &mut Output) -> NtStatus {
        if self.open.len() == POLICIES_MAX {
            output.array(&[0; HANDLE_LEN]);
            return NtStatus::INSUFFICIENT_RESOURCES;
        }
        self.next += 1;
        self.open.push(self.next);
        output.array(&handle(self.next));
        NtStatus::SUCCESS
    }

    fn close(&mut self, input: &mut Input<'_>, output: &mut Output) -> Result<NtStatus, Fault> {
        let number = self.check(input)?;
        self.open.retain(|open| *open != number);
        output.array(&[0; HANDLE_LEN]);
        Ok(NtStatus::SUCCESS)
    }

    fn check(&self, input: &mut Input<'_>) -> Result<u64, Fault> {
        let bytes: [u8; HANDLE_LEN] = input.array()?;
        let found = self.open.iter().find(|number| handle(**number) == bytes);
        found.copied().ok_or(Fault::CONTEXT_MISMATCH)
    }
}

fn handle(number: u64) -> [u8; HANDLE_LEN] {
    let mut handle = [0; HANDLE_LEN];
    handle[4..12].copy_from_slice(&number.to_le_bytes());
    handle
}

// MS-LSAD §3.1.4.4.4; §2.2.4 has the structures.
fn query_policy(
    input: &mut Input<'_>,
    output: &mut Output,
    host: &Host,
) -> Result<NtStatus, Fault> {
    let level = input.u16()?;
    if !matches!(level, PRIMARY_DOMAIN | ACCOUNT_DOMAIN | SERVER_ROLE | DNS_DOMAIN) {
        output.u32(0);
        return Ok(NtStatus::INVALID_PARAMETER);
    }
    output.pointer();
    output.u16(level);
    match level {
        PRIMARY_DOMAIN => {
            // In no domain.
            output.counted_string(WORKGROUP);
            output.sid_pointer(None);
        }
        ACCOUNT_DOMAIN => {
            output.counted_string(&host.name);
            output.sid_pointer(Some(&names::machine(&host.name)));
        }
        SERVER_ROLE => output.u32(ROLE_PRIMARY),
        _ => {
            [WORKGROUP, "", ""].into_iter().for_each(|name| output.counted_string(name));
            output.array(&[0; 16]);
            output.sid_pointer(None);
        }
    }
    output.deferred();
    Ok(NtStatus::SUCCESS)
}

// MS-LSAT §3.1.4.4.
fn get_user_name(
    input: &mut Input<'_>,
    output: &mut Output,
    host: &Host,
) -> Result<NtStatus, Fault> {
    input.optional_string()?;
    // Room for a name that nobody sends, then whether the domain is asked for.
    if input.is_there()? {
        return Err(Fault::BAD_STUB_DATA);
    }
    let wants_domain = input.is_there()?;
    let (user, domain) = match host.caller.as_str() {
        "" => ("ANONYMOUS LOGON", "NT AUTHORITY"),
        user => (user, host.name.as_str()),
    };
    output.pointer();
    output.counted_string(user);
    output.deferred();
    if wants_domain {
        output.pointer();
        output.pointer();
        output.counted_string(domain);
        output.deferred();
    } else {
        output.u32(0);
    }
    Ok(NtStatus::SUCCESS)
}

// MS-LSAT §3.1.4.10, §3.1.4.11.
fn lookup_sids(
    input: &mut Input<'_>,
    output: &mut Output,
    host: &Host,
    is_extended: bool,
) -> Result<NtStatus, Fault> {
    let count = input.u32()?;
    let mut sids = Vec::new();
    if input.is_there()? {
        let len = elements(input, count)?;
        for _ in 0..len {
            if !input.is_there()? {
                return Err(Fault::BAD_STUB_DATA);
            }
        }
        for _ in 0..len {
            sids.push(input.sid()?);
        }
    } else if count != 0 {
        return Err(Fault::BAD_STUB_DATA);
    }
    let found = names::names_of(&sids, host);
    let domains = Domains::of(&found, host);
    domains.emit(output);
    list(output, sids.len(), |output| {
        for (sid, named) in sids.iter().zip(&found) {
            output.u16(kind(named.as_ref()));
            match named {
                Some(named) => output.counted_string(&named.name),
                None => output.counted_string(&sid.to_string()),
            }
            output.u32(domains.index(named.as_ref()));
            if is_extended {
                output.u32(0);
            }
        }
    });
    Ok(mapped(output, &found))
}

// MS-LSAT §3.1.4.6 to §3.1.4.8.
fn lookup_names(
    input: &mut Input<'_>,
    output: &mut Output,
    host: &Host,
    opnum: u16,
) -> Result<NtStatus, Fault> {
    let count = input.u32()?;
    let len = elements(input, count)?;
    let mut are_there = Vec::new();
    for _ in 0..len {
        // Length and room; the string says both again.
        input.u32()?;
        are_there.push(input.is_there()?);
    }
    let mut found = Vec::new();
    for is_there in are_there {
        let name = if is_there { input.string()? } else { String::new() };
        found.push(names::sid_of(&name, host));
    }
    let domains = Domains::of(&found, host);
    domains.emit(output);
    list(output, found.len(), |output| {
        for named in &found {
            let named = named.as_ref();
            output.u16(kind(named));
            if opnum == LOOKUP_NAMES_3 {
                output.sid_pointer(named.map(|named| &named.sid));
            } else {
                let number = named.and_then(|named| named.split().1);
                output.u32(number.unwrap_or(u32::MAX));
            }
            output.u32(domains.index(named));
            if opnum != LOOKUP_NAMES {
                output.u32(0);
            }
        }
    });
    Ok(mapped(output, &found))
}

/// The length of a conformant array, which has been said before.
fn elements(input: &mut Input<'_>, count: u32) -> Result<usize, Fault> {
    let is_right = input.u32()? == count && count <= LOOKUPS_MAX;
    usize::try_from(count).ok().filter(|_| is_right).ok_or(Fault::BAD_STUB_DATA)
}

/// A count and a pointer to as many entries.
fn list(output: &mut Output, len: usize, entries: impl FnOnce(&mut Output)) {
    let count = u32::try_from(len).expect("at most LOOKUPS_MAX");
    output.u32(count);
    if count == 0 {
        output.u32(0);
        return;
    }
    output.pointer();
    output.u32(count);
    entries(output);
    output.deferred();
}

fn kind(named: Option<&Named>) -> u16 {
    named.map_or(Kind::Unknown, |named| named.kind) as u16
}

fn mapped(output: &mut Output, found: &[Option<Named>]) -> NtStatus {
    let count = found.iter().flatten().count();
    output.u32(u32::try_from(count).expect("at most LOOKUPS_MAX"));
    match (count, found.len()) {
        (0, 1..) => NtStatus::NONE_MAPPED,
        (count, len) if count < len => NtStatus::SOME_NOT_MAPPED,
        _ => NtStatus::SUCCESS,
    }
}

/// The domains that an answer's names belong to.
struct Domains(Vec<(String, Sid)>);

impl Domains {
    fn of(found: &[Option<Named>], host: &Host) -> Self {
        let mut domains = Vec::new();
        for named in found.iter().flatten() {
            let domain = Self::domain(named, host);
            if !domains.contains(&domain) {
                domains.push(domain);
            }
        }
        Self(domains)
    }

    fn domain(named: &Named, host: &Host) -> (String, Sid) {
        let is_host = named.kind == Kind::Domain && named.domain.is_empty();
        let name = if is_host { host.name.clone() } else { named.domain.to_string() };
        (name, named.split().0)
    }

    fn index(&self, named: Option<&Named>) -> u32 {
        let is_its = |(name, sid): &(String, Sid), named: &Named| {
            *sid == named.split().0 && (*name == named.domain || named.kind == Kind::Domain)
        };
        let at = named.and_then(|named| self.0.iter().position(|domain| is_its(domain, named)));
        at.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX)
    }

    fn emit(&self, output: &mut Output) {
        let count = u32::try_from(self.0.len()).expect("at most LOOKUPS_MAX");
        output.pointer();
        output.u32(count);
        if count == 0 {
            output.u32(0);
            output.u32(0);
            return;
        }
        output.pointer();
        output.u32(DOMAINS_MAX);
        output.u32(count);
        for (name, sid) in &self.0 {
            output.counted_string(name);
            output.sid_pointer(Some(sid));
        }
        output.deferred();
    }
}

const CLOSE: u16 = 0;
const OPEN_POLICY: u16 = 6;
const QUERY_POLICY: u16 = 7;
const LOOKUP_NAMES: u16 = 14;
const LOOKUP_SIDS: u16 = 15;
const OPEN_POLICY_2: u16 = 44;
const GET_USER_NAME: u16 = 45;
const QUERY_POLICY_2: u16 = 46;
const LOOKUP_SIDS_2: u16 = 57;
const LOOKUP_NAMES_2: u16 = 58;
const LOOKUP_NAMES_3: u16 = 68;

// MS-LSAD §2.2.4.1.
const PRIMARY_DOMAIN: u16 = 3;
const ACCOUNT_DOMAIN: u16 = 5;
const SERVER_ROLE: u16 = 6;
const DNS_DOMAIN: u16 = 12;
const ROLE_PRIMARY: u32 = 3;
const WORKGROUP: &str = "WORKGROUP";

const HANDLE_LEN: usize = 20;
/// Clients open one at a time.
const POLICIES_MAX: usize = 16;
/// What Windows takes at a time; here the length of a request is the closer bound.
const LOOKUPS_MAX: u32 = 1000;
// MS-LSAT §2.2.12: MaxEntries, which is to be ignored.
const DOMAINS_MAX: u32 = 32;
