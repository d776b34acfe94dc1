//! What a CREATE is, before anything is opened: one that opens, or one that asks for what was opened before.
//!
//! Spec: MS-SMB2 §3.3.5.9, §3.3.5.9.10, §3.3.5.9.12.

use std::sync::Arc;

use smb::create::{CreateAction, CreateRequest};
use smb::{HeaderFlags, NtStatus};

use super::durable::{Back, Durability};
use super::extras::Extras;
use super::wish::Wish;
use crate::access::Tree;
use crate::dispatch::call::Call;
use crate::dispatch::frame::malformed;
use crate::state::creates::{Begun, CreateKey, Reservation};
use crate::state::open::Origin;
use crate::state::{Hold, Open, Resource};

/// What a CREATE is.
pub(super) enum Admitted {
    /// It opens.
    New(Box<Admission>),
    /// It asks for an open whose connection was lost.
    Back(Arc<Tree>, Back, Extras),
    /// It was sent before, and opened this.
    Again(Arc<Tree>, Arc<Open>, Durability, Extras),
}

/// A CREATE that may open what it names, as far as the request alone says.
pub(super) struct Admission {
    pub(super) tree: Arc<Tree>,
    pub(super) share: Arc<tree::Share>,
    pub(super) asked: Durability,
    pub(super) wish: Arc<Wish>,
    /// The descriptors that it may need, until its open has them.
    pub(super) place: Option<Hold>,
    /// Its place before copies of it.
    pub(super) reservation: Option<Reservation<Open>>,
}

/// Checks a request.
pub(super) fn admit(call: &Call) -> Result<Admitted, NtStatus> {
    let tree = call.asker().tree()?;
    if call.session().is_unnamed() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let request = CreateRequest::parse(call.pdu()).map_err(malformed)?;
    let share = tree.share().cloned().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let client = call.link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?;
    let asked = Durability::check(&request.contexts, client.dialect)?;
    if let Durability::Back(back) = asked {
        return Ok(Admitted::Back(tree, back, Extras::of(&request)));
    }
    let mut reservation = None;
    if let Some(key) = origin(call, asked, CreateAction::OPENED)?.key() {
        match begin(call, key)? {
            Begun::First(first) => {
                // Whoever loses this connection and has another asks again there, and is told to
                // wait until it is known what came of this.
                call.pending.outlive();
                reservation = Some(first);
            }
            Begun::Opened(open) => {
                return Ok(Admitted::Again(tree, open, asked, Extras::of(&request)));
            }
            Begun::UnderWay => return Err(NtStatus::FILE_NOT_AVAILABLE),
        }
    }
    let serial = call.core.files.next_serial();
    let identity = &call.session().identity;
    let wish = Arc::new(Wish::check(&request, &tree, client, identity, serial)?);
    let place = call.session().account.try_take(Resource::Opens, wish.descriptors());
    let place = Some(place.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?);
    Ok(Admitted::New(Box::new(Admission { tree, share, asked, wish, place, reservation })))
}

/// Where an open comes from.
pub(super) fn origin(
    call: &Call,
    asked: Durability,
    action: CreateAction,
) -> Result<Origin, NtStatus> {
    let client = call.link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?.client_guid;
    let user = call.session().identity.clone();
    Ok(Origin { user, client, create_guid: asked.create_guid(), action })
}

// MS-SMB2 §3.3.5.9.10: without the replay flag a GUID in use is refused.
fn begin(call: &Call, key: CreateKey) -> Result<Begun<Open>, NtStatus> {
    let begun = call.core.files.creates.begin(key);
    let replays = call.header.flags.contains(HeaderFlags::REPLAY);
    if !replays && !matches!(begun, Begun::First(_)) {
        return Err(NtStatus::DUPLICATE_OBJECTID);
    }
    Ok(begun)
}
