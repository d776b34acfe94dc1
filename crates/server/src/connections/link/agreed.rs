//! What NEGOTIATE settles for a connection.
//!
//! Spec: MS-SMB2 §3.3.5.4.

use smb::crypto::{Cipher, SigningAlgorithm};
use smb::negotiate::{Capabilities, Dialect, SecurityMode};

/// What NEGOTIATE settled.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) dialect: Dialect,
    pub(crate) client_guid: [u8; 16],
    pub(crate) client_capabilities: Capabilities,
    pub(crate) client_security_mode: SecurityMode,
    /// What VALIDATE_NEGOTIATE_INFO compares and repeats.
    pub(crate) server_capabilities: Capabilities,
    pub(crate) server_security_mode: SecurityMode,
    pub(crate) signing: SigningAlgorithm,
    pub(crate) cipher: Option<Cipher>,
    /// The SMB3 POSIX extensions.
    pub(crate) posix: bool,
}

impl Agreed {
    /// Whether one request may take several credits: 2.1 and later.
    pub(crate) fn is_multi_credit(&self) -> bool {
        self.dialect >= Dialect::SMB_2_1
    }

    pub(crate) fn is_smb3(&self) -> bool {
        self.dialect >= Dialect::SMB_3_0
    }
}
