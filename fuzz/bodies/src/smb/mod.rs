//! SMB 2 and 3: frames, commands, information, the push extension, authentication, cryptography.

pub(crate) mod auth;
pub(crate) mod commands;
pub(crate) mod frame;
pub(crate) mod fsctl;
pub(crate) mod info;
pub(crate) mod push;
pub(crate) mod rpc;
pub(crate) mod sealing;

/// For a body that is parsed from a whole PDU and emitted behind its header.
macro_rules! stable_pdu {
    ($message:ty, $pdu:expr) => {
        if let Ok(message) = <$message>::parse($pdu) {
            let mut again = $pdu[..::smb::Header::LEN].to_vec();
            message.emit(&mut again);
            assert_eq!(<$message>::parse(&again).as_ref(), Ok(&message));
        }
    };
}

/// For a structure that is parsed from bytes of its own.
macro_rules! stable_bytes {
    ($structure:ty, $bytes:expr) => {
        if let Ok(structure) = <$structure>::parse($bytes) {
            let mut again = Vec::new();
            structure.emit(&mut again);
            assert_eq!(<$structure>::parse(&again).as_ref(), Ok(&structure));
        }
    };
}

pub(crate) use {stable_bytes, stable_pdu};
