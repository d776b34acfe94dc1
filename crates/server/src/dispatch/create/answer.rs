//! What a CREATE answers.
//!
//! Spec: MS-SMB2 §2.2.14.

use std::sync::Arc;

use smb::create::{
    CreateAction, CreateResponse, CreateResponseContext, Lease, LeaseKey, LeaseVersion, OplockLevel,
};
use smb::info::FileAttributes;
use smb::{FileId, FileTime, NtStatus};
use tree::{InlineIo, Metadata};

use super::admit::Admission;
use super::wish::Caching as WantedCaching;
use crate::dispatch::call::Call;
use crate::dispatch::frame::Outcome;
use crate::dispatch::{levels, posix, push};
use crate::state::Open;
use crate::state::caching::{Caching, Flavor};
use crate::state::lease::Granted;
use crate::state::open::Durable;

/// Answers a CREATE that has opened.
pub(super) fn answer(
    call: &Call,
    admission: &Admission,
    (open, metadata): (&Arc<Open>, &Metadata),
    (granted, durable): (Option<Granted>, Option<Durable>),
    out: &mut Vec<u8>,
) {
    let Admission { share, wish, .. } = admission;
    let mut contexts = Vec::new();
    let oplock_level = match (wish.caching, granted) {
        (WantedCaching::Lease { key, version, .. }, Some(granted)) => {
            contexts.push(lease_context(key, version, granted));
            OplockLevel::LEASE
        }
        _ => granted.map_or(OplockLevel::NONE, |granted| levels::to_level(granted.caching)),
    };
    contexts.extend(durable.into_iter().flat_map(|durable| admission.asked.context(durable)));
    if wish.wants_maximal_access {
        let access = wish.grant.maximal_access(metadata.attributes);
        let status = NtStatus::SUCCESS;
        contexts.push(CreateResponseContext::MaximalAccess { status, access });
    }
    if wish.wants_disk_id {
        let (file_id, volume_id) = (share.file_id(metadata.key), metadata.key.device);
        contexts.push(CreateResponseContext::OnDiskId { file_id, volume_id });
    }
    if wish.is_posix {
        contexts.push(CreateResponseContext::Posix(posix::facts(metadata)));
    }
    if let Some(asked) = &wish.push {
        let caching = granted.map_or(Caching::NONE, |granted| granted.caching);
        contexts.push(push::offer(call, open, asked, caching));
    }
    let file_id = FileId { persistent: open.serial.0, volatile: open.volatile };
    let action = open.origin.action;
    respond(Facts { oplock_level, action, metadata, file_id, contexts }, out);
}

/// Answers a CREATE whose path leads through a symbolic link: where to.
pub(super) async fn say_where_it_leads(
    call: &Call,
    admission: &Admission,
    out: &mut Vec<u8>,
) -> Outcome {
    let (share, path) = (Arc::clone(&admission.share), admission.wish.path.clone());
    let work = move || {
        let mut body = Vec::new();
        posix::stopped(&share, &path, &mut body).map(|status| (status, body))
    };
    let (status, body) = call.blocking(InlineIo::CachedReads, work).await??;
    out.extend_from_slice(&body);
    Ok(status)
}

/// What an answer says.
pub(super) struct Facts<'a> {
    pub(super) oplock_level: OplockLevel,
    pub(super) action: CreateAction,
    pub(super) metadata: &'a Metadata,
    pub(super) file_id: FileId,
    pub(super) contexts: Vec<CreateResponseContext<'static>>,
}

/// Writes an answer.
pub(super) fn respond(facts: Facts<'_>, out: &mut Vec<u8>) {
    let metadata = facts.metadata;
    let response = CreateResponse {
        oplock_level: facts.oplock_level,
        reparse_point: metadata.posix.is_link,
        action: facts.action,
        creation_time: FileTime(metadata.creation),
        last_access_time: FileTime(metadata.access),
        last_write_time: FileTime(metadata.write),
        change_time: FileTime(metadata.change),
        allocation_size: metadata.allocation,
        end_of_file: metadata.size,
        attributes: FileAttributes::from_bits_retain(metadata.attributes.0),
        file_id: facts.file_id,
        contexts: facts.contexts,
    };
    response.emit(out);
}

/// The context of a lease. Its layout is that of the lease, which the first of its opens chose.
pub(super) fn lease_context(
    key: [u8; 16],
    asked: LeaseVersion,
    granted: Granted,
) -> CreateResponseContext<'static> {
    let parent = match asked {
        LeaseVersion::V1 => None,
        LeaseVersion::V2 { parent, .. } => parent,
    };
    let version = match granted.flavor {
        Flavor::LeaseV2 => LeaseVersion::V2 { parent, epoch: granted.epoch },
        Flavor::LeaseV1 | Flavor::Oplock => LeaseVersion::V1,
    };
    CreateResponseContext::Lease(Lease {
        key: LeaseKey(key),
        state: levels::to_state(granted.caching),
        break_in_progress: granted.breaking,
        version,
    })
}
