//! How etcd is reached.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::names::{GroupId, MEMBERS_MAX, MemberId};

/// How a member reaches etcd.
#[derive(Clone)]
pub struct EtcdOptions {
    /// The group.
    pub group: GroupId,
    /// This member; `None` for a program of an operator, which is not alive as a member.
    pub member: Option<MemberId>,
    /// `http://` or `https://` addresses. The first one that answers is asked.
    pub endpoints: Vec<String>,
    /// Name and password, where etcd has authentication on.
    pub user: Option<(String, String)>,
    /// What `https` needs.
    pub tls: Option<EtcdTls>,
    /// After this time without a sign of life a member counts as gone. Whole seconds; etcd may make it longer.
    pub lease: Duration,
    /// How long one endpoint has to answer before the next one is asked.
    pub attempt: Duration,
}

/// Certificates as PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Whose certificates are believed.
    pub authority: Vec<u8>,
    /// The certificates of this member, its own first, and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl EtcdOptions {
    /// Without user and certificates, with a lease of [`LEASE`] and attempts of [`ATTEMPT`].
    pub fn new(group: GroupId, member: Option<MemberId>, endpoints: Vec<String>) -> Self {
        let (lease, attempt) = (LEASE, ATTEMPT);
        Self { group, member, endpoints, user: None, tls: None, lease, attempt }
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            return Err(OptionError::Endpoints { found: self.endpoints.len() });
        }
        for endpoint in &self.endpoints {
            let is_plain = endpoint.starts_with("http://");
            if !is_plain && !endpoint.starts_with("https://") {
                return Err(OptionError::Scheme { endpoint: endpoint.clone() });
            }
            if is_plain == self.tls.is_some() {
                return Err(OptionError::Tls { endpoint: endpoint.clone(), is_plain });
            }
        }
        if self.member.is_some_and(|member| member.0 >= MEMBERS_MAX) {
            return Err(OptionError::Member);
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) || self.lease.subsec_nanos() != 0 {
            return Err(OptionError::Lease { found: self.lease });
        }
        if !(ATTEMPT_MIN..=ATTEMPT_MAX).contains(&self.attempt) {
            return Err(OptionError::Attempt { found: self.attempt });
        }
        Ok(())
    }

    /// What all keys of the group begin with.
    pub fn prefix(&self) -> String {
        format!("/landfast/replica/{}/", self.group)
    }

    /// The key of the group's record.
    pub fn seat_key(&self) -> String {
        format!("{}{SEAT}", self.prefix())
    }

    /// The key that is there while a member is alive.
    pub fn alive_key(&self, member: MemberId) -> String {
        format!("{}{ALIVE}{}", self.prefix(), member.0)
    }

    /// The key that is there while nobody is promoted by itself.
    pub fn maintenance_key(&self) -> String {
        format!("{}{MAINTENANCE}", self.prefix())
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("EtcdOptions")
            .field("group", &self.group)
            .field("member", &self.member)
            .field("endpoints", &self.endpoints)
            .field("user", &user)
            .field("tls", &self.tls)
            .field("lease", &self.lease)
            .field("attempt", &self.attempt)
            .finish()
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls").finish_non_exhaustive()
    }
}

/// Why options cannot be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum OptionError {
    /// Too few or too many.
    #[error("etcd has {found} endpoints here; 1 to {ENDPOINTS_MAX} are possible")]
    Endpoints {
        /// How many.
        found: usize,
    },
    /// An address that is no URL.
    #[error("the etcd endpoint {endpoint} begins with neither http:// nor https://")]
    Scheme {
        /// Which.
        endpoint: String,
    },
    /// Certificates and addresses do not go together.
    #[error(
        "the etcd endpoint {endpoint} {}",
        if *is_plain { "is http://, which uses no certificates; write https://" }
        else { "is https://, which needs the certificate of the authority that etcd's certificates are from" }
    )]
    Tls {
        /// Which.
        endpoint: String,
        /// Whether it is `http`.
        is_plain: bool,
    },
    /// Certificates that are none.
    #[error("{what} for etcd {}: it has to be PEM", if *is_missing { "has nothing of the kind in it" } else { "cannot be read" })]
    Pem {
        /// Which.
        what: &'static str,
        /// Whether the PEM has something else in it.
        is_missing: bool,
    },
    /// No member has such a number.
    #[error("members of a group have the numbers 0 to {}", MEMBERS_MAX - 1)]
    Member,
    /// Too short or too long.
    #[error("a lease of {found:?} is not possible: it has 1 to 300 whole seconds")]
    Lease {
        /// How long.
        found: Duration,
    },
    /// Too short or too long.
    #[error("{found:?} for an endpoint to answer is not possible: it is 100 ms to 60 s")]
    Attempt {
        /// How long.
        found: Duration,
    },
}

/// How long an endpoint is waited for, unless an operator wants it otherwise.
pub const ATTEMPT: Duration = Duration::from_secs(3);
const ATTEMPT_MIN: Duration = Duration::from_millis(100);
const ATTEMPT_MAX: Duration = Duration::from_secs(60);
/// The lease, unless an operator wants another one.
pub const LEASE: Duration = Duration::from_secs(5);
/// Endpoints at most: etcd's own members are seldom more than seven.
pub const ENDPOINTS_MAX: usize = 16;
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(300);
/// Below the prefix of a group.
pub(super) const SEAT: &str = "seat";
pub(super) const ALIVE: &str = "alive/";
pub(super) const MAINTENANCE: &str = "maintenance";

#[cfg(test)]
mod tests {
    use super::*;

    fn options(endpoints: &[&str]) -> EtcdOptions {
        let endpoints = endpoints.iter().map(|it| (*it).to_owned()).collect();
        EtcdOptions::new(GroupId([0xab; 16]), Some(MemberId(1)), endpoints)
    }

    #[test]
    fn options_that_cannot_work_are_refused_with_the_reason() {
        let tls = EtcdTls { authority: Vec::new(), identity: None };
        let at = "http://127.0.0.1:2379";
        assert_eq!(options(&[at]).check(), Ok(()));
        assert_eq!(options(&[at; ENDPOINTS_MAX]).check(), Ok(()));
        let cases = [
            (options(&[]), "0 endpoints"),
            (options(&[at; ENDPOINTS_MAX + 1]), "17 endpoints"),
            (options(&["127.0.0.1:2379"]), "neither http:// nor https://"),
            (options(&["https://127.0.0.1:2379"]), "needs the certificate"),
            (EtcdOptions { tls: Some(tls), ..options(&[at]) }, "uses no certificates"),
            (EtcdOptions { member: Some(MemberId(8)), ..options(&[at]) }, "numbers 0 to 7"),
            (EtcdOptions { lease: Duration::ZERO, ..options(&[at]) }, "1 to 300"),
            (EtcdOptions { lease: Duration::from_millis(1500), ..options(&[at]) }, "whole seconds"),
            (EtcdOptions { attempt: Duration::ZERO, ..options(&[at]) }, "100 ms to 60 s"),
        ];
        for (options, says) in cases {
            let said = options.check().unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let user = Some(("alice".to_owned(), "hunter2".to_owned()));
        let said = format!("{:?}", EtcdOptions { user, ..options(&["http://127.0.0.1:1"]) });
        assert!(said.contains("alice") && !said.contains("hunter2"), "{said}");
    }
}
