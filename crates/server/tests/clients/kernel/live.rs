//! What cifs.ko said to ksmbd, said to a running server of ours over real sockets.
//!
//! The two servers draw different challenges, so the conversation goes on to the proof of the password and no further.

use std::time::Duration;

use server::{Running, Server, ServerConfig, ShareConfig, Users};
use smb::negotiate::{Capabilities, Dialect, NegotiateContext, SigningId};
use smb::{
    Command, Header, HeaderFlags, NegotiateResponse, NtStatus, SessionId, SessionSetupResponse,
};
use smbdirect::{DataTransfer, NegotiateResponse as SmbdResponse};

use super::wire::{From, Segment, segments};
use super::{LINUX_6_12, LINUX_7_2};
use crate::smb_direct::peer::Peer;

struct Fixture {
    _dir: tempfile::TempDir,
    running: Option<Running>,
    runtime: tokio::runtime::Runtime,
}

impl Fixture {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.rdma_listen = Some("127.0.0.1:0".parse().unwrap());
        config.shares.push(ShareConfig::new("dax", dir.path()));
        config.users = Users::with_passwords([("tester", "secret")]);
        let running = runtime.block_on(Server::start(config)).unwrap();
        Self { _dir: dir, running: Some(running), runtime }
    }

    fn dial(&self) -> Peer {
        Peer::dial(self.running.as_ref().unwrap().rdma_address().unwrap())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.shutdown());
        }
    }
}

/// The Sends of one end: each is a frame of its own in a segment of its own at the start (RFC 5041 §4.2:
/// 18 bytes of header behind the length, and four of CRC behind the pad).
fn sends(conversation: &[Segment], from: From) -> Vec<Vec<u8>> {
    let frames = conversation[2..].iter().filter(|segment| segment.from == from);
    frames
        .map(|segment| {
            let len = u16::from_be_bytes([segment.bytes[0], segment.bytes[1]]);
            segment.bytes[20..2 + usize::from(len)].to_vec()
        })
        .collect()
}

/// The next SMB2 message; ours come in one fragment at this stage.
fn answer(peer: &mut Peer) -> (Header, Vec<u8>) {
    loop {
        let raw = peer.next_raw();
        let (transfer, message) = DataTransfer::parse(&raw).unwrap();
        assert_eq!(transfer.remaining, 0);
        if !message.is_empty() {
            return (Header::parse(message).unwrap(), message.to_vec());
        }
    }
}

fn signing(response: &NegotiateResponse<'_>) -> Option<Vec<SigningId>> {
    response.contexts.iter().find_map(|context| match context {
        NegotiateContext::Signing(ids) => Some(ids.clone()),
        _ => None,
    })
}

#[test]
fn cifs_ko_is_answered_by_our_server_as_by_ksmbd_up_to_the_password() {
    let fixture = Fixture::start();
    for text in [LINUX_6_12, LINUX_7_2] {
        let mut conversation = segments(text);
        conversation.truncate(12);
        let ksmbd = sends(&conversation, From::Server);
        let mut client = sends(&conversation, From::Client).into_iter();
        let mut peer = fixture.dial();
        peer.post(&client.next().unwrap());
        let SmbdResponse::Accepted { offer, .. } = SmbdResponse::parse(&peer.next_raw()).unwrap()
        else {
            panic!("SMB Direct is refused");
        };
        assert!(offer.preferred_send_size <= 1364, "cifs.ko's receives are no longer");

        // 6.12 grants credits before it says anything.
        let mut next = || loop {
            let message = client.next().unwrap();
            if message.len() > DataTransfer::PAYLOAD_OFFSET {
                return message;
            }
            peer.post(&message);
        };
        let negotiate = next();
        let setup = next();
        let proof = next();

        peer.post(&negotiate);
        let (header, ours) = answer(&mut peer);
        assert_eq!((header.command, header.status), (Command::NEGOTIATE, NtStatus::SUCCESS));
        let theirs = &ksmbd[1][DataTransfer::PAYLOAD_OFFSET..];
        let theirs = NegotiateResponse::parse(theirs).unwrap();
        let ours = NegotiateResponse::parse(&ours).unwrap();
        assert_eq!((ours.dialect, theirs.dialect), (Dialect::SMB_3_1_1, Dialect::SMB_3_1_1));
        assert_eq!(signing(&ours), signing(&theirs), "the same algorithm is chosen");
        assert!(ours.capabilities.contains(Capabilities::LARGE_MTU));

        peer.post(&setup);
        let (header, challenge) = answer(&mut peer);
        assert_eq!(header.command, Command::SESSION_SETUP);
        assert_eq!(header.status, NtStatus::MORE_PROCESSING_REQUIRED);
        assert_ne!(header.session_id, SessionId(0));
        let token = SessionSetupResponse::parse(&challenge).unwrap().token;
        // cifs.ko sends NTLM without a wrapping and is answered so.
        assert_eq!(&token[..12], b"NTLMSSP\0\x02\0\0\0");

        // The session is ours, so the proof has to name it; it proves something of another challenge.
        let mut proof = proof;
        let at = DataTransfer::PAYLOAD_OFFSET + SESSION_AT;
        proof[at..at + 8].copy_from_slice(&header.session_id.0.to_le_bytes());
        peer.post(&proof);
        let (header, _) = answer(&mut peer);
        assert_eq!(header.status, NtStatus::LOGON_FAILURE);
        assert!(!header.flags.contains(HeaderFlags::SIGNED));
        peer.engine.disconnect(peer.qp);
        peer.engine.wait(Some(Duration::from_millis(1)));
    }
}

/// MS-SMB2 §2.2.1.2: where the session's name stands in a header.
const SESSION_AT: usize = 40;
