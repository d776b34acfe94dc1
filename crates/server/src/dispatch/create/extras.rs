//! What of a CREATE counts when it opens nothing: it takes an open back, or asks again for an answer.

use smb::create::{CreateRequest, CreateRequestContext, Lease, OplockLevel};

use super::wish::PushWish;

/// What of a request counts when nothing is opened.
#[derive(Clone, Debug)]
pub(super) struct Extras {
    pub(super) name: String,
    pub(super) oplock_level: OplockLevel,
    pub(super) lease: Option<Lease>,
    pub(super) wants_disk_id: bool,
    pub(super) push: Option<PushWish>,
}

impl Extras {
    pub(super) fn of(request: &CreateRequest<'_>) -> Self {
        let mut extras = Self {
            name: request.name.to_string(),
            oplock_level: request.oplock_level,
            lease: None,
            wants_disk_id: false,
            push: None,
        };
        for context in &request.contexts {
            match context {
                CreateRequestContext::Lease(lease) => extras.lease = Some(*lease),
                CreateRequestContext::QueryOnDiskId => extras.wants_disk_id = true,
                CreateRequestContext::Push(asked) => extras.push = Some(PushWish::Asked(*asked)),
                CreateRequestContext::PushUnknownVersion(_) => {
                    extras.push = Some(PushWish::UnknownVersion);
                }
                _ => {}
            }
        }
        extras
    }
}
