//! A start that fails, and what it leaves to the server that runs.

use std::net::SocketAddr;
use std::path::Path;

use tree::ShareOpenError;

use server::{ReloadError, Server, ServerConfig, ShareConfig, StartError, Users};
use smb::Guid;
use smb::create::{
    CreateRequestContext, CreateResponseContext, DurableRequestV2, OplockLevel, ShareAccess,
};

use crate::support::Wire;
use crate::support::crash::Writing;

fn is_granted_persistent(wire: &mut Wire, name: &str, guid: u8) -> bool {
    let create_guid = Guid([guid; 16]);
    let asked = DurableRequestV2 { timeout_ms: 0, persistent: true, create_guid };
    let opened = wire.open(name, |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.share_access = ShareAccess::empty();
        request.contexts.push(CreateRequestContext::DurableV2(asked));
    });
    opened
        .response()
        .contexts
        .iter()
        .any(|context| matches!(context, CreateResponseContext::DurableV2 { persistent: true, .. }))
}

fn config(listen: SocketAddr, share: &Path, opens: &Path) -> ServerConfig {
    let mut config = ServerConfig::new(listen);
    config.shares.push(ShareConfig::new("data", share));
    config.shares[0].persistent_opens = Some(opens.to_owned());
    config
}

#[test]
fn a_start_that_fails_takes_no_persistent_open_from_the_server_that_runs() {
    let server = Writing::start();
    let address = server.fixture.running.tcp_address();
    let mut client = server.fixture.client(1);
    assert!(is_granted_persistent(&mut client, "before", 1));
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let opens = server.log.path().join("opens");
    for (listen, rdma_listen) in [(address, None), (anywhere, Some(address))] {
        let second =
            ServerConfig { rdma_listen, ..config(listen, server.fixture.dir.path(), &opens) };
        let failed = server.fixture.runtime.block_on(Server::start(second));
        assert!(failed.is_err(), "the address is in use");
    }
    assert!(is_granted_persistent(&mut client, "after", 2), "its log is the one that is read");
    assert_eq!(server.crash().fixture.running.status().orphans, 2);
}

#[test]
fn a_share_that_cannot_be_exported_leaves_the_logs_of_the_others_as_they_are() {
    let (share, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let opens = log.path().join("opens");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut wanted = config("127.0.0.1:0".parse().unwrap(), share.path(), &opens);
    wanted.shares.push(ShareConfig::new("gone", share.path().join("gone")));
    runtime.block_on(Server::start(wanted)).unwrap_err();
    assert!(!opens.exists());
}

#[test]
fn a_file_with_secrets_in_a_share_is_refused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(two.path().join("below")).unwrap();
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(two.path().join("below"), &link).unwrap();
    let read_from = elsewhere.path().join("users");
    std::os::unix::fs::symlink(one.path().join("users"), &read_from).unwrap();
    std::fs::write(one.path().join("users"), "").unwrap();
    let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shares = |opens: &Path| {
        let mut config = config(anywhere, one.path(), opens);
        config.shares.push(ShareConfig::new("two", two.path()));
        config
    };
    let refuses = |path: &Path, share: &str, config: ServerConfig| {
        let refused = runtime.block_on(Server::start(config)).unwrap_err();
        assert!(
            matches!(&refused, StartError::ConfigShare(ShareOpenError::ConfigPrivateFile { path: of, share: by })
                if of == path && by == share),
            "{}: {refused}",
            path.display()
        );
    };
    // In its own share, in another one, and where a link leads to.
    for (opens, share) in [
        (one.path().join("opens"), "data"),
        (two.path().join("below/opens"), "two"),
        (link.join("opens"), "two"),
    ] {
        refuses(&opens, share, shares(&opens));
        assert!(!opens.exists());
    }
    let opens = log.path().join("opens");
    for users in [one.path().join("users"), read_from] {
        let with = ServerConfig { users: Users::default().kept_in(&users), ..shares(&opens) };
        refuses(&users, "data", with);
    }
    let capture = one.path().join("capture");
    let with = ServerConfig { rdma_capture: Some(capture.clone()), ..shares(&opens) };
    refuses(&capture, "data", with);
    let running = runtime.block_on(Server::start(shares(&opens))).unwrap();
    // As at the start, so later.
    let more = ShareConfig::new("more", log.path());
    let wanted = [shares(&opens).shares, vec![more]].concat();
    let refused = runtime.block_on(running.reload(Users::default(), wanted)).unwrap_err();
    assert!(matches!(refused, ReloadError::ConfigShare(ShareOpenError::ConfigPrivateFile { .. })));
}

#[test]
fn a_share_whose_directory_was_moved_is_named_when_shares_are_read_again() {
    let (top, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (share, opens) = (top.path().join("share"), log.path().join("opens"));
    std::fs::create_dir(&share).unwrap();
    let wanted = config("127.0.0.1:0".parse().unwrap(), &share, &opens);
    let shares = wanted.shares.clone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(Server::start(wanted)).unwrap();
    let moved =
        || runtime.block_on(running.reload(Users::default(), shares.clone())).unwrap().moved;
    assert!(moved().is_empty());
    std::fs::rename(&share, top.path().join("elsewhere")).unwrap();
    assert_eq!(moved(), ["data"]);
    std::fs::create_dir(&share).unwrap();
    assert_eq!(moved(), ["data"], "the other directory is not served");
}
