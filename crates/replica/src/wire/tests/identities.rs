//! Who gets through, and what those are told who do not.

use std::path::Path;

use super::ends::{ED25519, GROUP, LONG, P256, RSA, SECRET, certify, listen, member, reach};
use crate::message::Message;
use crate::names::{GroupId, MemberId, MemberSet};
use crate::wire::{Denial, Fingerprint, Identity, IdentityError, LinkError};

const ALL: MemberSet = MemberSet(0b111);

fn certified(
    directory: &Path,
    name: &str,
    (group, me): (GroupId, u8),
    members: &[(u8, Fingerprint)],
) -> Result<Identity, IdentityError> {
    let members: Vec<_> = members.iter().map(|(member, key)| (MemberId(*member), *key)).collect();
    let file = |ending| directory.join(format!("{name}.{ending}"));
    Identity::from_certificates(group, MemberId(me), &file("pem"), &file("key"), &members)
}

#[test]
fn members_with_one_secret_reach_each_other() {
    let (listening, links) = listen(member(1));
    for me in [0, 2] {
        let (mut sender, _receiver) = reach(&listening, &member(me), 1).unwrap().split();
        sender.send(&Message::Alive, &[]).unwrap();
        let link = links.recv_timeout(LONG).unwrap();
        assert_eq!(link.member(), MemberId(me));
        assert_eq!(link.split().1.receive().unwrap(), (Message::Alive, 0));
    }
}

#[test]
fn a_member_with_another_secret_is_refused_at_both_ends() {
    let (listening, links) = listen(member(1));
    let other = Identity::from_secret(GROUP, MemberId(0), ALL, b"another secret ...").unwrap();
    let refused = reach(&listening, &other, 1).unwrap_err();
    let LinkError::PeerKey(key) = refused else { panic!("{refused}") };
    assert_eq!(key, member(1).fingerprint());
    assert!(refused.to_string().contains(&key.to_string()));
    drop(listening);
    assert!(links.recv_timeout(LONG).is_err(), "no link came");
}

#[test]
fn a_member_of_another_group_is_refused_though_it_has_the_secret() {
    let (listening, links) = listen(member(1));
    let other = Identity::from_secret(GroupId([1; 16]), MemberId(0), ALL, SECRET).unwrap();
    let refused = reach(&listening, &other, 1).unwrap_err();
    assert!(matches!(refused, LinkError::PeerRefusesKey), "{refused}");
    drop(listening);
    assert!(links.recv_timeout(LONG).is_err(), "no link came");
}

#[test]
fn numbers_that_cannot_be_are_refused_by_name() {
    let (listening, links) = listen(member(1));
    let claims = |me, members, to| {
        let identity = Identity::from_secret(GROUP, MemberId(me), MemberSet(members), SECRET);
        reach(&listening, &identity.unwrap(), to).unwrap_err()
    };
    // Two members that are member 1.
    let refused = claims(1, 0b111, 2);
    assert!(matches!(refused, LinkError::PeerIsMe(MemberId(1))), "{refused}");
    // A member that the group does not have.
    let refused = claims(5, 0b10_0010, 1);
    assert!(matches!(refused, LinkError::PeerDenies(Denial::Unknown)), "{refused}");
    // The member at the address is another one.
    let refused = claims(0, 0b111, 2);
    let others =
        matches!(refused, LinkError::PeerOther { wanted: MemberId(2), found: MemberId(1) });
    assert!(others, "{refused}");
    // Nobody dials itself, or whom the group does not have.
    for to in [0, 3, 8, 255] {
        let refused = claims(0, 0b111, to);
        assert!(matches!(refused, LinkError::ConfigMember(found, _) if found.0 == to));
    }
    drop(listening);
    assert!(links.recv_timeout(LONG).is_err(), "no link came");
}

#[test]
fn members_are_known_by_their_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let keys: Vec<(u8, Fingerprint)> = (0..)
        .zip([("zero", ED25519), ("one", P256), ("two", RSA)])
        .map(|(number, (name, kind))| (number, certify(directory, name, kind)))
        .collect();
    let of = |me: u8, name| certified(directory, name, (GROUP, me), &keys).unwrap();
    let (listening, links) = listen(of(1, "one"));
    for (me, name) in [(0, "zero"), (2, "two")] {
        let link = reach(&listening, &of(me, name), 1).unwrap();
        assert_eq!(links.recv_timeout(LONG).unwrap().member(), MemberId(me));
        drop(link);
    }
    // Member 0 as member 2 sees the group: with the keys of both exchanged.
    let exchanged = [(0, keys[2].1), (1, keys[1].1), (2, keys[0].1)];
    let liar = certified(directory, "zero", (GROUP, 2), &exchanged).unwrap();
    let refused = reach(&listening, &liar, 1).unwrap_err();
    assert!(matches!(refused, LinkError::PeerDenies(Denial::OtherKey)), "{refused}");
    // Another group, the same keys.
    let other = certified(directory, "zero", (GroupId([1; 16]), 0), &keys).unwrap();
    let refused = reach(&listening, &other, 1).unwrap_err();
    assert!(matches!(refused, LinkError::PeerRefusesKey), "{refused}");
    // A stranger's key, which the listener does not know; and a listener's that the dialer does not know.
    let stranger = certify(directory, "stranger", ED25519);
    let known = [(0, stranger), keys[1], keys[2]];
    let unknown = certified(directory, "stranger", (GROUP, 0), &known).unwrap();
    let refused = reach(&listening, &unknown, 1).unwrap_err();
    assert!(matches!(refused, LinkError::PeerRefusesKey), "{refused}");
    let unknown = certified(directory, "zero", (GROUP, 0), &[keys[0], (1, stranger), keys[2]]);
    let refused = reach(&listening, &unknown.unwrap(), 1).unwrap_err();
    assert!(matches!(refused, LinkError::PeerKey(key) if key == keys[1].1), "{refused}");
    // Who has the secret alone has no certificate.
    let refused = reach(&listening, &member(0), 1).unwrap_err();
    assert!(matches!(refused, LinkError::PeerTls(_)), "{refused}");
    drop(listening);
    assert!(links.recv_timeout(LONG).is_err(), "no link came");
}

#[test]
fn an_identity_that_cannot_be_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (zero, one) = (certify(directory, "zero", ED25519), certify(directory, "one", ED25519));
    let refused = |name, me, members: &[(u8, Fingerprint)]| {
        certified(directory, name, (GROUP, me), members).unwrap_err()
    };
    let twice = refused("zero", 0, &[(0, zero), (1, one), (2, one)]);
    assert!(matches!(twice, IdentityError::ConfigTwice(MemberId(1), MemberId(2))), "{twice}");
    let own = refused("zero", 0, &[(0, one), (1, zero)]);
    assert!(matches!(own, IdentityError::ConfigOwn { member: MemberId(0), .. }), "{own}");
    let own = refused("zero", 0, &[(1, zero)]);
    assert!(matches!(own, IdentityError::ConfigTwice(MemberId(0), MemberId(1))), "{own}");
    let unlisted = refused("zero", 0, &[(1, one)]);
    assert!(matches!(unlisted, IdentityError::ConfigMember(MemberId(0), _)), "{unlisted}");
    let beyond = refused("zero", 0, &[(0, zero), (8, one)]);
    assert!(matches!(beyond, IdentityError::ConfigMember(MemberId(8), _)), "{beyond}");
    let missing = refused("nobody", 0, &[(0, zero)]);
    assert!(missing.to_string().contains("nobody.pem"), "{missing}");
    std::fs::copy(directory.join("one.key"), directory.join("zero.key")).unwrap();
    let pair = refused("zero", 0, &[(0, zero), (1, one)]);
    assert!(matches!(pair, IdentityError::ConfigPair(_)), "{pair}");
}

#[test]
fn a_secret_is_read_from_a_file_with_or_without_a_line_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Identity::from_secret_file(GROUP, MemberId(0), ALL, &path)
    };
    for end in ["", "\n", "\r\n"] {
        let identity = read(&[SECRET, end.as_bytes()].concat()).unwrap();
        assert_eq!(identity.fingerprint(), member(0).fingerprint());
    }
    let short = read(b"fifteen bytes..\n").unwrap_err();
    assert!(matches!(short, IdentityError::ConfigSecretLen(15)), "{short}");
    let long = read(&[b'a'; 5000]).unwrap_err();
    assert!(matches!(long, IdentityError::ConfigSecretLen(5000)), "{long}");
    let shown = format!("{:?}", read(SECRET).unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn a_fingerprint_is_read_as_openssl_prints_it() {
    let directory = tempfile::tempdir().unwrap();
    let found = certify(directory.path(), "one", P256);
    let printed = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(directory.path().join("one.pem"))
        .output()
        .unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let (_, printed) = printed.trim().split_once('=').unwrap();
    assert_eq!(printed.parse::<Fingerprint>().unwrap(), found);
    assert_eq!(found.to_string().parse::<Fingerprint>().unwrap(), found);
    for text in ["", "5a", "zz", &found.to_string()[1..], &format!("{found}00")] {
        assert!(text.parse::<Fingerprint>().is_err(), "{text}");
    }
}
