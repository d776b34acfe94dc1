//! One leg of an authentication, and what came of it.

use std::sync::Arc;

use smb::negotiate::SecurityMode;
use smb::{NtStatus, SessionFlags};

use crate::connections::Later;
use crate::connections::work::Work;
use crate::dispatch::binding::Signatory;
use crate::dispatch::connection::Authentication;

/// What one leg came to.
pub(super) struct Leg {
    pub(super) status: NtStatus,
    pub(super) session_id: u64,
    pub(super) flags: SessionFlags,
    pub(super) token: Vec<u8>,
    /// Signs this answer.
    pub(super) signer: Option<Signatory>,
    /// The preauthentication hash of an authentication that goes on.
    pub(super) continues: bool,
    /// The answer waits until this is settled.
    pub(super) replaces: Option<Arc<Work>>,
}

impl Leg {
    pub(super) fn refused(status: NtStatus, session_id: u64) -> Self {
        let (flags, token) = (SessionFlags::empty(), Vec::new());
        Self { status, session_id, flags, token, signer: None, continues: false, replaces: None }
    }

    pub(super) fn signed_by(self, signer: Option<Signatory>) -> Self {
        Self { signer, ..self }
    }
}

/// What comes of a request.
pub(super) enum Progress {
    Answer(Leg),
    /// The answer is held back.
    Later(Box<(Later, Ending)>),
}

impl From<Leg> for Progress {
    fn from(leg: Leg) -> Self {
        Self::Answer(leg)
    }
}

/// An authentication whose last token has come.
pub(super) struct Ending {
    pub(super) session_id: u64,
    pub(super) going: Authentication,
    pub(super) security_mode: SecurityMode,
    pub(super) previous: u64,
    /// Until there is a key of the connection's own.
    pub(super) signer: Option<Signatory>,
}
