//! What a CREATE says of handles that outlive their connection: asks for one, or for one back.
//!
//! | context | with | is |
//! |---|---|---|
//! | DHnC | DH2Q or DH2C | refused |
//! | DH2C | any other of these | refused |
//! | DHnQ | DH2Q or DH2C | refused |
//! | DHnC | DHnQ | DHnC alone |
//!
//! Spec: MS-SMB2 §3.3.5.9.6, §3.3.5.9.7, §3.3.5.9.10, §3.3.5.9.12.

use std::time::Duration;

use smb::create::{CreateRequestContext, CreateResponseContext, DurableRequestV2};
use smb::negotiate::Dialect;
use smb::{FileId, NtStatus};

use crate::limits::{DURABLE_TIMEOUT, DURABLE_TIMEOUT_MAX};
use crate::state::caching::Caching;
use crate::state::lease::Granted;
use crate::state::open::Durable;

/// What a CREATE says of durability.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Durability {
    Nothing,
    /// DHnQ.
    V1,
    /// DH2Q.
    V2(DurableRequestV2),
    /// DHnC, DH2C: nothing else of the request counts but the lease and, with it, the name.
    Back(Back),
}

/// Which handle is wanted back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Back {
    pub(super) file_id: FileId,
    /// Version 1 names none, and takes any.
    pub(super) create_guid: Option<[u8; 16]>,
    pub(super) persistent: bool,
}

impl Durability {
    pub(super) fn check(
        contexts: &[CreateRequestContext<'_>],
        dialect: Dialect,
    ) -> Result<Self, NtStatus> {
        let (mut v1, mut v2, mut back, mut back_v2) = (false, None, None, None);
        for context in contexts {
            match context {
                CreateRequestContext::Durable => v1 = true,
                CreateRequestContext::DurableReconnect(file_id) => back = Some(*file_id),
                // MS-SMB2 §3.3.5.9: contexts of dialects the connection does not speak are ignored.
                CreateRequestContext::DurableV2(asked) if dialect >= Dialect::SMB_3_0 => {
                    v2 = Some(*asked);
                }
                CreateRequestContext::DurableReconnectV2(asked) if dialect >= Dialect::SMB_3_0 => {
                    back_v2 = Some(*asked);
                }
                _ => {}
            }
        }
        let has_v2 = v2.is_some() || back_v2.is_some();
        let only_one_v2 = v2.is_none() || back_v2.is_none();
        if has_v2 && (v1 || back.is_some() || !only_one_v2) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(match (back, back_v2, v2) {
            (Some(file_id), ..) => {
                Self::Back(Back { file_id, create_guid: None, persistent: false })
            }
            (_, Some(asked), _) => Self::Back(Back {
                file_id: asked.file_id,
                create_guid: Some(asked.create_guid.0),
                persistent: asked.persistent,
            }),
            (_, _, Some(asked)) => Self::V2(asked),
            _ if v1 => Self::V1,
            _ => Self::Nothing,
        })
    }

    /// The GUID by which a copy of the request is known, zeros for none.
    pub(super) fn create_guid(self) -> [u8; 16] {
        match self {
            Self::V2(asked) => asked.create_guid.0,
            _ => [0; 16],
        }
    }

    /// What is granted to an open that got this caching: durability takes cached handles.
    pub(super) fn grant(self, granted: Option<Granted>, keeps: bool) -> Option<Durable> {
        let caches = granted.is_some_and(|granted| granted.caching.contains(Caching::HANDLE));
        match self {
            Self::V1 if caches => Some(Durable { timeout: DURABLE_TIMEOUT, persistent: false }),
            Self::V2(asked) if asked.persistent && keeps => {
                Some(Durable { timeout: timeout(asked.timeout_ms), persistent: true })
            }
            Self::V2(asked) if caches => {
                Some(Durable { timeout: timeout(asked.timeout_ms), persistent: false })
            }
            _ => None,
        }
    }

    /// How the client is told.
    pub(super) fn context(self, durable: Durable) -> Option<CreateResponseContext<'static>> {
        let timeout_ms = u32::try_from(durable.timeout.as_millis()).unwrap_or(u32::MAX);
        match self {
            Self::V1 => Some(CreateResponseContext::Durable),
            Self::V2(_) => {
                let persistent = durable.persistent;
                Some(CreateResponseContext::DurableV2 { timeout_ms, persistent })
            }
            Self::Nothing | Self::Back(_) => None,
        }
    }
}

fn timeout(asked_ms: u32) -> Duration {
    match asked_ms {
        0 => DURABLE_TIMEOUT,
        asked => Duration::from_millis(u64::from(asked)).min(DURABLE_TIMEOUT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use smb::Guid;
    use smb::create::DurableReconnectV2;

    use super::*;

    const ID: FileId = FileId { persistent: 1, volatile: 2 };

    fn v2(timeout_ms: u32) -> DurableRequestV2 {
        DurableRequestV2 { timeout_ms, persistent: false, create_guid: Guid([3; 16]) }
    }

    #[test]
    fn contexts_that_contradict_each_other_are_refused() {
        let (ask, back) =
            (CreateRequestContext::Durable, CreateRequestContext::DurableReconnect(ID));
        let ask_v2 = CreateRequestContext::DurableV2(v2(0));
        let again =
            DurableReconnectV2 { file_id: ID, create_guid: Guid([3; 16]), persistent: false };
        let back_v2 = CreateRequestContext::DurableReconnectV2(again);
        let check = |contexts: &[&CreateRequestContext<'static>]| {
            let contexts: Vec<_> = contexts.iter().map(|context| (*context).clone()).collect();
            Durability::check(&contexts, Dialect::SMB_3_1_1)
        };
        for pair in [[&ask, &ask_v2], [&ask, &back_v2], [&back, &ask_v2], [&back, &back_v2]] {
            assert_eq!(check(&pair), Err(NtStatus::INVALID_PARAMETER));
        }
        assert_eq!(check(&[&ask_v2, &back_v2]), Err(NtStatus::INVALID_PARAMETER));
        assert!(matches!(check(&[&ask, &back]), Ok(Durability::Back(_))));
        assert_eq!(check(&[&ask]), Ok(Durability::V1));
        assert_eq!(Durability::check(&[ask_v2], Dialect::SMB_2_1), Ok(Durability::Nothing));
    }

    #[test]
    fn durability_takes_cached_handles_and_ends_in_five_minutes() {
        let granted = |bits| {
            let flavor = crate::state::caching::Flavor::LeaseV2;
            Some(Granted { caching: Caching(bits), epoch: 0, breaking: false, flavor })
        };
        assert_eq!(Durability::V1.grant(granted(5), true), None);
        assert!(Durability::V1.grant(granted(3), false).is_some());
        let asks = Durability::V2(v2(u32::MAX));
        assert_eq!(asks.grant(granted(7), false).unwrap().timeout, DURABLE_TIMEOUT_MAX);
        assert_eq!(asks.grant(None, true), None);
        let persistent = DurableRequestV2 { persistent: true, ..v2(1) };
        let asks = Durability::V2(persistent);
        assert_eq!(asks.grant(None, false), None, "not on this share");
        assert!(asks.grant(None, true).unwrap().persistent);
        assert!(!asks.grant(granted(7), false).unwrap().persistent);
    }
}
