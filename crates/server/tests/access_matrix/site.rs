//! The server that the table is tried on: ours in this process, or whichever the environment names.
//!
//! ```text
//!  LANDFAST_RIGHTS_SERVER      where it listens
//!  LANDFAST_RIGHTS_DIRECTORY   below it the directories of the shares, each named as its share
//!  LANDFAST_RIGHTS_DIFFERENCES what is known of it: see `findings`
//! ```
//!
//! It has the accounts of `people`, each with the password [`PASSWORD`], and for each share a second one of the
//! keeper's.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

use tree::Admission;

use server::{ShareConfig, Users};
use smb::NtStatus;
use smb::crypto::Cipher;
use smb::negotiate::NegotiateContext;

use crate::people::{Entry, Person, Share};
use crate::support::{Fixture, Wire};

/// A server with the shares of the table.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    /// The directories of the shares are below it.
    pub(crate) directory: PathBuf,
    /// Differences that are known, if it is another server than ours.
    pub(crate) differences: Option<PathBuf>,
    ours: Option<Fixture>,
}

impl Site {
    /// The one of the environment, or else ours.
    pub(crate) fn found() -> Self {
        let path = |name| env::var_os(name).map(PathBuf::from);
        match env::var("LANDFAST_RIGHTS_SERVER") {
            Err(_) => Self::ours(),
            Ok(address) => Self {
                address: address.parse().expect("LANDFAST_RIGHTS_SERVER is an address"),
                directory: path("LANDFAST_RIGHTS_DIRECTORY").expect("LANDFAST_RIGHTS_DIRECTORY"),
                differences: Some(
                    path("LANDFAST_RIGHTS_DIFFERENCES").expect("LANDFAST_RIGHTS_DIFFERENCES"),
                ),
                ours: None,
            },
        }
    }

    fn ours() -> Self {
        let fixture = Fixture::start_with(|config| {
            let directory = config.shares[0].path.clone();
            config.shares.clear();
            for share in Share::ALL {
                let path = directory.join(share.name());
                fs::create_dir(&path).unwrap();
                config.shares.push(ShareConfig {
                    read_only: share == Share::ReadOnly,
                    encrypt_required: share.is_sealed(),
                    users: Some(
                        [Person::Owner, Person::Writer].map(|who| who.account().into()).into(),
                    ),
                    readers: Some(vec![Person::Reader.account().into()]),
                    guests: Admission::Reading,
                    ..ShareConfig::new(share.name(), &path)
                });
                config.shares.push(ShareConfig {
                    users: Some(vec![Person::Owner.account().into()]),
                    ..ShareConfig::new(share.keepers(), path)
                });
            }
            let accounts = Person::ALL.into_iter().filter(|who| *who != Person::Guest);
            config.users =
                Users::with_passwords(accounts.map(|person| (person.account(), PASSWORD)));
        });
        Self {
            address: fixture.running.tcp_address(),
            directory: fixture.dir.path().to_owned(),
            differences: None,
            ours: Some(fixture),
        }
    }

    /// Whether it knows the SMB3 POSIX extensions and what else only our server has.
    pub(crate) fn is_ours(&self) -> bool {
        self.ours.is_some()
    }

    /// A connection of a session that has not entered a share.
    /// Of a client machine of its own: where the connections of one are served by one process, they end together.
    pub(crate) fn log_on(&self, person: Person, share: Share, is_posix: bool) -> Wire {
        static MACHINES: AtomicU8 = AtomicU8::new(100);
        let machine = MACHINES.fetch_add(1, Ordering::Relaxed);
        self.log_on_from(machine, person, share, is_posix)
    }

    fn log_on_from(&self, machine: u8, person: Person, share: Share, is_posix: bool) -> Wire {
        let mut wire = Wire::dial(self.address);
        wire.cipher = share.is_sealed().then_some(Cipher::Aes128Gcm);
        let version = NegotiateContext::Posix(NegotiateContext::POSIX_VERSION);
        wire.negotiate_with(machine, if is_posix { vec![version] } else { Vec::new() });
        wire.log_on_as(person.account(), PASSWORD);
        wire
    }

    /// Somebody in a share; outside where the table says so.
    pub(crate) fn enter(&self, person: Person, share: Share, is_posix: bool) -> Wire {
        let wire = self.log_on(person, share, is_posix);
        self.entered(wire, person, share)
    }

    /// The same from the one machine that all are on who try to be somebody else.
    pub(crate) fn enter_from_one_machine(&self, person: Person, share: Share) -> Wire {
        let wire = self.log_on_from(ONE_MACHINE, person, share, false);
        self.entered(wire, person, share)
    }

    fn entered(&self, mut wire: Wire, person: Person, share: Share) -> Wire {
        let entered = wire.enter(share.name());
        let expected = person.entry(share) != Entry::Outside;
        assert_eq!(entered == NtStatus::SUCCESS, expected, "{person:?} in {share:?}: {entered}");
        wire
    }

    /// The keeper of a share.
    pub(crate) fn keeper(&self, share: Share) -> Wire {
        let mut wire = self.log_on(Person::Owner, Share::Plain, self.is_ours());
        assert_eq!(wire.enter(&share.keepers()), NtStatus::SUCCESS, "the keeper of {share:?}");
        wire
    }
}

/// Of every account.
pub(crate) const PASSWORD: &str = "Correct-Horse-7";
/// The client machine of all who try to be somebody else.
pub(crate) const ONE_MACHINE: u8 = 1;
