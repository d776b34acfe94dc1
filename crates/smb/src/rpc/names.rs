//! Which SIDs have names here, and the other way round.
//!
//! Those that security descriptors of this server hold, those that Windows shows beside them, and the server
//! itself. Users have no SIDs.
//!
//! Spec: MS-DTYP §2.4.2.4 (well-known SIDs), MS-LSAT §2.2.13 (kinds).

use aws_lc_rs::digest;

use crate::info::security::Sid;

/// A SID and what it is called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Named {
    pub(super) sid: Sid,
    pub(super) name: String,
    pub(super) domain: &'static str,
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

/// What a SID is called.
pub(super) fn name_of(sid: &Sid, server: &str) -> Option<Named> {
    all(server).find(|named| named.sid == *sid)
}

/// Which SID has that name, with or without its domain in front.
pub(super) fn sid_of(name: &str, server: &str) -> Option<Named> {
    let (domain, name) = match name.split_once('\\') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, name),
    };
    all(server).find(|named| {
        named.name.eq_ignore_ascii_case(name)
            && domain.is_none_or(|domain| named.domain.eq_ignore_ascii_case(domain))
    })
}

fn all(server: &str) -> impl Iterator<Item = Named> {
    let known = KNOWN.iter().map(|&(authority, numbers, name, domain, kind)| Named {
        sid: Sid::new(authority, numbers).expect("few"),
        name: name.to_owned(),
        domain,
        kind,
    });
    let itself =
        Named { sid: machine(server), name: server.to_owned(), domain: "", kind: Kind::Domain };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_sid_and_sids_by_name() {
        for named in all("FILES") {
            assert_eq!(name_of(&named.sid, "FILES"), Some(named.clone()));
            let full = format!("{}\\{}", named.domain, named.name.to_lowercase());
            assert_eq!(sid_of(&full, "FILES"), Some(named));
        }
        assert_eq!(name_of(&Sid::unix_user(0), "FILES").unwrap().domain, "Unix User");
        assert_eq!(sid_of("everyone", "FILES").unwrap().sid, Sid::everyone());
        assert_eq!(sid_of("OTHER\\Everyone", "FILES"), None);
        assert_eq!(name_of(&Sid::unix_user(7), "FILES"), None);
    }

    #[test]
    fn a_server_keeps_its_sid_with_its_name() {
        assert_eq!(machine("FILES"), machine("files"));
        assert_ne!(machine("FILES"), machine("OTHER"));
        assert!(machine("FILES").to_string().starts_with("S-1-5-21-"));
    }
}
