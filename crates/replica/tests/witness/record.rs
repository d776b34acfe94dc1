//! What the record of a group takes and refuses.

use std::process::Command;

use replica::witness::etcd::{Etcd, EtcdOptions, EtcdTls};
use replica::witness::{Rule, Seat, Witness, WitnessError};
use replica::{GroupId, MemberId};

use crate::servers::Servers;
use crate::{GROUP, alone, changed, open, options};

#[test]
fn etcd_takes_what_may_follow_and_refuses_the_rest() {
    let servers = Servers::start(1);
    let witness = open(0, servers.endpoints());
    assert_eq!(witness.load().unwrap(), None);
    assert!(!witness.propose(&alone(2, 0)).unwrap(), "a record that is gone is not made up");
    assert!(witness.propose(&alone(1, 0)).unwrap());
    assert!(witness.propose(&alone(1, 0)).unwrap(), "asked again");
    assert!(!witness.propose(&alone(1, 1)).unwrap(), "another has the epoch");
    let both = changed(alone(1, 0), 0b011);
    assert!(witness.propose(&both).unwrap());
    assert_eq!(open(1, servers.endpoints()).load().unwrap(), Some(both));
    assert!(!witness.propose(&alone(2, 2)).unwrap(), "it is not in sync");
    assert!(witness.propose(&alone(2, 1)).unwrap());
    assert!(!witness.propose(&changed(both, 0b001)).unwrap(), "its source is none any more");
    assert!(witness.record(Rule::ByForce, &alone(3, 2)).unwrap());
    assert_eq!(witness.load().unwrap(), Some(alone(3, 2)));
    let (text, _) = servers.raw().get(&options(0, Vec::new()).seat_key());
    assert_eq!(text, alone(3, 2).emit(&GROUP).into_bytes());
}

#[test]
fn groups_in_one_etcd_do_not_see_each_other() {
    let servers = Servers::start(1);
    let other = EtcdOptions { group: GroupId([1; 16]), ..options(0, servers.endpoints()) };
    let (one, other) = (open(0, servers.endpoints()), Etcd::open(other).unwrap());
    assert!(one.propose(&alone(1, 0)).unwrap());
    assert_eq!(other.load().unwrap(), None);
    assert!(other.propose(&alone(1, 3)).unwrap());
    assert_eq!(one.load().unwrap(), Some(alone(1, 0)));
}

#[test]
fn a_foreign_value_in_the_key_is_named_and_stays() {
    let servers = Servers::start(1);
    let witness = open(0, servers.endpoints());
    let (raw, key) = (servers.raw(), options(0, Vec::new()).seat_key());
    let sound = alone(1, 0).emit(&GROUP);
    let values = [
        (Vec::new(), "not written by Landfast"),
        (b"\xff\x00\xfe".to_vec(), "not written by Landfast"),
        (vec![b'x'; 1 << 20], "not written by Landfast"),
        (sound.replace("seat 1", "seat 2").into_bytes(), "version is 2"),
        (sound.replace("source 0", "source 4").into_bytes(), "damaged"),
        (alone(1, 0).emit(&GroupId([1; 16])).into_bytes(), "another group"),
        (format!("{sound}\n").into_bytes(), "damaged"),
    ];
    for (value, says) in values {
        raw.put(&key, &value);
        let answers = [
            witness.load().map(|_| ()),
            witness.propose(&alone(2, 0)).map(|_| ()),
            witness.record(Rule::ByForce, &alone(9, 0)).map(|_| ()),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert!(matches!(error, WitnessError::Foreign { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains(says) && said.contains(&key), "{said}");
        }
        assert_eq!(raw.get(&key).0, value);
    }
    raw.put(&key, sound);
    assert_eq!(witness.load().unwrap(), Some(alone(1, 0)), "an operator has put it right");
}

#[test]
fn only_who_has_the_rights_changes_the_record_and_a_wrong_password_is_named() {
    let servers = Servers::start(1);
    let (raw, prefix) = (servers.raw(), options(0, Vec::new()).prefix());
    for set_up in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "members"],
        &["role", "grant-permission", "members", "--prefix", "readwrite", &prefix],
        &["user", "add", "member:tide"],
        &["user", "grant-role", "member", "members"],
        &["user", "add", "stranger:tide"],
        &["auth", "enable"],
    ] {
        raw.run(set_up).unwrap();
    }
    let user = |name: &str, password: &str| {
        let user = Some((name.to_owned(), password.to_owned()));
        Etcd::open(EtcdOptions { user, ..options(0, servers.endpoints()) }).unwrap()
    };
    let member = user("member", "tide");
    assert!(member.propose(&alone(1, 0)).unwrap());
    let nobody = open(0, servers.endpoints());
    for (witness, says) in [
        (&user("member", "ebb"), "invalid user ID or password"),
        (&user("nobody", "tide"), "invalid user ID or password"),
        (&user("stranger", "tide"), "permission denied"),
        (&nobody, "user name is empty"),
    ] {
        let error = witness.propose(&alone(2, 0)).unwrap_err();
        assert!(matches!(error, WitnessError::Refused { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(says) && said.contains(&servers.endpoint(0)), "{said}");
        assert!(!said.contains("tide") && !said.contains("ebb"), "{said}");
    }
    // Rights that change make the member's token old; it gets a new one.
    let root = servers.raw().by("root:secret");
    root.run(&["role", "add", "others"]).unwrap();
    root.run(&["user", "grant-role", "member", "others"]).unwrap();
    assert!(member.propose(&changed(alone(1, 0), 0b11)).unwrap());
    root.run(&["role", "revoke-permission", "members", "--prefix", &prefix]).unwrap();
    let error = member.load().unwrap_err();
    assert!(matches!(error, WitnessError::Refused { .. }), "{error}");
}

/// Certificates in a directory: of an authority, of 127.0.0.1, and of a client; and of another authority.
fn certificates(directory: &std::path::Path) {
    let script = r#"
        set -e
        for ca in ca other; do
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=$ca \
                -keyout $ca.key -out $ca.pem
        done
        for name in server client; do
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$name \
                -keyout $name.key -out $name.csr
            printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > ext
            openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out $name.pem
        done
    "#;
    let made = Command::new("sh").args(["-c", script]).current_dir(directory).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn certificates_of_both_sides_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    let more = [
        "--cert-file".to_owned(),
        path("server.pem"),
        "--key-file".to_owned(),
        path("server.key"),
        "--client-cert-auth".to_owned(),
        "--trusted-ca-file".to_owned(),
        path("ca.pem"),
    ];
    let servers = Servers::start_with(1, "https", &more);
    let identity = Some((read("client.pem"), read("client.key")));
    let with = |authority: &str, identity: Option<(Vec<u8>, Vec<u8>)>| {
        let tls = Some(EtcdTls { authority: read(authority), identity });
        Etcd::open(EtcdOptions { tls, ..options(0, servers.endpoints()) }).unwrap()
    };
    assert!(with("ca.pem", identity.clone()).propose(&alone(1, 0)).unwrap());
    for (witness, says) in
        [(with("other.pem", identity), "certificate"), (with("ca.pem", None), "certificate")]
    {
        let said = witness.load().unwrap_err().to_string();
        assert!(
            said.to_lowercase().contains(says) && said.contains(&servers.endpoint(0)),
            "{said}"
        );
    }
    let plain = servers.endpoints()[0].replace("https", "http");
    let said = open(0, vec![plain.clone()]).load().unwrap_err().to_string();
    assert!(said.contains(&plain), "{said}");
}

#[test]
fn a_seat_that_is_no_seat_is_never_recorded() {
    let servers = Servers::start(1);
    let witness = open(0, servers.endpoints());
    let unsound = Seat { source: MemberId(1), ..alone(1, 0) };
    assert!(!witness.propose(&unsound).unwrap());
    assert!(!witness.record(Rule::ByForce, &unsound).unwrap());
    assert_eq!(witness.load().unwrap(), None);
}
