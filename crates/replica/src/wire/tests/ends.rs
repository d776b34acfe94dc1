//! Two ends of a link, and ends that are not ours.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::names::{GroupId, MemberId, MemberSet};
use crate::wire::{
    Fingerprint, Identity, Link, LinkError, LinkOptions, Listener, Listening, dial, fingerprint_of,
};

pub(super) const GROUP: GroupId = GroupId([0x5a; 16]);
pub(super) const SECRET: &[u8] = b"a secret of thirty-two bytes ...";

/// Member `me` of three that share the secret.
pub(super) fn member(me: u8) -> Identity {
    Identity::from_secret(GROUP, MemberId(me), MemberSet(0b111), SECRET).unwrap()
}

/// A listener of `identity` on loopback, and the links that it gives away.
pub(super) fn listen(identity: Identity) -> (Listening, mpsc::Receiver<Link>) {
    listen_with(identity, LinkOptions::default())
}

pub(super) fn listen_with(
    identity: Identity,
    options: LinkOptions,
) -> (Listening, mpsc::Receiver<Link>) {
    let (links, taken) = mpsc::channel();
    let links = Mutex::new(links);
    let on_link = move |member, link: Link| {
        assert_eq!(link.member(), member);
        // A test may have ended.
        let _ = links.lock().unwrap().send(link);
    };
    let listening = Listener::bind("127.0.0.1:0").unwrap().run(identity, options, on_link);
    (listening.unwrap(), taken)
}

/// Dials `member` where `listening` listens.
pub(super) fn reach(
    listening: &Listening,
    identity: &Identity,
    member: u8,
) -> Result<Link, LinkError> {
    let address = listening.local_addr().to_string();
    match dial(&[address], identity, MemberId(member), &LinkOptions::default()) {
        Err(LinkError::Dial { source, .. }) => Err(*source),
        done => done,
    }
}

/// A link from member 0 to member 1: the two ends.
pub(super) fn pair() -> (Link, Link) {
    let (listening, links) = listen(member(1));
    let link = reach(&listening, &member(0), 1).unwrap();
    (link, links.recv_timeout(LONG).unwrap())
}

/// A certificate and its key, made by openssl.
pub(super) fn certify(directory: &Path, name: &str, kind: &[&str]) -> Fingerprint {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
        .args(kind)
        .args(["-keyout".as_ref(), directory.join(format!("{name}.key")).as_os_str()])
        .args(["-out".as_ref(), directory.join(format!("{name}.pem")).as_os_str()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fingerprint_of(&directory.join(format!("{name}.pem"))).unwrap()
}

pub(super) const ED25519: &[&str] = &["-newkey", "ed25519"];
pub(super) const P256: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
pub(super) const RSA: &[&str] = &["-newkey", "rsa:2048"];

/// What comes at all comes within this time.
pub(super) const LONG: Duration = Duration::from_secs(60);
