//! Remote procedure calls: whatever is written to a pipe, in whatever pieces, what is read from it
//! is whole fragments.

use std::time::Duration;

use smb::FileTime;
use smb::rpc::{Association, Host, Interface, SharedResource};

use crate::Input;

/// A byte for the pipe, then chunks: each is written, and some of the answers are read.
pub(crate) fn rpc(data: &[u8]) {
    let mut input = Input::new(data);
    let interface = match input.byte() & 3 {
        0 => Interface::Srvsvc,
        1 => Interface::Wkssvc,
        _ => Interface::Lsarpc,
    };
    let share = |name: &str| SharedResource {
        name: name.to_owned(),
        kind: SharedResource::DIRECTORY,
        comment: String::new(),
    };
    let host = Host {
        name: "FUZZ".to_owned(),
        comment: String::new(),
        caller: "user".to_owned(),
        shares: (0..100).map(|number| share(&format!("share-{number}"))).collect(),
        accounts: None,
        now: FileTime(0),
        uptime: Duration::ZERO,
    };
    let mut association = Association::new(interface);
    while !input.is_empty() {
        if association.write(input.chunk(), &host).is_err() {
            return;
        }
        let len = usize::from(input.u16()).max(1);
        let mut fragment = Vec::new();
        while let Some((piece, goes_on)) = association.read(len) {
            assert!(piece.len() <= len);
            fragment.extend_from_slice(&piece);
            if !goes_on {
                let len = u16::from_le_bytes([fragment[8], fragment[9]]);
                assert_eq!(usize::from(len), fragment.len());
                fragment.clear();
            }
        }
        assert!(fragment.is_empty(), "an answer ends");
    }
}
