//! Which SIDs have names here, and the other way round.
//!
//! Those that security descriptors of this server hold, those that Windows shows beside them, the server
//! itself, and its accounts: their numbers are made from their names, so they stay the same without being kept
//! anywhere. Nothing is granted by a SID; two names may share one, by a chance of one in a thousand million.
//!
//! Spec: MS-DTYP §2.4.2.4 (well-known SIDs), MS-LSAT §2.2.13 (kinds).

use std::borrow::Cow;
use std::collections::HashMap;

use aws_lc_rs::digest;

use super::host::Host;
use crate::info::security::Sid;

/// A SID and what it is called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Named {
    pub(super) sid: Sid,
    pub(super) name: String,
    pub(super) domain: Cow<'static, str>,
    pub(super) kind: Kind,
}

/// What a SID stands for: SID_NAME_USE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    User = 1,
    Group = 2,
    Domain = 3,
    Alias = 4,
    WellKnownGroup = 5,
    Unknown = 8,
}

impl Named {
    /// The SID's domain and its number there; a domain is its own.
    pub(super) fn split(&self) -> (Sid, Option<u32>) {
        match self.sid.split().filter(|_| self.kind != Kind::Domain) {
            Some((domain, number)) => (domain, Some(number)),
            None => (self.sid.clone(), None),
        }
    }
}

/// The SID of the server as a domain of its own: the same for as long as it keeps its name.
pub(super) fn machine(server: &str) -> Sid {
    let digest = digest::digest(&digest::SHA256, server.to_lowercase().as_bytes());
    let (words, _) = digest.as_ref().as_chunks::<4>();
    let [a, b, c] = [0, 1, 2].map(|at| u32::from_le_bytes(words[at]));
    Sid::new(5, &[21, a, b, c]).expect("four are not many")
}

/// What SIDs are called. Goes through the accounts once, however many are asked for.
pub(super) fn names_of(sids: &[Sid], host: &Host) -> Vec<Option<Named>> {
    let server = machine(&host.name);
    let number_of = |sid: &Sid| match sid.split() {
        Some((domain, number)) if domain == server && number >= ACCOUNTS_FROM => Some(number),
        _ => None,
    };
    let mut accounts: HashMap<u32, Option<Named>> =
        sids.iter().filter_map(number_of).map(|number| (number, None)).collect();
    if let Some(store) = host.accounts.as_ref().filter(|_| !accounts.is_empty()) {
        let mut show = |name: &str| {
            if let Some(found) = accounts.get_mut(&account_number(name)) {
                *found = Some(account(name, host));
            }
        };
        store.each(&mut show);
        // A user that logs on with a ticket may have no password on this server.
        show(&host.caller);
    }
    let name_of = |sid: &Sid| {
        let known = all(&host.name).find(|named| named.sid == *sid);
        known.or_else(|| accounts.get(&number_of(sid)?)?.clone())
    };
    sids.iter().map(name_of).collect()
}

/// Which SID has that name, with or without its domain in front.
pub(super) fn sid_of(name: &str, host: &Host) -> Option<Named> {
    let (domain, name) = match name.split_once('\\') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, name),
    };
    let is_meant = |of: &str| domain.is_none_or(|domain| of.eq_ignore_ascii_case(domain));
    let known = all(&host.name)
        .find(|named| named.name.eq_ignore_ascii_case(name) && is_meant(&named.domain));
    known.or_else(|| {
        // An empty name is no account, though it equals the name of an anonymous caller.
        let accounts =
            host.accounts.as_ref().filter(|_| !name.is_empty() && is_meant(&host.name))?;
        let is_caller = host.caller.to_lowercase() == name.to_lowercase();
        let is_one = is_caller || accounts.lookup(name, "").is_some();
        is_one.then(|| account(name, host))
    })
}

fn account(name: &str, host: &Host) -> Named {
    let sid = machine(&host.name).join(account_number(name)).expect("five are not many");
    let domain = Cow::Owned(host.name.clone());
    Named { sid, name: name.to_owned(), domain, kind: Kind::User }
}

// FNV-1a, 32 bits, folded to 30: numbers below 1,000 are Windows's own.
fn account_number(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.to_lowercase().bytes().fold(0x811c_9dc5, step);
    ACCOUNTS_FROM + ((hash >> 30) ^ (hash & 0x3fff_ffff))
}

fn all(server: &str) -> impl Iterator<Item = Named> {
    let known = KNOWN.iter().map(|&(authority, numbers, name, domain, kind)| Named {
        sid: Sid::new(authority, numbers).expect("few"),
        name: name.to_owned(),
        domain: Cow::Borrowed(domain),
        kind,
    });
    let (name, domain) = (server.to_owned(), Cow::Borrowed(""));
    let itself = Named { sid: machine(server), name, domain, kind: Kind::Domain };
    known.chain([itself])
}

type Row = (u8, &'static [u32], &'static str, &'static str, Kind);

const KNOWN: &[Row] = &[
    (1, &[0], "Everyone", "", Kind::WellKnownGroup),
    (3, &[0], "CREATOR OWNER", "", Kind::WellKnownGroup),
    (3, &[1], "CREATOR GROUP", "", Kind::WellKnownGroup),
    (5, &[2], "NETWORK", AUTHORITY, Kind::WellKnownGroup),
    (5, &[7], "ANONYMOUS LOGON", AUTHORITY, Kind::WellKnownGroup),
    (5, &[11], "Authenticated Users", AUTHORITY, Kind::WellKnownGroup),
    (5, &[18], "SYSTEM", AUTHORITY, Kind::WellKnownGroup),
    (5, &[32], "BUILTIN", "BUILTIN", Kind::Domain),
    (5, &[32, 544], "Administrators", "BUILTIN", Kind::Alias),
    (5, &[32, 545], "Users", "BUILTIN", Kind::Alias),
    (5, &[32, 546], "Guests", "BUILTIN", Kind::Alias),
    // Owner and group of every file, as Samba names them.
    (22, &[1, 0], "root", "Unix User", Kind::User),
    (22, &[2, 0], "root", "Unix Group", Kind::Group),
];

const AUTHORITY: &str = "NT AUTHORITY";
// Where those of accounts begin on every Windows.
const ACCOUNTS_FROM: u32 = 1_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::FileTime;
    use crate::auth::UserList;

    fn host(caller: &str) -> Host {
        let mut accounts = UserList::new();
        accounts.add_password("bob", "hidden");
        Host {
            name: "FILES".into(),
            comment: String::new(),
            caller: caller.into(),
            shares: Vec::new(),
            accounts: (!caller.is_empty()).then(|| Arc::new(accounts) as _),
            now: FileTime(0),
            uptime: Duration::ZERO,
        }
    }

    fn name_of(sid: &Sid, host: &Host) -> Option<Named> {
        names_of(std::slice::from_ref(sid), host).remove(0)
    }

    #[test]
    fn names_are_found_by_sid_and_sids_by_name() {
        let host = host("alice");
        for named in all("FILES") {
            assert_eq!(name_of(&named.sid, &host), Some(named.clone()));
            let full = format!("{}\\{}", named.domain, named.name.to_lowercase());
            assert_eq!(sid_of(&full, &host), Some(named));
        }
        assert_eq!(name_of(&Sid::unix_user(0), &host).unwrap().domain, "Unix User");
        assert_eq!(sid_of("everyone", &host).unwrap().sid, Sid::everyone());
        assert_eq!(sid_of("OTHER\\Everyone", &host), None);
        assert_eq!(name_of(&Sid::unix_user(7), &host), None);
    }

    #[test]
    fn accounts_have_sids_of_the_server_for_logged_on_users() {
        let host_of_alice = host("alice");
        for name in ["bob", "BOB", "files\\Bob", "alice", "FILES\\Alice"] {
            let found = sid_of(name, &host_of_alice).unwrap();
            assert_eq!((found.kind, &*found.domain), (Kind::User, "FILES"));
            assert_eq!(found.split().0, machine("FILES"));
            let back = name_of(&found.sid, &host_of_alice).unwrap();
            assert!(back.name.eq_ignore_ascii_case(&found.name));
        }
        assert_ne!(sid_of("bob", &host_of_alice), sid_of("alice", &host_of_alice));
        for name in ["carol", "OTHER\\bob", ""] {
            assert_eq!(sid_of(name, &host_of_alice), None, "{name}");
        }
        let bob = sid_of("bob", &host_of_alice).unwrap();
        assert_eq!(sid_of("bob", &host("")), None, "a guest asks");
        assert_eq!(name_of(&bob.sid, &host("")), None);
    }

    #[test]
    fn a_server_keeps_its_sid_with_its_name() {
        assert_eq!(machine("FILES"), machine("files"));
        assert_ne!(machine("FILES"), machine("OTHER"));
        assert!(machine("FILES").to_string().starts_with("S-1-5-21-"));
    }
}
