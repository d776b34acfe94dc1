//! Authentication: the token formats, the server against any client, the client against any
//! server.

use std::sync::Arc;

use smb::FileTime;
use smb::auth::kerberos::{
    self, KerberosAcceptor, KerberosFreshness, KerberosService, Keytab, Principal,
};
use smb::auth::ntlm::{
    AcceptorConfig, AuthenticateRepr, AvId, AvPairs, Freshness, NegotiateRepr, NtlmFlags,
};
use smb::auth::spnego::{NegTokenInit, NegTokenResp};
use smb::auth::{
    Accept, Acceptor, ClientFreshness, IdentityKind, Initiate, Initiator, NtlmInitiator,
    SpnegoAcceptor, UserList,
};

use crate::Input;

/// One token, taken for each kind there is.
pub(crate) fn tokens(data: &[u8]) {
    if let Ok(init) = NegTokenInit::parse(data) {
        assert!(init.mech_list.len() <= data.len());
    }
    if let Ok(resp) = NegTokenResp::parse(data) {
        assert_eq!(NegTokenResp::parse(&resp.emit()), Ok(resp));
    }
    if let Ok(negotiate) = NegotiateRepr::parse(data) {
        let _ = negotiate.flags.contains(NtlmFlags::all());
    }
    if let Ok(message) = AuthenticateRepr::parse(data) {
        // UTF-16 grows by half at most when it becomes UTF-8.
        assert!(message.user.len() <= 2 * data.len() && message.domain.len() <= 2 * data.len());
    }
    if let Ok(pairs) = AvPairs::parse(data) {
        let _ = (pairs.find(AvId::TIMESTAMP), pairs.announces_mic());
    }
}

/// One byte for what the server allows, then a client's tokens. Nobody can guess the password.
pub(crate) fn acceptor(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let mut config = AcceptorConfig::new("landfast");
    config.allow_anonymous = choice & 1 != 0;
    config.allow_guests = choice & 2 != 0;
    let mut users = UserList::new();
    users.add_password("user", "a password no fuzzer finds");
    let fresh = Freshness { challenge: *b"fuzzfuzz", now_filetime: 133_000_000_000_000_000 };
    let mut acceptor = SpnegoAcceptor::new(Arc::new(config), Arc::new(users), fresh);
    let mut ended = false;
    while !input.is_empty() {
        match acceptor.step(input.chunk()) {
            Accept::Continue(token) => {
                assert!(!ended && token.len() < 4096);
            }
            Accept::Done(accepted) => {
                assert!(!ended);
                match accepted.identity.kind {
                    IdentityKind::User => panic!("someone came in without the password"),
                    IdentityKind::Guest => assert!(choice & 2 != 0),
                    IdentityKind::Anonymous => assert!(choice & 1 != 0),
                }
                assert!(accepted.session_key.is_none(), "they can neither sign nor encrypt");
                ended = true;
            }
            Accept::Denied(_) => ended = true,
        }
    }
}

/// One byte for what it is: a keytab, the inside of a ticket or an authenticator, or a client's token for a
/// server whose key nobody can guess.
pub(crate) fn kerberos(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() & 3 {
        0 => {
            let Ok(keytab) = Keytab::parse(input.rest()) else { return };
            assert!(keytab.entries.len() <= data.len() / 20, "an entry has more than 20 bytes");
            for entry in &keytab.entries {
                let shown = entry.principal.to_string();
                if let Ok(principal) = Principal::parse(&shown) {
                    assert_eq!(principal.to_string(), shown);
                }
            }
        }
        1 => kerberos::look_inside(input.rest()),
        _ => {
            let keytab = Keytab::parse(&KEYTAB).expect("it is one");
            let fresh = KerberosFreshness {
                now: FileTime(134_000_000_000_000_000),
                confounder: [1; 16],
                subkey: [2; 32].into(),
                sequence: 3,
            };
            let users = UserList::new();
            let service = Arc::new(KerberosService::new());
            let kerberos =
                KerberosAcceptor::new(service, Arc::new(keytab), Arc::new(users.clone()), fresh);
            let fresh = Freshness { challenge: *b"fuzzfuzz", now_filetime: 0 };
            let config = Arc::new(AcceptorConfig::new("landfast"));
            let mut acceptor =
                SpnegoAcceptor::new(config, Arc::new(users), fresh).with_kerberos(kerberos);
            while !input.is_empty() {
                let accept = acceptor.step(input.chunk());
                assert!(!matches!(accept, Accept::Done(_)), "someone came in without a key");
            }
        }
    }
}

/// cifs/f@R, version 1, aes256-cts-hmac-sha1-96.
const KEYTAB: [u8; 65] = {
    let mut keytab = [0x6b; 65];
    let head = *b"\x05\x02\x00\x00\x00\x3b\x00\x02\x00\x01R\x00\x04cifs\x00\x01f\x00\x00\x00\x01\x00\x00\x00\x00\x01\x00\x12\x00\x20";
    let mut at = 0;
    while at < head.len() {
        keytab[at] = head[at];
        at += 1;
    }
    keytab
};

/// A server's tokens.
pub(crate) fn initiator(data: &[u8]) {
    let mut input = Input::new(data);
    let fresh = ClientFreshness::new(&[7; 24], 0);
    let initiator = NtlmInitiator::with_password("user", "domain", "password", "server", fresh);
    let mut initiator = initiator.expect("NTLM starts with any password");
    if !matches!(initiator.step(None), Ok(Initiate::Send(_))) {
        panic!("the first token needs no server");
    }
    for _ in 0..4 {
        if input.is_empty() || initiator.step(Some(input.chunk())).is_err() {
            break;
        }
        let _ = initiator.session_key();
    }
}
